"""One network namespace per lab: the bridge that servers boot from, and their BMCs' addresses. Nothing leaves it."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Final

from lab.virtual_network.namespace import Namespace, ip
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.network.agent.model import namespaces

BRIDGE: Final = "boot0"
BOOT_INTERFACE: Final = IPv4Interface("10.80.0.1/24")
_BRIDGE_MAC: Final = "52:54:00:80:00:01"
_IPV6: Final = Path("/proc/sys/net/ipv6/conf")


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
        return (namespaces.NAMED / self.namespace).exists()

    def command(self, argv: Sequence[str | Path]) -> list[str]:
        """Arguments that run `argv` in the namespace; the program keeps the process id that the caller gets."""
        return ["nsenter", f"--net={namespaces.NAMED / self.namespace}", "--", *(str(word) for word in argv)]

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
            ip("netns", "add", self.namespace)
        with Namespace(self.namespace).kernel() as kernel:
            links = namespaces.interfaces()
            # No address of its own may appear by itself: what the lab does must not depend on the kernel's IPv6.
            for scope in ("all", "default"):
                with contextlib.suppress(OSError):
                    (_IPV6 / scope / "disable_ipv6").write_text("1")
            if BRIDGE not in links:
                # With a forward delay the port of a machine that just powered on would drop its first DHCP requests.
                # Without an address of its own a bridge takes its ports', and changes it as machines come and go.
                kernel.link(
                    "add", ifname=BRIDGE, kind="bridge", address=_BRIDGE_MAC, br_forward_delay=0, br_stp_state=0
                )
            bridge, loopback = socket.if_nametoindex(BRIDGE), socket.if_nametoindex("lo")
            kernel.addr("replace", index=bridge, address=str(self.boot_interface))
            kernel.link("set", index=bridge, state="up")
            kernel.link("set", index=loopback, state="up")
            for address in bmc_addresses:
                kernel.addr("replace", index=loopback, address=f"{address}/32")
            for tap in (*taps, *itertools.chain.from_iterable(cables)):
                if tap not in links:
                    kernel.link("add", ifname=tap, kind="tuntap", mode="tap")
                kernel.link("set", ifname=tap, master=bridge if tap in taps else None, state="up")
        if cables:
            self._lay(cables)

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
            ip("netns", "delete", self.namespace)


def processes_in(namespace: str) -> list[int]:
    """Process ids of what runs in the namespace of that name, whoever started it; none where there is no namespace."""
    if not (namespaces.NAMED / namespace).exists():
        return []
    wanted = (namespaces.NAMED / namespace).stat()
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
