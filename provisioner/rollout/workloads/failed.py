"""Which job that has ended failed for its image's sake: by the default rule, or by a user's CEL expression. Pure.

Expressions are read and evaluated by Google's implementation of CEL (cel-expr-python), with types checked beforehand.
What could make one run long is left out of the language: `matches` (regular expressions) and the macros that loop
(`all`, `exists`, `exists_one`, `map`, `filter`). What remains takes time in proportion to the expression's length and
to the values that it reads; the library bounds its nesting. Source: github.com/google/cel-spec, doc/langdef.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from typing import Any, Final

from cel_expr_python import cel

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.jobs.model.ended import EndedJob

NOT_THE_IMAGES_SAKE: Final = frozenset(
    {
        *("cancelled", "canceled", "revoked"),
        *("preempted", "preempting", "preemptionbyscheduler"),
        *("evicted", "evictionbyevictionapi", "deletionbytaintmanager", "deletionbypodgc", "terminationbykubelet"),
        *("timeout", "deadline", "deadlineexceeded"),
    }
)
"""Reasons for an end that somebody else chose: Slurm's states of a job, reasons of pods and of their condition
DisruptionTarget, in lower case and without underscores."""

MAX_TEXT: Final = 2048
MAX_VALUE: Final = 1024
"""Of a value that an expression reads no more characters are kept."""
MAX_LABELS: Final = 256
_LARGEST: Final = 2**63 - 1
_FIELD: Final = "spec.upgradeStrategy.workloads.failedIf"
_REMEDY: Final = (
    "write it over kind, __namespace__, name, reason, exitCode, signal, partition, qos and labels, with == != < > in "
    "&& || !, has, startsWith, endsWith and contains, such as: exitCode != 0 && reason != 'PREEMPTED'"
)
_LANGUAGE: Final = """
stdlib:
  include_macros:
    - has
  exclude_functions:
    - name: matches
"""
_MAX_WORDS: Final = 300


@dataclass(frozen=True)
class JobOutcome:
    """fault: why the expression said nothing about this job, so that the default rule decided; None if it did."""

    failed: bool
    fault: str | None = None


FailedIf = Callable[[EndedJob], JobOutcome]


def failed_by_default(job: EndedJob) -> JobOutcome:
    """Failed is what ended other than in success, was not cancelled, preempted or evicted, and had time left."""
    reason = job.reason.replace("_", "").lower()
    return JobOutcome(not job.succeeded and reason not in NOT_THE_IMAGES_SAKE)


@lru_cache(maxsize=64)
def compile_failed_if(text: str | None) -> FailedIf:
    """The rule that `text` says, or the default rule if there is none. It raises nothing.

    An expression that cannot be evaluated for one job (it reads a label that the job does not have) leaves that job
    to the default rule: thus one that is wrong for all jobs does not open the gate.
    Raises: NeedsHuman for what is no CEL expression over the variables that there are, or does not yield a bool.
    """
    if text is None:
        return failed_by_default
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    if len(text) > MAX_TEXT:
        raise NeedsHuman(f"{_FIELD} '{shown}' has {len(text)} characters", hint=f"write at most {MAX_TEXT}")
    try:
        program = _environment().compile(text)
        type_name = program.return_type().name()
    except Exception as error:  # of a library in C++ that says not which
        raise NeedsHuman(f"{_FIELD} '{shown}' cannot be read: {_first_words(error)}", hint=_REMEDY) from error
    if type_name != cel.Type.BOOL.name():
        raise NeedsHuman(f"{_FIELD} '{shown}' yields {type_name.lower()}, not bool", hint=_REMEDY)

    def failed_if(job: EndedJob) -> JobOutcome:
        try:
            found = program.eval(data=_variables(job))
            value, is_bool = found.value(), found.type() == cel.Type.BOOL
        except Exception as error:
            return JobOutcome(failed_by_default(job).failed, _first_words(error))
        if not is_bool:
            return JobOutcome(failed_by_default(job).failed, _first_words(value))
        return JobOutcome(bool(value))

    return failed_if


@cache
def _environment() -> Any:
    text, number = cel.Type.STRING, cel.Type.INT
    variables = {
        **dict.fromkeys(("kind", "__namespace__", "name", "reason", "partition", "qos"), text),
        **dict.fromkeys(("exitCode", "signal"), number),
        "labels": cel.Type.Map(text, text),
    }
    return cel.NewEnv(config=cel.NewEnvConfigFromYaml(_LANGUAGE), variables=variables)


def _variables(job: EndedJob) -> dict[str, Any]:
    """What an expression sees of a job; what is absent is "" or 0.

    `namespace` is a reserved word of CEL; Kubernetes writes it so, too.
    """
    return {
        "kind": _bounded(job.kind),
        "__namespace__": _bounded(job.namespace),
        "name": _bounded(job.name),
        "reason": _bounded(job.reason),
        "exitCode": _whole(job.exit_code),
        "signal": _whole(job.signal),
        "partition": _bounded(job.partition),
        "qos": _bounded(job.qos),
        "labels": {_bounded(key): _bounded(value) for key, value in islice(job.labels.items(), MAX_LABELS)},
    }


def _bounded(value: str | None) -> str:
    return (value or "")[:MAX_VALUE]


def _whole(value: int | None) -> int:
    return max(-_LARGEST, min(_LARGEST, value or 0))


def _first_words(said: object) -> str:
    """What the library said, in one line, without the excerpts of the expression that it draws beneath."""
    lines = (line for line in str(said).splitlines() if not line.startswith(" |"))
    return " ".join(" ".join(lines).split())[:_MAX_WORDS]
