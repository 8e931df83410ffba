"""A thread that follows one object of the API server: reads it, watches it, and begins anew after every fault."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

from provisioner.node.api_server import ApiError, NotJoinedError, OwnNode, OwnObject, read_access
from provisioner.node.machine.facts import rfc3339
from provisioner.node.retry import NO_ANSWER, wait_seconds

_WATCH_SECONDS = (240, 300)


class ObjectWatch:
    """Follows an object. `take` is called with it each time that it was seen, and with None once there is none; what
    cannot be read is not gone.

    `find`: the object to follow; may raise NotJoinedError. `what`: what it is called in `say`.
    """

    def __init__(
        self,
        find: Callable[[], OwnObject],
        take: Callable[[dict[str, Any] | None], None],
        say: Callable[[str], None],
        what: str,
    ) -> None:
        self._find = find
        self._take = take
        self._say = say
        self._what = what
        self._stop = threading.Event()
        self._last_fault = ""
        self._thread = threading.Thread(target=self._follow, name="watch", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """End at the next occasion; the thread does not keep the process."""
        self._stop.set()

    def _follow(self) -> None:
        failures = 0
        while not self._stop.is_set():
            try:
                followed = self._find()
                seen = followed.read()
                self._take(seen)
                failures, self._last_fault = 0, ""
                version = str(seen["metadata"]["resourceVersion"])
                for seen in followed.watch(version, random.randint(*_WATCH_SECONDS)):  # noqa: S311 (spreads a fleet's watches)
                    self._take(seen)
                    if self._stop.is_set():
                        return
                self._stop.wait(random.uniform(0.0, 1.0))  # noqa: S311
            except (OSError, NotJoinedError, KeyError) as error:
                failures += 1
                if isinstance(error, ApiError) and error.object_is_gone:
                    self._take(None)
                fault = f"{type(error).__name__}: {error}"
                if fault != self._last_fault:
                    self._say(f"the {self._what} could not be followed ({fault}); trying again")
                self._last_fault = fault
                self._stop.wait(wait_seconds(NO_ANSWER, failures, None, random.random()))  # noqa: S311


class NodeWatch(ObjectWatch):
    """The annotations of the Node as last seen. `changed` is set when something new was seen."""

    def __init__(self, root: str, say: Callable[[str], None]) -> None:
        super().__init__(self._node, self._see, say, "Node")
        self.changed = threading.Event()
        self._root = root
        self._lock = threading.Lock()
        self._annotations: dict[str, str] | None = None

    @property
    def annotations(self) -> dict[str, str] | None:
        """None until the Node was read once, and while there is none."""
        with self._lock:
            return self._annotations

    def annotate(self, annotations: dict[str, str | None]) -> None:
        """Write annotations. Raises: OSError, NotJoinedError."""
        self._node().annotate(annotations)

    def tell_not_ready(self, message: str) -> None:
        """Set the Node's condition Ready to False, for a kubelet that has ended. Raises: OSError, NotJoinedError."""
        self._node().tell_not_ready(message, rfc3339(time.time()))

    def _node(self) -> OwnNode:
        return OwnNode(read_access(self._root))

    def _see(self, node: dict[str, Any] | None) -> None:
        if node is None:
            with self._lock:
                self._annotations = None
            return
        annotations = (node.get("metadata") or {}).get("annotations") or {}
        with self._lock:
            if annotations == self._annotations:
                return
            self._annotations = dict(annotations)
        self.changed.set()
