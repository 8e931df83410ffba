"""One look at one server: asks its BMC, decides, has it carried out, records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import structlog

from provisioner.api.machinery.codec import decode_shared
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import NotFound
from provisioner.api.machinery.meta import parse_time
from provisioner.api.servers.server import BMC, PowerStatus, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.own_writes import BEHIND_SECONDS
from provisioner.power.act import BmcActions, PowerSettings
from provisioner.power.bmc.pool import BmcPool
from provisioner.power.bmc.power_controller import (
    MESSAGE_LENGTH,
    BmcRefused,
    BmcUnreachable,
    ObservedPower,
    PowerController,
    fit,
)
from provisioner.power.decide import PollAgain, PoweredOn, RecordCut, decide, find_hold
from provisioner.power.preflight import AGAIN_SECONDS, NodeAlive, NoLongerDue, NotAskedFor
from provisioner.power.record import Record
from provisioner.power.status import after_action, after_look, describe
from provisioner.power.visit import Timed, Visit
from provisioner.rules.bootability import REMEDY

log = structlog.get_logger()

_REFUSED_SECONDS: Final = 60.0
_LEFT_ON_SECONDS: Final = 5.0
"""A server that is not disturbed although an order waits is looked at again so soon."""
NEW_SECONDS: Final = 15.0
"""Of a server that was registered so lately the first boot is ordered within a moment: that it is off is not said
before."""
_UNREACHED: Final = "check the BMC's cable and network, and spec.bmc.address"
_NO_BMC: Final = PoweredOn("Unknown", "NoBMC", "spec.bmc is not set: a person switches the server on and off")


class ServerPowerReconciler:
    """The effects around `decide`: asks the BMC, acts through it, writes `status.power` and condition PoweredOn."""

    def __init__(
        self,
        cluster: Cluster,
        servers: Informer,
        pool: BmcPool,
        act: BmcActions,
        record: Record,
        settings: PowerSettings,
        *,
        now: Callable[[], datetime],
        spread: Callable[[float], float],
    ) -> None:
        self._cluster = cluster
        self._servers = servers
        self._pool = pool
        self._act = act
        self._record = record
        self._settings = settings
        self._now = now
        self._spread = spread

    def reconcile(self, key: str, visit: Visit | None = None) -> float | None:
        """One look at one server. Raises: LookOverdue; BmcUnreachable, after it was recorded."""
        visit = visit or Visit()
        found = self._servers.get(key)
        if found is None:
            self._pool.drop(key)
            return None
        if not self._record.is_seen(key, found):
            return BEHIND_SECONDS
        try:
            return self._reconcile(decode_shared(Server, found), visit)
        except NotFound:
            # It was deleted while we looked; the informer will say so.
            return None

    def _reconcile(self, server: Server, visit: Visit) -> float | None:
        if server.spec.bmc is None:
            self._pool.drop(server.name)
            if server.status.power is not None or find_condition(server.status.conditions, "PoweredOn"):
                self._record.write(server, None, _NO_BMC)
            return None
        if find_hold(server) is not None:
            return self._hold(server.name)
        try:
            bmc = Timed(self._pool.get(server.name, server.spec.bmc), visit)
            observed = visit.look(bmc)
            if self._settled(server, observed, visit):
                return self._spread(self._settings.poll_seconds)
            return self._look_and_act(server, server.spec.bmc, bmc, observed, visit)
        except BmcUnreachable as error:
            self._record_failure(server.name, error.reason, f"{error}{REMEDY}{_UNREACHED}")
            raise
        except BmcRefused as error:
            if error.reason in ("CredentialsRefused", "AccountLocked"):
                self._pool.refuse(server.name, error)
            self._record_failure(server.name, error.reason, str(error))
            return self._spread(_REFUSED_SECONDS)
        except (ValueError, TypeError, LookupError, AttributeError, OSError) as error:
            # Of whatever spec.bmc holds that a backend did not expect: without this the Server would say nothing.
            words = fit(f"the BMC cannot be used: {type(error).__name__}: {error}", MESSAGE_LENGTH)
            self._record_failure(server.name, "BMCUnusable", f"{words}{REMEDY}correct spec.bmc")
            raise

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
        self._record.write(server, power, held)
        return None

    def _settled(self, server: Server, observed: ObservedPower, visit: Visit) -> bool:
        """Whether there is nothing to do and nothing new to write."""
        now = self._now()
        power = after_look(server.status.power, observed, server.spec.power_state, now)
        if (
            not isinstance(decide(server, observed, now, self._act.unanswered(server.name)), PollAgain)
            or power != server.status.power
        ):
            return False
        said = self._record.condition(server, describe(server, power, slow_bmc=visit.is_slow))
        return find_condition(server.status.conditions, "PoweredOn") == said

    def _look_and_act(
        self, server: Server, place: BMC, bmc: PowerController, observed: ObservedPower, visit: Visit
    ) -> float:
        """`place` is where `bmc` was found. Returns after how many seconds to look again."""
        if find_hold(server) is not None:
            return AGAIN_SECONDS  # the cache will say so, too
        before = server.status.power
        power = after_look(before, observed, server.spec.power_state, self._now())
        action = decide(server, observed, self._now(), self._act.unanswered(server.name))
        if not isinstance(action, PollAgain):
            try:
                said = self._act.carry_out(server, place, bmc, observed, action)
            except (NodeAlive, NotAskedFor) as error:
                return self._leave_on(server, power, error)
            except NoLongerDue as error:
                log.info("power action was not carried out", server=server.name, reason=str(error))
                return error.after_seconds
            log.info("power action was carried out", server=server.name, action=type(action).__name__, said=said)
            power = after_action(power, action, self._now())
            if self._act.is_over:
                return AGAIN_SECONDS  # another leads, and may have recorded more; it tells the BMC once more
        elif before is not None and (before.state, power.state, server.spec.power_state) == ("On", "Off", "On"):
            self._record.tell(server, "Warning", "PowerLost", "the BMC says that the server lost its power")
        if isinstance(action, PollAgain) and _awaits_first_order(server, power, self._now()):
            return NEW_SECONDS
        said_of_power = describe(server, power, slow_bmc=visit.is_slow)
        self._record.write(server, power, said_of_power, acted=not isinstance(action, PollAgain))
        if isinstance(action, RecordCut):
            return self._settings.off_seconds
        return self._spread(self._settings.poll_seconds)

    def _leave_on(self, server: Server, power: PowerStatus, error: NodeAlive | NotAskedFor) -> float:
        """Tell why a server that is on is not disturbed: its order stays pending."""
        self._record.tell_once(server, error.reason, str(error))
        self._record.write(server, power, PoweredOn("True", error.reason, str(error)))
        return self._spread(min(_LEFT_ON_SECONDS, self._settings.poll_seconds))

    def _record_failure(self, name: str, reason: str, message: str) -> None:
        self._settings.failed(reason)
        server = self._cluster.read(Server, name)
        self._record.tell_once(server, reason, message)
        power = after_look(server.status.power, "Unknown", server.spec.power_state, self._now())
        self._record.write(server, power, PoweredOn("Unknown", reason, message), acted=True)


def _awaits_first_order(server: Server, power: PowerStatus, now: datetime) -> bool:
    """Whether all there is to say of a new server is that it is off until its first boot is ordered."""
    status, created = server.status, server.metadata.creation_timestamp
    if status.order is not None or status.power is not None or power.state != "Off" or created is None:
        return False
    if find_condition(status.conditions, "PoweredOn") is not None or server.spec.power_state == "Off":
        return False
    return timedelta() <= now - parse_time(created) < timedelta(seconds=NEW_SECONDS)
