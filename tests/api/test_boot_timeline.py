"""A boot's phases, from a Server's status alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.api.servers.boot_timeline import boot_timeline, format_timeline, stage_moments
from provisioner.api.servers.server import BootOrder, BootProgress, JoinStatus, PowerStatus, ServerStatus, StageTime

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> str:
    return rfc3339_micro(NOON + timedelta(seconds=seconds))


def progress(**times: float) -> BootProgress:
    entries = tuple(StageTime(stage=stage, time=at(seconds)) for stage, seconds in times.items())  # type: ignore[arg-type]
    return BootProgress(stage=entries[-1].stage, stage_times=entries)


ORDER = BootOrder(id="o1", reason="FirstBoot", ordered_time=at(0), attempt=1)
WHOLE = ServerStatus(
    order=ORDER,
    power=PowerStatus(order_id="o1", order_time=at(0.2)),
    progress=progress(Firmware=3, IPXE=6.2, Stage1=8.2, Root=12.2, System=19.2, Token=31.2),
    join=JoinStatus(order_id="o1", fetched_time=at(32.2)),
    ready_time=at(38.2),
)


def test_a_whole_boot_reads_like_the_readme() -> None:
    assert format_timeline(boot_timeline(WHOLE)) == (
        "firmware 6 s · iPXE 2 s · stage-1 4 s · root 7 s · system 12 s · token 1 s · kubelet 6 s   Ready 38 s"
    )


def test_a_running_phase_shows_its_age() -> None:
    status = ServerStatus(order=ORDER, power=WHOLE.power, progress=progress(IPXE=6.2, Stage1=8.2))
    line = format_timeline(boot_timeline(status), NOON + timedelta(seconds=11.2))
    assert line == "firmware 6 s · iPXE 2 s · stage-1 3 s …"
    assert boot_timeline(status).total_seconds is None


def test_a_bmc_that_takes_its_time_is_shown() -> None:
    slow = ServerStatus(order=ORDER, power=PowerStatus(order_id="o1", order_time=at(9)), progress=progress(IPXE=12))
    assert format_timeline(boot_timeline(slow)) == "ordered 9 s · firmware 3 s · iPXE …"


def test_what_belongs_to_an_earlier_order_is_left_out() -> None:
    stale = ServerStatus(
        order=ORDER,
        power=PowerStatus(order_id="o0", order_time=at(-500)),
        progress=progress(IPXE=-490, Root=-480),
        join=JoinStatus(order_id="o0", fetched_time=at(-470)),
        ready_time=at(-460),
    )
    assert stage_moments(stale) == (("Ordered", NOON),)


def test_clocks_that_disagree_make_no_phase_negative() -> None:
    skewed = ServerStatus(order=ORDER, power=PowerStatus(order_id="o1", order_time=at(5)), progress=progress(IPXE=4))
    assert [phase.seconds for phase in boot_timeline(skewed).phases] == [5, 0, None]


def test_a_boot_without_a_bmc_counts_from_its_first_sign_of_life() -> None:
    status = ServerStatus(
        order=ORDER,
        progress=progress(IPXE=3600),
        join=JoinStatus(order_id="o1", fetched_time=at(3620)),
        ready_time=at(3630),
    )
    assert boot_timeline(status).total_seconds == 30


def test_without_an_order_what_was_heard_is_shown() -> None:
    assert [phase.stage for phase in boot_timeline(ServerStatus(progress=progress(IPXE=1, Stage1=2))).phases] == [
        "IPXE",
        "Stage1",
    ]


def test_nothing_is_known_of_a_new_server() -> None:
    assert format_timeline(boot_timeline(ServerStatus())) == ""
