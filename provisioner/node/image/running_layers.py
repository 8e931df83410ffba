"""The layers of the running root. One that the next image has, too, is copied from memory instead of being fetched.

Nothing here is believed: stage-1 said which device holds which layer, and the hash says what it was that was copied.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import BinaryIO

from provisioner.node.image.fetch import PartialFile
from provisioner.node.image.manifest import ImageFile

FILE = "/run/provisioner/layers"
MAX_BYTES = 8192
_LINE = re.compile(r"([0-9a-f]{64}) ([1-9][0-9]{0,14}) (/dev/loop[0-9]{1,6})")


def read_running_layers(root: str) -> dict[tuple[str, int], str]:
    """The device that each should be read from, by SHA-256 and bytes; none where stage-1 has left none."""
    try:
        with open(root + FILE, encoding="ascii", errors="replace") as file:  # noqa: PTH123
            lines = file.read(MAX_BYTES).splitlines()
    except OSError:
        return {}
    found = (_LINE.fullmatch(line) for line in lines)
    return {(match[1], int(match[2])): root + match[3] for match in found if match is not None}


def copy_layer(device: str, wanted: ImageFile, target: BinaryIO, check: Callable[[], None]) -> str:
    """Append the wanted layer to `target`, where it may lie already (from `target.tell()` on).

    Returns: why that failed, nothing of it is in `target` then; "" if it did not. Raises: what `check` raises.
    """
    part = PartialFile(wanted, target)
    if part.is_whole():
        return ""
    try:
        with open(device, "rb", buffering=0) as content:  # noqa: PTH123
            part.copy_from(content, check)
    except OSError as error:
        part.discard()
        return f"{device}: {error}"
    if part.is_whole():
        return ""
    fault = f"{device}: {part.describe()}"
    part.discard()
    return fault
