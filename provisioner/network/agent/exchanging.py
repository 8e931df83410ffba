"""The kernel of a DPU that exchanges routes by EVPN where its spec says so; of one whose spec does not it is the kernel
alone, and no bgpd is asked for.

What was heard becomes remotes of the spec, which are enforced as those of any spec; what passes then is announced.
While bgpd or the reflectors are away, what was enforced last stays. It is in a file beside bgpd, over restarts of the
agent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from provisioner.api.machinery.wording import quantity
from provisioner.api.network.dpu_network import DPUEvpn, DPUNetworkSpec
from provisioner.network.agent.boot.plane import ServedBoot
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.follow import Kernel
from provisioner.network.agent.held_routes import HeldRoutes, read, write
from provisioner.network.agent.result import Enforced, Exchanged, Problem
from provisioner.network.evpn.bgpd import Bgpd
from provisioner.network.evpn.exchange import Exchange
from provisioner.network.evpn.learn import Learned, told_before
from provisioner.network.evpn.speaker import Fabric
from provisioner.network.evpn.vty import BgpdFailed, BgpdMissing

AWAIT_SECONDS: Final = 300.0
"""So long after routes have begun to go by EVPN, what the API server has told stays though nobody announces it: DPUs
begin one after the other."""
LINGER_SECONDS: Final = 60.0
"""So long after they have ceased to, the DPU still announces what it did: others cease later."""
ASK_SECONDS: Final = 0.5
"""bgpd is asked no more often whether anything is new, and never for more than a tenth of the time."""

PATIENCE_SECONDS: Final = 3.0
"""With a bgpd that hangs: no wish is enforced later than by that for it."""


class ExchangingKernel:
    """`directory`: where bgpd's socket is, if there is one. `clock`: seconds since 1970."""

    def __init__(
        self,
        kernel: Kernel,
        directory: Path,
        clock: Callable[[], float] = time.time,
        *,
        linger_seconds: float = LINGER_SECONDS,
    ) -> None:
        self._kernel = kernel
        self._bgpd = Bgpd(directory, PATIENCE_SECONDS)
        self._file = directory / "held-routes.json"
        self._clock = clock
        self._linger_seconds = linger_seconds
        self._exchange: Exchange | None = None
        self._await_until = 0.0
        self._written: HeldRoutes | None = None
        self._told: DPUNetworkSpec | None = None
        self._off_since: float | None = None

    def isolate_unless_enforced(self) -> bool:
        return self._kernel.isolate_unless_enforced()

    def served(self) -> tuple[ServedPort, ...]:
        return self._kernel.served()

    def boot(self) -> ServedBoot | None:
        return self._kernel.boot()

    def release(self) -> Enforced:
        enforced = self._kernel.release()
        self._told = None
        trouble = self._cease(at_once=True)
        return _unacknowledged(enforced, trouble) if trouble is not None else enforced

    def enforce(self, spec: DPUNetworkSpec) -> Enforced:
        """As the kernel's own. With `evpn` in the spec it agrees only if bgpd, too, announces what it was told."""
        if spec.evpn is None:
            self._told = spec
            enforced = self._kernel.enforce(spec)
            trouble = self._cease()
            return replace(enforced, exchanged=trouble) if trouble is not None else enforced
        trouble = None
        try:
            exchange = self._begin(spec, spec.evpn)
            try:
                learned = exchange.hear(spec)
            except BgpdFailed as error:
                trouble, learned = _failed(error), exchange.hold(spec)
        except ValueError as error:
            words = f"the DPUNetwork has something that is no address ({error}): correct what it is compiled of"
            return _unacknowledged(self._kernel.enforce(spec), Exchanged(False, "SpecUnreadable", words))
        enforced = self._kernel.enforce(learned.spec)
        self._told = learned.spec
        untold = self._pass_on(exchange, learned.spec, enforced, is_heard=trouble is None)
        trouble = trouble or untold
        if trouble is not None:
            return _unacknowledged(enforced, trouble)
        return replace(enforced, exchanged=_standing(exchange, learned, spec.evpn))

    def _pass_on(
        self, exchange: Exchange, spec: DPUNetworkSpec, enforced: Enforced, *, is_heard: bool
    ) -> Exchanged | None:
        """Keep what was heard, and have bgpd announce what passes; what was in the way. `is_heard`: bgpd answers."""
        not_kept = self._remember(exchange)
        if not_kept is not None and not self._file.exists():
            return not_kept  # an agent after this one would not know that bgpd has something to withdraw
        passing = [port.function for port in enforced.ports if port.state == "Tenant"]
        try:
            (exchange.announce if is_heard else exchange.tell)(spec, passing)
        except BgpdFailed as error:
            return _failed(error)
        except ValueError as error:
            return Exchanged(False, "RoutesNotAnnounced", str(error))
        return not_kept

    def watch(self, changed: Callable[[], object], stop: threading.Event) -> None:
        """Until `stop` is set, call `changed` when bgpd says something else than at the last look."""
        pause = ASK_SECONDS
        while not stop.wait(pause):
            exchange = self._exchange
            if exchange is None or self._off_since is not None:
                continue
            began = time.monotonic()
            try:
                if exchange.ask() != exchange.heard:
                    changed()
            except BgpdFailed:
                pass  # the next look says so
            pause = max(ASK_SECONDS, 10 * (time.monotonic() - began))

    def _begin(self, spec: DPUNetworkSpec, evpn: DPUEvpn) -> Exchange:
        fabric = Fabric(asn=evpn.asn, reflectors=evpn.reflectors)
        exchange = self._exchange
        self._off_since = None
        if self._told is not None and self._told.evpn is None:
            told = told_before(self._told, spec)
            self._await_until = self._clock() + AWAIT_SECONDS
            exchange = self._exchange = Exchange(self._bgpd, fabric, told, told)
        elif exchange is None:
            kept = read(self._file)
            self._await_until = kept.until
            exchange = self._exchange = Exchange(self._bgpd, fabric, kept.held, kept.awaited)
        elif exchange.fabric != fabric:
            exchange = self._exchange = Exchange(self._bgpd, fabric, exchange.held, exchange.held)
            self._await_until = self._clock() + AWAIT_SECONDS
        if self._clock() >= self._await_until:
            exchange.awaited = frozenset()
        return exchange

    def _remember(self, exchange: Exchange) -> Exchanged | None:
        now = HeldRoutes(exchange.held, exchange.awaited, self._await_until)
        if now == self._written:
            return None
        try:
            write(self._file, now)
        except OSError as error:
            told = f"{self._file} cannot be written ({error}), by which routes outlast a restart of the agent"
            return Exchanged(False, "RoutesNotKept", f"{told}: make the folder, with room in it")
        self._written = now
        return None

    def _cease(self, *, at_once: bool = False) -> Exchanged | None:
        """Have bgpd announce nothing any more, some time after the last spec that wanted it to."""
        if self._exchange is None and not self._file.exists():
            return None
        now = self._clock()
        if self._off_since is None:
            self._off_since = now
        if now - self._off_since < self._linger_seconds and not at_once:
            return None
        try:
            self._bgpd.apply({})
        except BgpdMissing:
            pass  # nobody announces anything
        except BgpdFailed as error:
            return _failed(error)
        try:
            self._file.unlink(missing_ok=True)
        except OSError as error:
            return Exchanged(False, "RoutesNotKept", f"{self._file} cannot be removed ({error}): remove it")
        self._exchange = self._written = self._off_since = None
        return None


