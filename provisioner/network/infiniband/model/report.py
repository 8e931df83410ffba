"""What is said of a network after it was read back, or could not be. Pure; the same for OpenSM and UFM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final, Literal

from provisioner.api import Condition, InfiniBandNetwork
from provisioner.api.machinery.conditions import condition_of, merge_conditions
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.machinery.wording import quantity
from provisioner.api.network.infiniband_network import InfiniBandNetworkStatus
from provisioner.api.network.infiniband_rules import DEFAULT_PKEY
from provisioner.network.infiniband.model.verify import NAMED, Findings

APPLIED: Final = "Applied"
DEFAULT_LIMITED: Final = "DefaultPartitionLimited"
ReadFrom = Literal["Ports", "UFM"]

FULL_REMEDY: Final = {
    "Ports": "have OpenSM read the partitions file that `provisioner infiniband` writes (opensm -P FILE), and look in "
    "its log for a mistake in that file",
    "UFM": "set default_membership = limited in section [MngNetwork] of /opt/ufm/files/conf/gv.cfg, and restart UFM",
}


def after_reading(
    network: InfiniBandNetwork,
    findings: Findings,
    now: datetime,
    *,
    read_from: ReadFrom,
    ports: int,
    pkeys: Iterable[int] | None = None,
    mended: bool = False,
) -> InfiniBandNetworkStatus:
    """The status of `network`, whose generation counts as enforced if the fabric agrees with it.

    `pkeys`: what the fabric knows, where that is more than its ports have. `mended`: whether somebody's change was
    undone. A default partition with full members does not keep a generation from being enforced; it is said apart.
    """
    before, generation = network.status, network.metadata.generation
    reason, message = "Differs", f"The fabric has {findings.words}: it was told, and is read again."
    if findings.agrees:
        whose = "the P_Key tables of all ports agree" if read_from == "Ports" else "UFM's own word"
        absent = (
            f"; {quantity(len(findings.absent), 'port is', 'ports are')} not on the fabric" if findings.absent else ""
        )
        reason, message = "ReadBack", f"Read back: {whose}{absent}."
    applied = condition_of(network, APPLIED, findings.agrees, reason, message, now)
    observed = generation if findings.agrees else _older(before.observed_generation, generation)
    return InfiniBandNetworkStatus(
        observed_generation=observed,
        read_from=read_from,
        read_time=rfc3339(now),
        ports=ports,
        absent=len(findings.absent) if read_from == "Ports" else None,
        pkeys=tuple(sorted({*findings.pkeys, *(pkeys or ())})),
        mended_time=rfc3339(now) if mended else before.mended_time,
        conditions=merge_conditions(before.conditions, applied, _limited(network, findings, now, read_from)),
    )


def after_failing(network: InfiniBandNetwork, reason: str, message: str, now: datetime) -> InfiniBandNetworkStatus:
    """The status where nothing could be read, or may be written: what was known stays, and is said to be old."""
    before = network.status
    since = f" Last read {before.read_time}." if before.read_time else ""
    applied = condition_of(network, APPLIED, "False", reason, f"{message}.{since}", now)
    observed = _older(before.observed_generation, network.metadata.generation)
    return replace(before, observed_generation=observed, conditions=merge_conditions(before.conditions, applied))


def says_something_new(before: InfiniBandNetworkStatus, after: InfiniBandNetworkStatus, now: datetime) -> bool:
    """Whether it is worth a write. That it was read again is, once in READ_TIME_SECONDS."""
    if replace(before, read_time=None) != replace(after, read_time=None):
        return True
    if before.read_time is None or after.read_time is None:
        return before.read_time != after.read_time
    return (now - datetime.fromisoformat(before.read_time)).total_seconds() >= READ_TIME_SECONDS


READ_TIME_SECONDS: Final = 50.0


def _older(observed: int | None, generation: int | None) -> int | None:
    """A generation that the fabric agreed with once; not the present one, with which it does not."""
    return observed if observed is not None and observed != generation else None


def _limited(network: InfiniBandNetwork, findings: Findings, now: datetime, read_from: ReadFrom) -> Condition:
    default = f"the default partition 0x{DEFAULT_PKEY:04x}"
    if findings.default_limited == "No":
        full = findings.full_by_default
        which = (
            f"{quantity(len(full), 'port')} ({', '.join(full[:NAMED])}{', …' if len(full) > NAMED else ''})"
            if full
            else "ports"
        )
        words = f"In {default} {which} are full members, and reach every port whatever their VPC is"
        return condition_of(
            network, DEFAULT_LIMITED, "False", "FullMembers", f"{words}: {FULL_REMEDY[read_from]}.", now
        )
    if findings.default_limited == "Unknown":
        message = f"What members of {default} are was not said: {FULL_REMEDY[read_from]}."
        return condition_of(network, DEFAULT_LIMITED, "Unknown", "NotSaid", message, now)
    message = f"Hosts are limited members of {default} and nothing more."
    return condition_of(network, DEFAULT_LIMITED, "True", "Limited", message, now)
