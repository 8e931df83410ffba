"""Why a server cannot boot: one answer for its console, its conditions, its join and its Maintenance. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.cluster.source import conditions_of
from provisioner.rules.assigned_image import current_image
from provisioner.rules.pool_of_server import booting_pool

PUBLISH: Final = "provisioner image publish DIRECTORY --store IMAGE-STORE --key IMAGE.PUB"
REMEDY: Final = "; remedy: "
"""Between what a condition observed and what a person can do about it."""


def without_remedy(words: str) -> str:
    """What a machine says of itself, so that none of it is taken for a remedy of ours."""
    return words.replace(REMEDY.rstrip(), REMEDY.rstrip().replace(";", ","))


@dataclass(frozen=True)
class Obstacle:
    """Why a server does not boot.

    reason: CamelCase, stable. message: what was observed. remedy: a command or an act, without a full stop.
    unwanted: the server is not wanted as a Node, so even a running one does not count as Ready.
    """

    reason: str
    message: str
    remedy: str
    unwanted: bool = False

    @property
    def words(self) -> str:
        """Message and remedy."""
        return f"{self.message}{REMEDY}{self.remedy}"


def find_obstacle(server: Server, pool: NodePool | None, image: Image | None, rack: Rack | None) -> Obstacle | None:
    """The first thing in the way of booting `image` on `server`; None if it may boot.

    `pool` and `rack` are the objects that the server names (None if it names none or they do not exist).
    """
    return (
        find_unaccepted(server)
        or find_switched_off(server)
        or find_duplicate(server)
        or _without_place(server, rack)
        or find_without_pool(server, pool)
        or find_without_image(server, current_image(server, pool).name, image)
    )


def availability_of(image: Mapping[str, Any] | None) -> tuple[bool, list[tuple[str, str, str]]]:
    """What of an Image's JSON the words of an obstacle depend on: whether it is there, what is said of it."""
    told = conditions_of(image, "Available", "Verified")
    return image is None, [(c["type"], c["status"], c.get("message", "")) for c in told]


def find_unaccepted(server: Server) -> Obstacle | None:
    """Nobody has accepted it."""
    name, acceptance = server.name, server.spec.acceptance
    if acceptance == "Accepted":
        return None
    accept = f"kubectl provision accept {name}"
    if acceptance == "Pending":
        return Obstacle("PendingAcceptance", f"Server '{name}' waits to be accepted", accept, unwanted=True)
    remedy = f"if that was a mistake: {accept}"
    return Obstacle("Rejected", f"Server '{name}' was rejected", remedy, unwanted=True)


def find_switched_off(server: Server) -> Obstacle | None:
    """It shall be off."""
    if server.spec.power_state != "Off":
        return None
    return Obstacle(
        "PoweredOff",
        f"Server '{server.name}' is meant to be off (spec.powerState is Off)",
        f"""kubectl patch server {server.name} --type=merge -p '{{"spec":{{"powerState":"On"}}}}'""",
        unwanted=True,
    )


def find_excluded(server: Server) -> Obstacle | None:
    """Rollouts leave it alone."""
    if server.spec.upgrades != "Excluded":
        return None
    return Obstacle(
        "Excluded",
        "it is excluded from rollouts (spec.upgrades of the Server)",
        f"""kubectl patch server {server.name} --type=merge -p '{{"spec":{{"upgrades":"Follow"}}}}'""",
    )


def find_duplicate(server: Server) -> Obstacle | None:
    """Two Servers that claim one machine would reset it by turns; a Node that runs is left alone all the same."""
    accepted = find_condition(server.status.conditions, "Accepted")
    if accepted is None or accepted.status != "False" or accepted.reason != "Duplicate":
        return None
    return Obstacle(
        "Duplicate",
        accepted.message or f"Server '{server.name}' claims what another Server has already",
        f"correct the address or identifier that both name, or, if they are one machine: "
        f"kubectl delete server {server.name}",
    )


def runs_as_other_node(server: Server, node: str) -> Obstacle:
    """The obstacle that the machine runs already, as a Node that the provisioner knows nothing of."""
    return Obstacle(
        "RunsAsOtherNode",
        f"the machine of Server '{server.name}' runs as Node '{node}' (same system UUID or address)",
        f"to keep it running, register it as Server {node} and: kubectl delete server {server.name}; "
        f"to have it booted anew: kubectl drain {node} --ignore-daemonsets, then kubectl delete node {node}",
    )


