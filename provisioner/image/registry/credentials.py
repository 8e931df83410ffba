"""Names and passwords for registries, from the file that `docker login` and `podman login` write."""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from provisioner.api.machinery.documents import Unreadable, read_json
from provisioner.api.machinery.errors import NeedsHuman, NotFound, Refused
from provisioner.api.machinery.values import Secret
from provisioner.image.tools.private_files import must_be_private

MAX_BYTES: Final = 1 << 20
_DOCKER_HUB: Final = frozenset({"docker.io", "index.docker.io", "registry-1.docker.io", "registry.hub.docker.com"})
_LOGIN: Final = "make it with podman login --authfile FILE HOST, or docker login"


@dataclass(frozen=True)
class RegistryCredentials:
    """What a registry knows the caller by. `identity_token`: given in place of a password by some registries."""

    username: str
    password: Secret
    identity_token: Secret | None = None

    def basic(self) -> Secret:
        """The value of an Authorization header."""
        pair = f"{self.username}:{self.password.reveal()}".encode()
        return Secret("Basic " + base64.b64encode(pair).decode())


def _usual_file() -> Path:
    """Where docker keeps it."""
    folder = os.environ.get("DOCKER_CONFIG")
    return (Path(folder) if folder else Path.home() / ".docker") / "config.json"


def read_credentials(host: str, file: Path | None, repository: str = "") -> RegistryCredentials | None:
    """What `file` has for `repository` of the registry at `host` (with its port), else for the registry; None if it has
    nothing: the registry may be public.

    Without `file`, docker's own is looked at, if it is there.
    Raises: NotFound for a file that was named and is not there; NeedsHuman if others may read it, or it hands out
    passwords by a program; Refused if it cannot be read.
    """
    found = _usual_file() if file is None else file
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
    entry = _entry(body, host, repository)
    if entry is None:
        return None
    must_be_private("registry configuration", found, mode)
    return _credentials(entry, host, found)


def _entry(body: Mapping[str, Any], host: str, repository: str) -> Mapping[str, Any] | None:
    """Keys are a host, as docker and oras write it, or a host with the beginning of a repository's name, as podman and
    skopeo do; each of them perhaps as a URL, with a version behind it. The longest that fits counts."""
    auths = body.get("auths")
    entries = auths if isinstance(auths, dict) else {}
    hosts = _DOCKER_HUB if host.lower() in _DOCKER_HUB else {host.lower()}
    parts = repository.split("/") if repository else []
    places = ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]
    fitting = {place: [key for key in entries if _place(key) in {(each, place) for each in hosts}] for place in places}
    for place in places:
        # Of several forms of one place the plain one is the newest: others are of older versions.
        for key in sorted(fitting[place], key=lambda key: ("://" in key, key)):
            if isinstance(entry := entries[key], dict) and entry:
                return entry
    helpers = body.get("credHelpers")
    by_host = helpers if isinstance(helpers, dict) else {}
    program = next((by_host[key] for key in by_host if _place(key)[0] in hosts), None) or (
        body.get("credsStore") if any(fitting.values()) else None
    )
    if program:
        raise NeedsHuman(
            f"docker's configuration has the password of {host} handed out by a program, "
            f"docker-credential-{str(program)[:60]}, which is not run here",
            hint="name a file with the password in it: --registry-config FILE, made by podman login --authfile FILE",
        )
    return None


def _place(key: str) -> tuple[str, str]:
    """Host and repository that a key names."""
    rest = key.partition("://")[2] if "://" in key else key
    host, _, path = rest.partition("/")
    return host.lower(), re.sub(r"^v[12](?=/|$)/?", "", path).strip("/")


def _credentials(entry: Mapping[str, Any], host: str, file: Path) -> RegistryCredentials:
    username, password, token = entry.get("username"), entry.get("password"), entry.get("identitytoken")
    if auth := entry.get("auth"):
        try:
            username, _, password = base64.b64decode(str(auth), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            # Without the cause, which may hold a part of the password.
            raise Refused(f"registry configuration {file}: auth of {host} is no base64", hint=_LOGIN) from None
    if not username or not (password or token):
        raise Refused(f"registry configuration {file} has no name and password for {host}", hint=_LOGIN)
    return RegistryCredentials(
        str(username).rstrip("\0"), Secret(str(password or "").strip("\0")), Secret(str(token)) if token else None
    )
