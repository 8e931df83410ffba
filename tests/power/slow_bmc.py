"""A BMC that is slow enough for something else to happen meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from provisioner.power.bmc.power_controller import BmcAccess
from provisioner.power.bmc.redfish import RedfishPower
from tests.power.power_site import BOUND_SECONDS


class SlowBmc(RedfishPower):
    """While it sets the boot override for the first time, or tells its power, something else happens."""

    def __init__(self, access: BmcAccess, *, at_override: Callable[[], None], at_state: Callable[[], None]) -> None:
        super().__init__(access)
        self._at_override = at_override
        self._at_state = at_state

    def get_power_state(self) -> Any:
        state = super().get_power_state()
        self._at_state()
        return state

    def set_boot_override(self, *args: Any) -> None:
        super().set_boot_override(*args)
        self._at_override()


class Once:
    """Calls `act` the first time, and counts the times."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self._act = act
        self.times = 0
        self._changed = threading.Condition()

    def __call__(self) -> None:
        with self._changed:
            self.times += 1
            first = self.times == 1
            self._changed.notify_all()
        if first:
            self._act()

    def wait_for(self, times: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.times >= times, BOUND_SECONDS)
