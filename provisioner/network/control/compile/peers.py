"""With which VPCs a VPC exchanges packets: both name each other, and no address could be two machines'. Pure.

Both sides come to the same answer: what refuses a pair refuses it for both. A VPC speaks for its cidrs and for what its
routes lead to, as its hosts may send from there.
"""

from __future__ import annotations

from collections.abc import Callable

from provisioner.api import VPC
from provisioner.network.control.compile.overlap import first_shared
from provisioner.network.control.trouble import Trouble

FindVPC = Callable[[str], VPC | None]
"""By namespace/name; None also for one that is being deleted."""


def key_of(vpc: VPC) -> str:
    """namespace/name."""
    return f"{vpc.metadata.namespace}/{vpc.name}"


def peers_of(vpc: VPC, find: FindVPC) -> list[VPC]:
    """The VPCs with which `vpc` exchanges packets, in the order in which it names them. Peering is not passed on."""
    named = (find(key) for key in named_peers(vpc))
    return [peer for peer in named if peer is not None and judge_peer(vpc, peer, find) is None]


def named_peers(vpc: VPC) -> list[str]:
    """Keys of those that it names, itself left out."""
    return [key for key in (f"{p.namespace}/{p.name}" for p in vpc.spec.peers) if key != key_of(vpc)]


def peer_trouble(vpc: VPC, find: FindVPC) -> Trouble | None:
    """Why the first of the VPCs that `vpc` names is no peer of it; None if all are."""
    for key in named_peers(vpc):
        peer = find(key)
        trouble = _not_mutual(vpc, key) if peer is None else judge_peer(vpc, peer, find)
        if trouble is not None:
            return trouble
    return None


def judge_peer(vpc: VPC, peer: VPC, find: FindVPC) -> Trouble | None:
    """Why `vpc` and `peer`, which it names, exchange no packets. Only of a VPC that names it, too, more is told."""
    if key_of(vpc) not in named_peers(peer):
        return _not_mutual(vpc, key_of(peer))
    if shared := first_shared(_all_of(vpc), _all_of(peer)):
        return Trouble(
            reason="PeerOverlaps",
            message=f"VPC '{key_of(vpc)}' and its peer '{key_of(peer)}' both hold {shared}, by their cidrs or routes, "
            "so that an address could be two machines': take the route out of spec.routes, the peer out of "
            "spec.peers, or make a VPC with other cidrs",
        )
    for one, other in ((vpc, peer), (peer, vpc)):
        if (rival := _rival(one, other, find)) is not None and one is vpc:
            return Trouble(
                reason="PeersOverlap",
                message=f"the peers '{rival}' and '{key_of(other)}' of VPC '{key_of(one)}' hold the same addresses, by "
                f"their cidrs or routes, and '{rival}' counts: it is named first, or the other one has a route to what "
                "is its own; take one of them out of spec.peers",
            )
        if rival is not None:
            return Trouble(
                reason="PeersOverlap",
                message=f"VPC '{key_of(one)}' has a peer already that holds addresses of VPC '{key_of(other)}': take "
                "one of the two out of spec.peers there",
            )
    return None


def _not_mutual(vpc: VPC, key: str) -> Trouble:
    return Trouble(
        reason="PeerNotMutual",
        message=f"VPC '{key}' does not name VPC '{key_of(vpc)}' in its spec.peers, or there is no such VPC: no packets "
        "are exchanged until it does; ask those whose it is, or take it out of spec.peers",
    )


def _rival(vpc: VPC, peer: VPC, find: FindVPC) -> str | None:
    """A peer of `vpc` because of which `peer` is none. Of two that hold the same addresses the one counts that `vpc`
    names first; but a route to what is of another one's cidrs counts against who has the route."""
    is_named_before = True
    for key in named_peers(vpc):
        if key == key_of(peer):
            is_named_before = False
            continue
        other = find(key)
        if other is None or key_of(vpc) not in named_peers(other) or first_shared(_all_of(vpc), _all_of(other)):
            continue
        if first_shared(_routes_of(peer), other.spec.cidrs):
            return key
        if not is_named_before or first_shared(_routes_of(other), peer.spec.cidrs):
            continue
        if first_shared(_all_of(other), _all_of(peer)):
            return key
    return None


def _routes_of(vpc: VPC) -> tuple[str, ...]:
    return tuple(each.destination for each in vpc.spec.routes)


def _all_of(vpc: VPC) -> tuple[str, ...]:
    """What its hosts may send from."""
    return *vpc.spec.cidrs, *_routes_of(vpc)
