"""What hardware the kernel sees, from sysfs and procfs below a root; keys as `provisioner.api.nodes.facts` names them.

A file that is missing or says nonsense leaves its fact out: broken hardware must not silence the rest.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from provisioner.node.machine.numa import memory_bytes, read_list
from provisioner.node.machine.sysfs.files import names_in, read_text

MOST_NICS = 32
MOST_DISKS = 32
MOST_PCI_FUNCTIONS = 64
MOST_INFINIBAND_PORTS = 32

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NO_DISK = re.compile(r"(loop|ram|zram|sr|fd|dm-|md|nbd)\d*")
_PCI_CLASSES = ("03", "02")
"""Display (GPUs among them) before network controllers: what is cut from a list that is too long is the end."""


def hardware_facts(root: str) -> dict[str, Any]:
    """Processors, memory, product, interfaces, disks, PCI functions and InfiniBand ports below `root`."""
    sys = Path(f"{root}/sys")
    dmi = sys / "class/dmi/id"
    return {
        "vendor": read_text(dmi / "sys_vendor") or None,
        "product": read_text(dmi / "product_name") or None,
        "cpus": len(read_list(f"{root}/sys/devices/system/cpu/online")),
        "memoryBytes": memory_bytes(f"{root}/proc/meminfo", "MemTotal"),
        "nics": _nics(sys)[:MOST_NICS],
        "disks": _disks(sys)[:MOST_DISKS],
        "pci": _pci_functions(sys)[:MOST_PCI_FUNCTIONS],
        "infinibandPorts": _infiniband_ports(sys)[:MOST_INFINIBAND_PORTS],
    }


def _nics(sys: Path) -> list[dict[str, Any]]:
    nics = []
    for folder in _folders(sys / "class/net"):
        device = folder / "device"
        mac = read_text(folder / "address")
        if not device.exists() or not mac or (device / "physfn").exists():
            continue  # made of software, or a virtual function, of which a card can have hundreds
        speed = _number(folder / "speed")
        nics.append(
            _told(
                name=folder.name,
                macAddress=mac.lower(),
                pciAddress=_pci_address(device),
                driver=_driver(device),
                speedMbps=speed if speed and speed > 0 else None,
            )
        )
    return nics


def _disks(sys: Path) -> list[dict[str, Any]]:
    disks = []
    for folder in _folders(sys / "block"):
        sectors = _number(folder / "size")
        if sectors and not _NO_DISK.fullmatch(folder.name) and (folder / "device").exists():
            # Sectors of sysfs have 512 bytes, whatever those of the disk have.
            model = read_text(folder / "device/model") or None
            disks.append(_told(name=folder.name, sizeBytes=sectors * 512, model=model))
    return disks


def _pci_functions(sys: Path) -> list[dict[str, Any]]:
    functions = []
    for folder in _folders(sys / "bus/pci/devices"):
        class_id = read_text(folder / "class").removeprefix("0x")[:4]
        if class_id[:2] in _PCI_CLASSES and not (folder / "physfn").exists():
            functions.append(
                _told(
                    address=folder.name,
                    vendorID=read_text(folder / "vendor").removeprefix("0x").lower(),
                    deviceID=read_text(folder / "device").removeprefix("0x").lower(),
                    classID=class_id.lower(),
                    driver=_driver(folder),
                )
            )
    return sorted(functions, key=lambda found: (_PCI_CLASSES.index(found["classID"][:2]), found["address"]))


def _infiniband_ports(sys: Path) -> list[dict[str, Any]]:
    ports = []
    for device in _folders(sys / "class/infiniband"):
        for port in _folders(device / "ports"):
            state = read_text(port / "state")
            if not port.name.isdigit() or not state:
                continue
            rate = re.match(r"[0-9]+", read_text(port / "rate"))
            ports.append(
                _told(
                    device=device.name,
                    port=int(port.name),
                    state=state.rpartition(":")[2].strip(),
                    rateGbps=int(rate[0]) if rate else None,
                    linkLayer=read_text(port / "link_layer") or None,
                )
            )
    return ports


def _told(**facts: Any) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value is not None}


def _folders(parent: Path) -> list[Path]:
    return [parent / name for name in names_in(parent)]


def _pci_address(device: Path) -> str | None:
    """The nearest PCI function above: a virtio device hangs below one."""
    for name in reversed(Path(os.path.realpath(device)).parts):
        if _PCI_ADDRESS.fullmatch(name):
            return name
    return None


def _driver(device: Path) -> str | None:
    link = device / "driver"
    return os.path.basename(os.path.realpath(link)) if link.exists() else None  # noqa: PTH119


def _number(file: Path) -> int | None:
    try:
        return int(read_text(file))
    except ValueError:
        return None
