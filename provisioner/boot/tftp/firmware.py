"""The first-stage programs: found among Debian's iPXE, laid out for TFTP and HTTP boot with our script beside them."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman

FIRMWARE_FILES: Final = ("snponly.efi", "ipxe-arm64.efi", "undionly.kpxe")
"""UEFI x64 (on the firmware's own network driver), UEFI arm64, BIOS."""

FIRST_SCRIPT: Final = "autoexec.ipxe"
"""iPXE of 2023 and later reads it from beside itself before it asks anybody anything."""

SERVED_FILES: Final = (*FIRMWARE_FILES, FIRST_SCRIPT)

_REMEDY: Final = "install the package ipxe of Debian trixie or newer, or name the folder that has its files"


def collect_firmware(sources: Sequence[Path], destination: Path, first_script: str) -> None:
    """Copy the first-stage files from the first folder of `sources` that has each, and write `first_script`.

    Nothing is touched that is already right. Raises: NeedsHuman if a file is missing, or too old to read our script.
    """
    found = {name: _find(name, sources) for name in FIRMWARE_FILES}
    for name in ("snponly.efi", "ipxe-arm64.efi"):
        # The BIOS file is compressed and cannot be looked into; it comes from the same package.
        if FIRST_SCRIPT.encode() not in found[name].read_bytes():
            raise NeedsHuman(
                f"{found[name]} is too old: it does not know {FIRST_SCRIPT} (bookworm's iPXE is of 2019)", hint=_REMEDY
            )
    destination.mkdir(parents=True, exist_ok=True)
    for name, source in found.items():
        if not (destination / name).exists() or not filecmp.cmp(source, destination / name, shallow=False):
            temporary = destination / f".{name}.{os.getpid()}"
            shutil.copyfile(source, temporary)
            temporary.chmod(0o644)
            temporary.rename(destination / name)
    script = destination / FIRST_SCRIPT
    if not script.exists() or script.read_text() != first_script:
        temporary = destination / f".{FIRST_SCRIPT}.{os.getpid()}"
        temporary.write_text(first_script)
        temporary.chmod(0o644)
        temporary.rename(script)


def _find(name: str, sources: Sequence[Path]) -> Path:
    for folder in sources:
        if (folder / name).is_file():
            return folder / name
    places = ", ".join(map(str, sources)) or "no folder"
    raise NeedsHuman(f"first-stage file {name} is in none of: {places}", hint=_REMEDY)
