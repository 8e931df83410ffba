"""The power controller dies after each of its steps in turn; the next one brings the order to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from lab.machine.machine import BootPlan
from provisioner.api.servers.server import PowerStatus, Server
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.resources import of
from provisioner.power.act import BmcActions
from provisioner.power.bmc.pool import BmcPool
from provisioner.power.bmc.redfish import RedfishPower
from provisioner.power.decide import PoweredOn
from provisioner.power.preflight import Preflight
from provisioner.power.reconcile import ServerPowerReconciler
from provisioner.power.record import Record
from tests.power.power_site import PINNED, Site

HTTP = BootPlan(source="UefiHttp", http_boot_uri=PINNED)
DISK = BootPlan(source="Disk")


class Died(BaseException):
    """The process is gone: nothing catches it."""


class DeathClock:
    """Counts the steps that took effect, and dies after the one that it was set to."""

    def __init__(self, at: int | None) -> None:
        self.steps: list[str] = []
        self._at = at

    def step(self, what: str) -> None:
        self.steps.append(what)
        if len(self.steps) == self._at:
            raise Died


class MortalBmc(RedfishPower):
    clock: DeathClock

    def set_boot_override(self, *args: Any) -> None:
        super().set_boot_override(*args)
        self.clock.step("override")

    def power_on(self) -> None:
        super().power_on()
        self.clock.step("on")

    def power_off(self, *, force: bool) -> None:
        super().power_off(force=force)
        self.clock.step("off")

    def reset(self) -> None:
        super().reset()
        self.clock.step("reset")


class MortalRecord(Record):
    clock: DeathClock

    def write(self, server: Server, power: PowerStatus | None, said: PoweredOn, *, acted: bool = False) -> None:
        super().write(server, power, said, acted=acted)
        self.clock.step("record")


class FakeInformer:
    """Knows at once what is true."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def get(self, key: str) -> Mapping[str, Any]:
        return self._site.cluster.get(of(Server), key)


def run_until_done(site: Site, die_at: int | None) -> list[str]:
    """One life of the controller: its steps, until the order is on record or it dies."""
    clock = DeathClock(die_at)

    def connect(access: Any) -> MortalBmc:
        bmc = MortalBmc(access)
        bmc.clock = clock
        return bmc

    def now() -> datetime:
        return datetime.now(UTC)

    record = MortalRecord(site.door, EventRecorder(site.door, "power-test"), now=now)
    record.clock = clock
    pool = BmcPool(site.door, clock=time.monotonic, connect=connect)
    spread: Callable[[float], float] = lambda seconds: seconds  # noqa: E731
    controller = ServerPowerReconciler(
        site.door,
        FakeInformer(site),  # type: ignore[arg-type]
        pool,
        BmcActions(site.settings, record, Preflight(site.door, None, now=now)),
        record,
        site.settings,
        now=now,
        spread=spread,
    )
    with suppress(Died):
        for _ in range(12):
            controller.reconcile(site.name)
            power = site.read().status.power
            if power is not None and power.order_id == "order-1":
                break
    return clock.steps


STEPS = {
    "PowerCycle": ["off", "record", "record", "override", "on", "record"],
    "Reset": ["override", "reset", "record"],
}


@pytest.mark.parametrize(
    ("method", "die_at"), [(method, at) for method, steps in STEPS.items() for at in range(1, len(steps) + 1)]
)
def test_an_order_is_carried_out_though_the_controller_dies_after_any_step(
    site: Site, method: str, die_at: int
) -> None:
    site.fake.machine.power_on(DISK)
    site.write_server()
    site.ask(method)
    site.order_as_asked("order-1", method)
    first = run_until_done(site, die_at)
    assert first == STEPS[method][:die_at], "the steps are those that are told here"
    second = run_until_done(site, None)
    power = site.read().status.power
    assert power is not None
    assert (power.order_id, power.state, site.fake.machine.running) == ("order-1", "On", True)
    # A reset that was not written down is done once more; a power cycle's record makes that needless.
    again = [HTTP] if first[-1] == "reset" else []
    assert site.fake.machine.boots == [DISK, HTTP, *again]
    assert (first + second).count("off") == STEPS[method].count("off")


def test_without_a_death_the_steps_are_those(site: Site) -> None:
    for method, steps in STEPS.items():
        site.stop()
        site.cluster.delete(of(Server), site.name)
        site.fake.machine.power_off()
        site.fake.machine.power_on(DISK)
        site.write_server()
        site.ask(method)
        site.order_as_asked("order-1", method)
        assert run_until_done(site, None) == steps
