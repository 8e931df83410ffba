"""The licence of every package is recorded: who passes an image on passes these on with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from provisioner.image.gates.failure import GateFailure
from provisioner.image.gates.packages.records import Records

GATE: Final = "licences"


def check_licences(records: Records) -> Iterator[GateFailure]:
    """A package without its copyright file, and a file that was named and not kept."""
    if not records.packages:
        yield GateFailure(
            GATE, "packages", "none is known", "the packages of the root", "build the base again with --force"
        )
    for package in records.packages:
        if not package.licence_files:
            yield GateFailure(
                GATE,
                package.name,
                "no licence was recorded",
                "its usr/share/doc/<package>/copyright",
                "build the base again with --force; a package that has none does not belong into an image",
            )
        for digest in package.licence_files:
            if not records.texts.get(digest, "").strip():
                yield GateFailure(
                    GATE,
                    package.name,
                    f"its licence {digest[:12]} is empty",
                    "its text",
                    "build the base again with --force",
                )
