"""Names and passwords for registries, from the file that `docker login` and `podman login` write."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from provisioner.api.documents import Unreadable, read_json
from provisioner.api.errors import NeedsHuman, NotFound, Refused
from provisioner.api.values import Secret

MAX_BYTES: Final = 1 << 20
_LOGIN: Final = "make it with podman login --authfile FILE HOST, or docker login"


@dataclass(frozen=True)
class Credentials:
    """What a registry knows the caller by. `identity_token`: given in place of a password by some registries."""

    username: str
    password: Secret
    identity_token: Secret | None = None

    def basic(self) -> Secret:
        """The value of an Authorization header."""
        pair = f"{self.username}:{self.password.reveal()}".encode()
        return Secret("Basic " + base64.b64encode(pair).decode())


def usual_file(environment: Mapping[str, str] = os.environ, home: Path | None = None) -> Path:
    """Where docker keeps it."""
    folder = environment.get("DOCKER_CONFIG")
    return (Path(folder) if folder else (home or Path.home()) / ".docker") / "config.json"


def read_credentials(host: str, file: Path | None) -> Credentials | None:
    """What `file` has for the registry at `host` (with its port); None if it has nothing: the registry may be public.

    Without `file`, docker's own is looked at, if it is there.
    Raises: NotFound for a file that was named and is not there; NeedsHuman if others may read it, or it hands out
    passwords by a program; Refused if it cannot be read.
    """
    found = usual_file() if file is None else file
    try:
        with found.open("rb") as stream:
            mode, data = os.fstat(stream.fileno()).st_mode, stream.read(MAX_BYTES + 1)
    except OSError as error:
        if file is None:
            return None
        raise NotFound(f"registry configuration {found}: {error.strerror}", hint=_LOGIN) from error
    try:
        body = read_json(data, MAX_BYTES)
    except Unreadable:
        body = None
    if not isinstance(body, dict):
        raise Refused(f"registry configuration {found} is no JSON object of at most {MAX_BYTES} bytes", hint=_LOGIN)
    entry = _entry(body, host)
    if entry is None:
        return None
    if mode & 0o077:
        raise NeedsHuman(
            f"registry configuration {found} can be read by others (mode {mode & 0o777:04o})", hint=f"chmod 600 {found}"
        )
    return _credentials(entry, host, found)


def _entry(body: Mapping[str, Any], host: str) -> Mapping[str, Any] | None:
    auths = body.get("auths")
    entries = auths if isinstance(auths, dict) else {}
    for key in (host, f"https://{host}", f"https://{host}/", f"http://{host}"):
        if isinstance(entry := entries.get(key), dict) and entry:
            return entry
    helpers = body.get("credHelpers")
    program = (helpers.get(host) if isinstance(helpers, dict) else None) or (
        body.get("credsStore") if host in entries else None
    )
    if program:
        raise NeedsHuman(
            f"docker's configuration has the password of {host} handed out by a program, "
            f"docker-credential-{str(program)[:60]}, which is not run here",
            hint="name a file with the password in it: --registry-config FILE, made by podman login --authfile FILE",
        )
    return None


def _credentials(entry: Mapping[str, Any], host: str, file: Path) -> Credentials:
    username, password, token = entry.get("username"), entry.get("password"), entry.get("identitytoken")
    if auth := entry.get("auth"):
        try:
            username, _, password = base64.b64decode(str(auth), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            # Without the cause, which may hold a part of the password.
            raise Refused(f"registry configuration {file}: auth of {host} is no base64", hint=_LOGIN) from None
    if not username or not (password or token):
        raise Refused(f"registry configuration {file} has no name and password for {host}", hint=_LOGIN)
    return Credentials(
        str(username).rstrip("\0"), Secret(str(password or "").strip("\0")), Secret(str(token)) if token else None
    )
