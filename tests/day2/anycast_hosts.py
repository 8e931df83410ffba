"""Boot hosts that announce one address by BGP, their router, and a machine behind its relay: namespaces and cables.

    first  eth0 ════ first  ┐
                            router  rack ════ eth0  machine
    second eth0 ════ second ┘

Addresses are those of docs/high-availability.md, whose lines the router runs with. The hosts run with what the Ansible
role writes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.tools import Tools
from tests.boot.dhcp.wire import Namespace, connect
from tests.day2.boot_hosts import BootHost, Machine, boot_command, led_to, write_rendered
from tests.tools import installed

GUIDE = Path(__file__).parents[2] / "docs/high-availability.md"
ADDRESS = "10.80.0.1"
MACHINE, GATEWAY = "10.80.100.21", "10.80.100.254"
STABLE_SECONDS = 6
LEASE_SECONDS = 15
"""For which the script lends the address."""


def settings_of(name: str) -> dict[str, Any]:
    """Variables of the role, as in the guide."""
    number = {"first": 1, "second": 2}[name]
    return {
        "boot_host_address": ADDRESS,
        "boot_host_http_port": 80,
        "boot_host_check_script": "/usr/local/lib/provisioner/check-boot",
        "boot_host_anycast": True,
        "boot_host_anycast_asn": 64601,
        "boot_host_anycast_source": f"10.80.{number}.2",
        "boot_host_anycast_neighbors": [{"address": f"10.80.{number}.1", "asn": 64600}],
        "boot_host_anycast_prepend": 2 * (number - 1),
        "boot_host_anycast_stable_seconds": 60,
    }


def router_lines() -> str:
    """The router's configuration that the guide prints."""
    (printed,) = re.findall(r"^   ```\n(   ip prefix-list boot-hosts .*?)^   ```$", GUIDE.read_text(), re.M | re.S)
    return "\n".join(line.removeprefix("   ") for line in printed.splitlines()) + "\n"


def frr_commands(folder: Path) -> dict[str, list[str]]:
    """FRR's programs with frr.conf, of which each reads its own lines; as Debian's user. folder: its own."""
    own = ["-f", str(folder / "frr.conf"), "--vty_socket", str(folder), "-z", str(folder / "zserv")]
    started = {"zebra": ["-P0"], "bgpd": ["-P0", "-p179"]}
    return {
        name: [installed(f"/usr/lib/frr/{name}"), *own, "-i", str(folder / f"{name}.pid"), *more]
        for name, more in started.items()
    }


def make_frr_folder(folder: Path) -> Path:
    (folder / "frr").mkdir(mode=0o755)
    shutil.chown(folder / "frr", "frr", "frr")
    return folder / "frr"


@dataclass
class AnycastHost(BootHost):
    """`processes`: its boot service, FRR's, and `announce`."""

    def write_configuration(self) -> None:
        settings = settings_of(self.name) | {
            "boot_host_check_script": str(self.folder / "check-boot"),
            "boot_host_state": str(self.folder / "state"),
            "boot_host_anycast_stable_seconds": STABLE_SECONDS,
        }
        write_rendered(make_frr_folder(self.folder) / "frr.conf", settings, 0o644)
        for script in ("check-boot", "announce-boot"):
            write_rendered(self.folder / script, settings, 0o755)

    def commands(self) -> dict[str, list[str]]:
        limited = ["setpriv", "--inh-caps=-all", "--bounding-set=-all,+net_admin", "--no-new-privs"]  # the unit's
        announce = [*limited, str(self.folder / "announce-boot")]
        return {"boot": self.command} | frr_commands(self.folder / "frr") | {"announce": announce}

    def has_address(self) -> bool:
        return f"inet {ADDRESS}/" in self.namespace.ip("-4", "address", "show", "dev", "lo")

    def seconds_lent(self) -> int:
        """How long it has the address yet; 0: it has not."""
        links = json.loads(self.namespace.ip("-j", "-4", "address", "show", "dev", "lo"))
        lent = (each for link in links for each in link.get("addr_info", ()) if each["local"] == ADDRESS)
        return next((int(each["valid_life_time"]) for each in lent), 0)

    def fall_silent(self) -> None:
        """It says and hears nothing, while its links stay up."""
        self._nft("add table inet silent")
        for hook in ("input", "output"):
            self._nft(f"add chain inet silent {hook}s {{ type filter hook {hook} priority 0; policy drop; }}")

    def speak_again(self) -> None:
        self._nft("delete table inet silent")

    def _nft(self, words: str) -> None:
        ran = self.namespace.run(installed("nft"), words)
        assert ran.returncode == 0, ran.stderr


