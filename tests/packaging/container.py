"""A container without an engine: an image's layers in a folder, entered as a container runtime would."""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_ENTER: Final = """
set -eu
root=$1 user=$2; shift 2
mount --bind "$root" "$root"
cd "$root"
mount --rbind /dev dev; mount --rbind /sys sys; mount -t proc proc proc; mount -t tmpfs -o mode=1777 tmp tmp
while [ "$1" != -- ]; do mkdir -p "./$1"; mount --bind "$1" "./$1"; shift; done
shift
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs chroot --userspec="$user" "$root" "$@"
"""


def read_archive(content: bytes) -> dict[str, bytes]:
    """The files of an OCI archive."""
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        return {name: file.read() for name, file in files.items() if file is not None}


def blob(files: Mapping[str, bytes], descriptor: Mapping[str, Any]) -> bytes:
    return files[f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}"]


def manifest_of(files: Mapping[str, bytes]) -> dict[str, Any]:
    (only,) = json.loads(files["index.json"])["manifests"]
    found: dict[str, Any] = json.loads(blob(files, only))
    return found


@dataclass(frozen=True)
class Container:
    """`config`: of the image, such as its user, environment and entry point."""

    root: Path
    config: Mapping[str, Any]

    @classmethod
    def unpack(cls, content: bytes, root: Path) -> Container:
        files = read_archive(content)
        manifest = manifest_of(files)
        root.chmod(0o755)
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(blob(files, layer)), mode="r:gz") as tar:
                tar.extractall(root)  # noqa: S202 - made by this project, a moment ago
        return cls(root, json.loads(blob(files, manifest["config"]))["config"])

    def command(self, *words: str, shared: Sequence[Path] = (), **environment: str) -> list[str]:
        """Arguments that run the entry point with `words`, or a program of the image that they begin with.

        As the image's user, who can never become another; the root read-only but for /tmp. `shared`: folders below /tmp
        that are seen inside at the same path. The process keeps the caller's network and its process id.
        """
        variables = [*self.config["Env"], *(f"{name}={value}" for name, value in environment.items())]
        program = [] if words[:1] and words[0].startswith("/") else self.config["Entrypoint"]
        return [
            *("unshare", "--mount", "--propagation", "private", "--"),
            *("/usr/bin/env", "-i", *variables, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"),
            *("/bin/sh", "-c", _ENTER, "container", str(self.root), self.config["User"]),
            *(str(folder) for folder in shared),
            *("--", *program, *words),
        ]

    def run(self, *words: str, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words, **environment), capture_output=True, text=True, check=check, timeout=300
        )
