"""Whether a DPU vouches for its host, which has no TPM to prove itself by. Pure.

What stands behind the DPU's own port is the machine that the DPU is in; nothing else can send there. So a request that
the DPU passed on, while what runs on the DPU is what it has proved to be, comes from that machine. It says nothing of
what the host runs: firmware, kernel and image stay claims.
"""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.servers.attestation import AttestationStatus
from provisioner.api.servers.server import Server
from provisioner.join.admission.attestation import EvidenceQuestion, Proof, Proven, Unproven, known_endorsement_key
from provisioner.rules.dpus import carries_boot_of


def vouch(proof: Proof, question: EvidenceQuestion, dpus: Sequence[Server], *, by_dpu: bool) -> Proof:
    """`proof`, or in its place what the DPU says of a host that offered nothing. Not for other pools than those that
    ask for it.

    dpus: the cards that are in the server. by_dpu: the request came to the listener for what DPUs pass on.
    A machine that is known to have a TPM proves itself, and a proof that was offered stands, however it came out: else
    the DPU's word would be a way around it.
    """
    settings, server = question.pool.spec, question.server
    if settings.attestation != "Required" or settings.without_tpm != "VouchedByDPU":
        return proof
    if not isinstance(proof, Unproven) or proof.offered or known_endorsement_key(server) is not None:
        return proof
    if not by_dpu:
        return Unproven("it offered no evidence, and no DPU passed its request on")
    passed_on = [each for each in dpus if _passes_on(each, question)]
    if not passed_on:
        return Unproven(f"{question.address}, which passed its request on, is no DPU by which it boots")
    dpu = min(passed_on, key=lambda each: each.name)
    why_not = find_unattested(dpu)
    if why_not is not None:
        return Unproven(f"it offered no evidence, and DPU {dpu.name} vouches for nobody: {why_not}")
    # Without an endorsement key: nobody is vouched for by who was vouched for.
    record = AttestationStatus(order_id=question.order.id, boot_id=question.request.boot_id, time=rfc3339(question.now))
    return Proven(f"DPU {dpu.name}, which has proved the boot that it runs and passed the request on", record)


def _passes_on(dpu: Server, question: EvidenceQuestion) -> bool:
    return carries_boot_of(dpu, question.server) and dpu.status.address == question.address


def find_unattested(dpu: Server) -> str | None:
    """Why what runs on `dpu` now is not what it proved to be; None if it is."""
    status = dpu.status
    proved, order, join = status.attestation, status.order, status.join
    if proved is None or proved.endorsement_key_sha256 is None or proved.boot_id is None or order is None:
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
