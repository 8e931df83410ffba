"""The base: the recipe's packages, installed and trimmed, with the kernel and what stage-1 takes from packages.

It depends on packages and recipe only, so it is kept in the cache while agent, units and kubelet change above it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.gates.packages import records
from provisioner.image.gates.packages.records import Records
from provisioner.image.plan import DEBS, KEYRINGS, Choices, bootstrap_command
from provisioner.image.recipe import Recipe
from provisioner.image.tools.cache import filled
from provisioner.image.tools.command import clean_environment, run
from provisioner.image.tools.foreign import ForeignPrograms
from provisioner.image.tools.modules import KernelModules, UnpackedModule, render_aliases, render_dependencies
from provisioner.image.tools.tables import names_of

VERSIONED_PACKAGES: Final = {
    "containerd": "containerd",
    "runc": "runc",
    "systemd": "systemd",
    "python3": "python",
    "rdma-core": "rdma-core",
    "containernetworking-plugins": "cni-plugins",
    "libc6": "libc",
}
"""Packages whose version is worth a line in the manifest, and what it is called there."""


@dataclass(frozen=True)
class BuiltTree:
    """What goes into layers, in the cache; nothing in it is changed any more."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def records(self) -> Records:
        """What the packages say of themselves: licences, and whose each file is."""
        return records.decode((self.folder / "packages.json").read_text())

    @property
    def versions(self) -> dict[str, str]:
        """Lines for the manifest."""
        loaded: dict[str, str] = json.loads((self.folder / "versions.json").read_text())
        return loaded


class Base(BuiltTree):
    """A finished base. `records`: of the packages of root, kernel and stage-1."""

    @property
    def stage1_packages(self) -> Path:
        """The packages of stage-1, unpacked."""
        return self.folder / "stage1-packages"

    @property
    def stage1_modules(self) -> Path:
        """stage-1's modules with modules.dep and modules.alias, as they go below /lib/modules/<release>."""
        return self.folder / "stage1-modules"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"


def build_base(recipe: Recipe, choices: Choices, folder: Path, foreign: ForeignPrograms) -> Base:
    """Install, unpack and trim into `folder`, which must not exist; it appears there only when it is whole.

    Raises: NeedsHuman if the archive cannot be reached or lacks a package.
    """
    environment = clean_environment(recipe.source_date_epoch)
    _check_keyring(choices)
    archives = ", ".join(sorted({f"{archive.uri} ({archive.suite})" for archive in choices.archives}))
    with filled(folder) as work:
        base, log = Base(work), work / "bootstrap.log"
        run(
            foreign.command(bootstrap_command(recipe, choices, base.root)),
            hint=f"the package archive {archives} must be reachable from here and have these packages: check network "
            f"and proxy (apt's own settings apply), or name another archive with --mirror; log: {log}",
            environment=environment,
            log=log,
        )
        _unpack_beside(base, choices, work)
        kernel_tree = work / "kernel-packages"
        release = _only_release(kernel_tree / "usr/lib/modules", kernel_tree / "lib/modules")
        shutil.copyfile(_kernel_file(kernel_tree, release.name), base.kernel)
        kernel_modules = KernelModules(release)
        _write_versions(base, release.name)
        remove(base.root, names_of(recipe.root.drop), names_of(recipe.root.keep))
        _install_modules(base, kernel_modules, recipe, foreign, environment)
        _compile_python(base.root, foreign, environment)
        _forget_build(base.root)
        shutil.rmtree(kernel_tree)
    return Base(folder)


def _check_keyring(choices: Choices) -> None:
    name = choices.distribution.keyring
    if not any(KEYRINGS.glob(f"{name}*")):
        raise NeedsHuman(
            f"the keys of {choices.distribution.identifier} are not on this machine: {KEYRINGS}/{name}* does not exist",
            hint=f"install them (package {name} or {name.replace('-archive', '')}), or build on that distribution",
        )


def _unpack_beside(base: Base, choices: Choices, work: Path) -> None:
    wanted = set(choices.distribution.stage1_packages)
    described = records.read_installed(base.root)
    for package in sorted((base.root / DEBS).glob("*.deb")):
        part = "stage1" if package.name.split("_", 1)[0] in wanted else "kernel"
        target = base.stage1_packages if part == "stage1" else work / "kernel-packages"
        damaged = "the download is damaged; build again with --force"
        control = run(["dpkg-deb", "--field", str(package)], hint=damaged).decode()
        names = run(["dpkg-deb", "--vextract", str(package), str(target)], hint=damaged).decode().splitlines()
        described = described.joined(records.describe_package(control, target, names, part))
    # Now, because the recipe removes documentation and dpkg's lists from the root.
    (work / "packages.json").write_text(records.encode(described))
    shutil.rmtree(base.root / DEBS)


