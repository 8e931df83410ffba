"""Checks with names, and the answer that they make together, as kube-apiserver words it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

MAX_WORDS: Final = 300
"""Of what a check says."""


@dataclass(frozen=True)
class HealthVerdict:
    """What a check found. `words`: no secrets, and no name of a server; the answer is for everybody."""

    is_well: bool
    words: str = ""


Look = Callable[[], HealthVerdict]
"""Looks at what is in memory, and waits for nothing: a check that waits would be the hang that it is to find."""


@dataclass(frozen=True)
class Check:
    """A name, such as `caches`, and how it is looked at."""

    name: str
    look: Look


def well(words: str = "") -> HealthVerdict:
    return HealthVerdict(is_well=True, words=words)


def ill(words: str) -> HealthVerdict:
    return HealthVerdict(is_well=False, words=words)


def answer(title: str, checks: Sequence[Check], *, verbose: bool, excluded: Collection[str] = ()) -> tuple[int, str]:
    """Status and body: `ok`, or a line for each check where one failed or `verbose` asks for them.

    title: `healthz` or `readyz`. excluded: names of checks that do not count. A check that raises has failed.
    """
    lines, is_well = [], True
    for check in checks:
        if check.name in excluded:
            lines.append(f"[+]{check.name} excluded: ok")
            continue
        verdict = _look(check)
        is_well &= verdict.is_well
        words = " ".join(verdict.words.split())[:MAX_WORDS]
        said = f"[+]{check.name} ok" if verdict.is_well else f"[-]{check.name} failed"
        lines.append(f"{said}: {words}" if words else said)
    if is_well and not verbose:
        return 200, "ok"
    lines.append(f"{title} check {'passed' if is_well else 'failed'}")
    return 200 if is_well else 503, "\n".join(lines) + "\n"


def _look(check: Check) -> HealthVerdict:
    try:
        return check.look()
    except Exception as error:
        return ill(f"the check itself failed: {type(error).__name__}")
