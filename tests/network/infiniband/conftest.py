"""The simulated fabric of a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.infiniband.simulated_fabric import SimulatedFabric


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[SimulatedFabric]:
    """ibsim at work; OpenSM is started by the test."""
    fabric = SimulatedFabric(tmp_path)
    yield fabric
    fabric.close()
