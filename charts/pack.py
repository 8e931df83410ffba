"""`python -m charts.pack FOLDER`: writes FOLDER/provisioner-<version>.tgz, the same bytes each time.

`helm package` writes the time of day into its archive; what is in it is the same (tests/chart compares them).
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import tarfile
from pathlib import Path

from charts.write import HERE
from provisioner import __version__

IGNORED = (".helmignore", "ci")
"""Not packed, as .helmignore says."""


def pack(folder: Path) -> Path:
    """Write the archive. All times in it are SOURCE_DATE_EPOCH, else 1980."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"{HERE.name}-{__version__}.tgz"
    when = int(os.environ.get("SOURCE_DATE_EPOCH") or 315532800)
    packed = io.BytesIO()
    # Chart.yaml first: `helm` need not read the whole of an archive for it.
    paths = sorted(path.relative_to(HERE) for path in HERE.rglob("*") if path.is_file())
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(paths, key=lambda path: (str(path) != "Chart.yaml", path)):
            if path.parts[0] in IGNORED:
                continue
            entry = tarfile.TarInfo(f"{HERE.name}/{path}")
            entry.size, entry.mtime, entry.mode = (HERE / path).stat().st_size, when, 0o644
            tar.addfile(entry, io.BytesIO((HERE / path).read_bytes()))
    with archive.open("wb") as out, gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=when) as zipped:
        zipped.write(packed.getvalue())
    return archive


if __name__ == "__main__":
    print(pack(Path(sys.argv[1])))
