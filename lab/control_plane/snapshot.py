"""The lab's etcd saved into a file, and its control plane put back to that moment: the commands of docs/backup.md."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.binaries.etcd_tools import EtcdTools
from lab.control_plane.plane import ControlPlane
from provisioner.api.machinery.errors import NeedsHuman

BUMP: Final = 1_000_000_000
"""More than any etcd counts up between a snapshot and its restoration: a week at 1,500 writes a second."""
SECONDS: Final = 120.0


def save_snapshot(plane: ControlPlane, tools: EtcdTools, file: Path) -> None:
    """All of etcd, as it is at one moment, while it serves. Raises: NeedsHuman with what etcdctl said."""
    _run([str(tools.etcdctl), *plane.etcd_client, "snapshot", "save", str(file)])


def restore_snapshot(plane: ControlPlane, tools: EtcdTools, file: Path, *, bump: int = BUMP) -> None:
    """Stop the control plane, put the data of `file` in place of its own, and start it again.

    `bump`: what is added to etcd's revision; 0 leaves it as it was in the snapshot, for tests of what that does.
    Raises: NeedsHuman with what etcdutl said.
    """
    plane.stop()
    shutil.rmtree(plane.etcd_data, ignore_errors=True)
    bumped = (f"--bump-revision={bump}", "--mark-compacted") if bump else ()
    _run([str(tools.etcdutl), "snapshot", "restore", str(file), f"--data-dir={plane.etcd_data}", *bumped])
    plane.start()


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise NeedsHuman(
            f"{Path(command[0]).name} ended with status {done.returncode}: {done.stderr.strip()[-500:]}",
            hint="see whether etcd runs, and whether the file is whole: etcdutl snapshot status",
        )
