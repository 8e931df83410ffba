"""What the bare API server takes: the same writes, over the same number of connections, by nobody but a loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from provisioner.cluster.client import Cluster

CONNECTIONS: Final = 8

T = TypeVar("T")


def seconds_of_writes(
    kubeconfig: Path, items: Sequence[T], write: Callable[[Cluster, T], Any], *, connections: int = CONNECTIONS
) -> float:
    """Seconds until all `items` are written, each connection taking every eighth; raises what a write raises."""
    clients = [Cluster.connect(kubeconfig, user_agent="bare-writes") for _ in range(connections)]

    def run(first: int) -> None:
        for item in items[first::connections]:
            write(clients[first], item)

    with ThreadPoolExecutor(connections) as pool:
        began = time.monotonic()
        list(pool.map(run, range(connections)))
        return time.monotonic() - began


def apply_body(cluster: Cluster, body: dict[str, Any]) -> None:
    """Server-side apply of a whole object, as `rack register` does it."""
    cluster.apply(body, manager="bare-writes")
