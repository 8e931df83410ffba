"""OpenIPMI's `ipmi_sim`, a BMC that is not ours, over fake machines on loopback.

It asks a program of ours for the power, and tells it what to do: that one hands the words on to this process. What
`ipmi_sim` gets wrong, so that nobody takes it for IPMI: it knows no cipher suite but 3, and forgets all of the boot
flags but the device.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from werkzeug import Request, Response

from lab.bmc.server_power import PowerStateError, ServerPower
from lab.control_plane.ports import free_port
from provisioner.api.machinery.values import Secret
from provisioner.power.bmc.power_controller import BmcAccess
from tests.http_peer import HttpPeer
from tests.lab.fake_machine import FakeMachine
from tests.tools import installed

USERNAME = "provisioner"
PASSWORD = "correcthorse"
BOUND_SECONDS = 180.0
SESSIONS = 3
"""As few sessions may be open at once: who does not close them is soon refused."""


class IpmiSim:
    """A fake machine behind an IPMI BMC. `said` is what the BMC was made to do, in order.

    What the client sends again because no answer came in half a second, on a busy machine, is done and said once, as by
    a BMC that knows a repeated request. Except a reset: that one no client of ours may repeat.
    """

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.machine = FakeMachine()
        self.power = ServerPower(name, "UEFI", self.machine, directory / "boot-override.json")
        self.said: list[str] = []
        self.delay_seconds = 0.0
        self._directory = directory
        self._hook = HttpPeer()
        self._hook.expect_request("/").respond_with_handler(self._answer_hook)
        self.port = free_port("127.0.0.1", socket.SOCK_DGRAM)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"ipmi://127.0.0.1:{self.port}"

    @property
    def access(self) -> BmcAccess:
        return BmcAccess(
            address=self.address,
            username=USERNAME,
            password=Secret(PASSWORD),
            credentials_name="provisioner-system/ipmi",
            protocol="IPMI",
        )

    def start(self) -> None:
        self._hook.start()
        self._write_files()
        with (self._directory / "ipmi_sim.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["ipmi_sim", "-n", "-c", "lan.conf", "-f", "sim.emu", "-s", "state"],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + BOUND_SECONDS
        while not _listens(self.port):
            assert self._process.poll() is None, (self._directory / "ipmi_sim.log").read_text()
            assert time.monotonic() < deadline, "ipmi_sim does not listen"
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._hook.is_running():
            self._hook.stop()

    def _answer_hook(self, request: Request) -> Response:
        time.sleep(self.delay_seconds)
        try:
            return Response(self.obey(request.data.decode().split()))
        except PowerStateError as error:
            return Response(str(error), 409)

    def obey(self, words: list[str]) -> str:
        """`get power`, `set boot pxe`, `set power 1`, `set reset 1`, `set shutdown 1`: what the hook is called with."""
        verb, *rest = words
        if verb == "get":
            boot = "pxe" if self.power.override.target == "Pxe" else "default"
            known = {"power": str(int(self.machine.running)), "boot": boot}
            return "".join(f"{name}:{known[name]}\n" for name in rest if name in known)
        if self._is_sent_again(rest):
            return ""
        self.said.append(" ".join(rest))
        match rest:
            case ["boot", device]:
                wanted = {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}
                self.power.patch_boot(wanted if device == "pxe" else {"BootSourceOverrideEnabled": "Disabled"})
            case ["power", value]:
                self.power.reset("On" if value == "1" else "ForceOff")
            case ["reset", _]:
                self.power.reset("ForceRestart")
            case ["shutdown", _]:
                self.power.reset("GracefulShutdown")
        return ""

    def _is_sent_again(self, words: list[str]) -> bool:
        is_repeated = self.said[-1:] == [" ".join(words)]
        if words[0] == "power":
            return is_repeated and self.machine.running == (words[1] == "1")
        return is_repeated and words[0] != "reset"

    def _write_files(self) -> None:
        (self._directory / "state").mkdir(exist_ok=True)
        hook = self._directory / "hook"
        hook.write_text(
            f'#!/bin/sh\nshift\nexec curl -sSf --noproxy "*" --max-time 100 --data-binary "$*" {self._hook.url}\n'
        )
        hook.chmod(0o755)
        auths = "".join(f"  allowed_auths_{level} none md2 md5 straight\n" for level in ("user", "operator", "admin"))
        (self._directory / "lan.conf").write_text(
            f'name "fake"\nset_working_mc 0x20\nstartlan 1\n  addr 127.0.0.1 {self.port}\n  priv_limit admin\n{auths}'
            f"  guid a123456789abcdefa123456789abcdef\nendlan\n"
            f'chassis_control "{hook} 0x20"\n'
            f'user 2 true "{USERNAME}" "{PASSWORD}" admin {SESSIONS} none md2 md5 straight\n'
        )
        (self._directory / "sim.emu").write_text(
            "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_enable 0x20\n"
        )


@contextmanager
def ipmi_sim(directory: Path, name: str = "r01-u01") -> Iterator[IpmiSim]:
    """A running one."""
    installed("ipmi_sim")
    sim = IpmiSim(directory, name)
    try:
        sim.start()
        yield sim
    finally:
        sim.stop()


def _listens(port: int) -> bool:
    return f":{port:04X} " in Path("/proc/net/udp").read_text()
