"""What the join service writes of a join: times that tell the phases of a boot apart."""

from __future__ import annotations

from datetime import timedelta

import pytest

from provisioner.api import Server
from provisioner.api.machinery.codec import decode, encode
from provisioner.api.machinery.meta import parse_time
from provisioner.api.servers.boot_timeline import stage_moments
from provisioner.join.admission.admit import Admitted, Denied
from provisioner.join.admission.status import claim, note
from tests.join.samples import NOW, order, pool, request, server

FETCHED = NOW + timedelta(microseconds=678_901)


def claimed() -> Server:
    """A server whose configuration was handed out a part of a second after noon, as it is read again."""
    written = encode(server())
    written["status"] |= claim(server(), Admitted(order(), pool(), repeat=False), request(), "abc123", FETCHED)
    return decode(Server, written)


def test_the_moment_of_the_handover_is_exact_and_begins_the_last_phase() -> None:
    joined = claimed()
    assert joined.status.join is not None
    assert joined.status.join.fetched_time == "2026-03-01T12:00:00.678901Z"
    assert ("Kubelet", FETCHED) in stage_moments(joined.status)


@pytest.mark.parametrize("later", [0.001, 0.3, 5.0])
def test_a_refusal_is_later_than_the_handover_in_the_same_second_too(later: float) -> None:
    refused = note(claimed(), Denied("AlreadyFetched", "was handed out"), FETCHED + timedelta(seconds=later))
    assert refused is not None
    assert parse_time(refused["join"]["refusedTime"]) > parse_time(refused["join"]["fetchedTime"])


def test_a_refusal_that_was_written_is_not_written_again_at_once() -> None:
    first = note(claimed(), Denied("AlreadyFetched", "was handed out"), FETCHED + timedelta(seconds=0.1))
    assert first is not None
    written = encode(claimed())
    written["status"] |= first
    assert (
        note(decode(Server, written), Denied("AlreadyFetched", "was handed out"), FETCHED + timedelta(seconds=0.2))
        is None
    )
