"""Joins, counted by how they ended and why. The reasons are ours; who asked is in no label."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from provisioner.attestation.outcome import Reason
from provisioner.cluster.series import PREFIX, born
from provisioner.join.admission.admit import Challenged, Denied, NotYet
from provisioner.join.admission.request import JoinRequest
from provisioner.join.admission.service import Answer
from provisioner.join.admission.web import Joins
from provisioner.join.tokens.mint import BootstrapToken

REASONS: Final = {
    "admitted": ("",),
    "challenged": ("",),
    "not_yet": (
        "NotSynced", "NoAddress", "NotOrdered", "OrderNotCarriedOut", "StillOldBoot", "OtherBootAwaited", "OldBootRuns",
        "NoImage", "ImageNotJudged", "NodeNotPrepared", "Superseded", "EndorsementKeyUnknown", "FirmwareNotApproved",
        "EventLogMissing", "ImageNotMeasured", "PredecessorUnproven",
        "TooManyChallenges", "Other",
    ),
    "denied": (
        "UnknownMachine", "WrongAddress", "NotAccepted", "SystemUUIDMismatch", "NoPool", "AttestationRequired",
        "ProofMissing", "AlreadyFetched", "OrderExpired", "WrongImage", "ImageNotVerified", "NodeNameTaken",
        "EvidenceUnknown", *(each.value for each in Reason), "Other",
    ),
    "unavailable": ("",),
}  # fmt: skip
"""By outcome. unavailable: the API server was away, or the join service has a fault."""
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class JoinMeter:
    """Counts."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._joins = Counter(
            f"{PREFIX}_joins", "Requests to join that could be read, by how they ended and why.", ("outcome", "reason"),
            registry=registry,
        )  # fmt: skip
        self._seconds = Histogram(
            f"{PREFIX}_join_seconds", "How long the answer to a request to join took.", ("outcome",), buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self._tokens = Counter(
            f"{PREFIX}_join_tokens_minted", "Bootstrap tokens that were made for machines.", registry=registry
        )
        for outcome, reasons in REASONS.items():
            born(self._joins, (outcome,), reasons)
        born(self._seconds, REASONS)

    def around(self, service: Joins) -> Joins:
        """The same service, counted."""
        return _Metered(service, self)

    def minted(self, mint: Callable[[], BootstrapToken]) -> Callable[[], BootstrapToken]:
        """The same mint, counted."""

        def counted() -> BootstrapToken:
            token = mint()
            self._tokens.inc()
            return token

        return counted

    def ended(self, answer: Answer | None, began: float) -> None:
        """`answer`: None if there was none. `began`: by the monotonic clock."""
        outcome, reason = _outcome(answer)
        self._joins.labels(outcome, reason if reason in REASONS[outcome] else "Other").inc()
        self._seconds.labels(outcome).observe(time.monotonic() - began)


def _outcome(answer: Answer | None) -> tuple[str, str]:
    if answer is None:
        return "unavailable", ""
    if isinstance(answer, Denied):
        return "denied", answer.reason
    if isinstance(answer, NotYet):
        return "not_yet", answer.reason
    return ("challenged", "") if isinstance(answer, Challenged) else ("admitted", "")


class _Metered:
    def __init__(self, service: Joins, meter: JoinMeter) -> None:
        self._service, self._meter = service, meter

    def join(self, request: JoinRequest, source_address: str, *, by_dpu: bool = False) -> Answer:
        began, answer = time.monotonic(), None
        try:
            answer = self._service.join(request, source_address, by_dpu=by_dpu)
        finally:
            self._meter.ended(answer, began)
        return answer
