"""Running other programs, and saying what to do when one is missing or fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman

PACKAGES = {
    "mmdebstrap": "mmdebstrap",
    "mksquashfs": "squashfs-tools",
    "unsquashfs": "squashfs-tools",
    "dpkg-deb": "dpkg",
    "zstd": "zstd",
    "sbsign": "sbsigntool",
    "sbverify": "sbsigntool",
    "chroot": "coreutils",
    "unshare": "util-linux",
}


def require(*programs: str) -> None:
    """Raises: NeedsHuman naming the packages of those programs that this machine lacks."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        packages = " ".join(sorted({PACKAGES.get(program, program) for program in missing}))
        raise NeedsHuman(f"programs not found: {', '.join(missing)}", hint=f"apt-get install {packages}")


def run(
    argv: Sequence[str], *, hint: str, environment: Mapping[str, str] | None = None, log: Path | None = None
) -> bytes:
    """Run `argv` and return what it wrote to stdout (stderr goes into `log` too, if given).

    Raises: NeedsHuman with the last lines that it wrote, and `hint`, if it fails.
    """
    require(argv[0])
    done = subprocess.run(list(argv), capture_output=True, check=False, env=environment, stdin=subprocess.DEVNULL)
    if log is not None:
        log.write_bytes(done.stdout + done.stderr)
    if done.returncode != 0:
        said = " | ".join(_telling_lines(done.stderr.decode(errors="replace"))) or "it said nothing"
        raise NeedsHuman(f"{argv[0]} failed with status {done.returncode}: {said}", hint=hint)
    return done.stdout


def _telling_lines(text: str) -> list[str]:
    """The lines by which apt says what it could not fetch or find; for other programs, the last ones."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("E:", "W:")) and ("Failed to" in line or "Unable to" in line)]
    return list(dict.fromkeys(telling))[:2] or lines[-4:]


def clean_environment(source_date_epoch: int) -> dict[str, str]:
    """An environment in which the same input gives the same bytes, whoever runs the build and wherever."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "DEBIAN_FRONTEND": "noninteractive",
        "PYTHONHASHSEED": "0",
        "SOURCE_DATE_EPOCH": str(source_date_epoch),
    }


def must_be_root() -> None:
    """Raises: NeedsHuman if this process cannot make files of other owners."""
    if os.geteuid() != 0:
        raise NeedsHuman(
            "an image is built as root (files of many owners, chroot)",
            hint="run it with sudo, or in a machine of its own",
        )
