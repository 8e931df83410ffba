"""One round of checks: what each look adds to the results, and when the round is over. Pure.

A result that is settled stays for the round, but a part of the machine that was fine is looked at until the end: what
breaks under a check's load has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.meta import parse_time, rfc3339_micro
from provisioner.api.pools.pool_settings import JobCheck
from provisioner.api.servers.server import CheckResult
from provisioner.health.checks.finding import Finding, printable
from provisioner.health.jobs.outcome import ABSENT, JobState
from provisioner.health.situation import CheckInputs

JOB_GRACE_SECONDS: Final = 60.0
"""The Job's own deadline comes first; this is for a Job controller that does not act, and a Job that cannot be made."""


@dataclass(frozen=True, kw_only=True)
class Round:
    """The results after one look. start: the check whose Job must exist now. next_change: when time alone may tell."""

    results: tuple[CheckResult, ...]
    start: JobCheck | None = None
    next_change: datetime | None = None

    @property
    def is_over(self) -> bool:
        return any(each.result == "Failed" for each in self.results) or all(
            each.result == "Passed" for each in self.results
        )


def look(
    before: Sequence[CheckResult],
    findings: Iterable[Finding],
    situation: CheckInputs,
    now: datetime,
) -> Round:
    """The findings of this look, then the pool's own checks, one after the other."""
    known = {each.name: each for each in before}
    changes: list[datetime] = []
    results: list[CheckResult] = []
    for finding in findings:
        result, change = _fold(known.get(finding.name), finding, now)
        results.append(result)
        changes += [change] if change is not None else []
    start = None
    for check in situation.own_checks:
        if any(each.result != "Passed" for each in results):
            settled = known.get(check.name)
            results.append(settled if settled is not None and settled.result == "Passed" else _later(check, results))
            continue
        result, change = _fold_job(known.get(check.name), check, situation.jobs.get(check.name, ABSENT), now)
        results.append(result)
        changes += [change] if change is not None else []
        if result.result == "Running":
            start = check
    seen = Round(results=tuple(results))
    if seen.is_over:
        # What another check's failure ended has not come out.
        broken_off = (replace(each, result="Unknown") if each.result == "Running" else each for each in results)
        return replace(seen, results=tuple(broken_off))
    return replace(seen, start=start, next_change=min(changes, default=None))


def _fold(before: CheckResult | None, finding: Finding, now: datetime) -> tuple[CheckResult, datetime | None]:
    """The result of a finding; and when it will have failed, if nothing changes."""
    result = CheckResult(
        name=finding.name, result="Passed", reason=finding.reason, message=finding.message, time=rfc3339_micro(now)
    )
    if finding.ok:
        # Words with figures in them are not written anew at each look.
        return (before if before is not None and before.result == "Passed" else result), None
    if before is not None and before.result == "Running" and before.time is not None:
        result = replace(result, time=before.time)
        ends = parse_time(before.time) + timedelta(seconds=finding.patience_seconds)
    else:
        ends = now + timedelta(seconds=finding.patience_seconds)
    if now >= ends:
        return replace(result, result="Failed", time=rfc3339_micro(now)), None
    return replace(result, result="Running"), ends


def _fold_job(
    before: CheckResult | None, check: JobCheck, state: JobState, now: datetime
) -> tuple[CheckResult, datetime | None]:
    if before is not None and before.result in ("Passed", "Failed"):
        return before, None
    runs = before is not None and before.result == "Running" and before.time is not None
    began = parse_time(before.time) if runs and before is not None and before.time is not None else now
    ends = began + timedelta(seconds=check.timeout_seconds + JOB_GRACE_SECONDS)

    def result(outcome: str, reason: str, message: str) -> CheckResult:
        return CheckResult(
            name=check.name,
            result="Passed" if outcome == "Passed" else "Failed" if outcome == "Failed" else "Running",
            reason=reason,
            message=printable(message),
            time=rfc3339_micro(now if outcome in ("Passed", "Failed") else began),
        )

    remedy = f"see what it says: kubectl logs -n {check.namespace} -l provisioner.dev/check={check.name}"
    if state.phase == "Passed":
        return result("Passed", state.reason, state.message), None
    if state.phase == "Refused":
        fix = "correct the check's template in the pool's spec.verification.checks"
        if state.reason == "JobForbidden":
            fix = f"let the controller make Jobs in namespace {check.namespace} (docs/verification.md has the commands)"
        return result("Failed", state.reason, f"its Job cannot be made: {state.message}; remedy: {fix}"), None
    if state.phase in ("Absent", "Running") and now < ends:
        message = state.message or f"waits for its Job in namespace {check.namespace}"
        return result("Running", "Running", message), ends
    if state.phase == "Failed" and state.reason != "TimedOut":
        return result("Failed", state.reason, f"{state.message}; expected: that it completes; remedy: {remedy}"), None
    last = state.message or (before.message if runs and before is not None else "")
    words = f"it took longer than {check.timeout_seconds} s; last seen: {last or 'nothing'}; remedy: {remedy}"
    return result("Failed", "TimedOut", words), None


def _later(check: JobCheck, results: Sequence[CheckResult]) -> CheckResult:
    first = next(each.name for each in results if each.result != "Passed")
    return CheckResult(name=check.name, result="Unknown", reason="Later", message=f"runs once {first} has passed")
