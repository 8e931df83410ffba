"""The real parts that the lab's tests need: the tools' chroot, and a network of one's own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.demo.leftovers import clean_lab
from lab.network import LabNetwork
from lab.tools import Tools
from tests.tools import lab_tools, need_root


@pytest.fixture(scope="session")
def tools() -> Tools:
    """QEMU and its companions."""
    return lab_tools()


@pytest.fixture
def network(unique: str) -> Iterator[LabNetwork]:
    """A network that is not made yet; whatever runs in it is ended afterwards."""
    need_root("make network namespaces")
    made = LabNetwork(unique)
    yield made
    clean_lab(made)


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory whose path is short enough for sockets; pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="lab-") as name:
        yield Path(name)
