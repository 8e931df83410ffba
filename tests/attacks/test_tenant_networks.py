"""What a stolen DPU and a tenant can see and do of tenant networks, each beside what the honest one can."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import (
    VPC,
    DPUNetwork,
    NetworkClaim,
    NetworkPool,
    SecurityGroup,
    Server,
    VPCAttachment,
)
from provisioner.api.machinery.errors import ProvisionerError, Refused
from provisioner.cli.service.informers import SharedInformers
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import SECRETS, of
from tests.inventory.site import eventually
from tests.network.control.conftest import controller_account, leadership, site
from tests.network.control.objects import attachment, group, vpc
from tests.network.control.site import Site
from tests.people import kubeconfig_of

__all__ = ["controller_account", "leadership", "site"]

Leadership = Callable[[], Callable[[], None]]
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def two_tenants(site: Site, leadership: Leadership) -> tuple[str, str, str, str]:
    """Namespaces blue and green, and a machine of each with an attachment."""
    blue, green = site.tenant("blue"), site.tenant("green")
    mine, theirs = site.machine(1, blue), site.machine(2, green)
    leadership()
    for tenant, machine in ((blue, mine), (green, theirs)):
        site.add(vpc(tenant), attachment(tenant, "a", f"{machine}-s"))
    for machine in (mine, theirs):
        eventually(lambda machine=machine: _ports(site, machine), "it is compiled")
    return blue, green, mine, theirs


def _ports(site: Site, machine: str) -> Any:
    return (site.network(machine) or {"spec": {}})["spec"].get("ports")


def refused_soon(act: Callable[[], object], *words: str) -> None:
    """Rights that were just given are in force a moment later: until then they refuse it, in other words."""
    told: list[str] = []

    def is_refused() -> bool:
        try:
            act()
        except Refused as error:
            told.append(str(error))
            return any(each in told[-1] for each in words)
        pytest.fail(f"it was not refused with {words}")

    eventually(is_refused, f"refused with {words}; {told[-1:]}")


# A stolen DPU


def test_a_dpu_reads_its_own_network_and_that_of_no_other(
    site: Site, control_plane: ControlPlane, tmp_path: Path, two_tenants: tuple[str, str, str, str]
) -> None:
    _, green, mine, theirs = two_tenants
    thief = site.agent(control_plane, tmp_path, mine)
    own = {"field_selector": f"metadata.name={mine}-d"}
    assert [each["metadata"]["name"] for each in thief.list(of(DPUNetwork), **own).items] == [f"{mine}-d"]
    version = thief.list(of(DPUNetwork), **own).resource_version
    with thief.watch(of(DPUNetwork), version, timeout_seconds=2, silence_seconds=10, **own) as stream:
        list(stream.lines())

    with pytest.raises(Refused):
        thief.get(of(DPUNetwork), f"{theirs}-d")
    with pytest.raises(Refused):
        thief.list(of(DPUNetwork))
    with pytest.raises(Refused):
        thief.list(of(DPUNetwork), field_selector=f"metadata.name={theirs}-d")
    for type_ in (of(VPC), of(VPCAttachment), of(SecurityGroup)):
        with pytest.raises(Refused):
            thief.list(type_, namespace=green)
    for type_ in (of(NetworkClaim), of(NetworkPool), of(Server), SECRETS):
        with pytest.raises(Refused):
            thief.list(type_)


def test_a_dpu_says_what_it_enforces_itself_and_nothing_else(
    site: Site, control_plane: ControlPlane, tmp_path: Path, two_tenants: tuple[str, str, str, str]
) -> None:
    blue, green, mine, theirs = two_tenants
    thief = site.agent(control_plane, tmp_path, mine)
    eventually(lambda: site.confirm(thief, mine) and site.ready(blue, "a") == ("True", "Enforced"), "it may")

    forged = {"observedGeneration": 99}
    with pytest.raises(Refused):
        thief.apply_status(DPUNetwork, f"{theirs}-d", forged, manager="provisioner-dpu-agent")
    for name in (f"{mine}-d", f"{theirs}-d"):
        with pytest.raises(Refused):
            thief.patch(of(DPUNetwork), name, {"spec": {"ports": []}})
        with pytest.raises(Refused):
            thief.delete(of(DPUNetwork), name)
    site.becomes(green, "a", "False", "WaitsForDPU")
    spec = (site.network(mine) or {})["spec"]
    thief.apply_status(DPUNetwork, f"{mine}-d", forged, manager="provisioner-dpu-agent")
    assert (site.network(mine) or {})["spec"] == spec, "a status carries no spec"


def test_a_dpu_with_too_many_rights_is_still_held_to_its_own(
    site: Site, cluster: Cluster, control_plane: ControlPlane, tmp_path: Path, two_tenants: tuple[str, str, str, str]
) -> None:
    """Such as by a binding for system:nodes that somebody made so that agents work."""
    _, _, mine, theirs = two_tenants
    thief = site.agent(control_plane, tmp_path, mine)
    name = f"{site.name}-wide"
    rules = [{"apiGroups": ["provisioner.dev"], "resources": ["dpunetworks", "dpunetworks/status"], "verbs": ["*"]}]
    subject = {"apiGroup": RBAC, "kind": "User", "name": f"system:node:{mine}-d"}
    for body in (
        {"kind": "ClusterRole", "rules": rules},
        {
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        },
    ):
        cluster.apply({"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}, **body}, manager="tests")
    refused_soon(
        lambda: thief.patch(
            of(DPUNetwork), f"{theirs}-d", {"status": {"observedGeneration": 9}}, subresource="status", dry_run=True
        ),
        "may not say what DPU",
    )
    for each in (f"{mine}-d", f"{theirs}-d"):
        refused_soon(
            lambda each=each: thief.patch(of(DPUNetwork), each, {"spec": {"ports": []}}, dry_run=True),
            "its spec is written by provisioner-network",
        )
        refused_soon(lambda each=each: thief.delete(of(DPUNetwork), each, dry_run=True), "may not write this")


def test_a_dpu_cannot_fill_its_object_so_that_it_could_not_be_told_to_isolate(
    site: Site, control_plane: ControlPlane, tmp_path: Path, two_tenants: tuple[str, str, str, str]
) -> None:
    _, _, mine, _ = two_tenants
    thief = site.agent(control_plane, tmp_path, mine)
    large = [
        {"type": f"T{n}", "status": "True", "reason": "R", "message": "x" * 30000,
         "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for n in range(8)
    ]  # fmt: skip
    refused_soon(lambda: thief.apply_status(DPUNetwork, f"{mine}-d", {"conditions": large}, manager="x"), "131072")

    def many() -> None:
        for number in range(12):
            one = {**large[0], "type": f"M{number}", "message": "x"}
            thief.apply_status(DPUNetwork, f"{mine}-d", {"conditions": [one]}, manager=f"manager-{number}")

    refused_soon(many, "more than 8 field managers")


def test_a_server_reads_no_network(
    site: Site, control_plane: ControlPlane, tmp_path: Path, two_tenants: tuple[str, str, str, str]
) -> None:
    """Root on a host has its kubelet's certificate. The honest twin is the DPU, above."""
    _, _, mine, _ = two_tenants
    user = f"system:node:{mine}-s"
    host = Cluster.connect(kubeconfig_of(control_plane, tmp_path, user, group="system:nodes"))
    for act in (
        lambda: host.get(of(DPUNetwork), f"{mine}-d"),
        lambda: host.list(of(DPUNetwork)),
        lambda: host.list(of(DPUNetwork), field_selector=f"metadata.name={mine}-d"),
        lambda: host.apply_status(DPUNetwork, f"{mine}-d", {"observedGeneration": 9}, manager="x"),
    ):
        with pytest.raises(Refused):
            act()


