"""Who makes a claim has the value: what a cache does not show yet decides nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from provisioner.api import NetworkClaim
from provisioner.api.network.network_claim import ClaimHolder
from provisioner.cluster.own_writes import OwnWrites
from provisioner.cluster.resources import of
from provisioner.cluster.source import Snapshot
from provisioner.network.control.claims.claimer import Claimer
from provisioner.network.control.claims.wanted import Want
from tests.cluster.fake_cluster import FakeCluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PORT = Want(name="port.d1.pf0", type="Port", value="d1/pf0")
MINE = ClaimHolder(kind="VPCAttachment", namespace="blue", name="a", uid="1")
AGAIN = replace(MINE, uid="2")
"""Made anew by the same name."""


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(now=lambda: NOW)


def claimer(cluster: FakeCluster) -> tuple[Claimer, OwnWrites]:
    own = OwnWrites(lambda: NOW)
    return Claimer(cluster, Snapshot({}), own, lambda: NOW), own  # type: ignore[arg-type]


def test_a_claim_that_another_leader_made_for_the_same_holder_is_its_own(cluster: FakeCluster) -> None:
    first, _ = claimer(cluster)
    second, own = claimer(cluster)
    assert first.claim("blue/a", PORT, MINE) is None
    assert second.claim("blue/a", PORT, MINE) is None
    assert not own.are_seen("blue/a", lambda *_: None), "it waits until its cache shows it"
    assert len(cluster.stored(of(NetworkClaim))) == 1


def test_a_claim_of_another_holder_is_in_the_way_even_of_the_same_name(cluster: FakeCluster) -> None:
    made, own = claimer(cluster)
    made.claim("blue/a", PORT, MINE)
    found = claimer(cluster)[0].claim("blue/a", PORT, AGAIN)
    assert found is not None
    assert found.spec.holder == MINE
    assert own.are_seen("blue/other", lambda *_: None)


def test_what_was_let_go_of_is_nobodys_not_even_who_had_it(cluster: FakeCluster) -> None:
    made, _ = claimer(cluster)
    made.claim("blue/a", PORT, MINE)
    made.release("blue/a", cluster.get(of(NetworkClaim), PORT.name))
    found = made.claim("blue/a", PORT, MINE)
    assert found is not None
    assert found.status.released_time == "2026-01-01T00:00:00Z"
