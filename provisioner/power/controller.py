"""Carries out boot orders and wanted power states through the BMCs, and keeps an eye on the power."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from provisioner.api.codec import decode, to_json
from provisioner.api.conditions import find_condition, settle_condition
from provisioner.api.errors import NotFound
from provisioner.api.meta import Condition, rfc3339
from provisioner.api.schema import API_VERSION
from provisioner.api.server import BMC, Architecture, PowerStatus, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import EventRecorder, EventType
from provisioner.cluster.informer import Informer
from provisioner.power.bmc_pool import BmcPool
from provisioner.power.decide import (
    Action,
    AskToShutDown,
    Boot,
    CutPower,
    Look,
    PoweredOn,
    RecordOrder,
    decide,
    find_hold,
)
from provisioner.power.lanes import Lanes
from provisioner.power.last_look import AGAIN_SECONDS, LastLook, NodeAlive, NoLongerDue
from provisioner.power.power_controller import (
    BmcRefused,
    BmcUnreachable,
    ObservedPower,
    OverrideEnabled,
    PowerController,
)
from provisioner.power.status import after_action, after_look, describe

log = structlog.get_logger()

MANAGER: Final = "provisioner-power"
_REFUSED_SECONDS: Final = 60.0
_ALIVE_SECONDS: Final = 5.0
"""A Node in the way of an order is looked at again so soon."""
_NO_BMC: Final = PoweredOn("Unknown", "NoBMC", "spec.bmc is not set: a person switches the server on and off")


@dataclass(frozen=True, kw_only=True)
class PowerSettings:
    """How BMCs are used. `http_boot_uris` says per architecture which first-stage program UefiHttp servers are told to
    load; a server whose architecture is not in it learns the URL by DHCP."""

    http_boot_uris: Mapping[Architecture, str] = field(default_factory=dict)
    override_enabled: OverrideEnabled = "Once"
    poll_seconds: float = 10.0
    workers: int = 16
    unreachable_workers: int = 4


def build_power_controllers(
    cluster: Cluster,
    servers: Informer,
    recorder: EventRecorder,
    settings: PowerSettings | None = None,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
    jitter: Callable[[], float] = random.random,
    pool: BmcPool | None = None,
    stop: threading.Event | None = None,
) -> list[Controller]:
    """The power controllers of one leadership. `servers` is an informer of Server; run all that are returned.

    `stop` ends the leadership: once it is set no BMC is told anything any more, also by work that is under way.
    """
    settings = settings or PowerSettings()

    def spread(seconds: float) -> float:
        # ±20 %, so that the servers of a rack do not stay in step.
        return seconds * (0.8 + 0.4 * jitter())

    pool = pool or BmcPool(cluster, clock=clock)
    last_look = LastLook(cluster, stop, now=now)
    power = ServerPowerReconciler(cluster, servers, recorder, pool, settings, last_look, now=now, spread=spread)
    lanes = Lanes(
        power.reconcile,
        workers=settings.workers,
        unreachable_workers=settings.unreachable_workers,
        spread=spread,
        on_end=pool.close,
    )

    def on_change(key: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if old is None or new is None or _concern(old) != _concern(new):
            lanes.add(key)

    servers.subscribe(on_change)
    return lanes.controllers


def _concern(server: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a Server matters to its power at once. Its own reports and most conditions do not."""
    status = server.get("status") or {}
    accepted = [(c.get("status"), c.get("reason")) for c in status.get("conditions") or () if c["type"] == "Accepted"]
    return server["metadata"].get("generation"), (status.get("order") or {}).get("id"), accepted


