"""The kubelet alone, for machines of another architecture: of the release, else built when somebody asks for it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from lab.binaries import build, download
from lab.binaries.cache import Report, fill

NAMES = ("kubelet",)


def obtain_kubelet(
    architecture: str, cache: Path, report: Report = lambda line: None, *, allow_download: bool = True
) -> Path:
    """The kubelet for `architecture`, in Go's words, from the cache, the release, or a build (2 minutes and more).

    Raises: NeedsHuman as `build.build`.
    """
    built = build.entry_of(cache, architecture, NAMES)
    released = download.entry_of(cache, architecture, NAMES)
    for entry in (released, built):
        if (entry / "kubelet").exists():
            return entry / "kubelet"
    if allow_download:
        try:
            return download.download(cache, report, of=architecture, names=NAMES) / "kubelet"
        except download.Unavailable as error:
            report(str(error))
    with fill(built, report, NAMES) as directory:
        if directory is not None:
            with tempfile.TemporaryDirectory(prefix="kubelet-build-") as work:
                build.build_into(directory, Path(work), report, architecture, NAMES)
    return built / "kubelet"
