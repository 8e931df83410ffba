"""A boot host's store that fills itself: what its servers need, and its store lacks, is pulled from a registry.

Each boot host does so by itself, and asks nobody else. Its disk may be empty.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from provisioner.api import Image
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import ProvisionerError, Refused, Retryable
from provisioner.api.machinery.values import Sha256Digest, parse_digest
from provisioner.cluster.source import Lookup, Source
from provisioner.image.finished.sign import SignatureVerifier
from provisioner.image.registry.access import RegistryAccess
from provisioner.image.registry.client import Registry
from provisioner.image.registry.pull import pull_image
from provisioner.image.registry.transport import RegistryTransport
from provisioner.image.registry.wanted import (
    Attempts,
    Policy,
    choose_pulls,
    failed,
    is_wanted,
    rank_images,
    words_of,
)
from provisioner.image.retention.references import images_named

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 15.0
_WORDS_LENGTH: Final = 500

Pull = Callable[[Sha256Digest], int | None]
"""Returns: how many bytes were fetched, where that is known."""


class PullObserver(Protocol):
    """Told of each pull."""

    def began(self) -> None: ...

    def ended(self, *, succeeded: bool, fetched_bytes: int, seconds: float) -> None: ...


class StoreFiller:
    """Follows Images, Servers and NodePools, and pulls. `access` is asked for before each pull: passwords change."""

    def __init__(
        self,
        *,
        images: Source,
        servers: Source,
        pools: Source,
        store: Path,
        key: SignatureVerifier,
        access: Callable[[], RegistryAccess],
        registry: str,
        parallel: int = 2,
        policy: Policy = "needed",
        pull: Pull | None = None,
        clock: Callable[[], float] = time.monotonic,
        spread: Callable[[], float] = random.random,
        meter: PullObserver | None = None,
    ) -> None:
        self._images, self._servers, self._pools = images, servers, pools
        self._store, self._key, self._access, self._registry = store, key, access, registry
        self._parallel, self._policy = parallel, policy
        self._pull = pull or self._pull_from_registry
        self._clock, self._spread, self._meter = clock, spread, meter
        self._lock = threading.Lock()
        self._attempts: dict[str, Attempts] = {}
        self._wanted: frozenset[str] | None = None
        self._wake = threading.Event()
        self._stored: Callable[[], None] = lambda: None
        self._by_server: Lookup | None = None
        self._by_pool: Lookup | None = None

    def attach(self, stored: Callable[[], None]) -> None:
        """Follow what there is. `stored` is called when an image has come."""
        self._stored = stored
        self._by_server = self._servers.index(lambda body: {image for image, _ in images_named("Server", body)})
        self._by_pool = self._pools.index(lambda body: {image for image, _ in images_named("NodePool", body)})
        self._images.subscribe(lambda name, old, new: self.wake() if old is None else None)
        self._pools.subscribe(lambda name, old, new: self.wake())

    def run(self, stop: threading.Event) -> None:
        """Pull until `stop`. A pull that is under way then is gone on with after the next start."""
        while not stop.is_set():
            self._wake.clear()
            for name in self.look():
                # Not in a pool: a thread that hangs in a registry must not hold up the end of the service.
                threading.Thread(target=self._work, args=(name,), name=f"pull-{name}", daemon=True).start()
            stop.wait(0.2)
            self._wake.wait(LOOK_SECONDS)

    def wake(self) -> None:
        """Look now; lets `run` notice that it should stop, too."""
        self._wake.set()

    def words(self, name: str) -> str | None:
        """What an Image waits for that this host's store lacks, for its condition; None before the first look."""
        with self._lock:
            if self._wanted is None:
                return None
            return words_of(name, self._attempts, self._wanted, self._registry)

    def look(self) -> tuple[str, ...]:
        """The images of which a pull begins now; they are taken to be under way from here on."""
        by_server, by_pool = self._by_server, self._by_pool
        if by_server is None or by_pool is None:
            return ()
        if not all(source.has_synced for source in (self._images, self._servers, self._pools)):
            return ()
        bodies = {body["metadata"]["name"]: body for body in self._images.items()}
        ranked = rank_images(
            [*bodies.values()], lambda key: bool(by_server.get(key)), lambda key: bool(by_pool.get(key))
        )
        wanted = [each for each in ranked if is_wanted(each, self._policy)]
        lacking = [each for each in wanted if self._lacks(bodies[each.name])]
        with self._lock:
            self._wanted = known = frozenset(each.name for each in wanted)
            for name in [*self._attempts]:
                if name not in known and not self._attempts[name].is_pulling:
                    del self._attempts[name]
            begun = choose_pulls(lacking, self._attempts, self._clock(), self._parallel)
            for name in begun:
                before = self._attempts.get(name, Attempts())
                self._attempts[name] = Attempts(before.failures, before.retry_at, before.words, is_pulling=True)
        return begun

    def _work(self, name: str) -> None:
        try:
            self.pull(name)
        finally:
            self.wake()

    def pull(self, name: str) -> None:
        """Pull one image; what goes wrong is said in its words, and tried again later."""
        error: Exception | None = None
        fetched, began = 0, self._clock()
        body = self._images.get(name)
        meter = self._meter if body is not None else None
        if meter is not None:
            meter.began()
        try:
            if body is not None:
                log.info("image is being pulled", image=name, registry=self._registry)
                fetched = self._pull(parse_digest(body["spec"]["digest"])) or 0
                if self._lacks(body):
                    raise Refused(
                        f"Image {name!r} names files that its manifest does not have",
                        hint="delete it, and publish the image again",
                    )
        except Exception as caught:  # one image must not end the pulls of all others
            error = caught
        if meter is not None:
            meter.ended(succeeded=error is None, fetched_bytes=fetched, seconds=self._clock() - began)
        with self._lock:
            if error is None:
                self._attempts.pop(name, None)
            else:
                after = error.after_seconds if isinstance(error, Retryable) else 0.0
                self._attempts[name] = failed(
                    self._attempts.get(name, Attempts()),
                    str(error)[:_WORDS_LENGTH],
                    self._clock(),
                    after_seconds=after,
                    spread=self._spread(),
                )
        if error is None:
            log.info("image was pulled", image=name, registry=self._registry)
        elif isinstance(error, ProvisionerError):
            log.warning("image was not pulled", image=name, registry=self._registry, error=str(error))
        else:
            log.error("image was not pulled", image=name, registry=self._registry, exc_info=error)
        self._stored()

    def _pull_from_registry(self, digest: Sha256Digest) -> int:
        with RegistryTransport(self._access()) as transport:
            return pull_image(digest, Registry(transport), self._store, self._key).fetched_bytes

    def _lacks(self, body: Mapping[str, Any]) -> bool:
        spec = decode(Image, body).spec
        files = [(artifact.path, artifact.size_bytes) for artifact in (*spec.served, *spec.documents)]
        return any(self._size(path) != size for path, size in files) or not self._size(f"{spec.manifest.path}.sig")

    def _size(self, path: str) -> int | None:
        try:
            return (self._store / path).stat().st_size
        except (OSError, ValueError):
            return None
