"""Foreign programs that the tests run: from the lab's chroot, or a visible skip where this machine has none."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from provisioner.lab.tools import Tools, content_key, obtain_tools

CACHE = Path(os.environ.get("PROVISIONER_CACHE", "~/.cache/provisioner")).expanduser()
IN_CI = os.environ.get("CI") == "true"


def lab_tools() -> Tools:
    """The lab's chroot with QEMU. A test run does not begin with building it unless it is CI's."""
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces and a chroot")
    if not IN_CI and not (CACHE / f"tools-{content_key()}").is_dir():
        pytest.skip("the lab's tools are not built here: run make demo once")
    return obtain_tools(CACHE)


def signify() -> list[str]:
    """OpenBSD's own program."""
    found = shutil.which("signify-openbsd")
    return [found] if found else lab_tools().command(["signify-openbsd"])
