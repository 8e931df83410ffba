"""A machine without QEMU behind a real BMC endpoint on loopback."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path

from lab.bmc.certificate import obtain_certificate, server_context
from lab.bmc.endpoint import BmcEndpoint, Credentials
from lab.bmc.server_power import ServerPower
from lab.machine.machine import BootPlan, Firmware, MachineSpec
from provisioner.api.machinery.values import Secret, parse_mac

USERNAME = "provisioner"
PASSWORD = "correct horse"


class FakeMachine:
    """Remembers its boots; shuts down when its power button is pressed unless told to hang."""

    def __init__(self) -> None:
        self.running = False
        self.boots: list[BootPlan] = []
        self.hangs = False
        self.button_presses = 0

    def power_on(self, plan: BootPlan) -> None:
        if not self.running:
            self.running = True
            self.boots.append(plan)

    def power_off(self) -> None:
        self.running = False

    def press_reset_button(self) -> None:
        if self.running:
            self.boots.append(self.boots[-1])

    def press_power_button(self) -> None:
        self.button_presses += 1
        if not self.hangs:
            self.running = False


class FakeServer:
    """A fake machine, its BMC endpoint, and what a client needs to know of it."""

    def __init__(self, directory: Path, firmware: Firmware = "UEFI", name: str = "r01-u01") -> None:
        self.directory = directory
        self.machine = FakeMachine()
        self.spec = MachineSpec(
            name=name,
            firmware=firmware,
            mac=parse_mac("52:54:00:00:00:01"),
            uuid="3b5d4f1e-0a5e-4a59-8a0e-000000000001",
            serial="LAB0001",
        )
        self.certificate = obtain_certificate(directory, name, IPv4Address("127.0.0.1"), datetime.now(UTC))
        self.power = ServerPower(name, firmware, self.machine, directory / "boot-override.json")
        self.endpoint = self.new_endpoint(0)

    def new_endpoint(self, port: int, tls: ssl.SSLContext | None = None) -> BmcEndpoint:
        return BmcEndpoint(
            self.spec,
            self.power,
            Credentials(USERNAME, Secret(PASSWORD)),
            address="127.0.0.1",
            port=port,
            tls=tls or server_context(self.directory),
        )

    @property
    def url(self) -> str:
        return self.endpoint.url

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextmanager
def fake_server(directory: Path, firmware: Firmware = "UEFI", name: str = "r01-u01") -> Iterator[FakeServer]:
    """A fake server whose BMC is reachable."""
    directory.mkdir(parents=True, exist_ok=True)
    server = FakeServer(directory, firmware, name)
    server.endpoint.start()
    try:
        yield server
    finally:
        server.endpoint.stop()