def _without_place(server: Server, rack: Rack | None) -> Obstacle | None:
    name = server.name
    if rack is None:
        if server.spec.rack_ref is None:
            return Obstacle("NoRack", f"Server '{name}' names no Rack", f"set spec.rackRef of Server {name}")
        return Obstacle(
            "NoRack",
            f"Rack '{server.spec.rack_ref}' of Server '{name}' does not exist",
            "provisioner rack register FILE",
        )
    if server.status.address is None:
        return Obstacle(
            "NoAddress",
            f"Server '{name}' has no address in Rack '{rack.name}'",
            f"see its conditions: kubectl describe server {name}",
        )
    return None


def find_without_pool(server: Server, pool: NodePool | None, named: str | None = None) -> Obstacle | None:
    """Nothing says what it boots and becomes. named: the NodePool that was looked for; the one that it boots for if
    absent."""
    name = server.name
    if server.spec.node_pool_ref is None:
        return Obstacle(
            "NoNodePool",
            f"Server '{name}' is in no NodePool, so nothing says what it boots",
            f"""kubectl patch server {name} --type=merge -p '{{"spec":{{"nodePoolRef":"POOL"}}}}'""",
        )
    if pool is None:
        missing = named or booting_pool(server).name
        remedy = f"create it, or name another in spec.nodePoolRef of Server {name}"
        if missing != server.spec.node_pool_ref:
            remedy = "create it again: what runs on a server is known by the NodePool that it was booted for"
        return Obstacle("NodePoolMissing", f"NodePool '{missing}' of Server '{name}' does not exist", remedy)
    return None


def find_without_image(server: Server, wanted: str | None, image: Image | None) -> Obstacle | None:
    """The Image of the name `wanted`, which is `image`, cannot be booted on it."""
    if wanted is None:
        return Obstacle("NoImage", f"nothing names an Image for Server '{server.name}'", "name one, or set a NodePool")
    if image is None:
        return Obstacle("ImageMissing", f"Image '{wanted}' does not exist", f"on the boot host: {PUBLISH}")
    if image.spec.architecture != server.spec.architecture:
        return Obstacle(
            "ImageWrongArchitecture",
            f"Image '{image.name}' is for {image.spec.architecture}, "
            f"Server '{server.name}' is {server.spec.architecture}",
            "name an Image of the server's architecture, or another NodePool in the Server",
        )
    distrusted = find_distrusted(image)
    if distrusted is not None:
        return distrusted
    available = find_condition(image.status.conditions, "Available")
    if available is None:
        return Obstacle(
            "ImageUnavailable",
            f"no boot host has said yet that it has the files of Image '{image.name}'",
            "is a boot service running that was started since the Image was published?",
        )
    if available.status != "True":
        return Obstacle(
            "ImageUnavailable",
            f"no boot host has the files of Image '{image.name}': {available.message}",
            f"copy the image into the image store of the boot host: {PUBLISH}",
        )
    return find_unjudged(image)


def find_distrusted(image: Image) -> Obstacle | None:
    """It is not signed by whom the cluster believes, or was revoked: nothing boots it, and nobody joins with it.

    An Image of which nothing can be said, as the site names no keys, is none of these.
    """
    verified = find_condition(image.status.conditions, "Verified")
    if verified is None or verified.status != "False":
        return None
    if verified.reason == "Revoked":
        return Obstacle(
            "ImageRevoked", f"Image '{image.name}' is not booted: {verified.message}", "assign another Image"
        )
    return Obstacle(
        "ImageNotVerified",
        f"Image '{image.name}' is not booted: {verified.message}",
        "publish an image that is signed by a key of ConfigMap provisioner-image-trust, or add its key there",
    )


def find_unjudged(image: Image) -> Obstacle | None:
    """Its signature has not been checked yet. It may name another kernel, stage-1 or arguments than were signed, also
    under the name of an Image that was deleted a moment ago."""
    if find_condition(image.status.conditions, "Verified") is not None:
        return None
    return Obstacle(
        "ImageNotJudged",
        f"the signature of Image '{image.name}' has not been checked yet",
        "wait some seconds; is a controller running with the group orders?",
    )


def is_measured(image: Image) -> bool:
    """Whether a boot host has compared the Image's measurements, which are not signed, with the kernel in its store."""
    available = find_condition(image.status.conditions, "Available")
    return (
        available is not None
        and available.status == "True"
        and available.observed_generation == image.metadata.generation
    )
