"""A virtual rack to switch on: its BMC process, what ops would register it with, and faults for tests."""

from __future__ import annotations

import csv
import io
import json
import socket
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final, Literal

from lab.bmc.certificate import obtain_certificate
from lab.bmc.rack_of_bmcs import CONTROL_SOCKET, RACK_FILE
from lab.child_process import LabProcess
from lab.machine.machine import Accelerator, MachineFiles
from lab.machine.tpm_manufacture import (
    endorsement_authorities,
    endorsement_key_sha256,
    manufacture_tpm,
)
from lab.network import LabNetwork, host_port_tap_name, tap_name
from lab.rack_description import RackDescription, VirtualServer, to_json
from lab.tools import Tools
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cluster.resources import BMC_SECRETS

Fault = Literal["PowerCut", "ResetButton", "Slow", "ResetsUnavailable", "None"]

TPM_AUTHORITY: Final = "tpm-authority"
"""Folder of the CA that certifies the TPMs' endorsement keys."""
_START_SECONDS: Final = 60.0
_TPMS_AT_ONCE: Final = 4


class VirtualRack:
    """A rack in the lab's network. Nothing runs or is written before `prepare` and `start`.

    The BMC process dies with the thread that calls `start`, and the machines with it.
    """

    def __init__(
        self,
        description: RackDescription,
        *,
        network: LabNetwork,
        tools: Tools,
        directory: Path,
        accelerator: Accelerator = "tcg",
        arm64_tools: Tools | None = None,
    ) -> None:
        self.description = description
        self.accelerator: Accelerator = accelerator
        self.directory = directory.absolute()
        self._network = network
        self._tools = tools
        command = [
            sys.executable,
            "-m",
            "lab.bmc.rack_of_bmcs",
            str(self.directory),
            "--tools",
            str(tools.root),
            "--accelerator",
            accelerator,
            *([f"--arm64-tools={arm64_tools.root}"] if arm64_tools else []),
        ]
        self._process = LabProcess("bmc", network.command(command), self.directory / "bmc.log")

    @property
    def bmc_addresses(self) -> tuple[IPv4Address, ...]:
        """What LabNetwork.create must put on the loopback interface."""
        return tuple(server.bmc_address for server in self.description.servers)

    @property
    def taps(self) -> tuple[str, ...]:
        """What LabNetwork.create must put on the bridge."""
        behind = {server.host for server in self.description.servers if server.proxies_boot}
        return tuple(tap_name(server.name) for server in self.description.servers if server.name not in behind)

    @property
    def cables(self) -> tuple[tuple[str, str], ...]:
        """Between DPUs and the servers that boot through them, for LabNetwork.create."""
        return tuple(
            (tap_name(dpu.host), host_port_tap_name(dpu.name))
            for dpu in self.description.servers
            if dpu.proxies_boot and dpu.host is not None
        )

    @property
    def firmwares(self) -> dict[str, str]:
        """BIOS or UEFI, per server."""
        return {server.name: server.machine.firmware for server in self.description.servers}

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.running

    def files(self, server: str) -> MachineFiles:
        """Console, sockets and logs of a server."""
        return MachineFiles(directory=self.directory / server)

    def prepare(self, now: datetime) -> None:
        """Write the rack's description, make the BMCs' certificates and the TPMs; run again, both stay.

        A TPM takes about 2 s. Raises: NeedsHuman if one cannot be made.
        """
        for server in self.description.servers:
            obtain_certificate(self.directory / server.name, server.name, server.bmc_address, now)
        with ThreadPoolExecutor(max_workers=_TPMS_AT_ONCE) as at_once:
            list(at_once.map(self._manufacture_tpm, self.description.servers))
        path = self.directory / RACK_FILE
        path.touch(mode=0o600)
        path.write_text(json.dumps(to_json(self.description), indent=1))

    def _manufacture_tpm(self, server: VirtualServer) -> None:
        if server.machine.has_tpm:
            manufacture_tpm(server.name, self.files(server.name), self.directory / TPM_AUTHORITY, self._tools)

    def start(self) -> None:
        """Start the BMCs, with the servers off; returns when they answer. Raises: NeedsHuman with their log."""
        self._process.start()
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                ask_bmcs(self.directory, {})
                return
            except OSError as error:
                if self._process.running and time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                self._process.kill()
                raise NeedsHuman(
                    f"the BMCs of rack {self.description.name} did not start: {error}\n{self._process.log_tail()}",
                    hint=f"read {self._process.log}",
                ) from error

    def stop(self) -> None:
        """Stop the BMCs and with them the servers. Absent is fine."""
        self._process.stop()

    def kill(self) -> None:
        """End BMCs and servers at once, as if the rack's power feed failed."""
        self._process.kill()

    def inject(self, server: str, fault: Fault, *, seconds: float = 0.0) -> None:
        """See `inject_fault`."""
        inject_fault(self.directory, server, fault, seconds=seconds)

    def packing_list(self) -> str:
        """The rack as a vendor's packing list (CSV), without passwords and certificates (`bmc_secret`, `servers`).
        Needs `prepare`."""
        out = io.StringIO()
        writer = csv.DictWriter(out, fieldnames=PACKING_LIST_COLUMNS, lineterminator="\n")
        writer.writeheader()
        for server in self.description.servers:
            machine = server.machine
            writer.writerow(
                {
                    "rack": self.description.name,
                    "position": server.position,
                    "serial": machine.serial,
                    "uuid": machine.uuid,
                    "architecture": machine.architecture,
                    "mac": machine.mac,
                    "bmc_address": str(server.bmc_address),
                    "bmc_credentials": self.description.credentials_name,
                    "dpu_of": server.host or "",
                    "ek_sha256": self._endorsement_key(server) or "",
                }
            )
        return out.getvalue()

    def _endorsement_key(self, server: VirtualServer) -> str | None:
        return endorsement_key_sha256(self.files(server.name)) if server.machine.has_tpm else None

    def endorsement_authorities(self) -> str:
        """PEM of the CA that certified the TPMs' endorsement keys, as a vendor publishes it. Needs `prepare`."""
        return endorsement_authorities(self.directory / TPM_AUTHORITY)

    def bmc_of(self, server: str) -> dict[str, Any]:
        """`spec.bmc` of a server, with its pinned certificate. Needs `prepare`."""
        found = next(entry for entry in self.description.servers if entry.name == server)
        port = "" if self.description.bmc_port == 443 else f":{self.description.bmc_port}"
        return {
            "address": f"https://{found.bmc_address}{port}",
            "protocol": "Redfish",
            "credentialsName": self.description.credentials_name,
            "certificate": (self.directory / server / "bmc.pem").read_text(),
            "bootMethod": found.boot_method,
        }

    def bmc_secret(self, namespace: str = BMC_SECRETS) -> dict[str, Any]:
        """The Secret with the credentials of the rack's BMCs."""
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.description.credentials_name, "namespace": namespace},
            "type": "Opaque",
            "stringData": {"username": self.description.username, "password": self.description.password.reveal()},
        }

    def servers(self, node_pool: str | None = None, dpu_pool: str | None = None) -> list[dict[str, Any]]:
        """The servers as objects, accepted, for `rack register` or `kubectl apply`. Needs `prepare`."""
        pools = {server.name: dpu_pool if server.host else node_pool for server in self.description.servers}
        keys = {server.name: self._endorsement_key(server) for server in self.description.servers}
        return [
            {
                "apiVersion": "provisioner.dev/v1alpha1",
                "kind": "Server",
                "metadata": {"name": server.name},
                "spec": {
                    "rackRef": self.description.name,
                    "position": server.position,
                    "serialNumber": server.machine.serial,
                    "systemUUID": server.machine.uuid,
                    "architecture": server.machine.architecture,
                    "bootMACAddress": server.machine.mac,
                    "bmc": self.bmc_of(server.name),
                    **({"nodePoolRef": pools[server.name]} if pools[server.name] else {}),
                    **({"dpu": _dpu(server)} if server.host else {}),
                    **({"endorsementKeySHA256": keys[server.name]} if keys[server.name] else {}),
                    "acceptance": "Accepted",
                },
            }
            for server in self.description.servers
        ]


def _dpu(server: VirtualServer) -> dict[str, Any]:
    return {"hostRef": server.host, **({"hostBoot": "Proxied"} if server.proxies_boot else {})}


PACKING_LIST_COLUMNS: Final = (
    *("rack", "position", "serial", "uuid", "architecture", "mac"),
    *("bmc_address", "bmc_credentials", "dpu_of", "ek_sha256"),
)


def inject_fault(rack_directory: Path, server: str, fault: Fault, *, seconds: float = 0.0) -> None:
    """Cut a server's power, press its reset button, make its BMC slow or unavailable, or healthy again.

    Raises: ValueError if there is no such server or fault; OSError if the BMCs do not run.
    """
    answer = ask_bmcs(rack_directory, {"server": server, "fault": fault, "seconds": seconds})
    if "error" in answer:
        raise ValueError(answer["error"])


def ask_bmcs(rack_directory: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """One request to the control socket of a rack's BMC process (see bmc.carry_out). Raises: OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_START_SECONDS)
        connection.connect(str(rack_directory / CONTROL_SOCKET))
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as lines:
            return dict(json.loads(lines.readline()))