def _unacknowledged(enforced: Enforced, trouble: Exchanged) -> Enforced:
    problems = (*enforced.problems, Problem(trouble.reason, trouble.message, is_of_all=True))
    return replace(enforced, agrees=False, holds=False, problems=problems, exchanged=trouble)


def _failed(error: BgpdFailed) -> Exchanged:
    reason = "BgpdMissing" if isinstance(error, BgpdMissing) else "BgpdFailed"
    return Exchanged(False, reason, f"{error}; what was enforced last still is")


def _standing(exchange: Exchange, learned: Learned, evpn: DPUEvpn) -> Exchanged:
    """What is not as it should be, and keeps nothing from being enforced."""
    if not exchange.heard.is_connected:
        named = ", ".join(evpn.reflectors)
        return Exchanged(
            False,
            "NoReflector",
            f"bgpd has a session to none of the reflectors {named} (AS {evpn.asn}), so that what was heard last stays, "
            "and nobody hears of what is new here: start `provisioner reflector` there, and open TCP port 179",
        )
    unreadable = exchange.heard.unreadable
    if learned.refused:
        first = learned.refused[0]
        others = f", and {len(learned.refused) - 1} more" if len(learned.refused) > 1 else ""
        return Exchanged(
            False,
            "RoutesRefused",
            f"DPU {first.route.vtep} announces {first.route.prefix} in VNI {first.route.vni}, which is not believed "
            f"({first.reason}){others}: what is believed is enforced; see what that DPU runs",
        )
    if unreadable:
        return Exchanged(
            False,
            "RoutesRefused",
            f"{quantity(unreadable, 'route is', 'routes are')} not as DPUs announce them, and not believed: see "
            "`show bgp l2vpn evpn`, and who else the reflectors take routes from",
        )
    return Exchanged(True, "Exchanged", "bgpd announces what passes here, and hears of what others have")
