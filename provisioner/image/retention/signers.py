"""Which key signed each Image, and what still names it: what one must know to exchange a key, or when one is stolen.

Pure. The number of the key is what the signature says of itself; who verifies with the key knows whether it is so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.api.machinery.errors import Refused
from provisioner.image.finished.sign import signing_key_number
from provisioner.image.retention.references import images_named

UNREADABLE = "unreadable"


@dataclass
class SignedBy:
    """One Image. `key`: number of the key in hexadecimal. Names of what boots it, has booted it, or is to."""

    key: str
    image: str
    digest: str
    named_by: dict[str, set[str]] = field(default_factory=dict)

    def count(self, kind: str) -> int:
        return len(self.named_by.get(kind, ()))


def find_signers(images: Iterable[Mapping[str, Any]], others: Iterable[Mapping[str, Any]]) -> list[SignedBy]:
    """Each Image with its key, by key and name. `others`: Servers, NodePools and Maintenances."""
    found = [
        SignedBy(_key_of(body), body["metadata"]["name"], str((body.get("spec") or {}).get("digest")))
        for body in images
    ]
    by_name = {entry.image: entry for entry in found} | {entry.digest: entry for entry in found}
    for body in others:
        kind, name = str(body["kind"]), str(body["metadata"]["name"])
        for named, _ in images_named(kind, body):
            if named in by_name:
                by_name[named].named_by.setdefault(kind, set()).add(name)
    return sorted(found, key=lambda entry: (entry.key, entry.image))


def _key_of(body: Mapping[str, Any]) -> str:
    try:
        return signing_key_number(str((body.get("spec") or {}).get("signature"))).hex()
    except Refused:
        return UNREADABLE
