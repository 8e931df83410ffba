"""The real parts that the lab's tests need: the tools' chroot, and a network of one's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.lab.network import LabNetwork
from provisioner.lab.processes import clean_lab
from provisioner.lab.tools import Tools, content_key, obtain_tools


@pytest.fixture(scope="session")
def tools() -> Tools:
    """QEMU and its companions. Absent: a visible skip, but in CI (`CI=true`) they are built."""
    cache = Path.home() / ".cache" / "provisioner"
    if os.environ.get("CI") != "true" and not (cache / f"tools-{content_key()}").is_dir():
        pytest.skip("the lab's tools are not built; `make demo` builds them")
    return obtain_tools(cache)


@pytest.fixture
def network(unique: str) -> Iterator[LabNetwork]:
    """A network that is not made yet; whatever runs in it is ended afterwards."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    made = LabNetwork(unique)
    yield made
    clean_lab(made)


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory whose path is short enough for sockets; pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="lab-") as name:
        yield Path(name)
