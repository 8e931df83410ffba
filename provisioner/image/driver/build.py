"""Build the driver's layer: obtain -> compile -> sign -> trim -> index. What was done before is not done again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.base import Base, BuiltTree
from provisioner.image.driver.compile import compile_modules
from provisioner.image.driver.fingerprint import modules_fingerprint, tools_fingerprint
from provisioner.image.driver.layer import index, install_files
from provisioner.image.driver.obtain import Obtained, obtain
from provisioner.image.driver.packages import licence_of, unpack, upstream, with_files
from provisioner.image.driver.plan import WantedDriver
from provisioner.image.driver.trim import clear_setuid, firmware_rules, keep, lay_out, must_have_targets
from provisioner.image.driver_recipe import DriverRecipe
from provisioner.image.gates.packages import records
from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.packages.records import Records
from provisioner.image.gates.read.kernel_module import read_module
from provisioner.image.module_signing import ModuleKey, split, verify_module
from provisioner.image.plan import Choices
from provisioner.image.recipe import Recipe
from provisioner.image.tools.cache import filled, forget_old, locked
from provisioner.image.tools.command import clean_environment
from provisioner.image.tools.foreign import ForeignPrograms
from provisioner.image.tools.modules import KernelModules
from provisioner.image.tools.tables import names_of

_KEPT = 3
"""Of each kind: a chroot with packages is some 400 MB, a layer 150 MB."""
_FABRIC_MANAGER = "nvidia-fabricmanager"
_ONLY_COMPILED_WITH = ("linux-headers-", "linux-kbuild-")


class DriverTree(BuiltTree):
    """A finished layer. `root` goes over the base: complete indexes of the merged modules and libraries are in it.

    `versions`: `driver`, `driver-modules`, `driver-kernel`, `driver-signer` and others. `records`: for the bill of
    materials, as the base's package manager knows of none of these packages.
    """


def build_driver(
    recipe: Recipe,
    base: Base,
    choices: Choices,
    foreign: ForeignPrograms,
    module_key: ModuleKey | None,
    folder: Path,
    cache: Path,
    *,
    force: bool = False,
) -> DriverTree:
    """Build into `folder`, which appears only when it is whole; the same folder, the same layer: it is named by
    `driver_fingerprint`. `cache` keeps what was downloaded and compiled. Without a key modules stay unsigned.

    Raises: NeedsHuman if the distribution lacks a part, the archive a package, or versions do not agree.
    """
    if recipe.driver is None:
        raise NeedsHuman(f"recipe {recipe.name!r} has no GPU driver", hint="add [driver], or extend images/gpu-node")
    source = recipe.driver.source(choices.distribution.name)
    with locked(cache / "driver.lock"):
        if folder.is_dir() and not force:
            folder.touch()
            return DriverTree(folder)
        wanted = WantedDriver(choices=choices, source=source, release=base.versions["kernel"])
        tools = cache / "driver-tools" / tools_fingerprint(wanted)
        if force:
            shutil.rmtree(tools, ignore_errors=True)
        obtained = obtain(wanted, recipe.source_date_epoch, tools, foreign)
        with filled(folder) as work:
            (work / "root").mkdir()
            laid_out, described = _lay_out(obtained, wanted, work)
            modules = _modules(recipe, recipe.driver, wanted, obtained, laid_out, cache, foreign)
            _fill(recipe.driver, wanted, described, modules, module_key, laid_out, work)
            install_files(recipe.driver, recipe.trees("driver"), work / "root", base.root)
            environment = clean_environment(recipe.source_date_epoch)
            index(work / "root", base.root, wanted.release, foreign, environment, work / "merged")
            must_have_targets(work / "root", base.root)
            shutil.rmtree(laid_out)
        for kept in (tools.parent, cache / "driver-modules", folder.parent):
            forget_old(kept, _KEPT)
    return DriverTree(folder)


def _lay_out(obtained: Obtained, wanted: WantedDriver, work: Path) -> tuple[Path, Records]:
    """All packages but those that are only compiled from, each file where it belongs; and what packages they are."""
    unpacked, laid_out = work / "unpacked", work / "laid-out"
    compiled = wanted.source.source.package if wanted.source.source else None
    described = Records()
    for name, file in obtained.packages():
        if name.startswith(_ONLY_COMPILED_WITH):
            continue
        described = described.joined(unpack(file, unpacked / name, wanted.source.move))
        if name == compiled:
            shutil.rmtree(unpacked / name / "usr/src", ignore_errors=True)
        lay_out(unpacked / name, wanted.source.move, laid_out)
    shutil.rmtree(unpacked)
    return laid_out, described


def _modules(
    recipe: Recipe,
    driver: DriverRecipe,
    wanted: WantedDriver,
    obtained: Obtained,
    laid_out: Path,
    cache: Path,
    foreign: ForeignPrograms,
) -> dict[str, bytes]:
    """The wanted modules by name: compiled here, or as the distribution has built and signed them."""
    names = names_of(driver.modules)
    if wanted.source.source is not None:
        compiled = compile_modules(
            obtained,
            wanted.source.source,
            names,
            wanted.release,
            wanted.choices.architecture,
            recipe.source_date_epoch,
            cache / "driver-modules" / modules_fingerprint(recipe, wanted, obtained),
            foreign,
        )
        return {name: (compiled / f"{name}.ko").read_bytes() for name in names}
    prebuilt = KernelModules(laid_out / "usr/lib/modules" / wanted.release)
    missing = [name for name in names if name.replace("-", "_") not in prebuilt.paths]
    if missing:
        raise NeedsHuman(
            f"the packages of {wanted.choices.distribution.identifier} have no module {', '.join(missing)} "
            f"for kernel {wanted.release}",
            hint="correct driver.distribution.….install of the recipe: kernel and modules must be of one release",
        )
    return {name: prebuilt.load(name.replace("-", "_")).content for name in names}


def _fill(
    driver: DriverRecipe,
    wanted: WantedDriver,
    described: Records,
    modules: Mapping[str, bytes],
    module_key: ModuleKey | None,
    laid_out: Path,
    work: Path,
) -> None:
    root = work / "root"
    keep(laid_out, (*driver.keep, *firmware_rules(driver.firmware)), root)
    clear_setuid(root, driver.clear_setuid)
    folder = root / "usr/lib/modules" / wanted.release / driver.modules_folder
    folder.mkdir(parents=True)
    signer = "nobody"
    for name, content in modules.items():
        module = content
        if split(content)[1]:
            signer = wanted.choices.distribution.name
        elif module_key is not None:
            module, signer = module_key.sign(content), module_key.fingerprint
            verify_module(module, module_key.certificate)
        (folder / f"{name}.ko").write_bytes(module)
    if wanted.source.source is not None:
        files = [file.relative_to(root).as_posix() for file in folder.iterdir()]
        described = with_files(described, wanted.source.source.package, files)
    versions = observe_versions(modules, root, described.packages) | {"driver-signer": signer}
    check_versions(versions, wanted.source.version, wanted.release)
    for package in described.packages:
        licence_of(package, driver.licences)  # a package without one is refused
    (work / "versions.json").write_text(json.dumps(versions, sort_keys=True, indent=1))
    (work / "packages.json").write_text(records.encode(described))


def observe_versions(modules: Mapping[str, bytes], root: Path, packages: Iterable[InstalledPackage]) -> dict[str, str]:
    """What modules, firmware and libraries say of themselves; of several that differ, all, so that it is seen."""
    read = [read_module(module) for module in modules.values()]
    libraries = [
        match[1]
        for file in root.glob("usr/lib/*/lib*.so.*")
        if not file.is_symlink() and (match := re.search(r"\.so\.(\d+\.\d+[.\d]*)$", file.name))
    ]
    found = {
        "driver-modules": [version for module in read for version in module.info.get("version", ()) if version],
        "driver-kernel": [words.partition(" ")[0] for module in read for words in module.info.get("vermagic", ())],
        "driver-firmware": [folder.name for folder in root.glob("usr/lib/firmware/nvidia/*")],
        "driver-libraries": libraries,
        "fabricmanager": [upstream(each.version) for each in packages if each.name.startswith(_FABRIC_MANAGER)],
    }
    versions = {name: " ".join(sorted(set(values))) for name, values in found.items() if values}
    return versions | ({"driver": versions["driver-modules"]} if "driver-modules" in versions else {})


def check_versions(versions: Mapping[str, str], wanted: str, release: str) -> None:
    """Raises: NeedsHuman unless driver, firmware, libraries and kernel are all of the one wanted version."""
    driver = versions.get("driver", "")
    if driver != wanted and not driver.startswith(f"{wanted}."):
        raise NeedsHuman(
            f"the driver's modules are of version {driver or 'none'}, the recipe wants {wanted}",
            hint="the archive has another one by now: try it, and write its version into driver.distribution.….version",
        )
    for name in ("driver-firmware", "driver-libraries", "fabricmanager"):
        if versions.get(name, driver) != driver:
            raise NeedsHuman(
                f"{name} is of version {versions[name]}, the modules are of {driver}: they would refuse one another",
                hint="build with --force, so that all packages are of one day",
            )
    if versions.get("driver-kernel") != release:
        raise NeedsHuman(
            f"the driver's modules are for kernel {versions.get('driver-kernel')}, the image has {release}",
            hint="build with --force, so that kernel and headers are of one day",
        )
