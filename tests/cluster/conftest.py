"""What the tests of the door share."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster
from tests.cluster.fault_injecting_proxy import FaultInjectingProxy


@pytest.fixture
def proxy(control_plane: ControlPlane) -> Iterator[FaultInjectingProxy]:
    """A way to the real API server that goes wrong on command."""
    proxy = FaultInjectingProxy(control_plane)
    yield proxy
    proxy.close()


@pytest.fixture
def faulty(proxy: FaultInjectingProxy, tmp_path: Path) -> Cluster:
    """The door that leads through `proxy`."""
    return proxy.connect(tmp_path)


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    """Set at the end of the test, so that what runs in the background ends."""
    event = threading.Event()
    yield event
    event.set()
