"""What an image depends on, as one digest: the same inputs need not be built again."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.image.plan import Choices
from provisioner.image.recipe import Recipe
from provisioner.image.root import agent_files
from provisioner.image.toolkit.build import fingerprint as toolkit_fingerprint
from provisioner.image.tools.tables import names_of

if TYPE_CHECKING:
    from provisioner.image.request import BuildRequest

_BASE_CODE = (
    "base.py",
    "gates/packages/installed.py",
    "gates/packages/records.py",
    "plan.py",
    "recipe.py",
    "tools/cache.py",
    "tools/command.py",
    "tools/foreign.py",
    "tools/modules.py",
    "tools/tables.py",
)
_HERE = Path(__file__).parent


class Fingerprint:
    """A digest of named things, each with its length, so that no two lists of inputs look alike."""

    def __init__(self, purpose: str) -> None:
        self._hash = hashlib.sha256()
        self.add("purpose", purpose.encode())

    def add(self, name: str, content: bytes) -> None:
        for part in (name.encode(), content):
            self._hash.update(len(part).to_bytes(8, "big"))
            self._hash.update(part)

    def add_file(self, name: str, file: Path) -> None:
        """Content, and whether the owner may execute it."""
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").digest()
        self.add(name, digest + (b"x" if file.stat().st_mode & 0o100 else b"-"))

    def add_files(self, folder: Path, files: Iterable[Path]) -> None:
        for file in sorted(files):
            if file.is_symlink():
                self.add(str(file.relative_to(folder)), str(file.readlink()).encode())
            elif file.is_file():
                self.add_file(str(file.relative_to(folder)), file)

    def add_code(self, folder: Path, names: Iterable[str]) -> None:
        """Modules by their paths in `folder`. Raises: FileNotFoundError for one that has moved: it would not count."""
        for name in sorted(names):
            self.add_file(name, folder / name)

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def base_fingerprint(recipe: Recipe, choices: Choices) -> str:
    """Inputs of the base: packages, archives, what is removed, modules, and the code that does it."""
    fingerprint = Fingerprint("base")
    root = recipe.root
    for name, value in (
        ("choices", choices),
        ("packages", root.packages),
        ("remove", names_of(root.drop)),
        ("kept", names_of(root.keep)),
        ("modules", root.modules),
        ("stage1 modules", recipe.stage1_modules),
        ("epoch", recipe.source_date_epoch),
    ):
        fingerprint.add(name, repr(value).encode())
    fingerprint.add_code(_HERE, _BASE_CODE)
    return fingerprint.hexdigest()


def image_fingerprint(request: BuildRequest, base: str) -> str:
    """Inputs of the image: the base, recipe and trees, agent, kubelet, join CA, keys, and the code of the builder."""
    fingerprint, recipe, ingredients = Fingerprint("image"), request.recipe, request.ingredients
    fingerprint.add("base", base.encode())
    fingerprint.add("architecture", request.choices.architecture.encode())
    fingerprint.add("key", request.public_key.encode().encode())
    fingerprint.add("trusted keys", request.trusted.encode().encode())
    fingerprint.add("module key", request.module_key.certificate if request.module_key is not None else b"")
    fingerprint.add_file("kubelet", ingredients.kubelet)
    fingerprint.add_file("join CA", ingredients.join_ca)
    if request.vulnerabilities is not None:
        fingerprint.add_file("vulnerabilities", request.vulnerabilities)
    if recipe.driver is not None and recipe.driver.container_toolkit:
        fingerprint.add("container toolkit", toolkit_fingerprint(request.choices.architecture).encode())
    fingerprint.add("recipe", repr(dataclasses.replace(recipe, folders=())).encode())
    fingerprint.add("pause", ingredients.pause().manifest.digest.encode())  # its compiler is in it
    for folder in recipe.folders:
        fingerprint.add_files(folder, folder.rglob("*"))
    agents = agent_files(ingredients.agent, names_of(recipe.root.agents))
    fingerprint.add_files(ingredients.agent, (ingredients.agent / file for file in agents))
    fingerprint.add_files(_HERE, _HERE.rglob("*.py"))
    return fingerprint.hexdigest()
