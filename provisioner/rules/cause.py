"""Why a server is not in use: the deepest cause that its conditions name. The condition Ready, the commands and the web
page all take it from here. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api import Server
from provisioner.api.machinery.meta import Condition
from provisioner.api.nodes.maintenance import AGENT_METHODS
from provisioner.api.servers.boot_stage import LATE
from provisioner.cluster.source import conditions_of
from provisioner.rules.bootability import REMEDY

_ASKED_ELSEWHERE: Final = frozenset(("NoBMC", "NotAccepted", "Duplicate"))
"""Reasons of an unknown power state that are no failure of the BMC, or that Ready names itself."""
_LEFT_ON: Final = frozenset(("NodeAlive", "NotAskedFor"))
"""Reasons of PoweredOn for which an order is not carried out although the BMC answers."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What a condition says of the cause. type: of that condition. remedy: empty if the condition names none."""

    type: str
    status: str
    reason: str
    message: str

    @property
    def observed(self) -> str:
        """The message without its remedy."""
        return self.message.rpartition(REMEDY)[0] or self.message

    @property
    def remedy(self) -> str:
        # The last one is ours: what a machine or a BMC said stands before it.
        _, separator, remedy = self.message.rpartition(REMEDY)
        return remedy if separator else ""

    @property
    def is_deeper(self) -> bool:
        """Whether it explains more than that the server is not Ready, or is checked, as during every Maintenance."""
        return self.type not in ("Ready", "Verified")

    @property
    def words(self) -> str:
        return f"{self.reason}: {self.message}" if self.message else self.reason


def find_cause(server: Server) -> Cause | None:
    """None of a server that is Ready and has passed its checks, or of which nothing is said yet."""
    status = server.status
    by_agent = status.order is not None and status.order.method in AGENT_METHODS
    return _find_cause(_by_type(status.conditions), status.boot_stage, by_agent=by_agent)


def find_cause_in(body: Mapping[str, Any]) -> Cause | None:
    """As `find_cause`, of a Server's JSON."""
    status = body.get("status") or {}
    told = {
        str(c.get("type")): Cause(
            type=str(c.get("type")),
            status=str(c.get("status")),
            reason=str(c.get("reason") or ""),
            message=str(c.get("message") or ""),
        )
        for c in conditions_of(body)
    }
    by_agent = (status.get("order") or {}).get("method") in AGENT_METHODS
    return _find_cause(told, status.get("bootStage"), by_agent=by_agent)


def find_deeper_cause(server: Server, reason: str, stage: str | None) -> Cause | None:
    """What explains that Ready says `reason` of a boot in `stage`, if another condition does."""
    order = server.status.order
    by_agent = order is not None and order.method in AGENT_METHODS
    return _deeper_cause(_by_type(server.status.conditions), reason, stage, by_agent=by_agent)


def _by_type(conditions: Iterable[Condition]) -> dict[str, Cause]:
    return {c.type: Cause(type=c.type, status=c.status, reason=c.reason, message=c.message) for c in conditions}


def _find_cause(told: Mapping[str, Cause], stage: str | None, *, by_agent: bool) -> Cause | None:
    ready, accepted = told.get("Ready"), told.get("Accepted")
    if ready is None:
        return accepted if accepted is not None and accepted.status == "False" else None
    if ready.status != "True":
        return _deeper_cause(told, ready.reason, stage, by_agent=by_agent) or ready
    verified = told.get("Verified")
    return verified if verified is not None and verified.status != "True" else None


def _deeper_cause(told: Mapping[str, Cause], reason: str, stage: str | None, *, by_agent: bool) -> Cause | None:
    accepted, powered, joined = (told.get(type_) for type_ in ("Accepted", "PoweredOn", "Joined"))
    if reason == "NoAddress":
        return accepted if accepted is not None and accepted.status == "False" else None
    deeper = None
    if stage == "Ordered" and powered is not None and not by_agent:
        fails = powered.status == "Unknown" and powered.reason not in _ASKED_ELSEWHERE
        deeper = powered if fails or powered.reason in _LEFT_ON else None
    elif stage == "Token" and joined is not None and joined.status == "False" and joined.reason != "TokenIssued":
        deeper = joined
    return deeper if deeper is not None and reason in (LATE, stage, deeper.reason) else None
