"""Whom the cluster believes: the ConfigMap `provisioner-image-trust` of provisioner-system, as text. Pure.

    image.pub   public keys of signify, one after the other, four at most
    revoked     a line for each Image that must not boot again: its digest, a blank, why

Who may write this ConfigMap decides what boots; who publishes Images need not be able to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished.sign import PublicKeys

NAME: Final = "provisioner-image-trust"
KEYS: Final = "image.pub"
REVOKED: Final = "revoked"
MOST_REVOKED: Final = 4096
MOST_REASON: Final = 160
"""Characters: 4096 lines of them stay below the mebibyte that a ConfigMap may have."""
_LINE: Final = re.compile(r"(sha256:[0-9a-f]{64}) (\S[^\n]{0,159})")


@dataclass(frozen=True)
class Trust:
    """Whose images boot. keys: None if nobody has said so. revoked: why, by digest."""

    keys: PublicKeys | None = None
    revoked: Mapping[Sha256Digest, str] = field(default_factory=dict)


def parse_trust(data: Mapping[str, str]) -> Trust:
    """The `data` of the ConfigMap. Raises: Refused if a part of it cannot be read: a typo must not let anything in."""
    unknown = sorted(set(data) - {KEYS, REVOKED})
    if unknown:
        raise Refused(
            f"ConfigMap '{NAME}' has the key {unknown[0][:60]!r}, which means nothing", hint=f"use {KEYS} and {REVOKED}"
        )
    keys = PublicKeys.decode(data[KEYS]) if KEYS in data else None
    return Trust(keys, _parse_revoked(data.get(REVOKED, "")))


def add_revoked(text: str, digest: Sha256Digest, reason: str) -> str:
    """The part `revoked` with one more line; as it was if the digest is there already.

    Raises: Refused for a reason that is no line of 1 to 160 characters, or if the list is full.
    """
    if digest in _parse_revoked(text):
        return text
    line = f"{digest} {reason}"
    if not _LINE.fullmatch(line) or not reason.isprintable():
        raise Refused(
            f"the reason {reason[:80]!r} is no line of 1 to {MOST_REASON} characters", hint="say it shorter, in words"
        )
    added = f"{text}{line}\n"
    _parse_revoked(added)
    return added


def _parse_revoked(text: str) -> dict[Sha256Digest, str]:
    lines = text.splitlines()
    if len(lines) > MOST_REVOKED:
        raise Refused(
            f"ConfigMap '{NAME}' revokes {len(lines)} images, more than {MOST_REVOKED}",
            hint="take out those whose key is no longer in image.pub: they are refused anyway",
        )
    found: dict[Sha256Digest, str] = {}
    for number, line in enumerate(lines, start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise Refused(
                f"line {number} of '{REVOKED}' in ConfigMap '{NAME}', {line[:80]!r}, is not a digest and a reason",
                hint="sha256:<64 hexadecimal digits>, a blank, why: provisioner image revoke writes it so",
            )
        found[Sha256Digest(match[1])] = match[2]
    return found
