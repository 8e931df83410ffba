"""One network namespace per lab: the bridge that servers boot from, and their BMCs' addresses. Nothing leaves it."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman

BRIDGE: Final = "boot0"
BOOT_INTERFACE: Final = IPv4Interface("10.80.0.1/24")
_NO_IPV6: Final = "for all in all default; do echo 1 > /proc/sys/net/ipv6/conf/$all/disable_ipv6 || :; done 2>/dev/null"
_BRIDGE_MAC: Final = "52:54:00:80:00:01"
_NAMESPACES: Final = Path("/run/netns")


@dataclass(frozen=True)
class LabNetwork:
    """The namespace `provisioner-<lab>` with bridge `boot0` (10.80.0.1/24 unless said otherwise).

    The boot services, the control plane and the BMCs run in it (`command`); each machine hangs on the bridge by a tap.
    """

    lab: str
    boot_interface: IPv4Interface = BOOT_INTERFACE

    @property
    def namespace(self) -> str:
        return f"provisioner-{self.lab}"

    @property
    def exists(self) -> bool:
        return (_NAMESPACES / self.namespace).exists()

    def command(self, argv: Sequence[str | Path]) -> list[str]:
        """Arguments that run `argv` in the namespace; the program keeps the process id that the caller gets."""
        return ["nsenter", f"--net={_NAMESPACES / self.namespace}", "--", *(str(word) for word in argv)]

    def create(
        self,
        bmc_addresses: Sequence[IPv4Address] = (),
        taps: Sequence[str] = (),
        cables: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Make what is missing of namespace, bridge, addresses and taps; run again, it changes nothing.

        `cables`: two taps each that lead to one another, and to nothing else: not to this machine's own network stack.
        Raises: NeedsHuman if it cannot be made.
        """
        if not self.exists:
            _ip("netns", "add", self.namespace)
        links = self._ip("-o", "link", "show")
        # No address of its own may appear by itself: what the lab does must not depend on the kernel's IPv6.
        self._run("sh", "-c", _NO_IPV6)
        self._ip("link", "set", "lo", "up")
        if f": {BRIDGE}:" not in links:
            # With a forward delay the port of a machine that just powered on would drop its first DHCP requests.
            # Without an address of its own a bridge takes its ports', and changes it as machines come and go.
            self._ip(
                "link", "add", BRIDGE, "address", _BRIDGE_MAC, "type", "bridge", "forward_delay", "0", "stp_state", "0"
            )
        self._ip("addr", "replace", str(self.boot_interface), "dev", BRIDGE)
        self._ip("link", "set", BRIDGE, "up")
        for address in bmc_addresses:
            self._ip("addr", "replace", f"{address}/32", "dev", "lo")
        for tap in taps:
            self._tap(tap, links)
            self._ip("link", "set", tap, "master", BRIDGE, "up")
        for tap in itertools.chain.from_iterable(cables):
            self._tap(tap, links)
            self._ip("link", "set", tap, "up")
        if cables:
            self._lay(cables)

    def _tap(self, tap: str, links: str) -> None:
        if f": {tap}:" not in links:
            self._ip("tuntap", "add", "dev", tap, "mode", "tap")

    def _lay(self, cables: Sequence[tuple[str, str]]) -> None:
        if shutil.which("nft") is None:
            raise NeedsHuman("nft is not on this machine", hint="apt-get install nftables")
        command = self.command(["nft", "-f", "-"])
        ran = subprocess.run(command, input=_cable_rules(cables), capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise NeedsHuman(
                f"`nft` ended with {ran.returncode}: {ran.stderr.strip()}",
                hint="a DPU through which its host boots needs a kernel with nftables' netdev family and fwd",
            )

    def process_ids(self) -> list[int]:
        """Every process that runs in the namespace, whoever started it."""
        return processes_in(self.namespace)

    def delete(self) -> None:
        """Remove the namespace and with it bridge, taps and addresses. Absent is fine.

        Processes in it would keep it alive unseen: end them first (see lab.demo.leftovers.clean_lab).
        """
        if self.exists:
            _ip("netns", "delete", self.namespace)

    def _ip(self, *arguments: str) -> str:
        return _ip("-n", self.namespace, *arguments)

    def _run(self, *argv: str) -> None:
        subprocess.run(self.command(argv), check=True, stdout=subprocess.DEVNULL)


def processes_in(namespace: str) -> list[int]:
    """Process ids of what runs in the namespace of that name, whoever started it; none where there is no namespace."""
    if not (_NAMESPACES / namespace).exists():
        return []
    wanted = (_NAMESPACES / namespace).stat()
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _is_in(process, wanted)]


def _is_in(process: Path, namespace: os.stat_result) -> bool:
    try:
        its = (process / "ns" / "net").stat()
    except OSError:
        # It has ended meanwhile.
        return False
    return (its.st_dev, its.st_ino) == (namespace.st_dev, namespace.st_ino)


def tap_name(machine: str) -> str:
    """Name of a machine's tap: at most 15 characters, as the kernel demands, and told apart by all of the name."""
    name = f"tap-{machine}"
    return name if len(name) <= 15 else "tap-" + hashlib.sha256(machine.encode()).hexdigest()[:11]


def host_port_tap_name(dpu: str) -> str:
    """Name of the tap of a DPU's port that leads to its host."""
    return tap_name(f"{dpu}-pf0")


def _cable_rules(cables: Sequence[tuple[str, str]]) -> str:
    """What comes out of the one tap goes into the other. No bridge: that would answer for this machine's addresses."""
    ways = [each for one, other in cables for each in ((one, other), (other, one))]
    chains = [
        f'chain c{number} {{ type filter hook ingress device "{one}" priority 0; policy drop; fwd to "{other}"; }}'
        for number, (one, other) in enumerate(ways)
    ]
    return "\n".join(["add table netdev cables", "delete table netdev cables", "table netdev cables {", *chains, "}\n"])


def _ip(*arguments: str) -> str:
    ran = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise NeedsHuman(
            f"`ip {' '.join(arguments)}` ended with {ran.returncode}: {ran.stderr.strip()}",
            hint="the lab needs root, iproute2 and a kernel with network namespaces, bridge and tun",
        )
    return ran.stdout
