"""A virtual rack, described: its servers and where their BMCs are; and the JSON in which the BMC process reads it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address
from typing import Any, Final, Literal

from lab.machine.machine import Accelerator, MachineSpec
from provisioner.api.machinery.values import Secret, parse_mac
from provisioner.api.servers.server import BootMethod

ServerKind = Literal["BIOS", "UEFI", "PlainUEFI", "DPU", "ProxyDPU"]
"""A server by its firmware, PlainUEFI without a TPM; or a DPU: an arm64 machine with UEFI, in the server that is
described before it. Through a ProxyDPU that server boots, and has no other way."""
DPU_KINDS: Final[tuple[ServerKind, ...]] = ("DPU", "ProxyDPU")
BMC_NETWORK_START: Final = IPv4Address("10.90.0.10")
BMC_PORT: Final = 443
MEASURED_KINDS: Final[tuple[ServerKind, ...]] = ("UEFI",)
"""Whose firmware measures what it starts into a TPM, and whose system sees that TPM."""
_PATIENT_ATTEMPTS: Final = 20
"""Of a server whose DPU has to boot first. Firmware of real servers tries for ever."""


@dataclass(frozen=True, kw_only=True)
class VirtualServer:
    """One server of the rack: the machine, its place, and its BMC."""

    machine: MachineSpec
    position: str
    bmc_address: IPv4Address
    boot_method: BootMethod = "Pxe"
    """How its BMC is to be told to boot."""
    host: str | None = None
    """Name of the server in which it sits, of a DPU."""
    proxies_boot: bool = False
    """Whether that server boots through it."""

    @property
    def name(self) -> str:
        return self.machine.name


@dataclass(frozen=True, kw_only=True)
class RackDescription:
    """A rack of virtual servers. `password` is that of every BMC, for user `username`."""

    name: str
    servers: tuple[VirtualServer, ...]
    username: str
    password: Secret
    bmc_port: int = BMC_PORT

    @property
    def credentials_name(self) -> str:
        """Name of the Secret with the BMCs' user name and password."""
        return f"{self.name}-bmc"


def processors_of_each(servers: int, accelerator: Accelerator, cores: int) -> int:
    """Two; but one where they are emulated by too few cores of this machine: they would wait for one another."""
    return 2 if accelerator == "kvm" or 2 * servers <= cores else 1


def describe_rack(
    password: Secret,
    *,
    name: str = "r01",
    kinds: tuple[ServerKind, ...] = ("BIOS", "UEFI"),
    boot_methods: Mapping[int, BootMethod] | None = None,
    memory_mib: int = 1024,
    cpus: int = 2,
    tpms: Collection[ServerKind] = MEASURED_KINDS,
) -> RackDescription:
    """A rack with one server for each of `kinds`: `r01-u01`, `r01-u02`…, at BMC addresses 10.90.0.11, .12… A DPU that
    comes first sits in `r01-host`, which is not part of the rack.

    Raises: ValueError for a rack that cannot be.

    `tpms`: the kinds that have a TPM. With a BIOS, or in a virtual DPU, one would prove no image: nothing measures the
    kernel there (docs/attestation.md).
    `boot_methods` says for a unit (1, 2…) how it is booted if not by PXE. The same arguments give the same rack:
    MAC addresses, serial numbers and UUIDs are computed from rack and unit.
    """
    if not 1 <= len(kinds) <= 99:
        raise ValueError(f"a virtual rack has 1 to 99 servers, not {len(kinds)}")
    if lonely := [
        unit for unit, kind in enumerate(kinds, start=1) if kind == "ProxyDPU" and kinds[: unit - 1][-1:] != ("UEFI",)
    ]:
        raise ValueError(
            f"u{lonely[0]:02d} is a ProxyDPU: what boots through it is the UEFI server named just before it"
        )
    servers = []
    host = f"{name}-host"
    for unit, kind in enumerate(kinds, start=1):
        digest = _stable_bytes(f"{name}-u{unit:02d}")
        is_dpu, proxies = kind in DPU_KINDS, kind == "ProxyDPU"
        machine = MachineSpec(
            name=f"{name}-u{unit:02d}",
            architecture="arm64" if is_dpu else "x86_64",
            firmware="BIOS" if kind == "BIOS" else "UEFI",
            mac=parse_mac("525400" + digest[:2].hex() + f"{unit:02x}"),
            uuid=f"{digest[2:6].hex()}-{digest[6:8].hex()}-4{digest[8:10].hex()[1:]}-8{digest[10:12].hex()[1:]}-{digest[12:18].hex()}",
            serial=f"LAB{digest[18:22].hex().upper()}",
            memory_mib=memory_mib,
            cpus=cpus,
            host_port_mac=parse_mac("525401" + digest[:2].hex() + f"{unit:02x}") if proxies else None,
            has_tpm=kind in tpms,
            boot_attempts=_PATIENT_ATTEMPTS if kinds[unit : unit + 1] == ("ProxyDPU",) else 1,
        )
        servers.append(
            VirtualServer(
                machine=machine,
                position=f"u{unit:02d}",
                bmc_address=BMC_NETWORK_START + unit,
                boot_method=(boot_methods or {}).get(unit, "Pxe"),
                host=host if is_dpu else None,
                proxies_boot=proxies,
            )
        )
        if not is_dpu:
            host = machine.name
    return RackDescription(name=name, servers=tuple(servers), username="provisioner", password=password)


def _stable_bytes(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def to_json(rack: RackDescription) -> dict[str, Any]:
    """For the BMC process; contains the password."""
    servers = [
        {
            "machine": asdict(server.machine),
            "position": server.position,
            "bmcAddress": str(server.bmc_address),
            "bootMethod": server.boot_method,
            "host": server.host,
            "proxiesBoot": server.proxies_boot,
        }
        for server in rack.servers
    ]
    return {
        "name": rack.name,
        "servers": servers,
        "username": rack.username,
        "password": rack.password.reveal(),
        "bmcPort": rack.bmc_port,
    }


def from_json(data: Mapping[str, Any]) -> RackDescription:
    """The inverse of `to_json`."""
    return RackDescription(
        name=data["name"],
        servers=tuple(
            VirtualServer(
                machine=MachineSpec(**server["machine"]),
                position=server["position"],
                bmc_address=IPv4Address(server["bmcAddress"]),
                boot_method=server["bootMethod"],
                host=server["host"],
                proxies_boot=server["proxiesBoot"],
            )
            for server in data["servers"]
        ),
        username=data["username"],
        password=Secret(data["password"]),
        bmc_port=data["bmcPort"],
    )
