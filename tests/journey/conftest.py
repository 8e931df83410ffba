"""One virtual rack for all journeys: it is booted once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.lab.binaries.obtain import Binaries
from provisioner.lab.demo.state import DemoState
from tests.journey.virtual_rack import VirtualRack, lab_command
from tests.tools import need_root

BOOT_SECONDS = 1500


@pytest.fixture(scope="session")
def rack(binaries: Binaries) -> Iterator[VirtualRack]:
    """Three servers without an operating system, each with a TPM, that have become Ready nodes of a pool that requires
    proof."""
    need_root("make network namespaces and mounts for a virtual rack")
    name = f"journey{os.getpid()}"
    cache = Path(os.environ.get("PROVISIONER_CACHE", Path.home() / ".cache/provisioner"))
    try:
        subprocess.run(
            lab_command("up", "--name", name, "--servers=UEFI,UEFI,UEFI", "--memory=1536", f"--timeout={BOOT_SECONDS}"),
            check=True,
            stdin=subprocess.DEVNULL,
        )
        yield VirtualRack(DemoState(cache=cache, name=name), binaries.kubectl)
    finally:
        subprocess.run(lab_command("down", "--name", name), check=True)
        assert not Path(f"/run/netns/provisioner-{name}").exists()