# A tenant


@pytest.fixture
def tenant(
    site: Site,
    cluster: Cluster,
    control_plane: ControlPlane,
    tmp_path: Path,
    two_tenants: tuple[str, str, str, str],
) -> Cluster:
    """The cluster as somebody sees it who has the role edit in the namespace blue."""
    blue, user = two_tenants[0], f"{site.name}-user"
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "edit", "namespace": blue},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
    cluster.apply(binding, manager="tests")
    found = Cluster.connect(kubeconfig_of(control_plane, tmp_path, user))

    def may() -> bool:
        try:
            found.list(of(VPC), namespace=blue)
            found.patch(of(VPC), "main", {"metadata": {"labels": {"a": "b"}}}, namespace=blue, dry_run=True)
        except ProvisionerError:
            return False
        return True

    eventually(may, "its rights are in force")
    return found


def test_a_tenant_makes_and_sees_what_is_its_own_and_nothing_else(
    tenant: Cluster, two_tenants: tuple[str, str, str, str]
) -> None:
    blue, green, mine, theirs = two_tenants
    tenant.create(of(SecurityGroup), group(blue, "web"))
    tenant.create(of(VPC), vpc(blue, "second"))
    tenant.create(of(VPCAttachment), attachment(blue, "vf", f"{mine}-s", function="pf0vf1"))
    tenant.patch(of(VPCAttachment), "vf", {"spec": {"securityGroupRefs": ["web"]}}, namespace=blue)
    assert len(tenant.list(of(VPCAttachment), namespace=blue).items) == 2
    tenant.delete(of(VPC), "second", namespace=blue)

    for type_, body in (
        (of(VPC), vpc(green, "second")),
        (of(VPCAttachment), attachment(green, "vf", f"{theirs}-s", function="pf0vf1")),
        (of(SecurityGroup), group(green, "web")),
    ):
        with pytest.raises(Refused):
            tenant.create(type_, body)
        with pytest.raises(Refused):
            tenant.list(type_)
        with pytest.raises(Refused):
            tenant.list(type_, namespace=green)
    for type_ in (of(DPUNetwork), of(NetworkClaim), of(NetworkPool), of(Server)):
        with pytest.raises(Refused):
            tenant.list(type_)


