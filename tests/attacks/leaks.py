"""Where secrets have got to that are none of that place: files, processes, words of the API; and core dumps.

A secret is looked for as it is and as programs write it: base64 (also as a part of something longer), hexadecimal
digits, escapes of URLs. What is found is told by the secret's name and its place, never by the secret.
"""

from __future__ import annotations

import base64
import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote_from_bytes

LEAST_BYTES: Final = 8
"""A shorter one is found in anything."""
_PIECE_BYTES: Final = 1 << 20


@dataclass(frozen=True, order=True)
class Leak:
    """That a secret is in a place; `secret` is its name."""

    secret: str
    place: str


class Sought:
    """Secrets by their names. Raises: ValueError if one is too short to be told from anything else."""

    def __init__(self, secrets: Mapping[str, str | bytes]) -> None:
        if not secrets:
            raise ValueError("no secret is looked for: nothing would ever be found")
        known = {name: secret.encode() if isinstance(secret, str) else secret for name, secret in secrets.items()}
        if short := sorted(name for name, secret in known.items() if len(secret) < LEAST_BYTES):
            raise ValueError(f"secret {short[0]} has less than {LEAST_BYTES} bytes; make it longer in the test")
        self._forms = {name: written_forms(secret) for name, secret in known.items()}
        self._longest = max(len(form) for forms in self._forms.values() for form in forms)

    def in_bytes(self, data: bytes, place: str) -> set[Leak]:
        """The secrets that are in `data`."""
        return {Leak(name, place) for name, forms in self._forms.items() if any(form in data for form in forms)}

    def in_file(self, path: Path) -> set[Leak]:
        """In a file of any size; in its name, too. One that goes meanwhile has none."""
        found = self.in_bytes(str(path).encode(errors="surrogateescape"), str(path))
        try:
            with path.open("rb") as file:
                end = b""
                while piece := file.read(_PIECE_BYTES):
                    found |= self.in_bytes(end + piece, str(path))
                    end = (end + piece)[-self._longest :]
        except FileNotFoundError:
            pass
        return found

    def in_folder(self, folder: Path, *, kept: Collection[Path] = ()) -> set[Leak]:
        """In all files below a folder but those that are for it, `kept`, or lie below one of them."""
        found: set[Leak] = set()
        for path in sorted(folder.rglob("*")):
            if not any(path == each or each in path.parents for each in kept) and _is_file(path):
                found |= self.in_file(path)
        return found

    def in_processes(self, pids: Iterable[int]) -> set[Leak]:
        """In the command lines and environments of processes, which others on the machine may see."""
        found: set[Leak] = set()
        for pid in pids:
            for name in ("cmdline", "environ"):
                try:
                    data = Path(f"/proc/{pid}/{name}").read_bytes()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                found |= self.in_bytes(data, f"/proc/{pid}/{name}")
        return found


def written_forms(secret: bytes) -> tuple[bytes, ...]:
    """The secret as programs write it."""
    forms = {secret, secret.hex().encode(), secret.hex().upper().encode(), quote_from_bytes(secret, safe="").encode()}
    for before in range(3):  # what stands before it in a longer text shifts the digits
        encoded = base64.b64encode(bytes(before) + secret)
        inner = encoded[(0, 2, 3)[before] : len(encoded) - (0, 3, 2)[(before + len(secret)) % 3] or None]
        forms |= {inner, inner.translate(bytes.maketrans(b"+/", b"-_"))}
    return tuple(sorted(forms))


def secret_of_key(pem: str) -> str:
    """A line of a private key in PEM that is of that key alone: not the first, which says of which kind it is."""
    lines = pem.partition("-----BEGIN ")[2].splitlines()[1:]
    body = lines[: next(at for at, line in enumerate(lines) if line.startswith("-----END "))]
    return body[len(body) // 2]


def dumped_cores(folder: Path) -> list[Path]:
    """Core dumps below a folder: ELF files of that type."""
    found = []
    for path in sorted(folder.rglob("*core*")):
        if _is_file(path):
            with path.open("rb") as file:
                head = file.read(18)
            if head[:4] == b"\x7fELF" and head[16:18] == b"\x04\x00":
                found.append(path)
    return found


def core_bytes_allowed(pid: int) -> int | None:
    """How large a core dump of a process may be; None: as large as it likes."""
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max core file size"):
            soft = line.split()[4]
            return None if soft == "unlimited" else int(soft)
    raise AssertionError(f"/proc/{pid}/limits says nothing of core dumps")


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False
