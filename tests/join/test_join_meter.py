"""Joins as they are counted: by how they end and why, and never by who asked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import provisioner.join.admission as admission
from provisioner.api.machinery.errors import Retryable
from provisioner.attestation.outcome import Reason
from provisioner.join.admission.admit import Challenged, Denied, NotYet
from provisioner.join.admission.meter import REASONS, JoinMeter
from provisioner.join.admission.request import JoinRequest
from provisioner.join.admission.service import Answer
from provisioner.join.tokens.mint import mint_token
from tests.join.samples import request


@dataclass
class FakeService:
    """Answers each request alike, or raises."""

    answer: Answer | Exception

    def join(self, request: JoinRequest, source_address: str, *, by_dpu: bool = False) -> Answer:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"provisioner_{name}", labels)


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (Denied("WrongAddress", "no"), "denied", "WrongAddress"), (NotYet("NoImage", "later"), "not_yet", "NoImage"),
        (Denied("52:54:00:12:34:56", "made up"), "denied", "Other"), (Challenged({}), "challenged", ""),
        (Retryable("away"), "unavailable", ""), (RuntimeError("a fault"), "unavailable", ""),
    ],
)  # fmt: skip
def test_a_join_is_counted_by_its_end_and_its_reason(answer: Answer | Exception, outcome: str, reason: str) -> None:
    registry = CollectorRegistry()
    meter = JoinMeter(registry)
    series = len(generate_latest(registry).splitlines())
    service = meter.around(FakeService(answer))
    if isinstance(answer, Exception):
        with pytest.raises(type(answer)):
            service.join(request(), "10.80.0.21")
    else:
        assert service.join(request(), "10.80.0.21") is answer
    assert value(registry, "joins_total", outcome=outcome, reason=reason) == 1
    assert value(registry, "join_seconds_count", outcome=outcome) == 1
    assert sum(m.value for f in registry.collect() for m in f.samples if m.name == "provisioner_joins_total") == 1
    assert len(generate_latest(registry).splitlines()) == series


def test_tokens_are_counted_and_none_is_told() -> None:
    registry = CollectorRegistry()
    token = JoinMeter(registry).minted(mint_token)()
    assert value(registry, "join_tokens_minted_total") == 1
    assert token.id not in generate_latest(registry).decode()


def test_every_reason_that_a_join_may_have_has_its_series() -> None:
    source = "".join(path.read_text() for path in Path(admission.__file__).parent.rglob("*.py"))
    waits_for_a_person = {"EndorsementKeyUnknown", "FirmwareNotApproved", "EventLogMissing"} | set(
        re.findall(r"\.pending\(\s*\"(\w+)\"", source)
    )
    of_proofs = {
        "denied": {each.value for each in Reason} | {"EvidenceUnknown"},
        "not_yet": waits_for_a_person,
    }
    for outcome, kind in (("denied", "Denied"), ("not_yet", "NotYet")):
        said = set(re.findall(rf"\b{kind}\(\s*\"(\w+)\"", source))
        assert said
        assert said | of_proofs[outcome] == set(REASONS[outcome]) - {"Other"}
