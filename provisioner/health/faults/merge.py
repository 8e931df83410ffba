"""From the records of a Server and what is observed now to the new records. Pure.

A record is added and changed, and leaves only for want of room: that a node no longer reports a fault repairs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, cast

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.facts import ObservedFault
from provisioner.api.servers.faults import (
    MAX_COUNT,
    MAX_FAULTS,
    FaultComponent,
    FaultRecord,
    FaultSeverity,
    FaultSource,
)
from provisioner.health.faults.normalise import rank, unique

MOST_OF_DEVICE: Final = 8
"""When records are too many: what one device may keep, however many codes are said of it."""
MOST_OF_CODE: Final = 16
"""The same of one code: a server has no more GPUs, and few have more network ports."""


def merge(
    records: Sequence[FaultRecord], observed: Sequence[ObservedFault], boot_id: str, now: datetime
) -> tuple[FaultRecord, ...]:
    """The records in their order, then the new ones. observed: all that is reported of the boot `boot_id`, which runs.

    now: the controller's clock, the only one that a record has times by.
    """
    found, moment = unique(observed), rfc3339(now)
    merged = []
    for record in records:
        seen = found.pop(record.key, None)
        merged.append(_seen_again(record, seen, boot_id, moment) if seen is not None else _unreported(record))
    for fault in _newcomers(found.values(), merged):
        _add(merged, _new(fault, boot_id, moment))
    return tuple(merged)


def _newcomers(found: Iterable[ObservedFault], records: Sequence[FaultRecord]) -> list[ObservedFault]:
    """The worst first: of a device, or a code, no more than may be on record, those included that are on record and as
    severe; of all twice what there is room for."""
    devices, codes = Counter[tuple[str, str, int]](), Counter[tuple[str, str, int]]()
    for record in records:
        for milder in range(rank(record.severity) + 1):
            devices[*_device(record), milder] += 1
            codes[*_code(record), milder] += 1
    taken = []
    for fault in sorted(found, key=lambda each: -rank(each.severity)):
        device = (fault.component, fault.device, rank(fault.severity))
        code = (fault.component, fault.code, rank(fault.severity))
        if devices[device] < MOST_OF_DEVICE and codes[code] < MOST_OF_CODE:
            taken.append(fault)
            devices[device] += 1
            codes[code] += 1
    return taken[: 2 * MAX_FAULTS]


def news(before: Sequence[FaultRecord], after: Sequence[FaultRecord]) -> tuple[FaultRecord, ...]:
    """Those that were not there, or were less severe."""
    known = {record.key: rank(record.severity) for record in before}
    return tuple(record for record in after if rank(record.severity) > known.get(record.key, -1))


def _new(fault: ObservedFault, boot_id: str, moment: str) -> FaultRecord:
    """Source, component and severity are among those that are known: sources normalise what they say."""
    return FaultRecord(
        source=cast(FaultSource, fault.source),
        component=cast(FaultComponent, fault.component),
        device=fault.device,
        code=fault.code,
        severity=cast(FaultSeverity, fault.severity),
        first_time=moment,
        last_time=moment,
        count=fault.count or 1,
        boot_id=boot_id,
        reported=True,
        evidence=fault.evidence,
    )


def _seen_again(record: FaultRecord, fault: ObservedFault, boot_id: str, moment: str) -> FaultRecord:
    same_boot = record.boot_id == boot_id
    if not same_boot:
        count = fault.count or 1
    elif fault.count is not None:
        count = max(record.count, fault.count)  # an agent that is restarted counts anew
    else:
        count = min(record.count + (not record.reported), MAX_COUNT)
    worse = rank(fault.severity) > rank(record.severity)
    if same_boot and count == record.count and not worse:
        return replace(record, reported=True)
    return replace(
        record,
        severity=cast(FaultSeverity, fault.severity) if worse else record.severity,
        last_time=moment,
        count=count,
        boot_id=boot_id,
        reported=True,
        evidence=fault.evidence,
    )


def _unreported(record: FaultRecord) -> FaultRecord:
    return replace(record, reported=False) if record.reported else record


def _add(records: list[FaultRecord], newcomer: FaultRecord) -> None:
    """Take it in; for want of room one that is no more severe goes, which may be the newcomer itself.

    A device, or a code, that has more than its share makes room for itself and for others. Of equally severe ones goes
    what is not reported, if that is more than half, the last found first; else the newest. So what a node makes up
    pushes out no fault that it hides, and the same report gives the same records again.
    """
    records.append(newcomer)
    if len(records) <= MAX_FAULTS:
        return
    devices, codes = Counter(map(_device, records)), Counter(map(_code, records))
    crowded = [
        record
        for record in records
        if rank(record.severity) <= rank(newcomer.severity)
        and (devices[_device(record)] > MOST_OF_DEVICE or codes[_code(record)] > MOST_OF_CODE)
    ]
    among = crowded or records
    mildest = min(rank(record.severity) for record in among)
    candidates = [record for record in among if rank(record.severity) == mildest]
    gone = [record for record in candidates if not record.reported]
    if gone and sum(not record.reported for record in records) > MAX_FAULTS // 2:
        records.remove(max(reversed(gone), key=lambda record: record.first_time))
    else:
        records.remove(candidates[-1])


def _device(record: FaultRecord) -> tuple[str, str]:
    return record.component, record.device


def _code(record: FaultRecord) -> tuple[str, str]:
    return record.component, record.code
