"""What lies over the base: the kubelet's layer, and the site's, with units, agent, join CA and the pause image."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.servers.server import Architecture
from provisioner.image.base import compile_tree
from provisioner.image.containerd.archive import PinnedArchive, read_archive
from provisioner.image.containerd.pause import PauseImage, pause_image
from provisioner.image.containerd.state import write_state
from provisioner.image.finished.sign import PublicKeys
from provisioner.image.recipe import Recipe
from provisioner.image.tools.command import clean_environment
from provisioner.image.tools.foreign import ForeignPrograms
from provisioner.image.tools.tables import names_of

PYTHON = Path("usr/lib/python3/dist-packages")
UNITS = Path("etc/systemd/system")
MOUNT_POINTS = (
    *("proc", "sys", "dev", "run", "tmp", "var/log", "var/tmp", "var/cache", "var/lib/kubelet", "var/lib/containerd"),
)


@dataclass(frozen=True, kw_only=True)
class Ingredients:
    """What goes into the root beside packages and the recipe's tree."""

    architecture: Architecture
    kubelet: Path
    join_ca: Path
    agent: Path
    """The package `provisioner` that agents are taken from."""
    pause_archive: PinnedArchive | None = None
    """The pause image, if not the one that is compiled here."""

    def pause(self) -> PauseImage:
        """What holds pods' namespaces. Raises: NeedsHuman if it cannot be compiled, or is not in the archive."""
        if self.pause_archive is not None:
            return read_archive(self.pause_archive, self.architecture)
        return pause_image(self.architecture)


def assemble_kubelet(kubelet: Path, tree: Path) -> None:
    """Fill `tree` with the kubelet's layer."""
    _install(kubelet, tree / "usr/bin/kubelet", 0o755)


def assemble_site(recipe: Recipe, lower: Path, ingredients: Ingredients, keys: PublicKeys, tree: Path) -> None:
    """Fill `tree` with what the site and this project put over packages. `lower`: the merged layers beneath, unchanged.
    `keys` check the images that the agent stages.

    Byte-code of the agents comes later (`compile_agents`), as it needs the Python that lies beneath.
    """
    tree.mkdir(parents=True, exist_ok=True)
    for each in recipe.trees("tree"):
        copy_tree(each, tree)
    _install(ingredients.join_ca, tree / "etc/provisioner/join-ca.pem", 0o644)
    (tree / "etc/provisioner/image.pub").write_text(keys.encode())
    state = tree / "usr/share/provisioner/containerd"
    state.mkdir(parents=True)
    write_state(ingredients.pause(), recipe.source_date_epoch, state)
    install_agents(ingredients.agent, names_of(recipe.root.agents), tree / PYTHON)
    _switch_units(recipe, tree, lower)
    # Empty, not missing: systemd takes the one of the kernel arguments, and does not think of it as a first boot.
    (tree / "etc/machine-id").write_text("")
    for mount_point in MOUNT_POINTS:
        if not (lower / mount_point).exists():
            (tree / mount_point).mkdir(parents=True, exist_ok=True)
    for world_writable in ("tmp", "var/tmp"):
        if not (lower / world_writable).exists():
            (tree / world_writable).chmod(0o1777)


def compile_agents(recipe: Recipe, merged: Path, tree: Path, foreign: ForeignPrograms) -> None:
    """Compile the agents in `merged`, which has the site's layer in it already, and copy the byte-code into `tree`."""
    environment = clean_environment(recipe.source_date_epoch)
    package = PYTHON / "provisioner"
    compile_tree(merged, "/" + str(package), foreign, environment)
    for compiled in sorted((merged / package).rglob("*.pyc")):
        _install(compiled, tree / compiled.relative_to(merged), 0o644)


def copy_tree(tree: Path, root: Path) -> None:
    """Copy a recipe's tree: files are 0644, or 0755 where the owner may execute them; folders 0755; all root's."""
    for source in sorted(tree.rglob("*")):
        target = root / source.relative_to(tree)
        if source.is_symlink():
            target.unlink(missing_ok=True)
            target.symlink_to(source.readlink())
        elif source.is_dir():
            target.mkdir(exist_ok=True)
        else:
            _install(source, target, 0o755 if source.stat().st_mode & 0o100 else 0o644)


def agent_files(package: Path, agents: Iterable[str]) -> list[Path]:
    """The files of the agents, relative to the package `provisioner`: all of theirs, and the `__init__` above them.

    Raises: NeedsHuman if there is no such package.
    """
    files = {Path("__init__.py")}
    for agent in agents:
        if not (package / agent / "__init__.py").is_file():
            raise NeedsHuman(f"the recipe names the agent {agent!r}, which {package} does not have", hint="correct it")
        files |= {parent / "__init__.py" for parent in Path(agent).parents}
        files |= {file.relative_to(package) for file in (package / agent).rglob("*.py")}
    return sorted(files)


def install_agents(package: Path, agents: Iterable[str], target: Path) -> None:
    """Copy the agents, so that `python3 -I -m provisioner.node` finds them."""
    for file in agent_files(package, agents):
        _install(package / file, target / "provisioner" / file, 0o644)


def _install(source: Path, target: Path, mode: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _switch_units(recipe: Recipe, tree: Path, lower: Path) -> None:
    units = tree / UNITS
    units.mkdir(parents=True, exist_ok=True)
    for target, group in recipe.root.enable:
        for unit in group.names:
            source = _unit_file(tree, lower, unit)
            link = units / f"{target}.wants" / unit
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(source)
    for unit in names_of(recipe.root.mask):
        link = units / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    (units / "default.target").unlink(missing_ok=True)
    (units / "default.target").symlink_to(_unit_file(tree, lower, recipe.root.default_target))


def _unit_file(tree: Path, lower: Path, unit: str) -> str:
    for folder in (UNITS, Path("usr/lib/systemd/system")):
        if any((root / folder / unit).exists() for root in (tree, lower)):
            return "/" + str(folder / unit)
    raise NeedsHuman(
        f"the recipe enables {unit!r}, which the root does not have", hint="correct root.enable, or add its package"
    )