@dataclass
class Router(BootHost):
    """Which also relays DHCP."""

    def write_configuration(self) -> None:
        (make_frr_folder(self.folder) / "frr.conf").write_text(router_lines())

    def commands(self) -> dict[str, list[str]]:
        links = ["-id", "rack", "-iu", "first", "-iu", "second"]
        return frr_commands(self.folder / "frr") | {
            "relay": [installed("dhcrelay"), "-4", "-d", "--no-pid", "-a", "-m", "forward", *links, ADDRESS]
        }

    def routes(self) -> list[dict[str, Any]]:
        """What the kernel forwards the boot hosts' address by."""
        found: list[dict[str, Any]] = json.loads(self.namespace.ip("-j", "route", "show", f"{ADDRESS}/32") or "[]")
        return found

    def leads_to(self) -> list[str]:
        """By which links, named after the hosts at their ends: several are equal."""
        return [hop["dev"] for route in self.routes() for hop in route.get("nexthops", [route])]

    def versions(self) -> list[int]:
        """Which go up with each change to the paths that it has heard."""
        return [path["version"] for path in self.paths()["paths"]]

    def paths(self) -> dict[str, Any]:
        """What bgpd has heard, as it says."""
        told = self.namespace.run(
            "vtysh", "--vty_socket", str(self.folder / "frr"), "-c", f"show bgp ipv4 {ADDRESS}/32 json"
        )
        heard: dict[str, Any] = json.loads(told.stdout or "{}")
        return heard


@dataclass(frozen=True)
class Place:
    first: AnycastHost
    second: AnycastHost
    router: Router
    machine: Machine
    images: Path

    @property
    def hosts(self) -> tuple[AnycastHost, AnycastHost]:
        return self.first, self.second

    def run(self) -> bool:
        """That all programs do. Raises: AssertionError, with the names of those that ended."""
        started = (
            (host.name, name, each) for host in (*self.hosts, self.router) for name, each in host.processes.items()
        )
        ended = [(host, name) for host, name, each in started if each.poll() is not None]
        assert not ended, ended
        return True

    def words(self) -> str:
        logs = [(host, name) for host in (*self.hosts, self.router) for name in host.commands() if name != "relay"]
        return "\n".join(f"{host.name} {name}: {host.log(name)}" for host, name in logs)


@contextmanager
def place(made: list[Namespace], shared: Path, tools: Tools, kubeconfig: Path, port: int) -> Iterator[Place]:
    """Nothing is started yet. made: four namespaces. shared: images and certificate."""
    first, second, between, machine = made
    root = Path(f"/run/provisioner-anycast-{os.getpid()}")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        hosts = []
        for number, (name, namespace) in enumerate((("first", first), ("second", second)), 1):
            folder = root / name
            folder.mkdir(parents=True, mode=0o755)
            connect(namespace, "eth0", between, name)
            namespace.ip("address", "add", f"10.80.{number}.2/24", "dev", "eth0")
            between.ip("address", "add", f"10.80.{number}.1/24", "dev", name)
            namespace.ip("route", "add", "default", "via", f"10.80.{number}.1")
            namespace.run("sysctl", "-qw", "net.ipv4.ip_nonlocal_bind=1")
            stack.enter_context(led_to(namespace, port))
            command = boot_command(ADDRESS, folder, shared, tools, kubeconfig)
            hosts.append(AnycastHost(name, f"10.80.{number}.2", "", 0, namespace, folder, command))
        connect(machine, "eth0", between, "rack")
        between.ip("address", "add", f"{GATEWAY}/24", "dev", "rack")
        between.run("sysctl", "-qw", "net.ipv4.ip_forward=1")
        machine.ip("address", "add", f"{MACHINE}/24", "dev", "eth0")
        machine.ip("route", "add", "default", "via", GATEWAY)
        (root / "router").mkdir(mode=0o755)
        router = Router("router", GATEWAY, "", 0, between, root / "router", [])
        for each in (*hosts, router):
            each.write_configuration()
            stack.callback(each.stop)
        yield Place(hosts[0], hosts[1], router, Machine(machine, ADDRESS), shared / "images")
