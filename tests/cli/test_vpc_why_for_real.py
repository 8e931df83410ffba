"""`kubectl provision vpc why` on a real API server, by tenants and by administrators; and what it costs, counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import VPC, DPUNetwork, Server, VPCAttachment
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.cluster.transport import Transport
from tests.cli.tenants import Leadership, Person, blue, person_with, until_listed
from tests.network.control.conftest import controller_account, leadership, site
from tests.network.control.objects import attachment, group, rule, tenants_server, vpc
from tests.network.control.site import Site

__all__ = ["blue", "controller_account", "leadership", "site"]


@pytest.fixture
def viewer(cluster: Cluster, control_plane: ControlPlane, tmp_path: Path, blue: str) -> Person:
    """A tenant who may only look."""
    return person_with(cluster, control_plane, tmp_path, blue, "view")


@pytest.fixture
def administrator(control_plane: ControlPlane, cluster: Cluster, blue: str) -> Person:
    until_listed(cluster, None, Server, VPCAttachment)
    return Person(control_plane.kubeconfig, blue)


def words(told: str) -> str:
    """Without its line breaks."""
    return " ".join(told.split())


def test_a_tenant_is_told_the_reason_and_an_administrator_what_is_behind_it(
    site: Site, leadership: Leadership, viewer: Person, administrator: Person, blue: str
) -> None:
    green = site.tenant("green")
    theirs, mine = site.machine(1, green), site.machine(2, blue, vtepAddress=None)
    leadership()
    site.add(attachment(blue, "theirs", f"{theirs}-s"), attachment(blue, "mine", f"{mine}-s"))
    site.becomes(blue, "theirs", "False", "ServerNotAssigned")
    site.becomes(blue, "mine", "False", "NoVTEPAddress")
    told = words(viewer.done("why", "theirs"))
    assert f"{blue}/theirs is not enforced: ServerNotAssigned" in told
    assert "not seen Servers" in told
    assert "administrators see them, and more of the reason (ClusterRole provisioner-viewer)" in told
    assert green not in told
    assert f"{theirs}-s is assigned to namespace {green}" in words(administrator.done("why", "theirs"))
    assert f"{mine}-d: no address on the underlay" in words(administrator.done("why", f"{mine}-s"))
    assert "has its administrators set spec.dpu.vtepAddress" in words(viewer.done("why", "mine")).replace("have", "has")


def test_the_agents_word_and_the_generation_that_is_waited_for_are_told(
    site: Site,
    leadership: Leadership,
    administrator: Person,
    viewer: Person,
    blue: str,
    control_plane: ControlPlane,
    tmp_path: Path,
) -> None:
    machine = site.machine(1, blue)
    leadership()
    agent = site.agent(control_plane, tmp_path, machine)
    confirmed = site.confirm(agent, machine)
    site.add(attachment(blue, "a", f"{machine}-s"))
    site.becomes(blue, "a", "False", "WaitsForDPU")
    network = site.network(machine)
    assert network is not None
    wanted = network["metadata"]["generation"]
    assert f"has confirmed generation {confirmed} of {wanted}" in words(administrator.done("why", "a"))
    blame = {
        "type": "Applied",
        "status": "False",
        "reason": "UnderlayMTU",
        "message": "the underlay carries 1400 bytes",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"observedGeneration": confirmed, "conditions": [blame]}
    agent.apply_status(DPUNetwork, f"{machine}-d", status, manager="provisioner-dpu-agent")
    told = words(administrator.done("why", "a"))
    assert "UnderlayMTU: the underlay carries 1400 bytes" in told
    assert f"kubectl describe dpunet {machine}-d" in told
    found = json.loads(administrator.done("why", "a", "-o", "json"))
    assert (found["standing"], found["agentTrouble"]["reason"]) == ("Waits", "UnderlayMTU")
    assert "UnderlayMTU" not in viewer.done("why", "a")
    site.confirm(agent, machine)
    site.becomes(blue, "a", "True", "Enforced")
    assert f"{blue}/a is enforced: DPU {machine}-d has confirmed it" in words(viewer.done("why", "a"))


def test_a_server_that_is_not_attached_is_judged_for_who_may_see_it(
    site: Site, viewer: Person, administrator: Person, blue: str
) -> None:
    machine = site.machine(1, site.tenant("green"))
    said = administrator.refused("why", f"{machine}-s")
    assert f"there is no attachment {machine}-s in namespace {blue}" in said
    assert "if it were attached it would not be enforced: pf0 of Server" in said
    said = viewer.refused("why", f"{machine}-s")
    assert "if it is a server of yours: kubectl provision vpc attach" in said
    assert "nor a Server of that name" in administrator.refused("why", "nobody")


@pytest.fixture
def two(site: Site, blue: str) -> tuple[str, str]:
    """Two attachments with addresses; b lets in HTTPS alone. What the controllers would write is said."""
    site.add(group(blue, "web", rule(protocol="TCP", ports=["443"])))
    site.add(attachment(blue, "a", "s-a"), attachment(blue, "b", "s-b", securityGroupRefs=["web"]))
    for name, address in (("a", "10.1.0.3"), ("b", "10.1.0.5")):
        give(site, blue, name, address)
    return "a", "b"


def give(site: Site, namespace: str, name: str, address: str) -> None:
    status = {"addresses": [address]}
    site.cluster.apply_status(VPCAttachment, name, status, manager="provisioner-network", namespace=namespace)


def test_a_tenant_asks_what_passes_between_two_of_its_own(viewer: Person, two: tuple[str, str], blue: str) -> None:
    told = words(viewer.done("why", *two, "--port", "443"))
    assert told.startswith(f"{blue}/a to {blue}/b: TCP 443 passes")
    assert "rule 1 of SecurityGroup web (Ingress, priority 1000)" in told
    assert f"{blue}/b: TCP 22 does not pass" in words(viewer.done("why", *two, "--port", "22"))
    assert f"{blue}/b: ICMP does not pass" in words(viewer.done("why", *two, "--protocol", "icmp"))
    assert "some passes, and not everything" in words(viewer.done("why", *two))
    found = json.loads(viewer.done("why", *two, "--port", "443", "-o", "json"))
    assert (found["passes"], found["verdict"]) == ("All", "TCP 443 passes")
    assert "are the same attachment" in viewer.refused("why", "a", "s-a")
    assert viewer.run("why", "a", "--port", "443").exit_code == 2


def test_of_another_tenants_attachment_only_what_ones_own_vpc_says_is_told(
    site: Site, viewer: Person, administrator: Person, two: tuple[str, str], blue: str
) -> None:
    green = site.tenant("green")
    site.add(vpc(green, cidrs=["10.2.0.0/24"]), attachment(green, "theirs", "s-c"))
    give(site, green, "theirs", "10.2.0.3")
    told = words(viewer.done("why", "a", f"{green}/theirs"))
    assert f"nothing passes, as VPC {blue}/main names no VPC of namespace {green}" in told
    assert "NotPeers" in administrator.done("why", "a", f"{green}/theirs")
    name = {"peers": [{"namespace": green, "name": "main"}]}
    site.cluster.patch(of(VPC), "main", {"spec": name}, namespace=blue)
    told = words(viewer.done("why", "a", f"{green}/theirs"))
    assert f"what passes is also told by namespace {green}, which you may not read" in told
    assert "does not name VPC" in words(administrator.done("why", "a", f"{green}/theirs"))
    back = {"peers": [{"namespace": blue, "name": "main"}]}
    site.cluster.patch(of(VPC), "main", {"spec": back}, namespace=green)
    assert "everything passes" in administrator.done("why", "a", f"{green}/theirs")
    assert "no report" in viewer.refused("why", "a", f"{green}/theirs", "-o", "json")


# What it costs


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str, Any]]]:
    """Method, path and field selector of each request."""
    seen: list[tuple[str, str, Any]] = []
    real = Transport.request

    def request(self: Transport, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        seen.append((method, path, (arguments.get("query") or {}).get("fieldSelector")))
        return real(self, method, path, **arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Transport, "request", request)
        yield seen


def test_a_command_about_one_server_reads_what_concerns_it_and_lists_no_fleet(
    site: Site, administrator: Person, two: tuple[str, str], blue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.add(tenants_server(f"{site.name}-x", blue, 9))
    for number in range(20):
        site.add(attachment(blue, f"other-{number}", f"s-{number}"))
    site.add(attachment(blue, "of-x", f"{site.name}-x", securityGroupRefs=["web"], addresses=["10.1.0.9"]))
    site.cluster.apply_status(VPC, "main", {"vni": 10123}, manager="provisioner-network", namespace=blue)
    most = {
        ("why", "of-x"): 8,  # it, its VPC, a group, its server, its cards, and the claim of its address
        ("why", f"{site.name}-x"): 9,  # by another name: one list of that server's
        ("why", "a", "b"): 6,
        ("attach", "main", "new"): 4,
        ("quarantine", "a"): 3,
        ("release", "s-a/pf0"): 3,
        ("status", "main"): 2,
        ("status",): 1,
        ("detach", "a"): 3,
    }
    try:
        for command, bound in most.items():
            with counted(monkeypatch) as seen:
                administrator.done(*command)
            assert len(seen) <= bound, (command, seen)
            for method, path, selector in seen:
                is_list = method == "GET" and path.rpartition("/")[2] in ("servers", "dpus", "vpcattachments")
                assert not is_list or selector, (command, path, "a whole collection was listed")
    finally:
        site.cluster.delete(of(Server), f"{site.name}-x")
