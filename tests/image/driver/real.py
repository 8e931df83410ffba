"""The real driver of images/gpu-node for Debian, from the cache that builds of images on this machine use, too."""

from __future__ import annotations

import fcntl
import hashlib
from dataclasses import dataclass
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.base import Base, build_base
from provisioner.image.driver.build import DriverTree, build_driver
from provisioner.image.driver.fingerprint import driver_fingerprint, tools_fingerprint
from provisioner.image.driver.obtain import Obtained
from provisioner.image.driver.plan import WantedDriver
from provisioner.image.inputs import base_fingerprint
from provisioner.image.mirror import choose_archives, read_sources
from provisioner.image.module_signing import ModuleKey
from provisioner.image.plan import Choices
from provisioner.image.recipe import Recipe, read_recipe
from provisioner.image.tools.foreign import find_foreign
from tests.image.samples import RECIPE
from tests.tools import CACHE, installed, missing, need_root


@dataclass(frozen=True)
class RealDriver:
    """The layer, the base that it goes over, and what it was made of."""

    recipe: Recipe
    choices: Choices
    base: Base
    tree: DriverTree
    cache: Path

    @property
    def release(self) -> str:
        return self.base.versions["kernel"]

    @property
    def obtained(self) -> Obtained:
        driver = self.recipe.driver
        assert driver is not None
        wanted = WantedDriver(choices=self.choices, source=driver.source("debian"), release=self.release)
        return Obtained(self.cache / "driver-tools" / tools_fingerprint(wanted))


def build_real(module_key: ModuleKey, cache: Path = CACHE / "image-build", name: str | None = None) -> RealDriver:
    """Build base and layer, or find them built: 5 minutes the first time on a machine with two cores."""
    need_root("make a chroot")
    installed("mmdebstrap")
    recipe = read_recipe(RECIPE)
    distribution = recipe.distribution("debian", "x86_64")
    try:
        archives = choose_archives(distribution, read_sources())
    except NeedsHuman as error:
        missing(f"a mirror of Debian ({error})", "add one to APT's sources")
    choices = Choices(architecture="x86_64", distribution=distribution, archives=archives)
    foreign = find_foreign("x86_64")
    key = base_fingerprint(recipe, choices)
    base = Base(CACHE / "image-build/base" / key)
    base.folder.parent.mkdir(parents=True, exist_ok=True)
    with (base.folder.parent / f".{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not base.folder.is_dir():
            build_base(recipe, choices, base.folder, foreign)
    layer = name or driver_fingerprint(recipe, choices, key, module_key.certificate)
    tree = build_driver(recipe, base, choices, foreign, module_key, cache / "driver" / layer, cache)
    return RealDriver(recipe, choices, base, tree, cache)


def digests(root: Path) -> dict[str, str]:
    """Every path below `root`: kind and mode, and of a file the SHA-256, of a link where it leads."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat()
        what = ""
        if path.is_symlink():
            what = str(path.readlink())
        elif path.is_file():
            what = hashlib.sha256(path.read_bytes()).hexdigest()
        found[str(path.relative_to(root))] = f"{mode.st_mode:o} {mode.st_uid}:{mode.st_gid} {what}"
    return found
