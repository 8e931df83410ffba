"""How the kubectl commands end: exit codes, and what is said on the way out."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from provisioner.api.machinery.errors import Forbidden, NeedsHuman, ProvisionerError, Refused
from provisioner.cli import printer

DONE: Final = 0
ERROR: Final = 1
REFUSED: Final = 3
FAILED: Final = 4
TIMED_OUT: Final = 5

EXIT_CODES: Final = """\b
Exit codes:
  0  done
  1  an error: bad input, no access, no answer; nothing was written unless it says so
  2  the command line is wrong
  3  the API server refused it: a right is missing, or an admission policy or the schema forbids it"""

WAIT_EXIT_CODES: Final = """
  4  with --wait: a Maintenance failed or was cancelled; a rollout stopped itself; an attachment needs a person
  5  with --wait: the time is over; what was asked for stands"""

_POLICY: Final = re.compile(r"ValidatingAdmissionPolicy '([^']+)' .*?denied request: (.*)", re.DOTALL)


class BadInput(NeedsHuman):
    """What was asked for cannot be done, and was found out before anything was written."""


@contextmanager
def hinting_at(remedy: str) -> Iterator[None]:
    """Around what takes a right. Raises: Refused with that remedy for who has not got it."""
    try:
        yield
    except Forbidden as error:
        raise Refused(Exception.__str__(error), hint=remedy) from error


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turns errors into words on stderr and an exit code."""
    try:
        yield
    except NeedsHuman as error:
        words, advice = Exception.__str__(error), f"try: {error.hint}"
        if isinstance(error, Refused) and (policy := _POLICY.search(words)):
            words, advice = policy[2], f"the rule is ValidatingAdmissionPolicy {policy[1]}"
        printer.error(words, advice)
        sys.exit(REFUSED if isinstance(error, Refused) else ERROR)
    except ProvisionerError as error:
        printer.error(str(error), "try: is the API server reachable? try again")
        sys.exit(ERROR)
