"""Servers that are closed in Slurm for a moment to come. slurmrestd is a fake here: Debian's is too old to reserve."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api.machinery.errors import Retryable
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.pools.pool_settings import SlurmJobs
from provisioner.jobs.model.work import NotReserved, SlurmReserved
from provisioner.jobs.slurm.answers import Dialect, choose_dialect, read_offer
from provisioner.jobs.slurm.objects import read_node
from provisioner.jobs.slurm.reservations import HOLD
from provisioner.jobs.slurm.workloads import SlurmWorkloads
from tests.jobs.fake_slurmrestd import RESERVES, VERSION, FakeSlurmrestds
from tests.jobs.pod_samples import pool
from tests.jobs.test_slurm_looks import PATH, Secrets
from tests.maintenance.samples import NOON

NODE = "s-r1"
LATER = NOON + timedelta(hours=1)
MUCH_LATER = NOON + timedelta(hours=2)


class Desk:
    """SlurmWorkloads of one pool, with a clock that a test sets."""

    def __init__(self, version: str) -> None:
        self.now = NOON
        self.slurm = FakeSlurmrestds({PATH: [NODE, "s-r2"]}, version=version, now=lambda: self.now.timestamp())
        self.workloads = SlurmWorkloads(
            Secrets(),  # type: ignore[arg-type]
            namespace="provisioner-system",
            now=lambda: self.now,
        )
        settings = SlurmJobs(url=self.slurm.url(PATH), credentials_name="slurm", node_name_prefix="s-")
        self.pool: NodePool = pool(slurm=settings)

    def reserve(self, begins: datetime, server: str = "r1", maintenance: str = "r1-1") -> SlurmReserved | None:
        return self.workloads.reserve(server, self.pool, maintenance, begins)

    @property
    def there(self) -> dict[str, dict[str, Any]]:
        return self.slurm.reservations[PATH]

    def begin_of(self, name: str = "provisioner-r1-1") -> datetime:
        return datetime.fromtimestamp(self.there[name]["start_time"]["number"], UTC)

    def acts(self) -> list[str]:
        """What slurmrestd was asked to do, not to show, since the last time."""
        asked, self.slurm.asked[:] = [what for _, what in self.slurm.asked if not what.startswith("GET")], []
        return asked


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk(RESERVES)
    yield made
    made.slurm.close()


@pytest.fixture
def old_desk() -> Iterator[Desk]:
    made = Desk(VERSION)
    yield made
    made.slurm.close()


def chosen_of(*paths: tuple[str, dict[str, Any]]) -> Dialect:
    node = ("/slurm/v0.0.43/node/{node_name}", {"post": {}})
    return choose_dialect((read_offer(path, value) for path, value in (node, *paths)), "http://slurm")


def test_it_is_reserved_only_where_the_document_has_both_the_making_and_the_deleting() -> None:
    make = ("/slurm/v0.0.43/reservation", {"post": {}})
    delete = ("/slurm/v0.0.43/reservation/{reservation_name}", {"get": {}, "delete": {}})
    assert chosen_of(make, delete).reserves
    assert not chosen_of(make).reserves
    assert not chosen_of(delete).reserves
    assert not chosen_of(make, (delete[0], {"get": {}})).reserves
    assert not chosen_of((make[0].replace("43", "42"), make[1]), delete).reserves


def test_a_server_is_reserved_from_a_moment_on_for_a_week(desk: Desk) -> None:
    assert desk.reserve(LATER) == SlurmReserved(node=NODE, maintenance="r1-1", begins=LATER)
    (made,) = desk.there.values()
    assert (made["name"], made["node_list"]) == ("provisioner-r1-1", NODE)
    assert made["flags"] == ["MAINT", "IGNORE_JOBS"]
    assert desk.begin_of() == LATER
    assert made["end_time"]["number"] == (LATER + HOLD).timestamp()


def test_asked_again_slurm_is_told_nothing(desk: Desk) -> None:
    for begins in (LATER, LATER, LATER + timedelta(milliseconds=300)):
        assert desk.reserve(begins) is not None
    assert desk.acts() == ["POST reservation"]


@pytest.mark.parametrize("begins", [MUCH_LATER, NOON + timedelta(minutes=1)])
def test_one_that_has_not_begun_is_moved(desk: Desk, begins: datetime) -> None:
    desk.reserve(LATER)
    found = desk.reserve(begins)
    assert found is not None
    assert found.begins == begins == desk.begin_of()
    assert len(desk.there) == 1


def test_one_that_has_begun_stays_for_slurm_moves_it_no_more(desk: Desk) -> None:
    desk.reserve(LATER)
    desk.acts()
    desk.now = LATER + timedelta(seconds=1)
    found = desk.reserve(MUCH_LATER)
    assert found is not None
    assert found.begins == LATER
    assert desk.acts() == []


def test_a_moment_that_has_passed_is_now(desk: Desk) -> None:
    desk.reserve(NOON - timedelta(hours=1))
    assert desk.begin_of() == NOON


def test_what_was_done_and_not_answered_is_found_done(desk: Desk) -> None:
    desk.slurm.loses = {"POST", "DELETE"}
    assert desk.reserve(LATER) is not None
    assert desk.workloads.unreserve(NODE, "r1-1", desk.pool)
    assert desk.there == {}


def test_what_slurm_refuses_is_not_taken_for_done(desk: Desk) -> None:
    desk.reserve(LATER)
    desk.slurm.reservations[PATH]["provisioner-r1-1"]["end_time"]["number"] = LATER.timestamp()
    desk.now = LATER + timedelta(seconds=1)
    with pytest.raises(NotReserved, match="Reservation already started"):
        desk.reserve(MUCH_LATER)


def test_that_slurm_does_not_answer_is_no_refusal(desk: Desk) -> None:
    desk.reserve(LATER)
    desk.slurm.says[PATH] = (500, b"{}")
    with pytest.raises(Retryable) as failed:
        desk.reserve(MUCH_LATER)
    assert not isinstance(failed.value, NotReserved)


@pytest.mark.parametrize(
    "states", [["IDLE", "MAINTENANCE", "RESERVED"], ["MIXED", "MAINTENANCE"], ["IDLE", "RESERVED"]]
)
def test_a_node_that_is_reserved_can_be_drained_and_is_busy_only_with_jobs(states: list[str]) -> None:
    node = read_node({"name": NODE, "state": states})
    assert node.takes_jobs, "it is no drain"
    assert not node.is_drained
    assert node.is_busy is ("MIXED" in states)
    assert read_node({"name": NODE, "state": [*states, "DRAIN"]}).is_drained


def test_one_of_our_name_on_another_node_is_somebody_elses(desk: Desk) -> None:
    desk.reserve(LATER, "r2")
    before = dict(desk.there)
    with pytest.raises(NotReserved, match=r"reservation provisioner-r1-1 is of s-r2, not of s-r1: delete it"):
        desk.reserve(MUCH_LATER)
    assert not desk.workloads.unreserve(NODE, "r1-1", desk.pool)
    assert desk.there == before


def test_the_release_deletes_ours_and_no_other(desk: Desk) -> None:
    desk.reserve(LATER)
    desk.reserve(LATER, maintenance="r1-2")
    assert desk.workloads.unreserve(NODE, "r1-1", desk.pool)
    assert not desk.workloads.unreserve(NODE, "r1-1", desk.pool)
    assert list(desk.there) == ["provisioner-r1-2"]
    assert desk.acts()[2:] == ["DELETE reservation/provisioner-r1-1"]


def test_those_that_nobody_remembers_are_found_by_their_names(desk: Desk) -> None:
    desk.reserve(LATER)
    desk.reserve(LATER, "r2", "r2-7")
    desk.there["flood"] = desk.there["provisioner-r1-1"] | {"name": "flood"}
    desk.there["provisioner-"] = desk.there["provisioner-r1-1"] | {"name": "provisioner-"}
    desk.there["provisioner-x"] = desk.there["provisioner-r1-1"] | {"name": "provisioner-x", "node_list": "s-r[1-2]"}
    assert desk.workloads.reserved(desk.pool, ["r1"]) == (SlurmReserved(node=NODE, maintenance="r1-1", begins=LATER),)
    assert {each.maintenance for each in desk.workloads.reserved(desk.pool, ["r1", "r2"])} == {"r1-1", "r2-7"}


def test_a_reservation_whose_times_are_no_numbers_hides_no_other(desk: Desk) -> None:
    desk.reserve(LATER)
    desk.there["odd"] = {"name": "odd", "start_time": {"set": True, "number": 1e300}, "end_time": [], "node_list": None}
    assert len(desk.workloads.reserved(desk.pool, ["r1"])) == 1


def test_an_older_slurmrestd_is_asked_for_none_and_the_drain_is_left(old_desk: Desk) -> None:
    assert old_desk.reserve(LATER) is None
    assert not old_desk.workloads.unreserve(NODE, "r1-1", old_desk.pool)
    assert old_desk.acts() == []
    drained = old_desk.workloads.close("r1", old_desk.pool, "provisioner: r1-1")
    assert drained is not None
    assert drained.ours


def test_one_that_is_left_under_an_older_slurmrestd_is_told_with_the_remedy(old_desk: Desk) -> None:
    times = {"start_time": {"set": True, "number": 1}, "end_time": {"set": True, "number": 2}}
    old_desk.there["provisioner-r1-1"] = {"name": "provisioner-r1-1", "node_list": NODE} | times
    with pytest.raises(Retryable, match="scontrol delete reservation=provisioner-r1-1"):
        old_desk.workloads.unreserve(NODE, "r1-1", old_desk.pool)
    assert old_desk.acts() == []


def test_a_pool_without_slurm_has_none(desk: Desk) -> None:
    without = pool()
    assert desk.workloads.reserve("r1", without, "r1-1", LATER) is None
    assert not desk.workloads.unreserve(NODE, "r1-1", without)
    assert desk.workloads.reserved(without, ["r1"]) == ()
    assert desk.slurm.asked == []
