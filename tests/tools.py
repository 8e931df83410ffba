"""Foreign programs that the tests run, from chroots beside this system: found here, made by tests/prepare.py."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from lab.cli.parts import demo_state
from lab.tools import PACKAGES, Tools, content_key

CACHE = demo_state("tests").cache
IN_CI = os.environ.get("CI") == "true"
PREPARE = "`make test` gets it, as root"
INSTALL = "`bin/setup --tests` installs it"
_PATH = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin:/lib/systemd"


def missing(part: str, remedy: str = PREPARE) -> NoReturn:
    """The test cannot run without `part`: a visible skip; with `CI=true`, where nothing may be missing, a failure."""
    words = f"{part} is not on this machine: {remedy}"
    if IN_CI:
        pytest.fail(words)
    pytest.skip(words)


def need_root(what_for: str) -> None:
    """Anybody else cannot run the test."""
    if os.geteuid() != 0:
        missing(f"the right to {what_for}", "run it as root")


def installed(name: str) -> str:
    """Path of an installed program of this system."""
    return shutil.which(name, path=_PATH) or missing(name, INSTALL)


def lab_tools(packages: Sequence[str] = PACKAGES) -> Tools:
    """The chroot with these packages: QEMU, firmware, nginx and more, if nothing else is asked for."""
    root = CACHE / f"tools-{content_key(packages)}"
    need_root("enter a chroot")
    if not root.is_dir():
        missing(str(root))
    return Tools(root)


def signify() -> list[str]:
    """OpenBSD's own program."""
    found = shutil.which("signify-openbsd")
    return [found] if found else lab_tools().command(["signify-openbsd"])


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie. One may end between open and read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