def _only_release(*candidates: Path) -> Path:
    found = [folder for parent in candidates if parent.is_dir() for folder in sorted(parent.iterdir())]
    if len({folder.name for folder in found}) != 1:
        raise NeedsHuman(
            f"the kernel's packages have {len(found)} releases: {', '.join(folder.name for folder in found)}",
            hint="correct kernel and kernel-packages of the recipe: exactly one must match",
        )
    return found[0]


def _kernel_file(tree: Path, release: str) -> Path:
    for name in (f"vmlinuz-{release}", f"vmlinux-{release}"):
        if (tree / "boot" / name).is_file():
            return tree / "boot" / name
    raise NeedsHuman(
        f"the kernel's packages have no boot/vmlinuz-{release}", hint="correct kernel-packages of the recipe"
    )


def _write_versions(base: Base, release: str) -> None:
    status = (base.root / "var/lib/dpkg/status").read_text()
    installed = dict(re.findall(r"^Package: (\S+)\n(?:.+\n)*?Version: (\S+)$", status, flags=re.MULTILINE))
    versions = {called: installed[package] for package, called in VERSIONED_PACKAGES.items() if package in installed}
    (base.folder / "versions.json").write_text(json.dumps({"kernel": release, **versions}, sort_keys=True, indent=1))


def remove(root: Path, patterns: Iterable[str], kept: Iterable[str] = ()) -> None:
    """Delete what the patterns match below `root`, folders with all that is in them, but for what `kept` matches."""
    keep = {found for pattern in kept for found in root.glob(_below(pattern, "keeps"))}
    for pattern in patterns:
        for found in list(root.glob(_below(pattern, "removes"))):
            _delete(found, keep)


def _below(pattern: str, does: str) -> str:
    if pattern.startswith("/") or ".." in pattern:
        raise NeedsHuman(f"the recipe {does} {pattern!r}", hint="write patterns relative to the root, without '..'")
    return pattern


def _delete(path: Path, keep: Collection[Path]) -> None:
    if path in keep or any(parent in keep for parent in path.parents):
        return
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
    elif any(path in kept.parents for kept in keep):
        for inner in list(path.iterdir()):
            _delete(inner, keep)
    else:
        shutil.rmtree(path)


def _install_modules(
    base: Base, kernel: KernelModules, recipe: Recipe, foreign: ForeignPrograms, environment: dict[str, str]
) -> None:
    release = kernel.folder.name
    for_root, for_stage1 = kernel.choose(recipe.root.modules), kernel.choose(recipe.stage1_modules)
    target = base.root / "usr/lib/modules" / release
    _write_modules(target, {**for_stage1, **for_root})
    for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
        shutil.copyfile(kernel.folder / name, target / name)
    # In the root, so that the depmod is the one that fits its modprobe.
    hint = "correct the recipe's packages: kmod"
    foreign.run_inside(base.root, ["depmod", release], hint=hint, environment=environment)
    install_stage1_modules(base, for_stage1)


def install_stage1_modules(base: Base, modules: Mapping[str, UnpackedModule]) -> None:
    """Write the modules and what modprobe must know of them, as stage-1 takes them."""
    _write_modules(base.stage1_modules, modules)
    (base.stage1_modules / "modules.dep").write_text(render_dependencies(modules))
    (base.stage1_modules / "modules.alias").write_text(render_aliases(modules))


def _write_modules(folder: Path, modules: Mapping[str, UnpackedModule]) -> None:
    for module in modules.values():
        file = folder / module.path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(module.content)


def _compile_python(root: Path, foreign: ForeignPrograms, environment: dict[str, str]) -> None:
    """Byte-code that Python takes as it is, whatever the times of the files (squashfs makes them all equal)."""
    for cache in list(root.glob("usr/lib/python3*/**/__pycache__")):
        shutil.rmtree(cache)
    compile_tree(root, "/usr/lib", foreign, environment)


def compile_tree(root: Path, folder: str, foreign: ForeignPrograms, environment: dict[str, str]) -> None:
    """Compile all Python files in `folder` of `root`, with that root's Python."""
    command = [
        "python3",
        "-I",
        "-m",
        "compileall",
        "-q",
        "-f",
        "-j",
        "1",
        "--invalidation-mode",
        "unchecked-hash",
        folder,
    ]
    hint = "correct the Python sources, or the recipe's packages: python3"
    foreign.run_inside(root, command, hint=hint, environment=environment)


def _forget_build(root: Path) -> None:
    """Take out what says when and where the root was built."""
    shadow = root / "etc/shadow"
    lines = [line.split(":") for line in shadow.read_text().splitlines()]
    shadow.write_text("".join(":".join([*fields[:2], "20454", *fields[3:]]) + "\n" for fields in lines))
    for log in (root / "var/log").rglob("*"):
        if log.is_file():
            log.unlink()
