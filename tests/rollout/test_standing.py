"""Where a server stands in its pool's rollout."""

from __future__ import annotations

from datetime import timedelta

from provisioner.api import Condition, Server
from provisioner.api.meta import rfc3339
from provisioner.api.server import ServerStatus, Verification
from provisioner.rollout.standing import NodeSign, Target, judge_standing
from tests.boot.objects import server
from tests.rollout.fleets import NOON, after

TARGET = Target(name="new", digest="sha256:2")


def checked(boot_id: str, *, ready_minutes: float = 60.0) -> Server:
    """With the new image, Ready for so many minutes, and Verified for two hours."""
    times = {"Ready": NOON - timedelta(minutes=ready_minutes), "Verified": NOON - timedelta(hours=2)}
    conditions = tuple(
        Condition(type=type_, status="True", reason="Fine", message="", last_transition_time=rfc3339(time))
        for type_, time in times.items()
    )
    verification = Verification(
        boot_id=boot_id, image_digest="sha256:2", attempt=1, started_time=rfc3339(NOON), finished_time=rfc3339(NOON)
    )
    status = ServerStatus(image_ref="new", image_digest="sha256:2", conditions=conditions, verification=verification)
    return server("a", status=status)


def test_a_server_is_in_use_since_its_boot_was_ready_and_verified() -> None:
    sign = NodeSign(boot_id="b1", held=False)
    found = judge_standing(checked("b1"), sign, (), TARGET, retried=None, now=after(0))
    assert (found.state, found.in_use, found.since) == ("Updated", True, after(-1))


def test_what_was_checked_in_the_boot_before_says_nothing_of_the_boot_that_runs() -> None:
    sign = NodeSign(boot_id="b2", held=False)
    rebooted = checked("b1", ready_minutes=1)
    found = judge_standing(rebooted, sign, (), TARGET, retried=None, now=after(0))
    assert (found.state, found.in_use) == ("Down", False)
    assert found.again == after(0) - 60 + 300, "it has failed if it is not verified by then"
