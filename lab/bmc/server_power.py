"""One server behind its BMC: power, resets and the boot override, in the order in which a real one does them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, get_args

import structlog

from lab.bmc.override import (
    BootOverride,
    next_boot,
    override_from_json,
    override_to_json,
    patch_override,
)
from lab.machine.machine import BootPlan, Firmware
from lab.machine.qemu import Machine

log = structlog.get_logger()

ResetType = Literal["On", "ForceOff", "GracefulShutdown", "ForceRestart", "PowerCycle"]
RESET_TYPES: Final[tuple[ResetType, ...]] = get_args(ResetType)


class PowerStateError(Exception):
    """The action does not fit the power state; real BMCs answer 409."""


class ServerPower:
    """Serialises what is done to one machine. The override survives a restart of the BMC in `state_file`."""

    def __init__(self, name: str, firmware: Firmware, machine: Machine, state_file: Path) -> None:
        self.name = name
        self.firmware: Firmware = firmware
        self._machine = machine
        self._state_file = state_file
        self._lock = threading.Lock()
        self._running_plan: BootPlan | None = None
        self._override: BootOverride | None = None

    @property
    def power_state(self) -> Literal["On", "Off"]:
        return "On" if self._machine.running else "Off"

    @property
    def override(self) -> BootOverride:
        if self._override is None:
            self._override = (
                override_from_json(json.loads(self._state_file.read_text()))
                if self._state_file.exists()
                else BootOverride()
            )
        return self._override

    def patch_boot(self, boot: Mapping[str, Any]) -> None:
        """Change the override; it counts from the next boot on. Raises: PropertyRefusedError."""
        with self._lock:
            self._keep(patch_override(self.override, boot, self.firmware))
            log.info("boot override was set", server=self.name, **override_to_json(self.override))

    def reset(self, reset_type: ResetType) -> None:
        """Carry out a Reset action. Raises: PowerStateError."""
        with self._lock:
            if reset_type not in ("On", "ForceOff") and not self._machine.running:
                raise PowerStateError(f"{reset_type} is not possible while the power is off")
            log.info("reset action was taken", server=self.name, action=reset_type)
            if reset_type == "GracefulShutdown":
                self._machine.press_power_button()
                return
            if reset_type in ("ForceOff", "ForceRestart", "PowerCycle"):
                self._machine.power_off()
            if reset_type != "ForceOff" and not self._machine.running:
                self._boot()

    def cut_power(self) -> None:
        """A power failure: the machine is off at once and stays off."""
        with self._lock:
            self._machine.power_off()
            log.info("power was cut", server=self.name)

    def press_reset_button(self) -> None:
        """A person at the rack: the machine starts anew as its firmware is set up, and nobody asked the BMC."""
        with self._lock:
            self._machine.press_reset_button()
            log.info("reset button was pressed", server=self.name)

    def guest_reset(self) -> None:
        """The system inside reset itself: that is a boot too, and spends or obeys the override."""
        with self._lock:
            if not self._machine.running:
                return
            plan, left = next_boot(self.override)
            if plan == self._running_plan:
                # The firmware that has already begun does the right thing.
                self._keep(left)
                return
            self._machine.power_off()
            self._boot()

    def _boot(self) -> None:
        plan, left = next_boot(self.override)
        self._machine.power_on(plan)
        self._running_plan = plan
        self._keep(left)

    def _keep(self, override: BootOverride) -> None:
        self._override = override
        temporary = self._state_file.with_suffix(".new")
        temporary.write_text(json.dumps(override_to_json(override)))
        temporary.rename(self._state_file)