def test_a_tenant_writes_nothing_of_its_server_by_which_it_is_quarantined(
    tenant: Cluster, site: Site, cluster: Cluster, two_tenants: tuple[str, str, str, str]
) -> None:
    """What it may write, its attachment, lifts none but its own quarantine."""
    blue, _, mine, _ = two_tenants
    cluster.patch(of(Server), f"{mine}-s", {"spec": {"networkQuarantined": True}})
    eventually(lambda: [each["state"] for each in _ports(site, mine)] == ["Quarantined"], "it is quarantined")
    for type_, name in ((of(Server), f"{mine}-s"), (of(Server), f"{mine}-d")):
        with pytest.raises(Refused):
            tenant.patch(type_, name, {"spec": {"networkQuarantined": False}})
    tenant.patch(of(VPCAttachment), "a", {"spec": {"quarantined": True}}, namespace=blue)
    tenant.patch(of(VPCAttachment), "a", {"spec": {"quarantined": False}}, namespace=blue)
    seen = site.attachment(blue, "a").metadata.generation

    def is_looked_at() -> bool:
        return any(each.observed_generation == seen for each in site.attachment(blue, "a").status.conditions)

    eventually(is_looked_at, "the controller has seen that")
    assert [each["state"] for each in _ports(site, mine)] == ["Quarantined"]
    cluster.patch(of(Server), f"{mine}-s", {"spec": {"networkQuarantined": False}})
    eventually(lambda: [each["state"] for each in _ports(site, mine)] == ["Tenant"], "it is let in again")


def test_what_a_host_may_do_with_its_card_is_said_by_no_tenant_and_by_no_stolen_dpu(
    tenant: Cluster,
    site: Site,
    cluster: Cluster,
    control_plane: ControlPlane,
    tmp_path: Path,
    two_tenants: tuple[str, str, str, str],
) -> None:
    """An administrator says it, and the DPU reads it."""
    _, _, mine, _ = two_tenants
    thief = site.agent(control_plane, tmp_path, mine)
    cluster.patch(of(Server), f"{mine}-d", {"spec": {"dpu": {"hostAccess": "Restricted"}}})
    told = {"server": f"{mine}-s", "hostAccess": "Restricted"}
    eventually(lambda: (site.network(mine) or {})["spec"].get("card") == told, "the DPU is told")
    opened = {"hostAccess": "Privileged"}
    for who in (tenant, thief):
        for name in (f"{mine}-s", f"{mine}-d"):
            with pytest.raises(Refused):
                who.patch(of(Server), name, {"spec": {"dpu": opened}})
        with pytest.raises(Refused):
            who.patch(of(DPUNetwork), f"{mine}-d", {"spec": {"card": opened}})
    assert (site.network(mine) or {})["spec"]["card"] == told


def test_a_tenant_says_nothing_of_what_is_enforced(tenant: Cluster, two_tenants: tuple[str, str, str, str]) -> None:
    """A status is the controller's to write; the honest twin is the spec, above."""
    blue, _, _, _ = two_tenants
    for kind, name, status in (
        (VPC, "main", {"vni": 1}),
        (VPCAttachment, "a", {"addresses": ["10.1.0.3"]}),
    ):
        with pytest.raises(Refused):
            tenant.apply_status(kind, name, status, manager="x", namespace=blue)


