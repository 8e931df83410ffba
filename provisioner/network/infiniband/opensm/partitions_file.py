"""OpenSM's partitions file: written for one network, and recognised again. Pure.

The whole file is ours. Its first line says for which fabric it was written and what the rest's digest is: who finds
another digest knows that somebody has edited it. A file without that line is somebody else's.
Source: opensm(8), "PARTITION CONFIGURATION". OpenSM reads lines of 4096 characters at most, merges definitions of one
P_Key, and where there is no file, or a mistake in one, makes all ports full members of the default partition.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Final, Literal

from provisioner.api.machinery.errors import Refused
from provisioner.api.network.infiniband_network import VPC_PATTERN, InfiniBandNetworkSpec
from provisioner.api.network.infiniband_rules import DEFAULT_PKEY, FIRST_PKEY, GUID_PATTERN, LAST_PKEY

GUIDS_PER_LINE: Final = 64
MAX_BYTES: Final = 16 * 1024 * 1024
"""Larger than any that is written here."""

FileState = Literal["Absent", "Intact", "Changed", "Foreign"]
"""Intact: as it was written for this fabric; Changed: somebody has edited it since; Foreign: it was never ours, or is
another fabric's."""

_HEAD: Final = re.compile(
    r"# Written by `provisioner infiniband` for fabric (?P<fabric>[a-z0-9.-]{1,253}); changes are undone\. "
    r"sha256:(?P<digest>[0-9a-f]{64})\n"
)
_GUID: Final = re.compile(GUID_PATTERN)
_VPC: Final = re.compile(VPC_PATTERN)


def render(fabric: str, spec: InfiniBandNetworkSpec) -> str:
    """The file for `spec`, the same text for the same network. Raises: Refused for what would mean something else."""
    shared = (f"{guid}=full" for guid in _guids(spec.shared_guids))
    lines = list(_definitions("Default", DEFAULT_PKEY, "", ("ALL=limited", "SELF=full", *shared)))
    for partition in spec.partitions:
        if not FIRST_PKEY <= partition.pkey <= LAST_PKEY or not _VPC.fullmatch(partition.vpc):
            raise Refused(
                f"partition {partition.pkey} of {partition.vpc!r} is none of a VPC",
                hint="let the controller compile it",
            )
        flags = ", ipoib" * partition.ip_over_ib + ", defmember=full"
        lines.append(f"# {partition.vpc}")
        lines += _definitions(f"vpc-{partition.pkey:04x}", partition.pkey, flags, _guids(partition.guids))
    body = "".join(f"{line}\n" for line in lines)
    return (
        f"# Written by `provisioner infiniband` for fabric {fabric}; changes are undone. sha256:{_digest(body)}\n{body}"
    )


def file_state(fabric: str, text: str | None) -> FileState:
    """Whose the file is. None: there is none."""
    if text is None:
        return "Absent"
    head = _HEAD.match(text)
    if head is None or head["fabric"] != fabric:
        return "Foreign"
    return "Intact" if head["digest"] == _digest(text[head.end() :]) else "Changed"


def _definitions(name: str, pkey: int, flags: str, members: Iterable[str]) -> Iterator[str]:
    all_members = tuple(members)
    for at in range(0, len(all_members), GUIDS_PER_LINE):
        yield f"{name}=0x{pkey:04x}{flags} : {', '.join(all_members[at : at + GUIDS_PER_LINE])} ;"


def _guids(guids: Iterable[str]) -> Iterator[str]:
    for guid in guids:
        if not _GUID.fullmatch(guid):
            raise Refused(f"{guid!r} is no GUID of a port", hint="write 0x and 16 lower-case hexadecimal digits")
        yield guid


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
