"""What one more report changes: each test is a rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.machinery.values import MacAddress
from provisioner.api.servers.boot_stage import BOOT_STAGES, stage_order
from provisioner.api.servers.server import BootOrder, BootProgress
from provisioner.boot.observe.progress import ProgressReport, clean_message, record_report
from tests.boot.objects import NOON, at

BOOT, NEXT_BOOT = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
ORDER = BootOrder(id="o1", reason="FirstBoot", ordered_time=at(0), attempt=1)


def report(stage: Any, boot_id: str | None = BOOT, message: str | None = None) -> ProgressReport:
    if stage in ("Firmware", "IPXE"):
        boot_id = None
    return ProgressReport(mac=MacAddress("52:54:00:12:34:56"), stage=stage, boot_id=boot_id, message=message)


def replay(*reports: tuple[float, ProgressReport], order: BootOrder | None = ORDER) -> BootProgress:
    progress = None
    for seconds, one in reports:
        progress = record_report(progress, one, order, NOON + timedelta(seconds=seconds)) or progress
    assert progress is not None
    return progress


def stages(progress: BootProgress) -> list[tuple[str, str]]:
    return [(entry.stage, entry.time) for entry in progress.stage_times]


WHOLE_BOOT = [
    (1.0, report("Firmware")),
    (5.0, report("IPXE")),
    (8.0, report("Stage1")),
    (9.0, report("Root")),
    (12.0, report("System")),
    (20.0, report("Token")),
]


def test_a_boot_is_its_stages_with_their_times() -> None:
    progress = replay(*WHOLE_BOOT)
    assert stages(progress) == [
        ("Firmware", at(1)), ("IPXE", at(5)), ("Stage1", at(8)), ("Root", at(9)), ("System", at(12)), ("Token", at(20)),
    ]  # fmt: skip
    assert (progress.stage, progress.boot_id) == ("Token", BOOT)


def test_a_stage_that_nobody_saw_is_left_out() -> None:
    assert [stage for stage, _ in stages(replay((5, report("IPXE")), (9, report("Root"))))] == ["IPXE", "Root"]


def test_repeated_dhcp_requests_change_nothing() -> None:
    progress = replay((5, report("IPXE")))
    assert record_report(progress, report("IPXE"), ORDER, NOON + timedelta(seconds=7)) is None


def test_a_report_that_was_overtaken_changes_nothing() -> None:
    progress = replay(*WHOLE_BOOT)
    assert record_report(progress, report("Root", message="late"), ORDER, NOON + timedelta(seconds=21)) is None


def test_another_boot_id_is_another_boot() -> None:
    assert stages(replay(*WHOLE_BOOT, (60, report("Stage1", NEXT_BOOT)))) == [("Stage1", at(60))]


def test_ipxe_after_stage1_is_another_boot() -> None:
    progress = replay(*WHOLE_BOOT, (60, report("IPXE")))
    assert stages(progress) == [("IPXE", at(60))]
    assert progress.boot_id is None


def test_the_firmware_after_ipxe_is_another_boot() -> None:
    assert stages(replay((5, report("IPXE")), (60, report("Firmware")))) == [("Firmware", at(60))]


def test_a_new_order_begins_another_boot_even_in_the_same_stage() -> None:
    """A machine that waits in iPXE is reset: iPXE asks again, and that is the ordered boot's."""
    waiting = replay((-60, report("IPXE")))
    assert stages(replay((-60, report("IPXE")), (5, report("IPXE")))) == [("IPXE", at(5))]
    assert record_report(waiting, report("IPXE"), ORDER, NOON - timedelta(seconds=1)) is None, "heard before the order"


def test_the_old_kernel_that_speaks_after_the_order_is_not_the_ordered_boot() -> None:
    """Between order and reset the old boot may still report: its stages keep their times from before the order."""
    old = replay((-60, report("Stage1")), (-50, report("Root")))
    heard = record_report(old, report("Root", message="trying again"), ORDER, NOON + timedelta(seconds=1))
    assert heard is not None
    assert stages(heard) == [("Stage1", at(-60)), ("Root", at(-50))]


def test_the_kernel_that_the_order_knows_to_be_old_is_not_the_ordered_boot() -> None:
    order = replace(ORDER, boot_id_before=BOOT)
    old = replace(replay((-60, report("Stage1"))), boot_id=None)
    heard = record_report(old, report("Root"), order, NOON + timedelta(seconds=1))
    assert heard is not None
    assert ("Stage1", at(-60)) in stages(heard)


def test_a_message_stays_until_the_next_stage_or_a_report_without_one() -> None:
    failed = replay((8, report("Root", message="digest is wrong")))
    assert failed.message == "digest is wrong"
    assert replay((8, report("Root", message="x")), (9, report("System"))).message is None
    assert replay((8, report("Root", message="x")), (9, report("Root"))).message is None


def test_messages_are_one_bounded_visible_line() -> None:
    assert clean_message("a\x1b[31m\r\nb\x00\u202e c\t") == "a [31m b c"
    assert clean_message("  \n") is None
    assert clean_message(None) is None
    assert len(clean_message("x" * 10_000) or "") == 512


@given(
    st.lists(
        st.tuples(
            st.floats(-100, 1000),
            st.sampled_from(["Firmware", "IPXE", "Stage1", "Root", "System", "Token"]),
            st.sampled_from([BOOT, NEXT_BOOT]),
            st.text(max_size=20),
        ),
        min_size=1,
    )
)
def test_whatever_is_reported_stages_rise_and_stay_bounded(said: list[tuple[float, str, str, str]]) -> None:
    progress = replay(*((seconds, report(stage, boot, text)) for seconds, stage, boot, text in sorted(said)))
    positions = [stage_order(entry.stage) for entry in progress.stage_times]
    assert positions == sorted(set(positions))
    assert len(positions) <= len(BOOT_STAGES)
    assert [entry.time for entry in progress.stage_times] == sorted(entry.time for entry in progress.stage_times)
    assert progress.stage == progress.stage_times[-1].stage
