"""What a machine proves of itself before it may join.

Nothing yet: only evidence of type None is known, and it proves nothing. The seam is made for a TPM, which needs two
steps: the first request names endorsement and attestation keys, the answer is a challenge (credential activation and a
nonce to quote), the second request carries the activated secret and the quote. A challenge must be verifiable by any
replica, so a verifier seals what it has to remember into the challenge itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from provisioner.api.server import Server
from provisioner.join.admission.request import JoinRequest


@dataclass(frozen=True)
class Proven:
    """The machine is this server; `how` says by what, for the record."""

    how: str


@dataclass(frozen=True)
class Unproven:
    """Nothing is proven; `why` says what was missing or wrong."""

    why: str


@dataclass(frozen=True)
class Challenge:
    """What the machine has to answer in its next request; sent as JSON with HTTP 401."""

    challenge: Mapping[str, Any]


Proof = Proven | Unproven | Challenge


class Verifier(Protocol):
    """Judges one type of evidence. Has no effects."""

    def verify(self, server: Server, request: JoinRequest) -> Proof: ...


class NoEvidence:
    """Evidence of type None."""

    def verify(self, server: Server, request: JoinRequest) -> Proof:
        return Unproven("the machine offered no evidence")


VERIFIERS: Final[Mapping[str, Verifier]] = {"None": NoEvidence()}
"""By the type of evidence. Another kind of proof is another entry."""


def prove(server: Server, request: JoinRequest, verifiers: Mapping[str, Verifier]) -> Proof:
    """Let the verifier for the request's type of evidence judge it."""
    verifier = verifiers.get(request.evidence_type)
    if verifier is None:
        return Unproven(f"evidence of type {request.evidence_type!r} is not known here")
    return verifier.verify(server, request)
