"""Files of the driver's layer that are written here: modprobe.d, units that start, indexes of modules and libraries."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.driver_recipe import DriverRecipe
from provisioner.image.root import copy_tree
from provisioner.image.tools.command import run
from provisioner.image.tools.foreign import ForeignPrograms
from provisioner.image.tools.modules import KernelModules, module_name

MODPROBE = Path("usr/lib/modprobe.d/provisioner-gpu.conf")
_UNITS = Path("etc/systemd/system")
_UNIT_FOLDERS = (_UNITS, Path("usr/lib/systemd/system"))
_LIBRARIES = Path("etc/ld.so.cache")


def render_modprobe(driver: DriverRecipe) -> str:
    """`modprobe.d` of the recipe's options and of the modules that nobody may load, each with its reason."""
    lines = []
    for options in driver.options:
        lines += [f"# {options.reason}", f"options {options.module} {' '.join(options.options)}"]
    for group in driver.blacklist:
        lines += [f"# {group.why}", *(f"blacklist {module}" for module in group.names)]
    return "".join(f"{line}\n" for line in lines)


def install_files(driver: DriverRecipe, trees: tuple[Path, ...], root: Path, base: Path) -> None:
    """The recipe's own files of the layer, modprobe.d, and the units that start.

    Raises: NeedsHuman if a unit is to start that neither the layer nor the base has.
    """
    for tree in trees:
        copy_tree(tree, root)
    (root / MODPROBE).parent.mkdir(parents=True, exist_ok=True)
    (root / MODPROBE).write_text(render_modprobe(driver))
    for target, group in driver.enable:
        for unit in group.names:
            link = root / _UNITS / f"{target}.wants" / unit
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(_unit_file(unit, root, base))


def _unit_file(unit: str, root: Path, base: Path) -> str:
    for tree in (root, base):
        for folder in _UNIT_FOLDERS:
            if (tree / folder / unit).exists():
                return f"/{folder / unit}"
    raise NeedsHuman(
        f"the recipe enables {unit!r}, which neither the driver nor the base has",
        hint="correct driver.enable, or keep its file in driver.keep",
    )


def index(
    root: Path, base: Path, release: str, foreign: ForeignPrograms, environment: Mapping[str, str], work: Path
) -> None:
    """Write what modprobe and the loader look up, of base and layer together, into the layer.

    The loader's cache is not for the loader, which finds these libraries without: it is where the container toolkit
    looks for them. `work` must not exist, and does not afterwards.
    Raises: NeedsHuman if a module of the layer needs one that neither has.
    """
    run(["cp", "--archive", "--reflink=auto", str(base), str(work)], hint="check the free space of the cache's disk")
    try:
        run(["cp", "--archive", f"{root}/.", str(work)], hint="check the free space of the cache's disk")
        kmod, libc = "correct the recipe's packages: kmod", "correct the recipe's packages: libc-bin"
        foreign.run_inside(work, ["depmod", release], hint=kmod, environment=environment)
        foreign.run_inside(work, ["ldconfig", "-X"], hint=libc, environment=environment)
        folder = Path("usr/lib/modules") / release
        for file in sorted((work / folder).glob("modules.*")):
            below = base / folder / file.name
            if not below.is_file() or file.read_bytes() != below.read_bytes():
                shutil.copyfile(file, root / folder / file.name)
        must_resolve(root, work, release)
        shutil.copyfile(work / _LIBRARIES, root / _LIBRARIES)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def must_resolve(root: Path, merged: Path, release: str) -> None:
    """Raises: NeedsHuman if a module of the layer `root` needs one that `merged` neither has nor has built in."""
    folder = merged / "usr/lib/modules" / release
    modules = KernelModules(folder)
    inside = {module_name(PurePosixPath(line)) for line in (folder / "modules.builtin").read_text().split()}
    for name in KernelModules(root / "usr/lib/modules" / release).paths:
        for needed in modules.load(name).depends:
            if needed not in modules.paths and needed not in inside:
                raise NeedsHuman(
                    f"module {name} of the driver needs module {needed}, which the base does not have",
                    hint=f"add {needed!r} to [[root.modules]] of the recipe",
                )