def test_a_tenant_does_not_attach_anothers_server_and_learns_nothing_of_it(
    tenant: Cluster, site: Site, two_tenants: tuple[str, str, str, str]
) -> None:
    blue, green, mine, theirs = two_tenants
    tenant.create(of(VPCAttachment), attachment(blue, "honest", f"{mine}-s", function="pf0vf1"))
    tenant.create(of(VPCAttachment), attachment(blue, "theirs", f"{theirs}-s", function="pf0vf1"))
    tenant.create(of(VPCAttachment), attachment(blue, "nobodys", f"{site.name}-none", dpuRef=f"{theirs}-d"))
    site.becomes(blue, "honest", "False", "WaitsForDPU")
    for name in ("theirs", "nobodys"):
        site.becomes(blue, name, "False", "ServerNotAssigned")
    told = {name: site.attachment(blue, name).status for name in ("theirs", "nobodys")}
    words = {name: status.conditions[0].message for name, status in told.items()}
    assert words["theirs"].replace(f"{theirs}-s", "X").replace("pf0vf1", "F") == words["nobodys"].replace(
        f"{site.name}-none", "X"
    ).replace("pf0", "F")
    assert green not in words["theirs"]
    assert {status.dpu_ref for status in told.values()} == {None}
    own = ["pf0", "pf0vf1"]
    eventually(lambda: [each["function"] for each in _ports(site, mine)] == own, "the honest one is compiled")
    assert [each["function"] for each in _ports(site, theirs)] == ["pf0"]


def test_a_tenant_peers_with_nobody_who_does_not_say_so_too(
    tenant: Cluster, site: Site, cluster: Cluster, two_tenants: tuple[str, str, str, str]
) -> None:
    blue, green, mine, theirs = two_tenants
    cluster.create(of(VPC), vpc(green, "other", cidrs=["10.7.0.0/24"]))
    peers = [{"namespace": green, "name": "other"}, {"namespace": green, "name": "main"}]
    tenant.patch(of(VPC), "main", {"spec": {"peers": peers}}, namespace=blue)

    def told() -> list[str]:
        return [condition.reason for condition in site.vpc(blue).status.conditions]

    eventually(lambda: told() == ["PeerNotMutual"], "it is told")
    assert len((site.network(mine) or {})["spec"]["vpcs"]) == 1
    assert len((site.network(theirs) or {})["spec"]["vpcs"]) == 1
    back = [{"namespace": blue, "name": "main"}]
    cluster.patch(of(VPC), "other", {"spec": {"peers": back}}, namespace=green)
    eventually(lambda: len((site.network(mine) or {})["spec"]["vpcs"]) == 2, "the one that says so is a peer")
    (_, foreign) = sorted((site.network(mine) or {})["spec"]["vpcs"], key=lambda each: each["vpc"] != f"{blue}/main")
    assert foreign["vpc"] == f"{green}/other"


def test_what_a_tenant_hangs_onto_its_objects_takes_no_memory_of_the_controllers(
    tenant: Cluster, controller_account: Cluster, two_tenants: tuple[str, str, str, str]
) -> None:
    """A quota counts objects, and each could bring a quarter of a MiB with it."""
    blue = two_tenants[0]
    ballast = {"metadata": {"annotations": {"ballast": "x" * 200_000}, "labels": {"blue": "ballast"}}}
    for type_, name in ((of(VPC), "main"), (of(VPCAttachment), "a")):
        assert len(str(tenant.patch(type_, name, ballast, namespace=blue))) > 200_000, "it may"
    tenant.create(of(SecurityGroup), group(blue, "ballast") | {"metadata": {"name": "ballast", "namespace": blue}})
    tenant.patch(of(SecurityGroup), "ballast", ballast, namespace=blue)
    caches, stop = SharedInformers(controller_account), threading.Event()
    found = {"main": caches.vpcs, "a": caches.attachments, "ballast": caches.security_groups}
    caches.start(stop)
    try:
        for name, informer in found.items():
            eventually(lambda name=name, informer=informer: informer.get(f"{blue}/{name}"), f"{name} is in its cache")
            assert "ballast" not in str(informer.get(f"{blue}/{name}")["metadata"].get("annotations", ""))  # type: ignore[index]
            assert len(str(informer.get(f"{blue}/{name}"))) < 4000
    finally:
        stop.set()
