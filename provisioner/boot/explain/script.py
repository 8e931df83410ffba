"""The script that a machine's iPXE would get: what the renderer asks, and who has named NodePool and Image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from provisioner.api import NodePool, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.values import parse_mac
from provisioner.api.servers.discovery import Claims, DiscoverySubnets, discovered_name
from provisioner.boot.explain.facts import BootHost, MachineObjects
from provisioner.boot.host.web import wait_for_claims
from provisioner.boot.observe.discover import find_place
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.boot.script.choose import BootTarget, choose_boot_target
from provisioner.boot.script.render import render_first_script, render_script
from provisioner.cluster.source import Snapshot
from provisioner.rules.assigned_image import ChosenImage, current_image, next_image
from provisioner.rules.dpus import awaited_by
from provisioner.rules.pool_of_server import ChosenPool, PoolRule, booting_pool

POOL_RULES: Final[Mapping[PoolRule, str]] = {
    "BootOrder": "its boot order is for it (status.order.nodePoolRef)",
    "Running": "what runs on it was booted for it, and its boot order names none (status.nodePoolRef)",
    "Assigned": "the rollout has assigned it (status.assignedNodePoolRef)",
    "Spec": "its spec names it (spec.nodePoolRef)",
    "NoNodePool": "its spec names none (spec.nodePoolRef)",
}


@dataclass(frozen=True, kw_only=True)
class ScriptStory:
    """url: where iPXE fetches it. first: the script that every machine gets before, from `first_url`. pool, image: who
    is named by which rule, of a registered server. following: the Image of a boot that is ordered now, where it is
    another."""

    first_url: str
    first: str
    url: str
    target: BootTarget
    text: str
    pool: ChosenPool | None = None
    image: ChosenImage | None = None
    following: ChosenImage | None = None


class _NotRecorded:
    """What would take note of an unknown machine, and takes none."""

    trouble = None

    def __init__(self, facts: MachineObjects) -> None:
        self._subnets = DiscoverySubnets(facts.racks)

    def offer(self, claims: Claims) -> str:
        find_place(claims, self._subnets, is_held=False)
        return discovered_name(claims.mac)


def tell_script(facts: MachineObjects, host: BootHost, source_address: str | None) -> ScriptStory:
    """`source_address`: from where an unknown machine would ask."""
    server, mac = facts.server, parse_mac(facts.mac)
    pool = image = following = None
    target: BootTarget
    if server is None or server.spec.boot_mac_address != mac:
        index = ServerIndex(Snapshot({each.name: encode(each) for each in facts.claimants}))
        claims = Claims(mac=mac, source_address=source_address)
        target = wait_for_claims(claims, index, _NotRecorded(facts))
    else:
        pool, image = booting_pool(server), current_image(server, facts.pool)
        awaited = [dpu.name for dpu in facts.dpus if awaited_by(encode(dpu)) == server.name]
        target = choose_boot_target(server, facts.pool, facts.image, facts.rack, host.urls, awaited)
        following = _following(server, facts, image)
    return ScriptStory(
        first_url=host.dhcp.script,
        first=render_first_script(host.urls),
        url=f"{host.urls.boot}/ipxe/{mac.replace(':', '-')}.ipxe",
        target=target,
        text=render_script(target),
        pool=pool,
        image=image,
        following=following,
    )


def _following(server: Server, facts: MachineObjects, image: ChosenImage) -> ChosenImage | None:
    """What a boot gets that is ordered now, where it is not the Image of a boot that happens now."""
    following = next_image(server, facts.pool, facts.maintenance)
    return following if following.name is not None and following.name != image.name else None


def image_words(chosen: ChosenImage, server: Server, pool: NodePool | None, maintenance: str | None) -> str:
    """Which rule names the Image, with the objects that it is about."""
    order, rule = server.status.order, chosen.rule
    match rule:
        case "BootOrder":
            if order is None:
                raise ValueError("an Image by a boot order that there is not")
            return f"boot order {order.id} names it ({order.reason}, {order.ordered_time}, attempt {order.attempt})"
        case "Maintenance":
            return f"Maintenance {maintenance} boots it"
        case "Assigned":
            return "it is assigned to the server (status.assignedImageRef): its NodePool's rollout moves that" + (
                f", to {pool.spec.image_ref} when its turn comes"
                if pool is not None and pool.spec.image_ref != chosen.name
                else ""
            )
        case "Released":
            return f"NodePool {_name(pool)} has released it: it has passed the canary there" + (
                f"; {pool.spec.image_ref}, which is wanted, has not"
                if pool is not None and pool.spec.image_ref != chosen.name
                else ""
            )
        case "Wanted":
            return f"NodePool {_name(pool)} wants it (spec.imageRef), and has released none yet"
        case "NoNodePool":
            return "there is no NodePool that would name one"
        case _:
            assert_never(rule)


def _name(pool: NodePool | None) -> str:
    return pool.name if pool is not None else "(none)"
