"""A software TPM for each test that wants one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.tpm.swtpm import Swtpm


@pytest.fixture
def tpm(tmp_path: Path) -> Iterator[Swtpm]:
    with Swtpm(tmp_path / "tpm") as running:
        yield running


@pytest.fixture
def other_tpm(tmp_path: Path) -> Iterator[Swtpm]:
    with Swtpm(tmp_path / "other-tpm") as running:
        yield running
