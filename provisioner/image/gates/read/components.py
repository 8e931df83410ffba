"""Whose each file of the root is: a package's, a program's that Go built, this project's own, the recipe's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Final

from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.read.tree import Tree, TreeEntry

OWN: Final = "provisioner"
RECIPE: Final = "recipe"
_OWN_FOLDER: Final = "usr/lib/python3/dist-packages/provisioner/"
_MODULES: Final = "usr/lib/modules/"


def components(tree: Tree, packages: Iterable[InstalledPackage]) -> dict[str, str]:
    """Path of each file or link → what it belongs to: name of a package, path of a Go module, `provisioner`, `recipe`.

    Byte-code belongs to its source's package, a list of modules to the kernel's.
    """
    owners: dict[str, str] = {}
    for package in packages:
        owners.update(dict.fromkeys(package.files, package.name))
    kernels = [owners[path] for path in owners if path.startswith(_MODULES) and path.endswith(".ko")]
    kernel = max(sorted(set(kernels)), key=kernels.count) if kernels else RECIPE
    return {
        entry.path: _component(entry, owners, kernel)
        for entry in tree.entries.values()
        if entry.kind in ("file", "link")
    }


def _component(entry: TreeEntry, owners: Mapping[str, str], kernel: str) -> str:
    path = PurePosixPath(entry.path)
    if entry.path.startswith(_OWN_FOLDER):
        return OWN
    if path.suffix == ".pyc" and path.parent.name == "__pycache__":
        source = f"{path.parent.parent}/{path.name.split('.', 1)[0]}.py"
        return owners.get(source, RECIPE)
    if entry.go is not None and entry.go.main is not None and entry.path not in owners:
        return entry.go.main.path
    if entry.path.startswith(_MODULES) and path.name.startswith("modules."):
        return kernel
    return owners.get(entry.path, RECIPE)
