"""Other people's DHCP clients on hosts, and the DPU's server as the agent runs it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.dhcp.server import HostDhcpServer
from tests.network.agent.rack import DPU, Host
from tests.tools import installed

PATIENCE_SECONDS = 120

HOOK = """#!/bin/sh
# both clients' hook: udhcpc has $1, $ip, $mask as a length; dhclient $reason, $new_ip_address, $new_subnet_mask
case "${1:-$reason}" in
bound|renew|BOUND|RENEW|REBIND|REBOOT)
    command ip link set "$interface" mtu "${mtu:-$new_interface_mtu}"
    command ip -4 address replace "${ip:-$new_ip_address}/${mask:-$new_subnet_mask}" dev "$interface"
    command ip -4 route replace default via "${router:-$new_routers}" dev "$interface" ;;
nak|EXPIRE)
    command ip -4 address flush dev "$interface" ;;
esac
echo "${1:-$reason} ${ip:-$new_ip_address}/${mask:-$new_subnet_mask} via ${router:-$new_routers}" \\
    "mtu ${mtu:-$new_interface_mtu} from ${serverid:-$new_dhcp_server_identifier}" >> @OUT@
exit 0
"""


@contextlib.contextmanager
def answering(dpu: DPU, ports: Iterable[ServedPort], said: list[str] | None = None) -> Iterator[HostDhcpServer]:
    """A server in the DPU's namespace."""
    told: list[str] = [] if said is None else said
    server = HostDhcpServer(told.append)
    dpu.inside(server.start)
    server.serve(ports)
    try:
        yield server
    finally:
        server.stop()


class Client:
    """A client on a host, whose hook configures the host as the client is told. `name`: udhcpc or dhclient; `more`: of
    its command line."""

    def __init__(self, name: str, host: Host, folder: Path, *more: str) -> None:
        self.host, self.name, self._more = host, name, more
        self._out = folder / f"{name}.out"
        self._leases, self._pid = folder / f"{name}.leases", folder / f"{name}.pid"
        self._hook = folder / f"{name}.sh"
        self._hook.write_text(HOOK.replace("@OUT@", str(self._out)))
        self._hook.chmod(0o755)

    @property
    def events(self) -> list[str]:
        """What it was told, in order."""
        return self._out.read_text().splitlines() if self._out.exists() else []

    def remembers(self, address: str, server: str) -> None:
        """A lease of an earlier life: dhclient's."""
        times = "; ".join(f"{each} 3 2037/01/01 00:00:00" for each in ("renew", "rebind", "expire"))
        self._leases.write_text(
            f'lease {{ interface "eth0"; fixed-address {address}; option subnet-mask 255.255.255.254; {times};\n'
            f" option dhcp-lease-time 99999999; option dhcp-server-identifier {server}; }}\n"
        )

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        if self.name == "udhcpc":
            command = [installed("busybox"), "udhcpc", "-f", "-i", "eth0", "-s", str(self._hook), "-O", "mtu"]
            command += ["-t", "20", "-T", "1"]
        else:
            command = [installed("dhclient"), "-4", "-d", "-1", "-sf", str(self._hook), "-lf", str(self._leases)]
            command += ["-cf", "/dev/null", "-pf", str(self._pid), "eth0"]
        with running(self.host.command(*command, *self._more)) as client:
            yield client

    def await_event(self, word: str) -> str:
        """The last event that begins with `word`."""
        wait_until(lambda: any(each.startswith(word) for each in self.events), f"{self.name} heard no {word}")
        return [each for each in self.events if each.startswith(word)][-1]


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Killed at the end, without a word to anybody."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet) as client:
        try:
            yield client
        finally:
            client.send_signal(signal.SIGKILL)


def wait_until(is_so: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)
