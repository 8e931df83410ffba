"""Boot hosts that share a virtual address by keepalived, and a machine that boots from it: namespaces on one switch.

What runs is `provisioner boot` and keepalived with what the Ansible role writes. Their API server listens on this
machine's loopback; in each namespace a port of its loopback leads there.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment

from lab.tools import Tools
from tests.boot.dhcp.wire import Namespace, connect
from tests.tools import installed

TEMPLATES = Path(__file__).parents[2] / "ansible/roles/boot_host/templates"
VIRTUAL, PREFIX = "10.77.0.1", 24
MACHINE = "10.77.0.100"
PATIENCE_SECONDS = 180.0


def wait_until(true: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited too long: {what}"
        time.sleep(0.05)


def write_rendered(file: Path, settings: dict[str, Any], mode: int) -> None:
    """The role's template of that name."""
    rendered = Environment(trim_blocks=True, autoescape=False)  # noqa: S701 - no HTML
    file.write_text(rendered.from_string((TEMPLATES / f"{file.name}.j2").read_text()).render(settings))
    file.chmod(mode)


def boot_command(address: str, folder: Path, shared: Path, tools: Tools, kubeconfig: Path, *more: str) -> list[str]:
    """A boot service. folder: its own. shared: images and certificate."""
    return [
        sys.executable, "-m", "provisioner.cli", "boot", f"--kubeconfig={kubeconfig}", f"--address={address}",
        f"--state={folder / 'state'}", f"--image-store={shared / 'images'}",
        f"--tls-certificate={shared / 'cert.pem'}", f"--tls-key={shared / 'key.pem'}",
        f"--api-server=https://{address}:6443", f"--tools-root={tools.root}", "--dhcp-workers=1", *more,
    ]  # fmt: skip


