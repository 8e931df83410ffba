"""What a build is asked for, and how it tells of itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from provisioner.image.finished.sign import PublicKey, PublicKeys, SecretKey
from provisioner.image.module_signing import ModuleKey
from provisioner.image.plan import Choices
from provisioner.image.recipe import Recipe
from provisioner.image.root import Ingredients

Report = Callable[[str, str, float], None]
"""Called when a phase has ended: its name, what came of it, and its seconds."""


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """One build.

    `key`: what signs the image; its public half alone where that is done elsewhere (docs/publishing.md): the image has
    no signature then. `also_trusted`: public keys, beside that of `key`, whose images the agent of this one stages as
    well.

    `module_key` signs kernel modules that are built here; without it they stay unsigned. `vulnerabilities`: a list of
    known ones that the gates look into. `interpreter`: the qemu-user by which programs of another architecture are
    run, if not the one that is found here.
    """

    recipe: Recipe
    choices: Choices
    ingredients: Ingredients
    key: SecretKey | PublicKey
    output: Path
    cache: Path
    force: bool = False
    interpreter: Path | None = None
    module_key: ModuleKey | None = None
    vulnerabilities: Path | None = None
    also_trusted: tuple[PublicKey, ...] = ()

    @property
    def public_key(self) -> PublicKey:
        """By which the image's own stage-1 checks it."""
        return self.key.public if isinstance(self.key, SecretKey) else self.key

    @property
    def trusted(self) -> PublicKeys:
        """Keys of the images that the agent stages. stage-1 has that of its own image, the only one it meets."""
        return PublicKeys.of(self.public_key, *self.also_trusted)


class Phases:
    """Seconds between the ends of phases."""

    def __init__(self, report: Report) -> None:
        self._report, self._last = report, time.monotonic()

    def end(self, name: str, outcome: str) -> None:
        now = time.monotonic()
        self._report(name, outcome, now - self._last)
        self._last = now
