"""The wheel of this checkout."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from artefacts.layer import FILE_TIME
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.tools.command import clean_environment, run


def build_wheel(checkout: Path, target: Path) -> Path:
    """Build it into the folder `target`, the same bytes for the same files. Raises: NeedsHuman."""
    with tempfile.TemporaryDirectory(prefix="provisioner-wheel-") as work:
        run(
            ["env", "-C", str(checkout), sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", work],
            hint="is hatchling there (bin/setup), and pyproject.toml as it should be?",
            environment=clean_environment(FILE_TIME),
        )
        built = list(Path(work).glob("*.whl"))
        if len(built) != 1:
            raise NeedsHuman(f"hatchling built {len(built)} wheels, not one", hint="see pyproject.toml")
        target.mkdir(parents=True, exist_ok=True)
        file = target / built[0].name
        file.write_bytes(built[0].read_bytes())
        return file
