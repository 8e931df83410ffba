"""The caches that the network's controllers follow, and what is looked up in them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api import NetworkClaim
from provisioner.api.machinery.codec import decode_shared
from provisioner.cluster.source import Caches, Source, spec_of
from provisioner.cluster.trim import without_metadata
from provisioner.network.control.compile.security import MOST_RULE_BYTES, size_of_rule
from provisioner.rules.dpus import hosts

Object = Mapping[str, Any]

LEAVING_ANNOTATION: Final = "provisioner.dev/leaving"
"""On a DPUNetwork: what it held and holds no more, each with the generation from which on it does not, until the DPU
has confirmed that one: `vni-10001:7,pf0:7`. Who releases a value learns from it who may have it in its kernel."""


@dataclass(frozen=True, kw_only=True)
class NetworkInformers(Caches):
    """roles, bindings: those by which DPUs read their own object."""

    servers: Source
    vpcs: Source
    attachments: Source
    groups: Source
    pools: Source
    claims: Source
    networks: Source
    roles: Source
    bindings: Source


def trim_group(body: dict[str, Any]) -> dict[str, Any]:
    """What a copy keeps of a SecurityGroup: of rules that are too many for any port no more than says so."""
    kept, left = [], MOST_RULE_BYTES
    for rule in spec_of(body).get("rules") or ():
        if left < 0:
            break
        kept.append(rule)
        left -= size_of_rule(rule.get("ports") or (), rule.get("cidrs") or ())
    body["spec"] = {**spec_of(body), "rules": kept}
    return without_metadata(body)


class Lookups:
    """Indices over the caches: what one object concerns is found without a look at the others."""

    def __init__(self, caches: NetworkInformers) -> None:
        self.attachments_by_vpc = caches.attachments.index(lambda body: [vpc_of(body)])
        self.attachments_by_server = caches.attachments.index(lambda body: [spec_of(body).get("serverRef")])
        self.attachments_by_group = caches.attachments.index(_groups_named)
        self.vpcs_by_group = caches.vpcs.index(_groups_named)
        self.vpcs_by_peer = caches.vpcs.index(peers_named)
        self.claims_by_holder = caches.claims.index(_holders)
        self.claims_by_vni = caches.claims.index(lambda body: [vni_in(body)])
        self.released_by_vni = caches.claims.index(lambda body: [vni_in(body)] if is_released(body) else [])
        self.claims_by_dpu = caches.claims.index(lambda body: [dpu_in(body)])
        self.vni_claims = caches.claims.index(lambda body: ["VNI"] if spec_of(body).get("type") == "VNI" else [])
        self.dpus_by_host = caches.servers.index(hosts)
        self.dpus_by_vtep = caches.servers.index(lambda body: filter(None, [card_of(body).get("vtepAddress")]))
        self.networks_by_vni = caches.networks.index(vnis_held)

    def claims_of(self, uid: str | None) -> list[NetworkClaim]:
        """Those whose holder is the object with this uid."""
        return [decode_shared(NetworkClaim, each) for each in self.claims_by_holder.get(("uid", uid))]


def card_of(server: Object | None) -> Mapping[str, Any]:
    """What makes a Server a DPU (`spec.dpu`); nothing of one that is none, or that nobody has accepted: unknown
    machines are written down by whoever hears them."""
    spec = spec_of(server)
    return spec.get("dpu") or {} if spec.get("acceptance", "Pending") != "Pending" else {}


def key_of(body: Object) -> str:
    """namespace/name of an object in a namespace, else its name."""
    metadata = body["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def vpc_of(attachment: Object) -> str:
    """Key of the VPC that an attachment joins."""
    return f"{attachment['metadata']['namespace']}/{spec_of(attachment).get('vpcRef')}"


def _groups_named(body: Object) -> Iterable[Hashable]:
    namespace = body["metadata"]["namespace"]
    return [f"{namespace}/{name}" for name in spec_of(body).get("securityGroupRefs") or ()]


def peers_named(body: Object | None) -> list[str]:
    """Keys of the VPCs that a VPC names as its peers."""
    return [f"{each['namespace']}/{each['name']}" for each in spec_of(body).get("peers") or ()]


def _holders(claim: Object) -> Iterable[Hashable]:
    holder = spec_of(claim).get("holder") or {}
    return [("uid", holder.get("uid")), holder_of(claim)]


def holder_of(claim: Object) -> tuple[str, str]:
    """Kind and key of a claim's holder."""
    holder = spec_of(claim)["holder"]
    return str(holder["kind"]), f"{holder['namespace']}/{holder['name']}"


def vni_in(claim: Object) -> int | None:
    """The VNI that a claim is of, or of whose VPC it claims an address, by its name."""
    head, _, _ = str(claim["metadata"]["name"]).partition(".")
    number = head.removeprefix("vni-")
    return int(number) if head.startswith("vni-") and number.isdecimal() else None


def dpu_in(claim: Object) -> str | None:
    """The DPU of which a claim has a function."""
    spec = spec_of(claim)
    return str(spec["value"]).partition("/")[0] if spec.get("type") == "Port" else None


def function_in(claim: Object) -> str:
    """The function that the claim of a port is of."""
    return str(spec_of(claim)["value"]).partition("/")[2]


def is_released(claim: Object) -> bool:
    """Whether the holder has let go of it: nobody has the value then."""
    return bool((claim.get("status") or {}).get("releasedTime"))


def observed_by(network: Object) -> int | None:
    """The generation that a DPU has confirmed; None for one that is still to come, such as that of an object of the
    same name before this one."""
    observed = (network.get("status") or {}).get("observedGeneration")
    return observed if observed is not None and observed <= network["metadata"]["generation"] else None


def leaving_of(network: Object) -> dict[str, int]:
    """What a DPUNetwork held, and from which generation on it does not, as far as the DPU has not confirmed it."""
    text = (network["metadata"].get("annotations") or {}).get(LEAVING_ANNOTATION) or ""
    observed = observed_by(network) or 0
    still = {f"vni-{each}" for each in (network.get("status") or {}).get("vnis") or ()}
    found: dict[str, int] = {}
    for entry in filter(None, text.split(",")):
        what, _, since = entry.rpartition(":")
        if what and since.isdecimal() and (observed < int(since) or what in still):
            found[what] = int(since)
    return found


def vnis_held(network: Object) -> Iterator[int]:
    """The VNIs that a DPU may have in its kernel."""
    yield from {int(each["vni"]) for each in spec_of(network).get("vpcs") or ()}
    for what in leaving_of(network):
        number = what.removeprefix("vni-")
        if number != what and number.isdecimal():
            yield int(number)
