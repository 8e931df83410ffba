"""What the join would answer a machine now, if it is the server that it says it is. Pure.

The decision is `judge_claim`'s; this only asks in the machine's place: from where the server asks, with a boot that
nobody has seen and with the Image that its order names.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from provisioner.api.machinery.values import MacAddress, Sha256Digest
from provisioner.join.admission.admit import Admitted, Challenged, Decision, JoinFacts, judge_claim
from provisioner.join.admission.attestation import known_endorsement_key
from provisioner.join.admission.request import JoinRequest
from provisioner.rules.dpus import carries_boot_of

NEW_BOOT: Final = "00000000-0000-4000-8000-000000000000"
"""A kernel boot id that no machine has."""
_NO_KEY: Final = Sha256Digest("sha256:" + "0" * 64)
"""Of no key: a machine that repeats its request has the one that it invented."""


@dataclass(frozen=True)
class Foreseen:
    """by_dpu: whether the request was taken to come by the DPU in the server."""

    decision: Decision
    by_dpu: bool


def foresee_join(facts: JoinFacts, mac: MacAddress, now: datetime) -> Foreseen:
    """Ask as the next boot of the machine would."""
    server, image = facts.server, facts.image
    carriers = [dpu for dpu in facts.dpus if server is not None and carries_boot_of(dpu, server)]
    request = JoinRequest(
        mac_address=mac,
        system_uuid=server.spec.system_uuid if server is not None else None,
        boot_id=NEW_BOOT,
        image_digest=Sha256Digest(image.spec.digest) if image is not None else _NO_KEY,
        request_key_sha256=_NO_KEY,
        evidence={"type": "None"},
    )
    # By whichever of several DPUs: the first that has an address.
    by_dpu = next((dpu.status.address for dpu in carriers if dpu.status.address is not None), None)
    own = server.status.address if server is not None else None
    source = by_dpu or own or ""
    decision = judge_claim(facts, request, source, now, by_dpu=bool(carriers))
    if isinstance(decision, Admitted) and server is not None:
        # What its TPM would say nobody can ask here.
        known = known_endorsement_key(server)
        if known is not None or decision.pool.spec.attestation == "Required":
            decision = Challenged({})
    return Foreseen(decision, bool(carriers))
