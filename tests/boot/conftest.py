"""nginx and dnsmasq for the tests: the lab's (Debian trixie's), else the machine's own, else a visible skip."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.tools import Tools, content_key
from provisioner.boot.host.processes import run_here
from provisioner.cluster.client import Cluster
from tests.tools import CACHE, lab_tools


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
    has_its_own = Path("/usr/sbin/nginx").exists() and Path("/usr/sbin/dnsmasq").exists()
    tools = None if has_its_own and not (CACHE / f"tools-{content_key()}").is_dir() else lab_tools()
    # pytest's own folders are root's alone; nginx's workers and dnsmasq are somebody else.
    with tempfile.TemporaryDirectory(prefix="provisioner-test-") as folder:
        Path(folder).chmod(0o755)
        yield Programs(tools, Path(folder))


@pytest.fixture(scope="session")
def controller_account(account: Callable[[str], Cluster]) -> Cluster:
    """The cluster as this stage's controller sees it."""
    return account("orders")
