"""Where keys and certificates of boot hosts lie: keys are their owner's alone, and no certificate is half there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman, NotFound, Refused
from provisioner.api.machinery.values import Secret
from provisioner.boot.tls.issue import Authority, read_authority

AUTHORITY_CERTIFICATE: Final = "join-ca.pem"
AUTHORITY_KEY: Final = "join-ca.key"
SERVER_CERTIFICATE: Final = "join.crt"
SERVER_KEY: Final = "join.key"
LARGEST_BYTES: Final = 65536


@dataclass(frozen=True)
class ServerFiles:
    """What `provisioner boot --tls-certificate` and `--tls-key` name."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / SERVER_CERTIFICATE

    @property
    def key(self) -> Path:
        return self.folder / SERVER_KEY

    def write(self, chain_pem: str, key_pem: Secret) -> None:
        """The key first: nginx serves the former two until the new ones fit together."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(self.key, key_pem.reveal(), mode=0o600)
        write_whole(self.certificate, chain_pem, mode=0o644)


def write_authority(folder: Path, authority: Authority) -> tuple[Path, Path]:
    """Its certificate and key. Raises: Refused if there is one: an authority in use is never overwritten."""
    certificate, key = folder / AUTHORITY_CERTIFICATE, folder / AUTHORITY_KEY
    for existing in (certificate, key):
        if existing.exists():
            raise Refused(f"{existing} exists", hint="name another folder; an authority in use is never overwritten")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(key, authority.key_pem.reveal(), mode=0o600)
    write_whole(certificate, authority.pem, mode=0o644)
    return certificate, key


def read_authority_of(folder: Path) -> Authority:
    """Raises: NotFound, NeedsHuman if others may read the key, Refused."""
    return read_authority(read_text(folder / AUTHORITY_CERTIFICATE), read_key(folder / AUTHORITY_KEY))


def read_key(file: Path) -> Secret:
    """Raises: NotFound; NeedsHuman if others may read it."""
    text = Secret(read_text(file))
    mode = file.stat().st_mode
    if mode & 0o077:
        raise NeedsHuman(f"key {file} can be read by others (mode {mode & 0o777:04o})", hint=f"chmod 600 {file}")
    return text


def read_text(file: Path) -> str:
    """Raises: NotFound; Refused for what is no such file."""
    try:
        with file.open("rb") as stream:
            content = stream.read(LARGEST_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFound(f"{file} does not exist", hint="provisioner boot tls authority makes an authority") from error
    if len(content) > LARGEST_BYTES:
        raise Refused(f"{file} has more than {LARGEST_BYTES} bytes", hint="name a PEM file")
    return content.decode("ascii", errors="replace")


def write_whole(path: Path, text: str, *, mode: int) -> None:
    """Whoever reads meets the former content or the new one, never with a wider mode."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, mode)
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    new.replace(path)
