"""Carries out what was decided through a BMC, each step after a last look, and tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from provisioner.api.servers.server import BMC, Architecture, Server
from provisioner.power.bmc.power_controller import BmcUnreachable, ObservedPower, PowerController
from provisioner.power.decide import (
    Action,
    AskToShutDown,
    CutForCycle,
    CutPower,
    PollAgain,
    RecordCut,
    RecordOrder,
    StartBoot,
)
from provisioner.power.preflight import Preflight
from provisioner.power.record import Record
from provisioner.power.standing import QueueName

WORKERS: Final[Mapping[QueueName, int]] = {"New": 32, "Prompt": 16, "Slow": 16, "Unreachable": 16}
"""They mostly wait for the network, each for one BMC at a time."""


@dataclass(frozen=True, kw_only=True)
class PowerSettings:
    """How BMCs are used.

    `http_boot_uris` says per architecture which first-stage program UefiHttp servers are told to load; a server whose
    architecture is not in it learns the URL by DHCP. A server that is power-cycled is looked at again `off_seconds`
    after it was seen off, and powered on then. `workers` are those of each queue (see `standing`). `failed` is told the
    reason of each look that failed.
    """

    http_boot_uris: Mapping[Architecture, str] = field(default_factory=dict)
    poll_seconds: float = 10.0
    off_seconds: float = 2.0
    workers: Mapping[QueueName, int] = field(default_factory=lambda: dict(WORKERS))
    failed: Callable[[str], None] = lambda _reason: None


class BmcActions:
    """The only place from which a BMC is told to do something."""

    def __init__(self, settings: PowerSettings, record: Record, preflight: Preflight) -> None:
        self._settings = settings
        self._record = record
        self._preflight = preflight
        self._unanswered: dict[str, str] = {}

    @property
    def is_over(self) -> bool:
        """Whether the leadership has ended."""
        return self._preflight.is_over

    def unanswered(self, server_name: str) -> str | None:
        """The boot order that the server's BMC was told to carry out last, and gave no answer. In memory only: whoever
        comes after a crash tells the BMC once more."""
        return self._unanswered.get(server_name)

    def carry_out(
        self, server: Server, place: BMC, bmc: PowerController, observed: ObservedPower, action: Action
    ) -> str:
        """Do `action`, decided on `server` and `observed`, through `bmc`, found at `place`. Returns it in words.

        Raises: NoLongerDue or NodeAlive, if it is not to be done any more; BmcUnreachable, BmcRefused.
        """

        def confirm() -> None:
            self._preflight.confirm(server, place, observed, action, self.unanswered(server.name))

        match action:
            case StartBoot():
                said = self._boot(server, bmc, action, confirm)
                self._record.tell(server, "Normal", "BootOrderAccepted", said)
            case CutForCycle():
                confirm()
                bmc.power_off(force=True)
                said = f"boot order {action.order_id} is a power cycle: the power is being cut"
                self._record.tell_once(server, "PowerCycling", said)
            case RecordCut():
                said = f"boot order {action.order_id} is a power cycle: the server is off"
            case RecordOrder():
                said = f"boot order {action.order_id} was under way already"
                self._record.tell(server, "Normal", "BootOrderUnderWay", said)
            case AskToShutDown():
                confirm()
                bmc.power_off(force=False)
                said = "the system was asked to shut down"
                self._record.tell(server, "Normal", "ShuttingDown", said)
            case CutPower():
                confirm()
                bmc.power_off(force=True)
                said = "the system did not shut down when asked; its power was cut"
                self._record.tell(server, "Warning", "PowerCut", said)
            case PollAgain():
                said = "nothing"
        return said

    def _boot(self, server: Server, bmc: PowerController, action: StartBoot, confirm: Callable[[], None]) -> str:
        words = "the boot override was left alone"
        if action.override is not None:
            http = action.override == "UefiHttp"
            uri = self._settings.http_boot_uris.get(server.spec.architecture) if http else None
            confirm()
            taken = bmc.set_boot_override(action.override, uri)
            source = f"{action.override} from {taken}" if taken else action.override
            words = f"the boot override is {source}, Once"
        confirm()  # the BMC may have taken its time over the override
        try:
            if action.power == "Reset":
                bmc.reset()
            else:
                bmc.power_on()
        except BmcUnreachable:
            self._unanswered[server.name] = action.order_id
            raise
        self._unanswered.pop(server.name, None)
        verb = "reset" if action.power == "Reset" else "powered on"
        return f"the BMC accepted boot order {action.order_id}: {words}; the server was {verb}"
