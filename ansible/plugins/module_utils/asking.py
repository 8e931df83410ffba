"""Requests for what disturbs servers: filed, withdrawn and waited for by the rules of `kubectl provision`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

try:
    from provisioner.api import Maintenance
    from provisioner.api.machinery.codec import to_json
    from provisioner.api.machinery.conditions import find_condition
    from provisioner.api.machinery.errors import NotFound, Retryable
    from provisioner.api.machinery.meta import parse_time
    from provisioner.api.nodes.maintenance import Requestor
    from provisioner.cli.kubectl.asking import RequestOptions, check_ask, requestor_of
    from provisioner.cli.kubectl.filing import (
        file_request,
        own_entries,
        read_maintenances,
        withdraw,
    )
    from provisioner.cli.kubectl.targets import ServerTarget
    from provisioner.cli.kubectl.waiting import WatchedMaintenance
    from provisioner.rules.requests import entry_of, is_active, is_open, is_same
except ImportError:
    pass  # told by provisioner_module.make_module

LOOK_SECONDS = 2.0


def with_key(reason: str | None, key: str | None) -> str | None:
    """The words that are written: `new firmware [CHG-4711]`."""
    return " ".join([*([reason] if reason else []), *([f"[{key}]"] if key else [])]) or None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of one wish. before: the same asker's entry as it was. state: filed, unchanged or done."""

    server: str
    state: str
    maintenance: str | None
    entry: Requestor
    before: Requestor | None = None
    message: str | None = None


def find_made(
    maintenances: Sequence[Maintenance], wanted: Requestor, key: str | None
) -> tuple[Maintenance, Requestor] | None:
    """Where the same was asked for by the same, and is not to be asked again; None if it is. Pure.

    Under way in the same words: it is. With a key: under way or carried out, whatever else was changed of the words.
    """
    for m in maintenances:
        entry = entry_of(m, wanted.name)
        if entry is None or entry.action != wanted.action:
            continue
        if key is not None and (entry.message or "").endswith(f"[{key}]"):
            if is_active(m) or m.status.phase == "Completed":
                return m, entry
        elif key is None and is_active(m) and _is_same_or_sooner(entry, wanted):
            return m, entry
    return None


def _is_same_or_sooner(entry: Requestor, wanted: Requestor) -> bool:
    return is_same(entry, replace(wanted, deadline_time=entry.deadline_time)) and _is_by_then(entry, wanted)


def _is_by_then(entry: Requestor, wanted: Requestor) -> bool:
    """A span counts from when it was first asked: a deadline that is no later does."""
    if entry.deadline_time is None or wanted.deadline_time is None:
        return entry.deadline_time == wanted.deadline_time
    return parse_time(entry.deadline_time) <= parse_time(wanted.deadline_time)


def runs_already(target: ServerTarget, wanted: Requestor) -> bool:
    """Whether a reimage is to what runs, and was seen to."""
    status = target.server.status
    ready = find_condition(status.conditions, "Ready")
    is_up = ready is not None and ready.status == "True"
    return (
        wanted.action == "Reimage" and wanted.image_ref is not None and is_up and status.image_ref == wanted.image_ref
    )


def file_all(
    cluster: Any,
    ask: RequestOptions,
    targets: Sequence[ServerTarget],
    now: datetime,
    *,
    key: str | None,
    check_mode: bool,
) -> list[Answer]:
    """Every request, first as a dry run of all of them, so that a refusal of one comes before any is written.

    Raises: BadInput, Refused; nothing was written then.
    """
    check_ask(cluster, ask, list(targets))
    user = cluster.ask_who_i_am()
    wanted = requestor_of(ask, user, now)
    answers: list[Answer | None] = []
    befores = []
    for target in targets:
        maintenances = read_maintenances(cluster, target.name)
        made = find_made(maintenances, wanted, key)
        befores.append(next((e for m in maintenances if is_open(m) and (e := entry_of(m, wanted.name))), None))
        if made is not None:
            m, entry = made
            state = "unchanged" if is_active(m) else "done"
            answers.append(Answer(server=target.name, state=state, maintenance=m.name, entry=entry, before=entry))
        elif key is None and runs_already(target, wanted):
            words = f"it runs Image {wanted.image_ref} already"
            answers.append(
                Answer(server=target.name, state="done", maintenance=None, entry=wanted, before=wanted, message=words)
            )
        else:
            filed = file_request(cluster, target.name, wanted, dry_run=True)
            answers.append(
                Answer(
                    server=target.name,
                    state="filed",
                    maintenance=filed.maintenance.name,
                    entry=filed.requestor,
                    before=befores[-1],
                )
            )
    if check_mode:
        return answers
    return [_filed(cluster, each, wanted) if each.state == "filed" else each for each in answers]


