"""With which VPCs a VPC exchanges packets: both name each other, and no address could be two machines'. Pure.

Both sides come to the same answer: what refuses a pair refuses it for both. A VPC speaks for its cidrs and for what its
routes lead to, as its hosts may send from there. Two peers of a VPC never hold the same addresses there: who was
accepted with them holds them (`status.peers`), and of two that are new to them neither is accepted. Neither the order
of `spec.peers` nor a name decides, and what a peer adds later takes nothing from another one. Only where an older
version has left no record do the peers hold what that version's rule gave them.

Tenants choose how much is compared here: up to 16 peers for a VPC and for each of its peers, with 72 prefixes each. So
all prefixes of a VPC's peers are compared at once, and only once for all that is asked of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from provisioner.api import VPC
from provisioner.api.network.vpc import VPCPeerStatus
from provisioner.network.control.compile.overlap import first_shared, first_shared_of_each, those_inside
from provisioner.network.control.compile.trouble import Trouble

FindVPC = Callable[[str], VPC | None]
"""By namespace/name; None also for one that is being deleted."""
Rivals = Mapping[str, tuple[str, str]]
"""By key, of each candidate that is no peer: one that is in its way, and a prefix that both hold."""


@dataclass(frozen=True)
class _Candidate:
    """A peer as far as only others can be in its way. held: what it was accepted with."""

    vpc: VPC
    held: tuple[str, ...]

    @cached_property
    def kept(self) -> tuple[str, ...]:
        """What it holds already."""
        return those_inside(_all_of(self.vpc), self.held)

    @cached_property
    def new(self) -> tuple[str, ...]:
        kept = {*self.kept}
        return tuple(each for each in _all_of(self.vpc) if each not in kept)


def key_of(vpc: VPC) -> str:
    """namespace/name."""
    return f"{vpc.metadata.namespace}/{vpc.name}"


def peers_of(vpc: VPC, find: FindVPC) -> list[VPC]:
    """The VPCs with which `vpc` exchanges packets, in the order in which it names them. Peering is not passed on."""
    rivals = _rivals(vpc, find)
    named = (find(key) for key in named_peers(vpc))
    return [peer for peer in named if peer is not None and _judge(vpc, peer, rivals, find) is None]


def named_peers(vpc: VPC) -> list[str]:
    """Keys of those that it names, itself left out."""
    return [key for key in (f"{p.namespace}/{p.name}" for p in vpc.spec.peers) if key != key_of(vpc)]


def held_by_peers(vpc: VPC, find: FindVPC) -> tuple[VPCPeerStatus, ...]:
    """What `vpc` says of its peers in its status, sorted: the addresses that each holds. One that is refused for what
    it has added holds what it held before."""
    rivals = _rivals(vpc, find)
    found = []
    for key, each in sorted(_candidates(vpc, find).items()):
        if prefixes := each.kept if key in rivals else _all_of(each.vpc):
            namespace, _, name = key.partition("/")
            found.append(VPCPeerStatus(namespace=namespace, name=name, prefixes=tuple(sorted({*prefixes}))))
    return tuple(found)


def peer_trouble(vpc: VPC, find: FindVPC) -> Trouble | None:
    """Why VPCs that `vpc` names are no peers of it; None if all are. What one of them does hides none of the others."""
    rivals = _rivals(vpc, find)
    named = [(key, find(key)) for key in named_peers(vpc)]
    found = [_not_mutual(vpc, key) if peer is None else _judge(vpc, peer, rivals, find) for key, peer in named]
    troubles = [each for each in found if each is not None]
    if not troubles:
        return None
    first = next((each for each in troubles if each.reason != "PeerNotMutual"), troubles[0])
    return Trouble(reason=first.reason, message="; ".join(each.message for each in troubles))


def judge_peer(vpc: VPC, peer: VPC, find: FindVPC) -> Trouble | None:
    """Why `vpc` and `peer`, which it names, exchange no packets. Only of a VPC that names it, too, more is told."""
    return _judge(vpc, peer, _rivals(vpc, find), find)


def _judge(vpc: VPC, peer: VPC, rivals: Rivals, find: FindVPC) -> Trouble | None:
    """rivals: those of `vpc`."""
    if key_of(vpc) not in named_peers(peer):
        return _not_mutual(vpc, key_of(peer))
    if shared := first_shared(_all_of(vpc), _all_of(peer)):
        return Trouble(
            reason="PeerOverlaps",
            message=f"VPC '{key_of(vpc)}' and its peer '{key_of(peer)}' both hold {shared}, by their cidrs or routes, "
            "so that an address could be two machines': take the route out of spec.routes, the peer out of "
            "spec.peers, or make a VPC with other cidrs",
        )
    if (found := rivals.get(key_of(peer))) is not None:
        rival, shared = found
        return Trouble(
            reason="PeersOverlap",
            message=f"VPC '{key_of(peer)}' is no peer of VPC '{key_of(vpc)}': it holds {shared}, by its cidrs or "
            f"routes, and so does the peer '{rival}'; whoever was a peer with these addresses before stays one, and "
            "no two of them may hold the same: take one of the two out of spec.peers, or have its tenant take the "
            "route out",
        )
    if (found := _rivals(peer, find).get(key_of(vpc))) is not None:
        return Trouble(
            reason="PeersOverlap",
            message=f"VPC '{key_of(vpc)}' is no peer of VPC '{key_of(peer)}': it holds {found[1]}, by its cidrs or "
            "routes, and so does another peer of that one: take the route out, make a VPC with other cidrs, or ask "
            "those whose it is to take the other peer out of its spec.peers",
        )
    return None


def _not_mutual(vpc: VPC, key: str) -> Trouble:
    return Trouble(
        reason="PeerNotMutual",
        message=f"VPC '{key}' does not name VPC '{key_of(vpc)}' in its spec.peers, or there is no such VPC: no packets "
        "are exchanged until it does; ask those whose it is, or take it out of spec.peers",
    )


def _candidates(vpc: VPC, find: FindVPC) -> dict[str, _Candidate]:
    """The VPCs that `vpc` names, which name it, and which hold nothing of its own, in the order in which it names
    them."""
    named = {key: find(key) for key in named_peers(vpc)}
    found = {
        key: peer
        for key, peer in named.items()
        if peer is not None and key_of(vpc) in named_peers(peer) and not first_shared(_all_of(vpc), _all_of(peer))
    }
    if vpc.status.peers is None and vpc.status.vni is not None:
        held = _held_before_records(found)
    else:
        held = {f"{each.namespace}/{each.name}": each.prefixes for each in vpc.status.peers or ()}
    return {key: _Candidate(peer, held.get(key, ())) for key, peer in found.items()}


def _held_before_records(named: Mapping[str, VPC]) -> dict[str, tuple[str, ...]]:
    """What the candidates hold at a VPC of a version that recorded nothing, by its rule: of two with the same addresses
    the one was a peer that is named first; but a route to what is of another one's cidrs counted against who had it."""
    all_of = {key: _all_of(each) for key, each in named.items()}
    shared = first_shared_of_each(all_of, all_of)
    sharing = {key: each for key, each in named.items() if key in shared}
    found = {key: prefixes for key, prefixes in all_of.items() if key not in sharing}
    for number, (key, peer) in enumerate(sharing.items()):
        for before, (other, rival) in enumerate(sharing.items()):
            if other == key or not first_shared(_all_of(peer), _all_of(rival)):
                continue
            if first_shared(_routes_of(peer), rival.spec.cidrs):
                break
            if before < number and not first_shared(_routes_of(rival), peer.spec.cidrs):
                break
        else:
            found[key] = all_of[key]
    return found


def _rivals(vpc: VPC, find: FindVPC) -> Rivals:
    """The candidates that are no peers of `vpc`. First those that are new to what another one holds already; of the
    rest, those that are new to the same."""
    left = _candidates(vpc, find)
    new = {key: each.new for key, each in left.items()}
    found = first_shared_of_each(new, {key: each.kept for key, each in left.items()})
    new = {key: prefixes for key, prefixes in new.items() if key not in found}
    return found | first_shared_of_each(new, new)


def _routes_of(vpc: VPC) -> tuple[str, ...]:
    return tuple(each.destination for each in vpc.spec.routes)


def _all_of(vpc: VPC) -> tuple[str, ...]:
    """What its hosts may send from."""
    return *vpc.spec.cidrs, *_routes_of(vpc)
