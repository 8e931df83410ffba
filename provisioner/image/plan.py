"""The commands of a build, as pure functions of recipe and choices: what golden files show and `build` runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from provisioner.api.servers.server import Architecture
from provisioner.image.mirror import AptSource
from provisioner.image.recipe import Distribution, Recipe

KEYRINGS = Path("/usr/share/keyrings")
DEBS = "provisioner-debs"
"""Folder, in the fresh root, of the packages that are unpacked beside it instead of being installed in it."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What the caller chose for a build."""

    architecture: Architecture
    distribution: Distribution
    archives: tuple[AptSource, ...]


def bootstrap_command(recipe: Recipe, choices: Choices, target: Path) -> list[str]:
    """mmdebstrap: install the recipe's packages into `target`, and download kernel and stage-1's packages beside them.

    The kernel is downloaded and unpacked, not installed: its package would bring a generator of initramfs images and
    run it for 18 MB that nobody boots.
    """
    distribution = choices.distribution
    packages = sorted({*recipe.root.packages, *distribution.packages})
    kernel = shlex.quote(distribution.kernel[choices.architecture])
    pattern = shlex.quote("^(" + "|".join(distribution.kernel_packages) + ")$")
    download = (
        f"mkdir /{DEBS} && cd /{DEBS} && "
        f"apt-get -o APT::Sandbox::User=root download {shlex.join(distribution.stage1_packages)} "
        f"$(apt-cache depends --important --recurse {kernel} | grep -E {pattern} | sort -u)"
    )
    return mmdebstrap(
        choices,
        choices.archives,
        target,
        packages=packages,
        documents=("/usr/share/doc/*/copyright",),  # licences: base.py collects them, the recipe removes them
        script=download,
    )


def mmdebstrap(
    choices: Choices,
    archives: Iterable[AptSource],
    target: Path,
    *,
    packages: Sequence[str],
    documents: Iterable[str] = (),
    script: str,
) -> list[str]:
    """Install apt and `packages` into `target`, and run `script` in it. `documents`: patterns of those that stay."""
    distribution = choices.distribution
    return [
        "mmdebstrap",
        "--mode=root",
        "--skip=check/qemu",  # what it needs arch-test for, foreign.py has seen to
        "--variant=apt",
        "--format=directory",
        f"--architectures={distribution.architectures[choices.architecture]}",
        f"--keyring={KEYRINGS}",
        '--aptopt=Acquire::Languages "none"',
        '--aptopt=APT::Install-Recommends "false"',
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        *(f"--dpkgopt=path-include={pattern}" for pattern in documents),
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        *([f"--include={','.join(packages)}"] if packages else []),
        f'--customize-hook=chroot "$1" sh -c {shlex.quote(script)}',
        distribution.suite,
        str(target),
        *(f"deb {archive.uri} {archive.suite} {' '.join(archive.components)}" for archive in archives),
    ]


def squashfs_command(recipe: Recipe, root: Path, target: Path, left_out: Sequence[Path] = ()) -> list[str]:
    """mksquashfs: one file from a finished tree, the same bytes from the same content. `left_out`: relative to it."""
    epoch = str(recipe.source_date_epoch)
    return [
        "mksquashfs",
        str(root),
        str(target),
        "-noappend",
        "-quiet",
        "-no-progress",
        "-no-xattrs",
        "-comp",
        "zstd",
        "-Xcompression-level",
        str(recipe.squashfs_level),
        "-b",
        str(recipe.squashfs_block_bytes),
        # Equal times everywhere also tell systemd that /etc and /var are as new as /usr: no ldconfig, no hwdb.
        "-all-time",
        epoch,
        "-mkfs-time",
        epoch,
        *(["-e", *map(str, left_out)] if left_out else []),
    ]


def describe(commands: Sequence[Sequence[str]]) -> str:
    """Commands as a person would type them, one word a line from the second on."""
    return "\n".join(" \\\n    ".join(shlex.quote(word) for word in command) + "\n" for command in commands)
