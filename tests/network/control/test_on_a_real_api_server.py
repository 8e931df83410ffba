"""The network's controllers at work, on a real API server, by their own account and under all policies."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.api import VPC, DPUNetwork, VPCAttachment
from provisioner.cluster.resources import CLUSTER_ROLES, EVENTS, of
from provisioner.network.control.follow import TELL_SECONDS
from tests.inventory.site import eventually
from tests.network.control.objects import attachment, group, rule, vpc
from tests.network.control.site import Site

if TYPE_CHECKING:
    from lab.control_plane.plane import ControlPlane
    from provisioner.cluster.client import Cluster

Leadership = Callable[[], Callable[[], None]]


def test_attached_confirmed_changed_and_released(
    site: Site, cluster: Cluster, control_plane: ControlPlane, leadership: Leadership, tmp_path: Path
) -> None:
    blue, green = site.tenant("blue"), site.tenant("green")
    one, two, other = site.machine(1, blue), site.machine(2, blue), site.machine(3, green)
    end = leadership()
    site.add(vpc(blue, cidrs=["10.1.0.0/24", "fd00:1::/64"]), vpc(green, cidrs=["10.1.0.0/24"]))
    site.add(group(blue, "web", rule(protocol="TCP", ports=["443"]), rule(action="Deny", cidrs=["10.9.0.0/16"])))
    site.add(
        attachment(blue, "a", f"{one}-s", securityGroupRefs=["web"]),
        attachment(blue, "b", f"{two}-s"),
        attachment(green, "c", f"{other}-s", addresses=["10.1.0.3"]),
    )
    agents = {each: site.agent(control_plane, tmp_path, each) for each in (one, two, other)}
    for name, tenant in (("a", blue), ("b", blue), ("c", green)):
        site.becomes(tenant, name, "False", "WaitsForDPU")

    def all_enforced() -> bool:
        for machine, agent in agents.items():
            site.confirm(agent, machine)
        return all(site.ready(*each) == ("True", "Enforced") for each in ((blue, "a"), (blue, "b"), (green, "c")))

    eventually(all_enforced, "all are enforced")
    eventually(lambda: site.vpc(blue).status.enforced_attachments == 2, "both are counted")
    network = site.network(one)
    assert network is not None
    (domain,) = network["spec"]["vpcs"]
    b = site.attachment(blue, "b").status.addresses
    prefixes = domain["remotes"][0]["prefixes"]
    assert prefixes == [f"{b[0]}/32", f"{b[1]}/128"]
    generations = {each: found["metadata"]["generation"] for each in agents if (found := site.network(each))}

    end()
    leadership()  # another leader, with nothing in its memory
    site.add(attachment(blue, "late", f"{two}-s", function="pf0vf1"))
    eventually(lambda: all_enforced() and site.ready(blue, "late") == ("True", "Enforced"), "late is enforced")
    after = {each: found["metadata"]["generation"] for each in agents if (found := site.network(each))}
    assert after[other] == generations[other], "another tenant's DPU was not told anything new"

    claims = site.claims()
    assert len(claims) == 2 + 3 + 3 + 2 + 3  # VNIs, and of each attachment its port and addresses
    vni = site.vpc(blue).status.vni
    for name in ("a", "b", "late"):
        cluster.delete(of(VPCAttachment), name, namespace=blue)
    cluster.delete(of(VPC), "main", namespace=blue)
    eventually(lambda: not (site.network(two) or {})["spec"].get("ports"), "it is isolated")
    assert f"vni-{vni}" in site.claims()

    def all_released() -> bool:
        for machine, agent in agents.items():
            site.confirm(agent, machine)
        return not any(f"vni-{vni}" in each or one in each or two in each for each in site.claims())

    eventually(all_released, "all values are free again")
    told = {item["reason"] for item in cluster.list(EVENTS, namespace=green).items}
    assert "Enforced" in told


def test_a_grant_that_somebody_took_away_is_given_again(site: Site, cluster: Cluster, leadership: Leadership) -> None:
    machine = site.machine(1, site.tenant("blue"))
    leadership()
    name = f"provisioner-dpu-{machine}-d"
    eventually(lambda: cluster.find(CLUSTER_ROLES, name), "the role is there")
    eventually(lambda: cluster.find(of(DPUNetwork), f"{machine}-d"), "the DPUNetwork is there")
    cluster.delete(CLUSTER_ROLES, name)
    eventually(lambda: cluster.find(CLUSTER_ROLES, name), "the role is there again")


def test_a_compiled_object_that_somebody_changed_is_put_right(
    site: Site, cluster: Cluster, leadership: Leadership
) -> None:
    blue = site.tenant("blue")
    machine = site.machine(1, blue)
    site.add(vpc(blue), attachment(blue, "a", f"{machine}-s"))
    leadership()
    eventually(lambda: (site.network(machine) or {"spec": {}})["spec"].get("ports"), "it is compiled")
    cluster.patch(of(DPUNetwork), f"{machine}-d", {"spec": {"ports": [], "vpcs": []}})
    eventually(lambda: (site.network(machine) or {"spec": {}})["spec"].get("ports"), "it is compiled again")


def test_what_peers_hold_is_written_once_and_another_leader_knows_it(
    site: Site, cluster: Cluster, leadership: Leadership
) -> None:
    blue, green, red = (site.tenant(each) for each in ("blue", "green", "red"))
    to_blue = [{"namespace": blue, "name": "main"}]
    named = [{"namespace": red, "name": "main"}, {"namespace": green, "name": "main"}]
    site.add(
        vpc(blue, peers=named),
        vpc(red, cidrs=["10.2.0.0/24"], peers=to_blue),
        vpc(green, cidrs=["10.3.0.0/24", "fd00:3::/64", "10.10.0.0/24"], peers=to_blue),
    )

    def held() -> dict[str, tuple[str, ...]]:
        return {each.namespace: each.prefixes for each in site.vpc(blue).status.peers or ()}

    def reasons() -> list[str]:
        return [each.reason for key in (blue, green, red) for each in site.vpc(key).status.conditions[:1]]

    end = leadership()
    greens = ("10.10.0.0/24", "10.3.0.0/24", "fd00:3::/64")
    eventually(lambda: held() == {green: greens, red: ("10.2.0.0/24",)}, "both hold what is theirs")
    eventually(lambda: reasons() == ["Allocated"] * 3, "all are peers")
    end()
    leadership()
    cluster.patch(of(VPC), "main", {"spec": {"cidrs": ["10.2.0.0/24", "10.3.0.0/16"]}}, namespace=red)
    eventually(lambda: reasons() == ["PeersOverlap", "Allocated", "PeersOverlap"], "who holds them stays a peer")
    assert held() == {green: greens, red: ("10.2.0.0/24",)}
    version = site.vpc(blue).metadata.resource_version
    time.sleep(2 * TELL_SECONDS)
    assert site.vpc(blue).metadata.resource_version == version, "and nothing more is written"
