"""What a boot host's virtual environment is made of, downloaded once."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Final

from artefacts.recipe import Machine
from artefacts.wheels import download
from tests.ansible.runs import ROOT

PYTHON: Final = "3.13"
"""Of Debian trixie."""


def obtain_wheels(cache: Path) -> Path:
    """The folder with wheels of all requirements. Raises: NeedsHuman if the package index is not reached."""
    machine: Machine = "arm64" if platform.machine() == "aarch64" else "amd64"
    wheels = download(ROOT / "requirements/runtime.txt", PYTHON, machine, cache, lambda _words: None)
    return wheels[0].file.parent
