"""Addresses lent to unknown machines for minutes.

Which address a machine gets follows from its MAC address, so it is the same after a restart and, mostly, from every
replica; what is remembered here only keeps two machines apart whose addresses collide. A machine that comes back with
an address in the range keeps it unless another one is known to hold it. Nothing is written anywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from math import gcd
from typing import Final, NamedTuple

from provisioner.boot.dhcp.model.config import DISCOVERY_LEASE_SECONDS

_OFFER_SECONDS: Final = 15.0
"""How long an offered address is kept for a machine that has not asked for it yet."""
_DECLINED_SECONDS: Final = 600.0
_MOST_PROBES: Final = 64
"""Bounds the work for one packet: smaller ranges are searched whole."""


class _Holder(NamedTuple):
    mac: bytes
    until: float


class LentAddresses:
    """Who holds which lent address, as far as this process has seen. Bounded by the size of the ranges.

    `now` is a monotonic time in seconds. `is_taken` says which addresses of the range must never be lent.
    """

    def __init__(self, is_taken: Callable[[bytes], bool]) -> None:
        self._is_taken = is_taken
        self._holders: dict[int, _Holder] = {}
        self._held: dict[bytes, int] = {}

    def offer(self, mac: bytes, addresses: range, now: float) -> bytes | None:
        """The address to offer; None if the range is full."""
        held = self._held.get(mac)
        if held is not None and held in addresses and self._is_free(held, mac, now):
            return self._hold(mac, held, now + _OFFER_SECONDS)
        for address in _probe(mac, addresses):
            if self._is_free(address, mac, now):
                return self._hold(mac, address, now + _OFFER_SECONDS)
        return None

    def claim(self, mac: bytes, address: bytes, now: float) -> bool:
        """Whether the machine may have this address of the range; it is its own from now on."""
        number = int.from_bytes(address, "big")
        if not self._is_free(number, mac, now):
            return False
        # Some seconds more than the lease: its last renewal may be on the way.
        self._hold(mac, number, now + DISCOVERY_LEASE_SECONDS + _OFFER_SECONDS)
        return True

    def decline(self, mac: bytes, address: bytes, now: float) -> None:
        """The machine found the address in use: nobody gets it for a while. Only its holder may say so."""
        number = int.from_bytes(address, "big")
        if self._held.get(mac) == number:
            del self._held[mac]
            self._holders[number] = _Holder(b"", now + _DECLINED_SECONDS)

    def release(self, mac: bytes) -> None:
        number = self._held.pop(mac, None)
        if number is not None:
            del self._holders[number]

    def _is_free(self, address: int, mac: bytes, now: float) -> bool:
        holder = self._holders.get(address)
        if holder is not None and holder.mac != mac and holder.until > now:
            return False
        return not self._is_taken(address.to_bytes(4, "big"))

    def _hold(self, mac: bytes, address: int, until: float) -> bytes:
        before = self._holders.get(address)
        if before is not None and before.mac != mac:
            self._held.pop(before.mac, None)
        elsewhere = self._held.get(mac)
        if elsewhere is not None and elsewhere != address:
            del self._holders[elsewhere]
        elif before is not None and before.mac == mac:
            until = max(until, before.until)
        self._holders[address] = _Holder(mac, until)
        self._held[mac] = address
        return address.to_bytes(4, "big")


def _probe(mac: bytes, addresses: range) -> Iterator[int]:
    """The addresses to try in turn: a walk through the range that starts and strides by the MAC's hash."""
    digest = hashlib.blake2b(mac, digest_size=8).digest()
    size = len(addresses)
    stride = 1 + int.from_bytes(digest[4:], "big") % size
    while gcd(stride, size) != 1:
        stride += 1
    at = int.from_bytes(digest[:4], "big") % size
    for _ in range(min(size, _MOST_PROBES)):
        yield addresses[at]
        at = (at + stride) % size
