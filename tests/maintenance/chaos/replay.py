"""The seed of a run, and the command that plays a history of it once more. CHAOS_SEED=n takes that seed.

Without it `make test` always plays the same histories, so that what fails there failed by the change that is tested;
`make chaos` (CHAOS=long) plays others in each run.
"""

from __future__ import annotations

import os
import random
import secrets
import shlex
from typing import Final

LONG: Final = os.environ.get("CHAOS") == "long"
SEED: Final = int(os.environ.get("CHAOS_SEED") or (secrets.randbelow(2**32) if LONG else 1))


def rng(*names: str) -> random.Random:
    """Chance for one test: the same for the same seed and names, whatever else is run beside it."""
    return random.Random(":".join((str(SEED), *names)))


def command() -> str:
    """What plays the test that runs now once more, with the same seed."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "tests/maintenance/chaos").rpartition(" (")[0]
    settings = [f"{k}={os.environ[k]}" for k in ("CHAOS", "CHAOS_HISTORIES") if k in os.environ]
    words = (f"CHAOS_SEED={SEED}", *settings, 'PYTHONPATH=. "$(bin/setup)"/bin/python -m pytest', shlex.quote(test))
    return " ".join(words)
