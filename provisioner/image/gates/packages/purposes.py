"""Why a package is in the image: the recipe names some, those bring others along."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from provisioner.image.gates.packages.installed import InstalledPackage

ESSENTIAL: Final = "the distribution's own minimum"


def purposes(packages: Iterable[InstalledPackage], named: Mapping[str, str]) -> dict[str, str]:
    """Package → purpose: its own of those that are named, else that of the first (in `named`'s order) that needs it."""
    known = {package.name: package for package in packages}
    found = {name: purpose for name, purpose in named.items() if name in known}
    for name, purpose in list(found.items()):
        waiting = list(known[name].depends)
        while waiting:
            needed = waiting.pop(0)
            if needed in known and needed not in found:
                found[needed] = purpose
                waiting += known[needed].depends
    return {name: found.get(name, ESSENTIAL) for name in known}
