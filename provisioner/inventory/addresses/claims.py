"""Addresses are claimed before they are given: a claim is an entry of an AddressBlock, written under its
resourceVersion.

Of two leaders that choose one address, one meets a conflict, reads that block, and chooses again. Who dies between
claim and status leaves a claim, which the server takes up. All who wait are claimed for in one write a block, so that a
fleet that is registered at once costs few. A claim is taken back once its server, read past the cache, is gone or has
another address. What stands in a block and is no claim of an address of it counts for nothing, and goes with the next
write.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from provisioner.api import AddressBlock, Server
from provisioner.api.machinery.errors import Conflict, NeedsHuman, NotFound, ProvisionerError
from provisioner.api.servers.address_block import block_name, is_of_block
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.resources import of
from provisioner.cluster.source import Source
from provisioner.inventory.addresses.judge import Judgement
from provisioner.inventory.addresses.subnets import FreeAddresses

log = structlog.get_logger(__name__)

PAUSE_SECONDS: Final = 0.1
"""Between two writes of claims: what is asked for meanwhile goes into the next one."""
BATCH: Final = 512
RETRY_SECONDS: Final = 5.0
LASTING_SECONDS: Final = 30.0
"""A failure that may pass by itself is said of the servers that wait once it has lasted so long."""
REVISIONS: Final = 2**31
"""A revision only has to differ from the one before."""
_NONE: Final[Mapping[str, str]] = {}

Object = Mapping[str, Any]


class ClaimBook:
    """The AddressBlocks as this process knows them: by its cache, or by the answer to its own write if that is newer.

    Usable from several threads. It is asked like a mapping: `get(address, ())` are the names of who has claimed it.
    """

    def __init__(self, free: FreeAddresses) -> None:
        self._free = free
        self._lock = threading.Lock()
        self._blocks: dict[str, Object] = {}
        self._claims: dict[str, Mapping[str, str]] = {}
        self._by_server: defaultdict[str, set[str]] = defaultdict(set)
        self._reserved: dict[str, str] = {}
        self._written: set[tuple[str, str]] = set()

    def get(self, address: str, default: Collection[str], /) -> Collection[str]:
        with self._lock:
            holder = self._claims.get(block_name(address), _NONE).get(address) or self._reserved.get(address)
        return default if holder is None else (holder,)

    def of(self, server: str) -> frozenset[str]:
        """What `server` has claimed."""
        with self._lock:
            return frozenset(self._by_server.get(server, ()))

    def has_written(self, server: str, address: str) -> bool:
        """Whether this process wrote that claim: then nobody takes it back on what it knew before."""
        with self._lock:
            return (server, address) in self._written

    def block(self, name: str) -> Object | None:
        with self._lock:
            return self._blocks.get(name)

    def take(self, name: str, new: Object | None) -> set[str]:
        """Take a block in unless a newer one is known; None: it is gone. Returns: the servers whose claims changed."""
        with self._lock:
            known = self._blocks.get(name)
            if new is not None and known is not None and _version(new) <= _version(known):
                return set()
            before, after = self._claims.pop(name, _NONE), claims_of(new)
            if new is None:
                self._blocks.pop(name, None)
            else:
                self._blocks[name], self._claims[name] = new, after
            lost = {(address, server) for address, server in before.items() if after.get(address) != server}
            won = {(address, server) for address, server in after.items() if before.get(address) != server}
            for address, server in lost:
                self._by_server[server].discard(address)
                self._written.discard((server, address))
                if not self._by_server[server]:
                    del self._by_server[server]
            for address, server in won:
                self._by_server[server].add(address)
        for address, _ in lost:
            self._free.freed(address)
        return {server for _, server in lost | won}

    def note_written(self, block: Object, changes: Mapping[str, str | None]) -> None:
        """`block` is what the API server answered to our write of `changes`."""
        self.take(block["metadata"]["name"], block)
        with self._lock:
            self._written |= {(server, address) for address, server in changes.items() if server is not None}

    def reserve(self, address: str, server: str) -> None:
        """Nobody else is given `address` while its claim is being written."""
        with self._lock:
            self._reserved[address] = server

    def clear_reserved(self) -> None:
        with self._lock:
            reserved, self._reserved = self._reserved, {}
        for address in reserved:
            self._free.freed(address)


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """What keeps a claim from being written, and since when, by the monotonic clock."""

    words: str
    since: float
    lasts: bool


class AddressClaimer:
    """Writes the claims that servers ask for and takes back those that are of no more use. One worker."""

    def __init__(
        self,
        cluster: Cluster,
        servers: Source,
        book: ClaimBook,
        judge: Callable[[Object], Judgement],
        *,
        news: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._servers = servers
        self._book = book
        self._judge = judge
        self._news = news
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._asked: dict[str, None] = {}
        self._failures: dict[str, _Failure] = {}
        self._next_at = 0.0
        self.controller = Controller("inventory-addresses", self.reconcile)

    def ask(self, server: str) -> None:
        """Bring the claims of `server` in line with what it is to have; `news` is called with its name then,
        and when there is a failure to tell."""
        with self._lock:
            self._asked[server] = None
            wait = RETRY_SECONDS if server in self._failures else self._next_at - self._monotonic()
        self.controller.queue.add_after("claims", wait)

    def failure(self, server: str) -> str | None:
        """Why the claim of `server` cannot be written, in words with a remedy; None if it can, or may by itself."""
        with self._lock:
            failure = self._failures.get(server)
        return failure.words if failure is not None and failure.lasts else None

    def reconcile(self, _: str) -> float | None:
        """Serve those who asked. Raises: Conflict if another leader wrote a block first; Retryable; NeedsHuman if a
        block is refused. What a failed block does not concern is served."""
        with self._lock:
            names = list(self._asked)[:BATCH]
        changes: defaultdict[str, dict[str, str | None]] = defaultdict(dict)
        waiting: defaultdict[str, set[str]] = defaultdict(set)
        failed: dict[str, tuple[str, ProvisionerError]] = {}
        try:
            for name in names:
                try:
                    claims = self._changes(name)
                except NeedsHuman as error:  # one server that cannot be read must not keep the others waiting
                    log.warning("claims of a server were not decided", server=name, error=str(error))
                    continue
                for address, server in claims.items():
                    changes[block_name(address)][address] = server
                    waiting[block_name(address)].add(name)
            for block, claims in changes.items():
                try:
                    self._write(block, claims)
                except ProvisionerError as error:
                    failed |= dict.fromkeys(waiting[block], (block, error))
        finally:
            self._book.clear_reserved()
            with self._lock:
                self._next_at = self._monotonic() + PAUSE_SECONDS
        served = [name for name in names if name not in failed]
        with self._lock:
            for name in names:
                self._asked.pop(name, None)
            self._asked |= dict.fromkeys(failed)  # behind those that were not looked at yet
            left = bool(self._asked)
            said = self._note_failures(served, failed)
        for name in (*served, *said):
            self._news(name)
        if failed:
            raise next(iter(failed.values()))[1]
        return PAUSE_SECONDS if left else None

    def _note_failures(self, served: Iterable[str], failed: Mapping[str, tuple[str, ProvisionerError]]) -> list[str]:
        """Returns: the servers of which there is something new to say."""
        now, new = self._monotonic(), []
        for name in served:
            self._failures.pop(name, None)
        for name, (block, error) in failed.items():
            before = self._failures.get(name)
            since = before.since if before is not None else now
            words, lasts = _explain(block, error), isinstance(error, NeedsHuman) or now - since >= LASTING_SECONDS
            self._failures[name] = failure = _Failure(words=words, since=since, lasts=lasts)
            if lasts and (before is None or (before.words, before.lasts) != (failure.words, True)):
                new.append(name)
        return new

    def _changes(self, name: str) -> dict[str, str | None]:
        """Claims to write for a server: to its name, or to None."""
        body = self._servers.get(name)
        wanted = self._judge(body).address if body is not None else None
        changes: dict[str, str | None] = {}
        holders = self._book.get(wanted, ()) if wanted is not None else ()
        if wanted is not None and holders in ((), (name,)) and not self._book.has_written(name, wanted):
            changes[wanted] = name
            self._book.reserve(wanted, name)
        surplus = self._book.of(name) - {wanted, address_of(body)}
        if surplus:
            # What is taken back may be given to another at once: the server is asked itself, not a cache.
            now = self._cluster.find(of(Server), name)
            kept = {address_of(now), self._judge(now).address if now is not None else None}
            changes |= dict.fromkeys(surplus - kept)
        return changes

    def _write(self, name: str, claims: Mapping[str, str | None]) -> None:
        type_, known = of(AddressBlock), self._book.block(name)
        strange = set((known or {}).get("spec", {}).get("claims") or ()) - set(claims_of(known))
        try:
            if known is None:
                spec: dict[str, Any] = {"revision": 1, "claims": {a: s for a, s in claims.items() if s is not None}}
                body = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": {"name": name}, "spec": spec}
                written = self._cluster.create(type_, body)
            else:
                patch = {
                    "metadata": {"resourceVersion": known["metadata"]["resourceVersion"]},
                    "spec": {
                        "revision": known["spec"]["revision"] % REVISIONS + 1,
                        "claims": dict.fromkeys(strange) | dict(claims),
                    },
                }
                written = self._cluster.patch(type_, name, patch)
        except (Conflict, NotFound) as error:
            self._book.take(name, self._cluster.find(type_, name))
            raise Conflict(str(error), after_seconds=0.0) from error
        self._book.note_written(written, claims)


def _explain(block: str, error: ProvisionerError) -> str:
    remedy = f"the controller must be able to write it: kubectl get addressblock {block} -o yaml"
    if isinstance(error, NeedsHuman):
        remedy = f"{remedy}; {error.hint}"
    return f"claims in AddressBlock {block} cannot be written: {error.args[0]}; {remedy}"


def address_of(server: Object | None) -> str | None:
    """status.address of a Server's JSON."""
    return ((server or {}).get("status") or {}).get("address")


def claims_of(block: Object | None) -> Mapping[str, str]:
    """The claims in a block of addresses that it holds."""
    if block is None:
        return _NONE
    name, entries = block["metadata"]["name"], block["spec"].get("claims") or {}
    return {address: server for address, server in entries.items() if is_of_block(address, name)}


def _version(block: Object) -> int:
    """ResourceVersions of a kind are numbers that grow (Kubernetes 1.35, KEP-5504)."""
    return int(block["metadata"]["resourceVersion"])
