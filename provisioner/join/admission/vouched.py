"""Whether a DPU vouches for its host, which has no TPM to prove itself by. Pure.

What stands behind the DPU's own port is the machine that the DPU is in; nothing else can send there. So a request that
the DPU passed on, while what runs on the DPU is what it has proved to be, comes from that machine. It says nothing of
what the host runs: firmware, kernel and image stay claims.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.api.conditions import find_condition
from provisioner.api.node_pool import NodePool
from provisioner.api.server import Server
from provisioner.join.admission.attestation import Proof, Proven, Unproven
from provisioner.join.admission.request import JoinRequest
from provisioner.rules.dpus import carries_boot_of


def vouch(
    proof: Proof | None,
    request: JoinRequest,
    server: Server,
    pool: NodePool | None,
    dpus: Sequence[Server],
    source_address: str,
    *,
    by_dpu: bool,
) -> Proof | None:
    """`proof`, or in its place what the DPU says of a host that offered nothing. Not for other pools than those that
    ask for it.

    A machine that is known to have a TPM proves itself, and a proof that was offered stands, however it came out: else
    the DPU's word would be a way around it.
    """
    if pool is None or pool.spec.attestation != "Required" or pool.spec.without_tpm != "VouchedByDPU":
        return proof
    if request.evidence_type != "None" or not isinstance(proof, Unproven | None):
        return proof
    known = server.status.attestation.endorsement_key_sha256 if server.status.attestation is not None else None
    if server.spec.endorsement_key_sha256 is not None or known is not None:
        return Unproven(f"server {server.name} is known to have a TPM, and no DPU vouches for such a one")
    if not by_dpu:
        return Unproven("it offered no evidence, and no DPU passed its request on")
    passed_on = [each for each in dpus if carries_boot_of(each, server) and each.status.address == source_address]
    if not passed_on:
        return Unproven(f"{source_address}, which passed its request on, is no DPU by which it boots")
    dpu = min(passed_on, key=lambda each: each.name)
    why_not = find_unattested(dpu)
    if why_not is not None:
        return Unproven(f"it offered no evidence, and DPU {dpu.name} vouches for nobody: {why_not}")
    return Proven(f"DPU {dpu.name}, which proved its own boot, passed the request on from its own port")


def find_unattested(dpu: Server) -> str | None:
    """Why what runs on `dpu` now is not what it proved to be; None if it is."""
    status = dpu.status
    proved, order, join = status.attestation, status.order, status.join
    if proved is None or proved.order_id is None or proved.boot_id is None or order is None:
        return "it has proved nothing of itself"
    if proved.order_id != order.id or join is None or join.order_id != order.id:
        return f"it was ordered to boot anew ({order.id}), and has not proved that boot yet"
    booted = proved.boot_id.lower()
    if join.boot_id is None or join.boot_id.lower() != booted:
        return f"it proved boot {proved.boot_id}, and boot {join.boot_id or 'none'} was given its credentials"
    if status.boot_id is None or status.boot_id.lower() != booted:
        return f"it proved boot {proved.boot_id}, and its Node reports {status.boot_id or 'none'}"
    ready = find_condition(status.conditions, "Ready")
    if ready is None or ready.status != "True":  # it passes nothing on: whoever has its address is somebody else
        return "it is not Ready"
    return None
