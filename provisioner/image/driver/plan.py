"""The commands by which the driver is obtained and compiled: golden files show them, `build` runs them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from provisioner.image.driver_recipe import RELEASE, DriverRecipe, DriverSource, ModuleSource
from provisioner.image.mirror import AptSource as Archive
from provisioner.image.plan import DEBS, Choices, mmdebstrap
from provisioner.image.tools.command import clean_environment
from provisioner.image.tools.tables import names_of

COMPILED = PurePosixPath("/driver")
"""Where modules are compiled in the chroot: always there, as a compiler writes paths into what it makes."""


@dataclass(frozen=True, kw_only=True)
class WantedDriver:
    """What is obtained: for which kernel release, and of which recipe's source."""

    choices: Choices
    source: DriverSource
    release: str

    @property
    def archives(self) -> tuple[Archive, ...]:
        """Those of the base, with the components in which the driver is."""
        return tuple(
            Archive(each.uri, each.suite, tuple(dict.fromkeys((*each.components, *self.source.components))))
            for each in self.choices.archives
        )


def obtain_command(wanted: WantedDriver, target: Path) -> list[str]:
    """mmdebstrap: a chroot with the compiler (or nothing but apt, for a driver that is prebuilt), and in it, in the
    folder `DEBS`, the driver's packages as files: they are unpacked, never installed."""
    tools = sorted(wanted.source.tools)
    return mmdebstrap(wanted.choices, wanted.archives, target, packages=tools, script=_download(wanted))


def _download(wanted: WantedDriver) -> str:
    source, release = wanted.source, wanted.release
    packages = [*source.packages(release), *([source.source.package] if source.source else [])]
    words = [shlex.join(packages)]
    if source.dependencies:
        words.append(_found(packages, names_of(source.dependencies)))
    if source.source is not None:
        headers = source.source.headers.replace(RELEASE, release)
        words.append(_found([headers], source.source.header_packages))
    return f"mkdir /{DEBS} && cd /{DEBS} && apt-get -o APT::Sandbox::User=root download {' '.join(words)}"


def _found(packages: Iterable[str], patterns: Iterable[str]) -> str:
    """What `packages` depend on, as far as it matches: an expression for the shell."""
    pattern = shlex.quote("^(" + "|".join(patterns) + ")$")
    return f"$(apt-cache depends --important --recurse {shlex.join(packages)} | grep -E {pattern} | sort -u)"


def plan_driver(driver: DriverRecipe, choices: Choices) -> list[list[str]]:
    """All commands, with RELEASE where the kernel's release will stand: what it is, the base says once it is there.

    Raises: NotFound, NeedsHuman as `DriverRecipe.source`.
    """
    wanted = WantedDriver(choices=choices, source=driver.source(choices.distribution.name), release="RELEASE")
    commands = [obtain_command(wanted, Path("driver"))]
    if wanted.source.source is not None:
        headers = {"sources": "/usr/src/SOURCES", "output": "/usr/src/HEADERS", "architecture": choices.architecture}
        modules = names_of(driver.modules)
        commands.append(["chroot", "driver", *compile_command(wanted.source.source, modules, headers, 1)])
    return commands


def compile_command(source: ModuleSource, modules: Iterable[str], headers: Mapping[str, str], jobs: int) -> list[str]:
    """make, as it is run in the chroot. `headers`: the folders `sources` and `output` of the kernel's headers."""
    return [
        "make",
        "-C",
        str(COMPILED / source.folder),
        f"-j{jobs}",
        "modules",
        f"SYSSRC={headers['sources']}",
        f"SYSOUT={headers['output']}",
        f"NV_KERNEL_MODULES={' '.join(modules)}",
        f"ARCH={headers['architecture']}",
        "KCFLAGS=-g0",  # nothing reads what a debugger would want, and it is nine tenths of the bytes
        "CONFIG_DEBUG_INFO_BTF_MODULES=",  # types for tracing programs: a fifth of what is left
    ]


def compile_environment(source_date_epoch: int) -> dict[str, str]:
    """Nothing in it says who compiles, where, or when. Source: Documentation/kbuild/reproducible-builds.rst."""
    return clean_environment(source_date_epoch) | {
        "KBUILD_BUILD_USER": "provisioner",
        "KBUILD_BUILD_HOST": "provisioner",
        "KBUILD_BUILD_TIMESTAMP": f"@{source_date_epoch}",
        "KBUILD_BUILD_VERSION": "1",
    }
