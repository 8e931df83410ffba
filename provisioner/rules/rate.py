"""How often somebody may do something: token buckets, without a clock of their own.

The one limiter of what is asked for over HTTP. nginx has another in front of it, for each address and far above: it
keeps the service's threads free, and knows nothing of who is registered.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from provisioner.cluster.source import Object, Source, spec_of


@dataclass(frozen=True)
class Rate:
    """`per_second` on average, `burst` at once."""

    per_second: float
    burst: float


@dataclass(frozen=True)
class TokenBucket:
    """How much of a rate was left when it was last taken from."""

    rate: Rate
    tokens: float
    updated_seconds: float

    @classmethod
    def full(cls, rate: Rate, now_seconds: float) -> TokenBucket:
        return cls(rate, rate.burst, now_seconds)

    def take(self, now_seconds: float) -> tuple[TokenBucket, float]:
        """The bucket afterwards, and how many seconds there are to wait; 0.0: there was a token, else none is taken.

        `now_seconds` is monotonic; going back adds nothing.
        """
        elapsed = max(0.0, now_seconds - self.updated_seconds)
        tokens = min(self.rate.burst, self.tokens + elapsed * self.rate.per_second)
        taken = tokens >= 1.0
        after = TokenBucket(self.rate, tokens - taken, max(now_seconds, self.updated_seconds))
        return after, 0.0 if taken else (1.0 - tokens) / self.rate.per_second


@dataclass(frozen=True)
class Shares:
    """What all clients get together: those that are known, and all others. Neither takes from the other."""

    known: Rate
    others: Rate


class Limited(NamedTuple):
    """A request that has to wait: so many seconds, and for whose sake."""

    wait_seconds: float
    by: Literal["client", "total"]


class RequestLimit:
    """How often each client may ask, and all together. Usable from any thread.

    A client is an IPv4 address, or the /64 of an IPv6 address, of which a stranger has all; of those that are known
    each address. `is_known`: whether an address is one of those that have a share of their own (a registered server's):
    whoever else asks, and from however many addresses, they do not wait for it. A client that is refused for itself
    takes nothing from what all have.

    Of more than `max_clients` of each kind the longest silent one is forgotten, and begins anew: what many clients get
    that way is bounded by `shares` alone. Known clients are forgotten for known ones only.
    """

    def __init__(
        self,
        client: Rate,
        shares: Shares | None = None,
        *,
        is_known: Callable[[str], bool] = lambda source: False,
        max_clients: int = 65_536,
    ) -> None:
        self._client, self._shares = client, shares
        self._is_known, self._max_clients = is_known, max_clients
        self._lock = threading.Lock()
        self._clients: dict[bool, OrderedDict[str, TokenBucket]] = {True: OrderedDict(), False: OrderedDict()}
        self._totals: dict[bool, TokenBucket] = {}

    def take(self, source: str, now_seconds: float) -> Limited | None:
        """Count one request of `source`; None: it may pass. `now_seconds` is monotonic."""
        known = self._is_known(source)
        # Each server has an address of its own, also where they share a /64.
        key = source if known else client_of(source)
        with self._lock:
            clients = self._clients[known]
            before = clients.pop(key, None) or TokenBucket.full(self._client, now_seconds)
            after, wait = before.take(now_seconds)
            if wait:
                self._remember(clients, key, after)
                return Limited(wait, "client")
            if self._shares is not None:
                share = self._shares.known if known else self._shares.others
                total = self._totals.get(known) or TokenBucket.full(share, now_seconds)
                self._totals[known], wait = total.take(now_seconds)
            # Who waits for others has not asked too often itself.
            self._remember(clients, key, before if wait else after)
            return Limited(wait, "total") if wait else None

    def _remember(self, clients: OrderedDict[str, TokenBucket], key: str, bucket: TokenBucket) -> None:
        clients[key] = bucket
        if len(clients) > self._max_clients:
            clients.popitem(last=False)


def client_of(source: str) -> str:
    """Whom an address is counted as: an IPv4 address by itself, also one written as IPv6; of IPv6 its /64. What is no
    address (there is one proxy that says none) is one client."""
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{ipaddress.IPv6Address(int(address) >> 64 << 64)}/64"


def known_by_address(servers: Source) -> Callable[[str], bool]:
    """Whether an address is that of a Server which was accepted and has a boot order: it may have to boot any time."""
    by_address = servers.index(_addresses)
    return lambda source: bool(by_address.get(source))


def _addresses(server: Object) -> list[str]:
    status = server.get("status") or {}
    address = status.get("address")
    accepted = spec_of(server).get("acceptance") == "Accepted"
    return [address] if isinstance(address, str) and accepted and status.get("order") else []
