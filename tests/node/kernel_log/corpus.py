"""Lines of the kernel log in the formats of Linux 5.15 to 6.12, made up: a fault of each pattern, harmless twins."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent


def _fault(row: str) -> tuple[str, str, str, str, str]:
    """`COMPONENT CODE SEVERITY DEVICE | LINE`; a device that is `-` is none."""
    said, _, line = row.partition(" | ")
    component, code, severity, device = said.split()
    return line, component, code, severity, "" if device == "-" else device


FAULTS: Final = tuple(_fault(row) for row in (_FOLDER / "faults.txt").read_text().splitlines())
HARMLESS: Final = tuple((_FOLDER / "harmless.txt").read_text().splitlines())
