"""What one more report changes in what is known of a boot. Pure; nothing here is authenticated, so it is only shown."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from provisioner.api.machinery.meta import parse_time, rfc3339_micro
from provisioner.api.machinery.values import MacAddress
from provisioner.api.servers.boot_stage import BootStage, stage_order
from provisioner.api.servers.server import BootOrder, BootProgress, StageTime
from provisioner.rules.bootability import without_remedy

MAX_MESSAGE_CHARACTERS: Final = 512


@dataclass(frozen=True, kw_only=True)
class ProgressReport:
    """One sign of life of a booting machine.

    stage: Firmware or IPXE (seen in DHCP), Stage1, Root, System or Token (said by the machine). boot_id: the kernel's,
    None before there is a kernel. message: why it waits, if it says so.
    """

    mac: MacAddress
    stage: BootStage
    boot_id: str | None = None
    message: str | None = None


def record_report(
    progress: BootProgress | None, report: ProgressReport, order: BootOrder | None, now: datetime
) -> BootProgress | None:
    """`progress` after `report`, which came at `now`; None if it changes nothing.

    Stages only go forward within a boot. A new boot begins with another boot id, with DHCP after stage-1 had started,
    with the firmware's DHCP after iPXE's, or with the first report after a new order.
    """
    message = clean_message(report.message)
    if progress is None or progress.stage is None or _begins_anew(progress, report, order, now):
        return BootProgress(
            stage=report.stage,
            boot_id=report.boot_id,
            stage_times=(StageTime(stage=report.stage, time=rfc3339_micro(now)),),
            message=message,
        )
    boot_id = progress.boot_id or report.boot_id
    if stage_order(report.stage) > stage_order(progress.stage):
        return replace(
            progress,
            stage=report.stage,
            boot_id=boot_id,
            stage_times=(*progress.stage_times, StageTime(stage=report.stage, time=rfc3339_micro(now))),
            message=message,
        )
    if report.stage == progress.stage and report.boot_id is not None:
        changed = replace(progress, boot_id=boot_id, message=message)
        return changed if changed != progress else None
    return None  # a repeated DHCP request, or a report overtaken by a later one


def clean_message(message: str | None) -> str | None:
    """One line without control or formatting characters, at most 512 characters; None if nothing is left."""
    if message is None:
        return None
    visible = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in message[: 4 * MAX_MESSAGE_CHARACTERS])
    return without_remedy(" ".join(visible.split()))[:MAX_MESSAGE_CHARACTERS] or None


def _begins_anew(progress: BootProgress, report: ProgressReport, order: BootOrder | None, now: datetime) -> bool:
    if report.boot_id is not None and progress.boot_id is not None:
        # The same kernel is the same boot, also when a new order came meanwhile and its reset has yet to happen.
        return report.boot_id != progress.boot_id
    if order is not None and report.boot_id is not None and report.boot_id == order.boot_id_before:
        return False
    if report.boot_id is None and progress.stage is not None:  # seen in DHCP
        if stage_order(progress.stage) > stage_order("IPXE"):
            return True
        if report.stage == "Firmware" and progress.stage == "IPXE":
            return True
    if order is None or not progress.stage_times:
        return False
    last = max(parse_time(entry.time) for entry in progress.stage_times)
    return last < parse_time(order.ordered_time) <= now
