"""Files with secrets: their owner alone reads them, and no key is overwritten."""

from __future__ import annotations

import os
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman, Refused
from provisioner.api.machinery.values import Secret


def must_be_private(what: str, file: Path, mode: int) -> None:
    """Raises: NeedsHuman if others may read `file`, whose mode that is. `what`: what people call it."""
    if mode & 0o077:
        raise NeedsHuman(f"{what} {file} can be read by others (mode {mode & 0o777:04o})", hint=f"chmod 600 {file}")


def write_key_pair(secret_file: Path, secret: Secret, public_file: Path, public: bytes) -> None:
    """The secret one with mode 0600. Raises: Refused if one of both exists: a key is never overwritten."""
    for existing in (secret_file, public_file):
        if existing.exists():
            raise Refused(f"{existing} exists", hint="name another folder; a key in use is never overwritten")
    secret_file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(secret_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secret.reveal())
    public_file.write_bytes(public)
