"""Which PCI devices of this machine are BlueField cards."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PCI_DEVICES: Final = Path("/sys/bus/pci/devices")
VENDOR: Final = "0x15b3"
MODELS: Final = {"0xa2d6": "BlueField-2", "0xa2dc": "BlueField-3"}
"""By device id, of the network controller in them. Source: Linux, mlx5_core_pci_table in
drivers/net/ethernet/mellanox/mlx5/core/main.c; the same in pci.ids."""
MOST_CARDS: Final = 8
_MOST_DEVICES: Final = 4096
_ADDRESS: Final = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-7]\Z")
_LONGEST_ID_BYTES: Final = 16


@dataclass(frozen=True)
class BlueField:
    """A card. address: of its first function, by which the tools know it: 0000:03:00.0."""

    address: str
    model: str


def find_bluefields(devices: Path = PCI_DEVICES) -> tuple[BlueField, ...]:
    """Each card once, by the first of its functions; at most `MOST_CARDS`.

    A machine without a PCI bus has none. Raises: OSError if the bus cannot be read.
    """
    found: dict[str, BlueField] = {}
    try:
        names = sorted(each.name for each in devices.iterdir())[:_MOST_DEVICES]
    except FileNotFoundError:
        return ()
    for name in names:
        address = _ADDRESS.match(name)
        if address is None or _read_id(devices / name / "vendor") != VENDOR:
            continue
        model = MODELS.get(_read_id(devices / name / "device"))
        if model is not None:
            found.setdefault(address[1], BlueField(name, model))
    return tuple(found.values())[:MOST_CARDS]


def _read_id(path: Path) -> str:
    """Nothing of a device that has just gone. Raises: OSError."""
    try:
        with path.open("rb") as stream:
            return stream.read(_LONGEST_ID_BYTES).decode("ascii", "replace").strip().lower()
    except FileNotFoundError:
        return ""