@dataclass
class BootHost:
    """One boot host. `folder`: its own; keepalived runs scripts only from where nobody but root writes."""

    name: str
    address: str
    peer: str
    priority: int
    namespace: Namespace
    folder: Path
    command: list[str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def write_configuration(self) -> None:
        """What the role `boot_host` writes."""
        settings: dict[str, Any] = {
            "boot_host_keepalived_name": self.name,
            "boot_host_check_script": str(self.folder / "check-boot"),
            "boot_host_keepalived_interface": "eth0",
            "boot_host_keepalived_router_id": 51,
            "boot_host_keepalived_priority": self.priority,
            "boot_host_keepalived_source": self.address,
            "boot_host_keepalived_peers": [self.peer],
            "boot_host_address": VIRTUAL,
            "boot_host_virtual_address": f"{VIRTUAL}/{PREFIX}",
            "boot_host_http_port": 80,
            "boot_host_state": str(self.folder / "state"),
        }
        for file, mode in (("keepalived.conf", 0o640), ("check-boot", 0o755)):
            write_rendered(self.folder / file, settings, mode)

    def commands(self) -> dict[str, list[str]]:
        """What the host's services are started with, in this order."""
        pids = [f"--{kind}={self.folder / kind}" for kind in ("pid", "vrrp_pid")]
        return {
            "boot": self.command,
            "keepalived": [
                installed("keepalived"), "--dont-fork", "--log-console", "--vrrp", *pids,
                f"--use-file={self.folder / 'keepalived.conf'}",
            ],
        }  # fmt: skip

    def start(self, *names: str) -> None:
        """The services, or those that are named."""
        commands = self.commands()
        for name in names or commands:
            with (self.folder / f"{name}.log").open("ab") as log:
                self.processes[name] = subprocess.Popen(
                    self.namespace.command(*commands[name]), stdout=log, stderr=log, stdin=subprocess.DEVNULL
                )

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait(60)

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(60)
            process.kill()
        self.processes.clear()

    def has_address(self) -> bool:
        return f"inet {VIRTUAL}/" in self.namespace.ip("-4", "address", "show", "dev", "eth0")

    def is_ready(self) -> bool:
        """By the check that keepalived makes."""
        return self.namespace.run(str(self.folder / "check-boot")).returncode == 0

    def log(self, name: str) -> str:
        file = self.folder / f"{name}.log"
        return file.read_text(errors="replace")[-4000:] if file.exists() else ""


class Machine:
    """Which boots, or fetches a file."""

    def __init__(self, namespace: Namespace, boot_address: str = VIRTUAL) -> None:
        self.namespace, self._boot_address = namespace, boot_address

    def curl(self, *arguments: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        return self.namespace.run("curl", "-sS", *arguments, timeout_seconds=seconds)

    def is_served(self) -> bool:
        """Whether the boot hosts' address answers a request of a script, at once."""
        return self.curl("-f", "-m1", "-o/dev/null", f"http://{self._boot_address}/boot.ipxe").returncode == 0

    def gap(self, happens: Callable[[], None]) -> float:
        """Seconds between the last answer before something happens, and the first one after it: of the boot hosts'
        address, which is asked again and again."""
        wait_until(self.is_served, "the boot hosts' address is served")
        last = time.monotonic()
        happens()
        deadline = last + PATIENCE_SECONDS
        gone = False
        while True:
            answered, now = self.is_served(), time.monotonic()
            if answered and gone:
                return now - last
            if answered:
                last = now
            gone = gone or not answered
            assert now < deadline, "the boot hosts' address did not go, or did not come back"
            time.sleep(0.02)


@contextmanager
def led_to(namespace: Namespace, port: int) -> Iterator[None]:
    """Connections to 127.0.0.1:`port` in the namespace arrive at this machine's."""
    with namespace.entered():
        listener = socket.create_server(("127.0.0.1", port))
    stop = threading.Event()

    def copy(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while not stop.is_set():
            try:
                here, _ = listener.accept()
                there = socket.create_connection(("127.0.0.1", port), timeout=10)
            except OSError:
                continue
            there.settimeout(None)
            for pair in ((here, there), (there, here)):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield
    finally:
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@contextmanager
def place(made: list[Namespace], shared: Path, tools: Tools, kubeconfig: Path, port: int) -> Iterator[Place]:
    """Two boot hosts and a machine behind one switch. made: four namespaces. shared: images and certificate."""
    switch, first, second, machine = made
    switch.ip("link", "add", "br0", "type", "bridge", "forward_delay", "0")
    switch.ip("link", "set", "br0", "up")
    for number, namespace in enumerate((first, second, machine)):
        connect(namespace, "eth0", switch, f"port{number}")
        switch.ip("link", "set", f"port{number}", "master", "br0")
    own = {"first": "10.77.0.2", "second": "10.77.0.3"}
    root = Path(f"/run/provisioner-boot-hosts-{os.getpid()}")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        hosts = []
        for name, namespace, other, priority in (("first", first, "second", 100), ("second", second, "first", 90)):
            folder = root / name
            folder.mkdir(parents=True, mode=0o755)
            namespace.ip("address", "add", f"{own[name]}/{PREFIX}", "dev", "eth0")
            namespace.run("sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=1")
            stack.enter_context(led_to(namespace, port))
            command = boot_command(VIRTUAL, folder, shared, tools, kubeconfig, "--interface=eth0")
            host = BootHost(name, own[name], own[other], priority, namespace, folder, command)
            host.write_configuration()
            stack.callback(host.stop)
            hosts.append(host)
        machine.ip("address", "add", f"{MACHINE}/{PREFIX}", "dev", "eth0")
        yield Place(hosts[0], hosts[1], Machine(machine))


@dataclass(frozen=True)
class Place:
    first: BootHost
    second: BootHost
    machine: Machine

    @property
    def hosts(self) -> tuple[BootHost, BootHost]:
        return self.first, self.second

    def holders(self) -> list[str]:
        """Who has the virtual address."""
        return [host.name for host in self.hosts if host.has_address()]

    @property
    def images(self) -> Path:
        """The image store of both."""
        option = next(word for word in self.first.command if word.startswith("--image-store="))
        return Path(option.partition("=")[2])

    def words(self) -> str:
        logs = [(host, name) for host in self.hosts for name in ("boot", "keepalived")]
        return "\n".join(f"{host.name} {name}: {host.log(name)}" for host, name in logs)
