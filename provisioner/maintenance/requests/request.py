"""What the request conditions of a Node ask for. Pure.

The message is free text, in which words of the form `deadline=…` and `image=…` mean what they say:

    deadline=2026-03-01T12:00:00Z    RFC 3339, with its offset from UTC
    deadline=+30m, +2h, +1d          counted from the moment of the request
    image=gpu-node-0123456789ab      the Image to boot

Conditions are written by many tools: a type may occur twice (the last True one counts), fields may be missing, times
may be nonsense. Without a reason the policy is WhenIdle, the most patient. What cannot be read is refused, not guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.meta import read_time, rfc3339
from provisioner.api.nodes.contract import (
    DRAIN_REQUESTED,
    POWER_CYCLE_REQUESTED,
    REBOOT_REQUESTED,
    REIMAGE_REQUESTED,
)
from provisioner.api.nodes.maintenance import POLICIES, MaintenanceAction, MaintenancePolicy
from provisioner.rules.nodes import NodeView, ObservedCondition

ACTION_OF: Final[dict[str, MaintenanceAction]] = {
    REBOOT_REQUESTED: "Reboot",
    REIMAGE_REQUESTED: "Reimage",
    POWER_CYCLE_REQUESTED: "PowerCycle",
    DRAIN_REQUESTED: "Drain",
}
REQUESTOR_OF: Final[dict[str, str]] = {
    REBOOT_REQUESTED: "condition-reboot",
    REIMAGE_REQUESTED: "condition-reimage",
    POWER_CYCLE_REQUESTED: "condition-power-cycle",
    DRAIN_REQUESTED: "condition-drain",
}
CONDITION_OF: Final = {requestor: type_ for type_, requestor in REQUESTOR_OF.items()}

_RELATIVE: Final = re.compile(r"\+(\d{1,5})([mhd])", re.ASCII)
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days"}
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_LONGEST: Final = timedelta(days=90)


@dataclass(frozen=True, kw_only=True)
class ParsedRequest:
    """How a condition asks for its action, understood."""

    policy: MaintenancePolicy
    deadline: datetime | None
    image: str | None


@dataclass(frozen=True, kw_only=True)
class RequestRefusal:
    """A condition that cannot be acted on: what was observed, what is expected, what to do."""

    type: str
    observed: str
    expected: str
    remedy: str

    @property
    def message(self) -> str:
        return f"{self.type}: observed {self.observed}; expected {self.expected}; {self.remedy}"


def read_requests(node: NodeView) -> dict[str, ObservedCondition]:
    """By type, the request conditions for an action that are True now; of duplicates the last True one."""
    found = {type_: node.condition(type_) for type_ in ACTION_OF}
    return {type_: each for type_, each in found.items() if each is not None and each.is_true}


def read_ask(condition: ObservedCondition, since: datetime) -> ParsedRequest | RequestRefusal:
    """What `condition` asks for; relative deadlines count from `since`."""
    reason = condition.reason.strip()
    policy = next((p for p in POLICIES if p == (reason or "WhenIdle")), None)
    if policy is None:
        return RequestRefusal(
            type=condition.type,
            observed=f"reason '{reason[:64]}'",
            expected="WhenIdle, Deadline or Now",
            remedy="set the condition's reason to one of them",
        )
    deadlines, images = _words(condition.message, "deadline"), _words(condition.message, "image")
    for key, values in (("deadline", deadlines), ("image", images)):
        if len(values) > 1:
            return RequestRefusal(
                type=condition.type,
                observed=f"{len(values)} different words {key}= in the message",
                expected="at most one",
                remedy=f"leave all {key}= but one out of the message",
            )
    deadline = _read_deadline(condition.type, policy, next(iter(deadlines), None), since)
    if isinstance(deadline, RequestRefusal):
        return deadline
    image = _read_image(condition.type, next(iter(images), None))
    if isinstance(image, RequestRefusal):
        return image
    return ParsedRequest(policy=policy, deadline=deadline, image=image)


def _read_deadline(
    type_: str, policy: MaintenancePolicy, word: str | None, since: datetime
) -> datetime | RequestRefusal | None:
    if policy != "Deadline":
        if word is None:
            return None
        return RequestRefusal(
            type=type_,
            observed=f"deadline={word[:64]} with reason {policy}",
            expected="a deadline with reason Deadline only",
            remedy=f"set the reason to Deadline, or leave deadline= out of the message ({policy} has none)",
        )
    if word is None:
        return RequestRefusal(
            type=type_,
            observed="reason Deadline and no word deadline= in the message",
            expected="deadline=+2h or deadline=2026-03-01T12:00:00Z",
            remedy="write into the message until when running jobs may go on",
        )
    relative = _RELATIVE.fullmatch(word)
    moment = since + timedelta(**{_UNITS[relative[2]]: int(relative[1])}) if relative else _absolute(word)
    if moment is None:
        return RequestRefusal(
            type=type_,
            observed=f"deadline={word[:64]}",
            expected="RFC 3339 with an offset from UTC, such as 2026-03-01T12:00:00Z, or +30m, +2h, +1d",
            remedy="write the deadline in one of these forms, without spaces",
        )
    if not since <= moment <= since + _LONGEST:
        return RequestRefusal(
            type=type_,
            observed=f"deadline={word[:64]}, which is {rfc3339(moment)}",
            expected=f"a moment from the request ({rfc3339(since)}) to {_LONGEST.days} days after it",
            remedy="write a later deadline, or reason Now if running jobs shall be ended at once"
            if moment < since
            else "write an earlier deadline, or reason WhenIdle",
        )
    return moment


def _absolute(word: str) -> datetime | None:
    # datetime reads more than RFC 3339 has, such as week dates; a T and an offset leave no doubt.
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,6})?([Zz]|[+-]\d{2}:\d{2})", word, re.ASCII):
        return None
    return read_time(word.upper())


def _read_image(type_: str, word: str | None) -> str | RequestRefusal | None:
    if word is None:
        return None
    if type_ == DRAIN_REQUESTED:
        return RequestRefusal(
            type=type_,
            observed=f"image={word[:64]} with a request to drain, which boots nothing",
            expected="no image",
            remedy="leave image= out of the message, or set ReimageRequested instead",
        )
    if len(word) > 63 or not _NAME.fullmatch(word):
        return RequestRefusal(
            type=type_,
            observed=f"image={word[:64]}",
            expected="the name of an Image: lower-case letters, digits, '-' and '.'",
            remedy="see: kubectl get images",
        )
    return word


def _words(message: str, key: str) -> list[str]:
    """The different values of `key=` in the message, in order; a sentence's punctuation after one is not part of it."""
    values = (w[len(key) + 1 :].rstrip(",;.)") for w in message.split() if w.startswith(f"{key}="))
    return list(dict.fromkeys(values))
