"""What a reservation does to a real Slurm's backfill. Debian's 24.11 shows them by slurmrestd, and makes none by it:
here scontrol makes what slurmrestd of 25.05 would be asked for."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api.machinery.errors import Retryable
from provisioner.api.pools.pool_settings import SlurmJobs
from provisioner.jobs.model.work import SlurmReserved
from provisioner.jobs.slurm.objects import SlurmReservation
from provisioner.jobs.slurm.reservations import reservation_body
from provisioner.jobs.slurm.workloads import SlurmWorkloads
from tests.jobs.pod_samples import pool
from tests.jobs.slurm_site import PREFIX, SlurmSite

pytestmark = pytest.mark.programs

SERVER, NODE, NAME = "r01-u01", "s-r01-u01", "provisioner-r01-u01-1"
REASON = "provisioner: r01-u01-1"
FOREVER = "while true; do sleep 0.1; done"


class Desk:
    def __init__(self, slurm: SlurmSite) -> None:
        assert slurm.login is not None
        self._data = {"username": slurm.login.username, "token": slurm.login.token}
        self.pool = pool(slurm=SlurmJobs(url=slurm.url, credentials_name="slurm", node_name_prefix=PREFIX))
        self.workloads = SlurmWorkloads(self, namespace="any", now=lambda: datetime.now(UTC))  # type: ignore[arg-type]

    def get(self, *_: Any, **__: Any) -> dict[str, Any]:
        """The Secret."""
        return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in self._data.items()}}


@pytest.fixture
def desk(slurm: SlurmSite) -> Iterator[Desk]:
    yield Desk(slurm)
    slurm.command("scontrol", "delete", f"reservation={NAME}", check=False)


def make(slurm: SlurmSite, begins: datetime) -> None:
    """What slurmrestd would be asked for, by scontrol."""
    body = reservation_body(None, NAME, NODE, begins)
    words = {key: ",".join(body[key]) for key in ("flags", "users")} | {"nodes": ",".join(body["node_list"])}
    words |= {key.replace("_", ""): local(body[key]) for key in ("start_time", "end_time")}
    given = [f"{key}={value}" for key, value in words.items()]
    slurm.command("scontrol", "create", "reservation", f"reservationname={body['name']}", *given)


def move(slurm: SlurmSite, begins: datetime) -> None:
    body = reservation_body(SlurmReservation(NAME, NODE, None, None), NAME, NODE, begins)
    times = [f"{key.replace('_', '')}={local(body[key])}" for key in ("start_time", "end_time")]
    slurm.command("scontrol", "update", "reservation", f"reservationname={body['name']}", *times)


def local(seconds: int) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%dT%H:%M:%S")


def is_held(slurm: SlurmSite, job: str) -> bool:
    found = slurm.job(job)
    return "PENDING" in found["job_state"] and found["state_reason"] == "ReqNodeNotAvail"


def test_this_slurmrestd_has_no_reservation_to_give_and_says_so_without_being_asked(desk: Desk) -> None:
    assert desk.workloads.reserve(SERVER, desk.pool, "r01-u01-1", datetime.now(UTC) + timedelta(hours=1)) is None
    assert desk.workloads.reserved(desk.pool, [SERVER]) == ()


def test_backfill_starts_what_ends_before_the_reservation_and_nothing_else(desk: Desk, slurm: SlurmSite) -> None:
    running = slurm.submit(FOREVER, "-w", NODE, "-n2", "-t", "3")
    slurm.wait_for_job(running, "RUNNING")
    end = datetime.fromtimestamp(slurm.job(running)["end_time"]["number"], UTC)
    make(slurm, end)
    expected = SlurmReserved(node=NODE, maintenance="r01-u01-1", begins=end)
    assert desk.workloads.reserved(desk.pool, [SERVER]) == (expected,)
    long = slurm.submit(FOREVER, "-w", NODE, "-n1", "-t", "10")
    short = slurm.submit(FOREVER, "-w", NODE, "-n1", "-t", "1")
    slurm.wait_for_job(short, "RUNNING")
    slurm.wait_for(lambda: is_held(slurm, long), "the long job to be held")
    elsewhere = slurm.submit(FOREVER, "-n1", "-t", "10")
    slurm.wait_for_job(elsewhere, "RUNNING")
    assert slurm.job(elsewhere)["nodes"] != NODE
    move(slurm, datetime.now(UTC) + timedelta(seconds=1))
    slurm.wait_for(lambda: "MAINTENANCE" in slurm.node(NODE)[0], "the reservation to begin")
    late = slurm.submit("true", "-w", NODE, "-n1", "-t", "1")
    slurm.wait_for(lambda: is_held(slurm, late), "the late job to be held")
    assert all("RUNNING" in slurm.job(job)["job_state"] for job in (running, short))
    with pytest.raises(Retryable, match=f"scontrol delete reservation={NAME}"):
        desk.workloads.unreserve(NODE, "r01-u01-1", desk.pool)
    slurm.command("scontrol", "delete", f"reservation={NAME}")
    slurm.wait_for_job(long, "RUNNING")


def test_a_node_whose_reservation_has_begun_is_looked_at_drained_and_resumed_as_any_other(
    desk: Desk, slurm: SlurmSite
) -> None:
    running = slurm.submit(FOREVER, "-w", NODE, "-n1", "-t", "3")
    slurm.wait_for_job(running, "RUNNING")
    make(slurm, datetime.now(UTC) + timedelta(seconds=1))
    slurm.wait_for(lambda: "MAINTENANCE" in slurm.node(NODE)[0], "the reservation to begin")
    held = slurm.submit("true", "-w", NODE, "-n1", "-t", "1")
    slurm.wait_for(lambda: is_held(slurm, held), "the late job to be held")
    view = desk.workloads.look(SERVER, desk.pool)
    assert ([job.name for job in view.jobs], view.unknown) == ([running], ()), "nothing is planned there any more"
    slurm.command("scancel", running)
    slurm.wait_for(lambda: not desk.workloads.look(SERVER, desk.pool).jobs, "the node to be idle")
    assert "MAINTENANCE" in (desk.workloads.look(SERVER, desk.pool).state or "")
    drained = desk.workloads.close(SERVER, desk.pool, REASON)
    assert drained is not None
    assert drained.ours
    view = desk.workloads.look(SERVER, desk.pool, fresh=False)
    assert (view.jobs, view.unknown, view.reason, view.free) == ((), (), REASON, 1.0)
    assert {"DRAIN", "MAINTENANCE"} <= set((view.state or "").split("+"))
    slurm.command("scontrol", "delete", f"reservation={NAME}")
    assert "DRAIN" in slurm.node(NODE)[0], "one is not lifted by the other"
    assert desk.workloads.reopen(NODE, REASON, desk.pool)
    slurm.wait_for_job(held, "COMPLETED")
