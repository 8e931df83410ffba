"""Where images lie in a registry: `oci://registry.example.com:5000/site/images`, and one of them by its digest.

Source: OCI Distribution Specification 1.1, "Pulling manifests", for the alphabet of names.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest, parse_digest

SCHEME: Final = "oci://"
_MAX_NAME: Final = 255
_LABEL: Final = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST: Final = re.compile(rf"(?P<host>{_LABEL}(\.{_LABEL})*|\[[0-9a-fA-F:.]{{2,45}}\])(:(?P<port>[1-9][0-9]{{0,4}}))?")
_COMPONENT: Final = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_NAME: Final = re.compile(rf"{_COMPONENT}(/{_COMPONENT})*")
_HINT: Final = "write it as oci://registry.example.com/repository, with @sha256:… behind it for one image"


@dataclass(frozen=True)
class Repository:
    """`host`: of the registry, with its port where it has one. `name`: of the repository, such as site/images."""

    host: str
    name: str

    @property
    def hostname(self) -> str:
        """Without the port, lower case; an IPv6 address without its brackets."""
        match = _HOST.fullmatch(self.host)
        return match["host"].strip("[]").lower() if match else self.host

    @property
    def is_loopback(self) -> bool:
        """Whether what is sent to it cannot leave this machine. By its name alone: an answer of DNS proves nothing."""
        if self.hostname == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.hostname).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"{SCHEME}{self.host}/{self.name}"


@dataclass(frozen=True)
class ImageReference:
    """A repository, and the digest of an image (that of its signed manifest) where one was named."""

    repository: Repository
    digest: Sha256Digest | None = None


def parse_reference(text: str) -> ImageReference:
    """Read `oci://host[:port]/name[@sha256:…]`. Raises: Refused on anything else, without repeating a password."""
    if not text.startswith(SCHEME):
        raise Refused(f"registry {text[:200]!r} does not begin with {SCHEME}", hint=_HINT)
    rest, at, digest = text.removeprefix(SCHEME).partition("@")
    host, slash, name = rest.partition("/")
    if at and not digest.startswith("sha256:"):
        # What stands before an @ may be a user's name and password.
        raise Refused(
            "a registry's address has an @ that no digest follows",
            hint="leave user and password out: they come from docker's configuration file (--registry-config)",
        )
    match = _HOST.fullmatch(host)
    if match is None or int(match["port"] or 1) > 65535 or not _is_address_or_name(match["host"]):
        raise Refused(f"registry {text[:200]!r} has no host", hint=_HINT)
    if not slash or len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        tagged = ":" in name
        raise Refused(
            f"registry {text[:200]!r} has {'a tag' if tagged else 'no name of a repository'}",
            hint="leave the tag out: images are named by digest" if tagged else _HINT,
        )
    return ImageReference(Repository(host.lower(), name), parse_digest(digest) if at else None)


def parse_repository(text: str) -> Repository:
    """The same, of an address that names no image. Raises: Refused."""
    reference = parse_reference(text)
    if reference.digest is not None:
        raise Refused(f"registry {text[:200]!r} names an image", hint="leave the digest out here")
    return reference.repository


def _is_address_or_name(host: str) -> bool:
    if not host.startswith("["):
        return True
    try:
        return isinstance(ipaddress.ip_address(host.strip("[]")), ipaddress.IPv6Address)
    except ValueError:
        return False
