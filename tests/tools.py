"""Foreign programs that the tests run, from chroots beside this system: found here, made by tests/prepare.py."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import NoReturn

import pytest

from provisioner.cli.lab.parts import demo_state
from provisioner.lab.tools import PACKAGES, Tools, content_key

CACHE = demo_state("tests").cache
IN_CI = os.environ.get("CI") == "true"
PREPARE = "`make test` gets it, as root"


def absent(what: str) -> NoReturn:
    """A visible skip; in CI (`CI=true`), where nothing may be absent, a failure."""
    words = f"{what} is not on this machine: {PREPARE}"
    if IN_CI:
        pytest.fail(words)
    pytest.skip(words)


def lab_tools(packages: Sequence[str] = PACKAGES) -> Tools:
    """The chroot with these packages: QEMU, firmware, nginx and more, if nothing else is asked for."""
    root = CACHE / f"tools-{content_key(packages)}"
    if os.geteuid() != 0:
        absent("the right to enter a chroot")
    if not root.is_dir():
        absent(str(root))
    return Tools(root)


def signify() -> list[str]:
    """OpenBSD's own program."""
    found = shutil.which("signify-openbsd")
    return [found] if found else lab_tools().command(["signify-openbsd"])
