"""The first-stage programs: found among Debian's iPXE, laid out for TFTP and HTTP boot with our script beside them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman

X64_FILE: Final = "snponly.efi"
"""On the firmware's own network driver."""
ARM64_FILE: Final = "ipxe-arm64.efi"
BIOS_FILE: Final = "undionly.kpxe"
FIRMWARE_FILES: Final = (X64_FILE, ARM64_FILE, BIOS_FILE)

FIRST_SCRIPT: Final = "autoexec.ipxe"
"""iPXE of 2023 and later reads it from beside itself before it asks anybody anything."""

SERVED_FILES: Final = (*FIRMWARE_FILES, FIRST_SCRIPT)

_REMEDY: Final = "install the package ipxe of Debian trixie or newer, or name the folder that has its files"


def collect_firmware(sources: Sequence[Path], destination: Path, first_script: str) -> None:
    """Copy the first-stage files from the first folder of `sources` that has each, and write `first_script`.

    Nothing is touched that is already right. Raises: NeedsHuman if a file is missing, or too old to read our script.
    """
    found = {name: _find(name, sources) for name in FIRMWARE_FILES}
    contents = {name: source.read_bytes() for name, source in found.items()}
    for name in (X64_FILE, ARM64_FILE):
        # The BIOS file is compressed and cannot be looked into; it comes from the same package.
        if FIRST_SCRIPT.encode() not in contents[name]:
            raise NeedsHuman(
                f"{found[name]} is too old: it does not know {FIRST_SCRIPT} (bookworm's iPXE is of 2019)", hint=_REMEDY
            )
    destination.mkdir(parents=True, exist_ok=True)
    for name, content in {**contents, FIRST_SCRIPT: first_script.encode()}.items():
        file = destination / name
        if not file.exists() or file.read_bytes() != content:
            temporary = destination / f".{name}.{os.getpid()}"
            temporary.write_bytes(content)
            temporary.chmod(0o644)
            temporary.rename(file)


def _find(name: str, sources: Sequence[Path]) -> Path:
    for folder in sources:
        if (folder / name).is_file():
            return folder / name
    places = ", ".join(map(str, sources)) or "no folder"
    raise NeedsHuman(f"first-stage file {name} is in none of: {places}", hint=_REMEDY)
