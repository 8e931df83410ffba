"""`python -m provisioner.network.agent run`: enforces what the DPU's own DPUNetwork says, and says what holds.

The object is watched by name with the kubelet's certificate; nothing else is read. What the kernel has is looked at
once more every `LOOK_SECONDS`, whether or not the API server can be asked: a wish that was read once holds until
another is read, over restarts of the agent, too, as the kernel keeps what is in it. That there is no DPUNetwork
releases everything; that it cannot be read releases nothing. What the card itself shall be is handed to a thread of its
own (`card`), whose last word goes into the same status: nothing here waits for a card.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.network.card import CardConfiguration, CardState
from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.agent.boot.plane import ServedBoot
from provisioner.network.agent.boot.server import BootServer
from provisioner.network.agent.card.configure import CardReport
from provisioner.network.agent.card.worker import CardWorker
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.dhcp.server import HostDhcpServer
from provisioner.network.agent.nft import NftRefused
from provisioner.network.agent.result import Enforced
from provisioner.node.api_server import NotJoinedError, OwnObject, read_access
from provisioner.node.machine.facts import rfc3339
from provisioner.node.watch import ObjectWatch

COLLECTION: Final = f"/apis/{API_VERSION}/dpunetworks"
LOOK_SECONDS: Final = 5.0
"""How long what somebody changed in the kernel stays as it is at most."""
SAY_AGAIN_SECONDS: Final = 30.0
"""After so long what could not be written is written once more."""
SAY_OF_ROUTES_SECONDS: Final = 10.0
"""How routes are exchanged is told no more often by itself: a DPU that announces something else all the time would have
all others of its VPCs write."""
MANAGER: Final = "provisioner-network-agent"
_MESSAGE: Final = 4096
_CONFIGURED: Final[Mapping[CardState, str]] = {
    "Applied": "True",
    "NeedsPowerCycle": "False",
    "NotApplicable": "Unknown",
    "Failed": "False",
}
"""Status of the condition CardConfigured."""


class Kernel(Protocol):
    """As `enforce.Enforcer`."""

    def enforce(self, spec: DPUNetworkSpec) -> Enforced: ...

    def release(self) -> Enforced: ...

    def isolate_unless_enforced(self) -> bool: ...

    def served(self) -> tuple[ServedPort, ...]: ...

    def boot(self) -> ServedBoot | None: ...


class CardWorking(Protocol):
    """As `card.worker.CardWorker`."""

    def want(self, wanted: CardConfiguration | None) -> None: ...

    def report(self) -> CardReport | None: ...


@dataclass(frozen=True)
class _Wish:
    """`spec` None: there is no DPUNetwork. `refused`: why what was read is none. `status` makes it no other one."""

    generation: int
    spec: DPUNetworkSpec | None
    status: Mapping[str, Any] = field(compare=False)
    refused: str | None = None


class Agent:
    """One DPU's agent. `write`: a merge patch of its DPUNetwork's status. `serve`: told after each look which ports'
    hosts may ask for their addresses, `serve_boot` which host boots by the DPU, and says why that one is not served.
    `card`: told what the card shall be, and asked how it stands. `clock`: seconds since 1970."""

    def __init__(
        self,
        kernel: Kernel,
        write: Callable[[Mapping[str, Any]], object],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        *,
        serve: Callable[[Iterable[ServedPort]], object] = lambda ports: None,
        serve_boot: Callable[[ServedBoot | None], str | None] = lambda boot: None,
        card: CardWorking | None = None,
    ) -> None:
        self._kernel = kernel
        self._write = write
        self._say = say
        self._clock = clock
        self._serve = serve
        self._serve_boot = serve_boot
        self._card = card
        self._lock = threading.Lock()
        self._wish: _Wish | None = None
        self._last: DPUNetworkSpec | None = None
        self._mended: str | None = None
        self._said: Mapping[str, Any] | None = None
        self._next_word = 0.0
        self._next_of_routes = 0.0
        self.changed = threading.Event()

    def take(self, seen: Mapping[str, Any] | None) -> None:
        """What the watch has seen; None: there is no DPUNetwork of the name."""
        wish = _read(seen)
        with self._lock:
            is_news = wish != self._wish
            self._wish = wish
        if is_news:
            self.changed.set()

    def look(self) -> None:
        """Bring the kernel to the wish, and write what came of it. Faults of the API server are said, and passed by."""
        with self._lock:
            wish = self._wish
        if wish is None:
            return
        if wish.spec is None and wish.refused is None:
            self._last = None
            self._want_card(None)
            self._release()
            return
        if wish.spec is not None:
            self._last = wish.spec
            self._want_card(wish.spec.card)
            self._tell(self._with_card(wish, self._enforce(wish, wish.spec)))
            return
        if self._last is not None:
            self._kernel.enforce(self._last)
        told = self._condition(wish, "Applied", False, "NotReadable", wish.refused or "")
        self._tell(self._with_card(wish, {"conditions": [told]}))

    def run(self, stop: threading.Event) -> None:
        """Look at once when the wish has changed, and every `LOOK_SECONDS`, until `stop` is set. Before anything was
        read, nothing passes that no agent has let through since the system started; hosts of what passes may ask."""
        self._despite_faults(self._kernel.isolate_unless_enforced)
        self._despite_faults(lambda: self._serve(self._kernel.served()))
        self._despite_faults(lambda: self._serve_boot(self._kernel.boot()))
        while not stop.is_set():
            self.changed.wait(LOOK_SECONDS)
            self.changed.clear()
            self._despite_faults(self.look)

    def _despite_faults(self, act: Callable[[], object]) -> None:
        """A kernel that cannot be read now is read at the next look."""
        try:
            act()
        except (OSError, NftRefused) as error:
            self._say(f"the kernel could not be read ({type(error).__name__}: {error}); trying again")

    def _release(self) -> None:
        self._serve(())
        self._serve_boot(None)
        enforced = self._kernel.release()
        if enforced.changes:
            self._say("there is no DPUNetwork of this DPU any more: everything of it was taken away")
        self._said = None

    def _enforce(self, wish: _Wish, spec: DPUNetworkSpec) -> Mapping[str, Any]:
        enforced = self._kernel.enforce(spec)
        self._serve(enforced.served)
        fault = self._serve_boot(enforced.boot)
        if enforced.mended:
            self._mended = rfc3339(self._clock())
            self._say(f"the kernel was not as it had been left: {enforced.changes} operations mended it")
        problems = enforced.problems
        words = "; ".join(each.message for each in problems) or (
            "a dump of the kernel agrees" if enforced.agrees else "the kernel does not agree yet; trying again"
        )
        reason = "Enforced" if enforced.agrees else problems[0].reason if problems else "Differs"
        conditions = [self._condition(wish, "Applied", enforced.agrees, reason, words)]
        if (routes := enforced.exchanged) is not None:
            conditions.append(self._condition(wish, "RoutesExchanged", routes.holds, routes.reason, routes.message))
        if spec.host_boot is not None:
            conditions.append(self._host_boot(wish, spec.host_boot.server, enforced.boot, fault))
        status: dict[str, Any] = {
            "vnis": list(enforced.vnis),
            "ports": to_json(enforced.ports),
            "conditions": conditions,
        }
        if enforced.agrees or enforced.holds:
            # What one port lacks is told of that one: else a tenant's attachment of what is not there would keep all
            # others on this DPU from being confirmed, and what they let go of from being free.
            status["observedGeneration"] = wish.generation
        if self._mended is not None:
            status["mendedTime"] = self._mended
        return status

    def _host_boot(self, wish: _Wish, server: str, boot: ServedBoot | None, fault: str | None) -> dict[str, Any]:
        if boot is None:
            words = f"Server {server} cannot boot through this DPU: the condition Applied says why"
            return self._condition(wish, "HostBootServed", False, "NotEnforced", words)
        if fault is not None:
            return self._condition(wish, "HostBootServed", False, "NotServed", fault)
        words = f"Server {server} is answered on {boot.host.function}, as {boot.host.mac} with {boot.host.address}"
        return self._condition(wish, "HostBootServed", True, "Served", words)

    def _want_card(self, wanted: CardConfiguration | None) -> None:
        if self._card is not None:
            self._card.want(wanted)

    def _with_card(self, wish: _Wish, status: Mapping[str, Any]) -> Mapping[str, Any]:
        """With what is known of the card; what was said of it before is taken back while nothing is."""
        report = self._card.report() if self._card is not None else None
        if report is None:
            return {**status, "card": None} if "card" in wish.status else status
        state = report.status.state
        condition = self._condition(wish, "CardConfigured", _CONFIGURED[state], state, report.message)
        # The list is written while it is empty, too: a merge patch without it would leave what was in it.
        card = {"state": state, "differences": to_json(report.status.differences)}
        return {**status, "card": card, "conditions": [*status["conditions"], condition]}

    def _condition(self, wish: _Wish, type_: str, status: bool | str, reason: str, message: str) -> dict[str, Any]:
        if isinstance(status, bool):
            status = "True" if status else "False"
        found = (c for c in wish.status.get("conditions") or () if c.get("type") == type_)
        before: Mapping[str, Any] = next(found, {})
        said = next((c for c in (self._said or {}).get("conditions", ()) if c["type"] == type_), before)
        since = said.get("lastTransitionTime") if said.get("status") == status else None
        return {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message[:_MESSAGE],
            "lastTransitionTime": since or rfc3339(self._clock()),
            "observedGeneration": wish.generation,
        }

    def _tell(self, status: Mapping[str, Any]) -> None:
        now = self._clock()
        if status == self._said and now < self._next_word:
            return
        if status != self._said:
            if now < self._next_of_routes and _but_for_routes(status) == _but_for_routes(self._said):
                return
            self._next_of_routes = now + SAY_OF_ROUTES_SECONDS
        with self._lock:
            known = self._wish.status if self._wish is not None else {}
        self._next_word = now + SAY_AGAIN_SECONDS
        if all(known.get(key) == value for key, value in status.items()):
            self._said = status
            return
        try:
            self._write({"status": status})
        except (OSError, NotJoinedError) as error:
            self._next_word = now + LOOK_SECONDS
            self._say(f"what holds could not be written ({type(error).__name__}: {error}); trying again")
            return
        self._said = status


def _but_for_routes(status: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """But for what is said of them, if anything is."""
    if status is None:
        return None
    said = (each if each["type"] != "RoutesExchanged" else None for each in status["conditions"])
    return {**status, "conditions": list(said)}


def _read(seen: Mapping[str, Any] | None) -> _Wish:
    if seen is None:
        return _Wish(0, None, {})
    generation = int((seen.get("metadata") or {}).get("generation") or 0)
    status = seen.get("status") or {}
    try:
        return _Wish(generation, from_json(DPUNetworkSpec, seen.get("spec") or {}, "spec."), status)
    except Refused as error:
        return _Wish(generation, None, status, refused=f"{error}: what was enforced before still is")


def follow(
    kernel: Kernel,
    root: str,
    say: Callable[[str], None],
    stop: threading.Event,
    boot: BootServer | None = None,
    card: CardWorker | None = None,
    *,
    watch_routes: Callable[[Callable[[], object], threading.Event], object] | None = None,
) -> None:
    """Follow the DPUNetwork named as this machine's Node, below `root` as the kubelet joined, until `stop` is set.
    `boot`: what answers a host that boots by the DPU. `card`: what brings the card to what was declared.
    `watch_routes`: as `ExchangingKernel.watch`, in a thread."""

    def own() -> OwnObject:
        access = read_access(root)
        return OwnObject(access, COLLECTION, access.node)

    def write(change: Mapping[str, Any]) -> None:
        own().patch(change, subresource="status", query=f"?fieldManager={MANAGER}")

    dhcp = HostDhcpServer(say)
    serve_boot: Callable[[ServedBoot | None], str | None] = boot.serve if boot is not None else lambda _: None
    agent = Agent(kernel, write, say, serve=dhcp.serve, serve_boot=serve_boot, card=card)
    watch = ObjectWatch(own, agent.take, say, "DPUNetwork")
    dhcp.start()
    if card is not None:
        card.start(agent.changed.set)
    watch.start()
    if watch_routes is not None:
        threading.Thread(target=watch_routes, args=(agent.changed.set, stop), daemon=True).start()
    try:
        agent.run(stop)
    finally:
        watch.stop()
        dhcp.stop()
        if card is not None:
            card.stop()
        if boot is not None:
            boot.stop()
