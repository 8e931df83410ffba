"""What a machine proves of itself before it may join: the seam between the decision and a kind of proof.

A proof takes two requests. The first names keys, the answer is a challenge; the second answers it. A challenge must be
verifiable by any replica, so a verifier seals what it has to remember into the challenge itself. Nobody is asked before
the request is known to come from the server's own address, for an order that is armed: see `admit`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from provisioner.api.images.image import Image
from provisioner.api.machinery.values import SecretBytes, Sha256Digest
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.attestation import AttestationStatus, SeenMachine
from provisioner.api.servers.firmware_profile import FirmwareProfile
from provisioner.api.servers.server import BootOrder, Server
from provisioner.join.admission.request import JoinRequest
from provisioner.join.admission.successor import Successor


@dataclass(frozen=True, kw_only=True)
class EvidenceQuestion:
    """Whose proof is asked for. address: where the request came from, which was found right. successor: by whose
    request key it asks, if that is the one that the system before it was given for this boot (a kexec)."""

    server: Server
    request: JoinRequest
    order: BootOrder
    pool: NodePool
    image: Image
    address: str
    now: datetime
    successor: Successor | None = None


@dataclass(frozen=True)
class Seal:
    """What the machine that answered the challenge shares with us: the secret that its TPM opened, and the nonce."""

    secret: SecretBytes
    nonce: bytes
    endorsement_key_sha256: str


@dataclass(frozen=True)
class Proven:
    """The machine is this server; `how` says by what. record: what was proved, for the status. seal: to whom alone the
    configuration is readable."""

    how: str
    record: AttestationStatus = field(default_factory=AttestationStatus)
    seal: Seal | None = None


@dataclass(frozen=True)
class Pending:
    """All that was shown holds together, and a person has to approve it. learned: what is to be approved, if it is to
    be written down first."""

    reason: str
    message: str
    seen: SeenMachine
    learned: FirmwareProfile | None = None
    seal: Seal | None = None


@dataclass(frozen=True)
class Unproven:
    """Nothing is proven; `why` says what was missing or wrong. offered: a proof was offered, and does not hold."""

    why: str
    offered: bool = False
    reason: str = "ProofRefused"


@dataclass(frozen=True)
class Challenge:
    """What the machine has to answer in its next request; sent as JSON with HTTP 401."""

    challenge: Mapping[str, Any]


Proof = Proven | Pending | Unproven | Challenge


class EvidenceVerifier(Protocol):
    """Judges one type of evidence. Changes nothing. Raises: Retryable where it cannot judge now."""

    def verify(self, question: EvidenceQuestion) -> Proof: ...


class NoEvidence:
    """Evidence of type None."""

    def verify(self, question: EvidenceQuestion) -> Proof:
        return Unproven("the machine offered no evidence")


VERIFIERS: Final[Mapping[str, EvidenceVerifier]] = {"None": NoEvidence()}
"""By the type of evidence. Another kind of proof is another entry."""


def prove(question: EvidenceQuestion, verifiers: Mapping[str, EvidenceVerifier]) -> Proof:
    """Let the verifier for the request's type of evidence judge it. What is not known here proves nothing."""
    kind = question.request.evidence_type
    verifier = verifiers.get(kind)
    if verifier is None:
        return Unproven(f"evidence of type {kind!r} is not known here", offered=True, reason="EvidenceUnknown")
    return verifier.verify(question)


def known_endorsement_key(server: Server) -> Sha256Digest | None:
    """The endorsement key by which alone the machine is this server: the registered one, else the one that was proved.

    A machine that has proved one once is not believed without it any more.
    """
    attested = server.status.attestation
    known = server.spec.endorsement_key_sha256 or (attested.endorsement_key_sha256 if attested is not None else None)
    return Sha256Digest(known) if known else None
