"""nginx and dnsmasq for the tests: the lab's (Debian trixie's), else the machine's own, else a visible skip."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from provisioner.boot.processes import run_here
from provisioner.lab.tools import Tools, content_key, obtain_tools


@dataclass(frozen=True)
class Programs:
    """Where nginx, dnsmasq and iPXE's files are. `shared`: a folder that the programs see too."""

    tools: Tools | None
    shared: Path

    def enter(self, command: Sequence[str]) -> list[str]:
        return self.tools.command(command, [self.shared]) if self.tools is not None else run_here(command)

    @property
    def ipxe(self) -> Path:
        return (self.tools.root if self.tools is not None else Path("/")) / "usr/lib/ipxe"


@pytest.fixture
def programs() -> Iterator[Programs]:
    cache = Path.home() / ".cache/provisioner"
    built = cache / f"tools-{content_key()}"
    in_ci = os.environ.get("CI") == "true"  # there they are made: nothing is skipped
    tools = obtain_tools(cache) if in_ci and os.geteuid() == 0 else Tools(built) if built.is_dir() else None
    if tools is None and not (Path("/usr/sbin/nginx").exists() and Path("/usr/sbin/dnsmasq").exists()):
        pytest.skip("no nginx and dnsmasq: the lab's tools are not built, and the machine has none")
    # pytest's own folders are root's alone; nginx's workers and dnsmasq are somebody else.
    with tempfile.TemporaryDirectory(prefix="provisioner-test-") as folder:
        Path(folder).chmod(0o755)
        yield Programs(tools, Path(folder))
