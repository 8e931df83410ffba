"""A rack of DPUs in network namespaces, for one test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.network.agent.rack import Rack, rack


@pytest.fixture
def network() -> Iterator[Rack]:
    """An underlay of 1550 bytes without any DPU. Gone afterwards, with all that agents made."""
    with rack() as made:
        yield made