class ServerPowerReconciler:
    """The effects around `decide`: asks the BMC, acts through it, writes `status.power` and condition PoweredOn."""

    def __init__(
        self,
        cluster: Cluster,
        servers: Informer,
        recorder: EventRecorder,
        pool: BmcPool,
        settings: PowerSettings,
        last_look: LastLook,
        *,
        now: Callable[[], datetime],
        spread: Callable[[float], float],
    ) -> None:
        self._cluster = cluster
        self._servers = servers
        self._recorder = recorder
        self._pool = pool
        self._settings = settings
        self._last_look = last_look
        self._now = now
        self._spread = spread

    def reconcile(self, key: str) -> float | None:
        """One look at one server. Raises: BmcUnreachable, after it was recorded."""
        found = self._servers.get(key)
        if found is None:
            self._pool.drop(key)
            return None
        try:
            return self._reconcile(decode(Server, found))
        except NotFound:
            # It was deleted while we looked; the informer will say so.
            return None

    def _reconcile(self, server: Server) -> float | None:
        if server.spec.bmc is None:
            self._pool.drop(server.name)
            if server.status.power is not None or find_condition(server.status.conditions, "PoweredOn"):
                self._write(server, None, _NO_BMC)
            return None
        if find_hold(server) is not None:
            return self._hold(server.name)
        try:
            bmc = self._pool.get(server.name, server.spec.bmc)
            observed = bmc.get_power_state()
            if self._settled(server, observed):
                return self._spread(self._settings.poll_seconds)
            # The informer's copy may be older than what this very program did: acting takes what is true now.
            return self._look_and_act(self._cluster.read(Server, server.name), server.spec.bmc, bmc, observed)
        except BmcUnreachable as error:
            self._record_failure(server.name, error.reason, str(error))
            raise
        except BmcRefused as error:
            if error.reason == "CredentialsRefused":
                self._pool.refuse(server.name, error)
            self._record_failure(server.name, error.reason, str(error))
            return self._spread(_REFUSED_SECONDS)

    def _hold(self, name: str) -> float | None:
        """Say why the BMC is left alone. The order that it accepted before stays on record."""
        self._pool.drop(name)
        server = self._cluster.read(Server, name)
        held = find_hold(server)
        if held is None:
            return AGAIN_SECONDS  # the cache lags behind
        power = server.status.power
        if power is not None:
            power = after_look(power, "Unknown", server.spec.power_state, self._now())
        self._write(server, power, held)
        return None

    def _settled(self, server: Server, observed: ObservedPower) -> bool:
        """Whether there is nothing to do and nothing new to write."""
        now = self._now()
        power = after_look(server.status.power, observed, server.spec.power_state, now)
        if not isinstance(decide(server, observed, now), Look) or power != server.status.power:
            return False
        return find_condition(server.status.conditions, "PoweredOn") == self._condition(server, describe(server, power))

    def _look_and_act(self, server: Server, place: BMC, bmc: PowerController, observed: ObservedPower) -> float:
        """`place` is where `bmc` was found. Returns after how many seconds to look again."""
        if find_hold(server) is not None:
            return AGAIN_SECONDS  # the cache will say so, too
        before = server.status.power
        power = after_look(before, observed, server.spec.power_state, self._now())
        action = decide(server, observed, self._now())
        if not isinstance(action, Look):
            try:
                said = self._act(server, bmc, action, lambda: self._last_look.confirm(server, place, observed, action))
            except NoLongerDue as error:
                log.info("power action was not carried out", server=server.name, reason=str(error))
                return error.after_seconds
            except NodeAlive as error:
                return self._leave_alive(server, power, str(error))
            log.info("power action was carried out", server=server.name, action=type(action).__name__, said=said)
            power = after_action(power, action, self._now())
        elif before is not None and (before.state, power.state, server.spec.power_state) == ("On", "Off", "On"):
            self._tell(server, "Warning", "PowerLost", "the BMC says that the server lost its power")
        self._write(server, power, describe(server, power))
        return self._spread(self._settings.poll_seconds)

    def _leave_alive(self, server: Server, power: PowerStatus, message: str) -> float:
        """Tell that a Node came back to life before its server was reset: the order stays pending."""
        before = find_condition(server.status.conditions, "PoweredOn")
        if before is None or before.reason != "NodeAlive":
            self._tell(server, "Warning", "NodeAlive", message)
        self._write(server, power, PoweredOn("True", "NodeAlive", message))
        return self._spread(min(_ALIVE_SECONDS, self._settings.poll_seconds))

    def _act(self, server: Server, bmc: PowerController, action: Action, confirm: Callable[[], None]) -> str:
        """Carry it out and tell it; returns it in words. `confirm` raises right before if it is not due any more."""
        match action:
            case Boot():
                said = self._boot(server, bmc, action, confirm)
                self._tell(server, "Normal", "BootOrderAccepted", said)
            case RecordOrder():
                said = f"boot order {action.order_id} was under way already"
                self._tell(server, "Normal", "BootOrderUnderWay", said)
            case AskToShutDown():
                confirm()
                bmc.power_off(force=False)
                said = "the system was asked to shut down"
                self._tell(server, "Normal", "ShuttingDown", said)
            case CutPower():
                confirm()
                bmc.power_off(force=True)
                said = "the system did not shut down when asked; its power was cut"
                self._tell(server, "Warning", "PowerCut", said)
            case Look():
                said = "nothing"
        return said

    def _boot(self, server: Server, bmc: PowerController, action: Boot, confirm: Callable[[], None]) -> str:
        words = "the boot override was left alone"
        if action.override is not None:
            http = action.override == "UefiHttp"
            uri = self._settings.http_boot_uris.get(server.spec.architecture) if http else None
            confirm()
            bmc.set_boot_override(self._settings.override_enabled, action.override, uri)
            source = f"{action.override} from {uri}" if uri else action.override
            words = f"the boot override is {source}, {self._settings.override_enabled}"
        confirm()  # the BMC may have taken its time over the override
        if action.power == "Reset":
            bmc.reset()
        else:
            bmc.power_on()
        verb = "reset" if action.power == "Reset" else "powered on"
        return f"the BMC accepted boot order {action.order_id}: {words}; the server was {verb}"

    def _record_failure(self, name: str, reason: str, message: str) -> None:
        server = self._cluster.read(Server, name)
        before = find_condition(server.status.conditions, "PoweredOn")
        if before is None or before.reason != reason:
            self._tell(server, "Warning", reason, message)
        power = after_look(server.status.power, "Unknown", server.spec.power_state, self._now())
        self._write(server, power, PoweredOn("Unknown", reason, message))

    def _write(self, server: Server, power: PowerStatus | None, said: PoweredOn) -> None:
        condition = self._condition(server, said)
        if power == server.status.power and condition == find_condition(server.status.conditions, "PoweredOn"):
            return
        status: dict[str, Any] = {"conditions": [to_json(condition)]}
        if power is not None:
            status["power"] = to_json(power)
        self._cluster.apply_status(Server, server.name, status, manager=MANAGER)

    def _condition(self, server: Server, said: PoweredOn) -> Condition:
        wanted = Condition(
            type="PoweredOn",
            status=said.status,
            reason=said.reason,
            message=said.message,
            last_transition_time=rfc3339(self._now()),
            observed_generation=server.metadata.generation,
        )
        return settle_condition(server.status.conditions, wanted)

    def _tell(self, server: Server, type_: EventType, reason: str, message: str) -> None:
        regarding = {
            "apiVersion": API_VERSION,
            "kind": Server.KIND.kind,
            "metadata": {"name": server.name, "uid": server.metadata.uid},
        }
        self._recorder.record(regarding, type_, reason, message)
