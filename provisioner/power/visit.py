"""One visit to a server's BMC: how long workers wait for it, which its queue is told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from provisioner.outbound.deadline import OutboundFailed, bounded_call
from provisioner.power.bmc.power_controller import (
    BmcUnreachable,
    ObservedPower,
    OverrideTarget,
    PowerController,
)


class LookOverdue(Exception):
    """The look was ended because it took longer than its queue gives it: nothing is known of the BMC, and recorded."""


class Visit:
    """`look_seconds`: how long asking for the power may take, None: as long as a call may. `is_slow`: the BMC is known
    for answering slowly. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        *,
        look_seconds: float | None = None,
        is_slow: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_slow = is_slow
        self.bmc_seconds = 0.0
        """For so long was the BMC waited for."""
        self.answered = False
        """Whether it told the power."""
        self._look_seconds = look_seconds
        self._clock = clock

    def look(self, bmc: PowerController) -> ObservedPower:
        """Its power. Raises: LookOverdue; BmcUnreachable, BmcRefused."""
        seconds, began = self._look_seconds, self._clock()
        bound = contextlib.nullcontext() if seconds is None else bounded_call("BMC", seconds=seconds, clock=self._clock)
        try:
            with bound:
                power = bmc.get_power_state()
        except (BmcUnreachable, OutboundFailed) as error:
            if seconds is not None and self._clock() - began >= seconds:
                raise LookOverdue from error
            raise
        self.answered = True
        return power

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """A BMC is waited for inside."""
        began = self._clock()
        try:
            yield
        finally:
            self.bmc_seconds += self._clock() - began


class Timed:
    """A PowerController whose time goes to the account of a visit."""

    def __init__(self, bmc: PowerController, visit: Visit) -> None:
        self._bmc = bmc
        self._visit = visit

    def get_power_state(self) -> ObservedPower:
        with self._visit.waiting():
            return self._bmc.get_power_state()

    def set_boot_override(self, target: OverrideTarget, http_boot_uri: str | None = None) -> str | None:
        with self._visit.waiting():
            return self._bmc.set_boot_override(target, http_boot_uri)

    def power_on(self) -> None:
        with self._visit.waiting():
            self._bmc.power_on()

    def power_off(self, *, force: bool) -> None:
        with self._visit.waiting():
            self._bmc.power_off(force=force)

    def reset(self) -> None:
        with self._visit.waiting():
            self._bmc.reset()

    def close(self) -> None:
        with self._visit.waiting():
            self._bmc.close()