def _filed(cluster: Any, answer: Answer, wanted: Requestor) -> Answer:
    filed = file_request(cluster, answer.server, wanted)
    return replace(answer, maintenance=filed.maintenance.name, entry=filed.requestor)


def told(answers: Sequence[Answer]) -> dict[str, Any]:
    """What the module returns of them."""
    return {
        "changed": any(a.state == "filed" for a in answers),
        "requests": [
            {
                "server": a.server,
                "maintenance": a.maintenance,
                "requestor": a.entry.name,
                "state": a.state,
                "message": a.message,
            }
            for a in answers
        ],
        "diff": [_diff(a.server, a.before, a.entry) for a in answers if a.state == "filed"],
    }


def _diff(server: str, before: Requestor | None, after: Requestor | None) -> dict[str, str]:
    def lines(entry: Requestor | None) -> str:
        fields = to_json(entry) if entry is not None else {}
        return "".join(f"{name}: {value}\n" for name, value in fields.items() if name != "requestedTime")

    header = f"request of Server {server}"
    return {"before_header": header, "after_header": header, "before": lines(before), "after": lines(after)}


def withdraw_all(cluster: Any, targets: Sequence[ServerTarget], *, check_mode: bool) -> dict[str, Any]:
    """What this user has asked for of them goes. Raises: Refused."""
    user = cluster.ask_who_i_am()
    requests, diff = [], []
    for target in targets:
        for m, entry in own_entries(read_maintenances(cluster, target.name), user):
            withdraw(cluster, m, entry.name, dry_run=check_mode)
            requests.append(
                {"server": target.name, "maintenance": m.name, "requestor": entry.name, "state": "withdrawn"}
            )
            diff.append(_diff(target.name, entry, None))
    return {"changed": bool(requests), "requests": requests, "diff": diff}


def wait_for_all(
    cluster: Any,
    answers: Sequence[Answer],
    within_seconds: float | None,
    *,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """How each ended; with `msg` and `remedy` if one did not come to its end. An API server that is away is waited for.

    Looks less often the more there are: at most ten a second.
    """
    until = None if within_seconds is None else monotonic() + within_seconds
    ends = {a.server: ("Completed", a.message or "was done before") for a in answers if a.state == "done"}
    waiting = {a.server: a for a in answers if a.state != "done"}
    while waiting:
        for answer in list(waiting.values()):
            end = _end_of(cluster, answer)
            if end is not None:
                ends[answer.server] = end
                del waiting[answer.server]
        if not waiting:
            break
        if until is not None and monotonic() >= until:
            ends |= dict.fromkeys(waiting, ("TimedOut", f"not done within {within_seconds:.0f} s; the request stands"))
            break
        sleep(max(LOOK_SECONDS, len(waiting) / 10))
    requests = told(answers)["requests"]
    for each in requests:
        each["outcome"], each["message"] = ends[each["server"]]
    bad = [each for each in requests if each["outcome"] not in ("Completed", "Drained")]
    result: dict[str, Any] = {"requests": requests}
    if bad:
        remedy = f"kubectl provision why {bad[0]['server']} says what a person can do"
        lines = [f"Server {r['server']}: {r['outcome']} (Maintenance {r['maintenance']}): {r['message']}" for r in bad]
        result |= {"msg": "\n".join([*lines, remedy]), "remedy": remedy}
    return result


def _end_of(cluster: Any, answer: Answer) -> tuple[str, str] | None:
    try:
        m = cluster.read(Maintenance, str(answer.maintenance))
    except NotFound:
        return "Cancelled", "the Maintenance was deleted"
    except Retryable:
        return None
    outcome = WatchedMaintenance(answer.server, m.name, answer.entry.action).outcome(m)
    if outcome is None:
        return None
    found = find_condition(m.status.conditions, "Succeeded")
    return outcome, found.message if found is not None and found.message else f"phase {m.status.phase}"
