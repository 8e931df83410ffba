"""What stage-1 holds: an archive of files one behind the other, unpacked."""

from __future__ import annotations

import subprocess
from pathlib import Path

from provisioner.api.machinery.errors import Refused


def read_stage1(file: Path) -> bytes:
    """Raises: Refused if it is not packed with zstd."""
    done = subprocess.run(["zstd", "-dcq", str(file)], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Refused(
            f"stage-1 {file} cannot be unpacked: {done.stderr.decode(errors='replace')[:200]}", hint="build it again"
        )
    return done.stdout
