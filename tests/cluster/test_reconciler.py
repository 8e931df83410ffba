"""The frame around a controller's decision: what every controller does, tried with one of a few lines."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.api import Rack
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.errors import Conflict
from provisioner.api.machinery.meta import Condition, ConditionStatus, rfc3339
from provisioner.cluster.controller import RESYNC_SECONDS
from provisioner.cluster.events import Happened
from provisioner.cluster.own_writes import BEHIND_SECONDS
from provisioner.cluster.reconciler import UNSYNCED_SECONDS, Owned, Said, StatusReconciler, news_of
from provisioner.cluster.resources import of
from provisioner.cluster.source import Object
from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.fake_events import FakeEvents
from tests.maintenance.chaos.fake_informer import FakeInformer

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SETTLE_SECONDS = 5.0
TOLD = Happened(type="Normal", reason="Counted", message="it was counted")


class Counting(StatusReconciler[Said]):
    """Says of a Rack what a test wants said."""

    owned = Owned(kind=Rack, manager="tests-counter", fields=("servers",), conditions=("Ready",))

    def __init__(self, site: Site) -> None:
        super().__init__(
            site.cluster,  # type: ignore[arg-type]
            site.racks,
            site.events,
            caches=(site.racks, site.others),
            now=lambda: site.now,
            rng=random.Random(1),
            settle_seconds=SETTLE_SECONDS,
            monotonic=lambda: site.seconds,
        )
        self._site = site

    def decide(self, key: str, body: Object) -> Said | float | None:
        self._site.decided.append(key)
        return self._site.says

    def is_words(self, body: Object, said: Said) -> bool:
        return self._site.only_words

    def confirm(self, body: Object, said: Said) -> Said:
        return self._site.confirms(said)

    def leave(self, key: str, body: Object | None) -> None:
        self._site.left.append((key, body is None))


class Site:
    """A Rack in an API server in memory, and what its controller is made to say."""

    def __init__(self) -> None:
        self.now = NOON
        self.seconds = 0.0
        self.cluster = FakeCluster(lambda: self.now)
        self.racks = FakeInformer(of(Rack), lambda: dict(self.cluster.stored(of(Rack))))
        self.others = FakeInformer(of(Rack), dict)
        self.events = FakeEvents()
        self.decided: list[str] = []
        self.left: list[tuple[str, bool]] = []
        self.says: Said | float | None = self.said(3)
        self.only_words = False
        self.confirms: Callable[[Said], Said] = lambda said: said
        self.write({"spec": {"site": "one", "subnets": []}})
        self.catch_up()
        self.controller = Counting(self)

    def write(self, body: dict[str, Any], manager: str = "tests") -> None:
        rack = {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Rack", "metadata": {"name": "r1"}}
        self.cluster.apply({**rack, **body}, manager=manager, subresource="status" if "status" in body else None)

    def said(self, servers: int, **more: Any) -> Said:
        return Said(status={"servers": servers}, events=(TOLD,), **more)

    def catch_up(self) -> None:
        self.racks.catch_up()
        self.others.catch_up()

    def reconcile(self) -> float | None:
        return self.controller.reconcile("r1")

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get(of(Rack), "r1").get("status") or {}
        return found

    @property
    def writes(self) -> int:
        return int(self.cluster.get(of(Rack), "r1")["metadata"]["resourceVersion"])


def ready(message: str) -> dict[str, Any]:
    body: dict[str, Any] = to_json(
        Condition(type="Ready", status="True", reason="Counted", message=message, last_transition_time=rfc3339(NOON))
    )
    return body


@pytest.fixture
def site() -> Site:
    return Site()


def test_what_is_said_is_written_and_then_told_and_the_object_is_looked_at_again_in_time(site: Site) -> None:
    again = site.reconcile()
    assert site.status["servers"] == 3
    assert site.events.reasons() == ["Counted"]
    assert again is not None
    assert RESYNC_SECONDS <= again <= 1.2 * RESYNC_SECONDS
    site.says = site.said(4, requeue_after_seconds=7.0)
    site.catch_up()
    assert site.reconcile() == 7.0


def test_nothing_is_decided_while_a_cache_is_not_complete(site: Site) -> None:
    site.others.has_synced = False
    assert site.reconcile() == UNSYNCED_SECONDS
    assert not site.decided


def test_an_object_that_is_gone_or_going_is_left(site: Site) -> None:
    site.cluster.patch(of(Rack), "r1", {"metadata": {"finalizers": ["tests/stays"]}}, manager="tests")
    site.cluster.delete(of(Rack), "r1")
    site.catch_up()
    assert site.reconcile() is None
    site.cluster.patch(of(Rack), "r1", {"metadata": {"finalizers": None}}, manager="tests")
    site.catch_up()
    assert site.reconcile() is None
    assert site.left == [("r1", False), ("r1", True)]
    assert not site.decided


def test_nothing_is_decided_on_a_copy_older_than_the_controllers_own_write(site: Site) -> None:
    site.reconcile()
    site.says = site.said(4)
    assert site.reconcile() == BEHIND_SECONDS
    assert len(site.decided) == 1
    site.catch_up()
    site.reconcile()
    assert site.status["servers"] == 4


def test_what_others_write_of_the_status_is_no_reason_to_write(site: Site) -> None:
    site.reconcile()
    theirs = ready("measured") | {"type": "CacheAvailable"}
    site.write({"status": {"conditions": [theirs], "cacheReports": []}}, manager="somebody else")
    site.catch_up()
    before = site.writes
    site.reconcile()
    assert site.writes == before
    assert site.events.reasons() == ["Counted"]


def test_a_condition_is_written_where_it_says_something_else_and_taken_back_where_it_is_left_out(site: Site) -> None:
    for conditions in ([ready("one")], [ready("two")], []):
        site.says = Said(status={"servers": 3, "conditions": conditions})
        site.reconcile()
        site.catch_up()
        assert site.status.get("conditions", []) == conditions


@pytest.mark.parametrize("more", [{"pendingServers": 1}, {"conditions": [ready("one") | {"type": "Degraded"}]}])
def test_what_is_not_declared_is_refused_for_what_changes_in_it_would_not_be_written(
    site: Site, more: dict[str, Any]
) -> None:
    site.says = Said(status={"servers": 3} | more)
    with pytest.raises(ValueError, match=r"tests-counter owns no (pendingServers|Degraded) in the status of a Rack"):
        site.reconcile()


def test_an_object_that_has_changed_meanwhile_is_not_written_and_told_nothing_of(site: Site) -> None:
    site.write({"spec": {"site": "two", "subnets": []}})
    with pytest.raises(Conflict):
        site.reconcile()
    assert not site.status
    assert not site.events.told
    assert site.reconcile() == BEHIND_SECONDS, "the same copy would meet the same conflict"
    site.catch_up()
    site.reconcile()
    assert site.status["servers"] == 3


def test_of_an_object_that_was_deleted_meanwhile_nothing_is_told(site: Site) -> None:
    site.cluster.delete(of(Rack), "r1")
    site.reconcile()
    assert not site.events.told


def test_words_are_put_off_until_they_have_stood_for_a_while_and_then_written_once(site: Site) -> None:
    site.only_words = True
    assert site.reconcile() == SETTLE_SECONDS
    site.seconds, site.says = 3.0, site.said(4)
    assert site.reconcile() == SETTLE_SECONDS - 3.0, "counted from the first of them"
    assert not site.status
    site.seconds = SETTLE_SECONDS
    site.reconcile()
    assert site.status["servers"] == 4
    assert site.events.reasons() == ["Counted"]


def test_words_that_were_taken_back_count_anew(site: Site) -> None:
    site.only_words = True
    site.reconcile()
    site.seconds, site.says = 3.0, Said(status={})
    site.reconcile()
    site.seconds, site.says = 4.0, site.said(4)
    assert site.reconcile() == SETTLE_SECONDS


def test_what_is_not_confirmed_is_not_written(site: Site) -> None:
    site.confirms = lambda said: Said(status={}, requeue_after_seconds=2.0)
    assert site.reconcile() == 2.0
    assert not site.status
    site.confirms = lambda said: site.said(5)
    site.reconcile()
    assert site.status["servers"] == 5, "it is written as it was confirmed"


@pytest.mark.parametrize("says", [None, 4.0])
def test_where_nothing_can_be_said_yet_nothing_is_written(site: Site, says: float | None) -> None:
    site.says = says
    assert site.reconcile() == says
    assert not site.status


def test_where_the_status_is_to_stay_it_stays(site: Site) -> None:
    site.reconcile()
    site.catch_up()
    site.says = Said(requeue_after_seconds=9.0)
    assert site.reconcile() == 9.0
    assert site.status["servers"] == 3


@pytest.mark.parametrize(
    ("before", "after", "news"),
    [
        (None, ("True", "Fine"), "Normal"),
        (None, ("False", "Broken"), "Warning"),
        (None, ("False", "WaitsForIt"), "Normal"),
        (("True", "Fine"), ("True", "Fine"), None),
        (("True", "Fine"), ("False", "Broken"), "Warning"),
        (("False", "Broken"), ("False", "MoreBroken"), "Warning"),
    ],
)
def test_a_condition_is_told_of_where_its_status_or_reason_is_another(
    before: tuple[ConditionStatus, str] | None, after: tuple[ConditionStatus, str], news: str | None
) -> None:
    def condition(status: ConditionStatus, reason: str) -> Condition:
        return Condition(type="Ready", status=status, reason=reason, message="", last_transition_time=rfc3339(NOON))

    old = condition(*before) if before is not None else None
    found = news_of(old, condition(*after), is_calm=lambda reason: reason.startswith("WaitsFor"))
    assert [each.type for each in found] == ([news] if news is not None else [])
