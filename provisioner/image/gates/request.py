"""What the gates are given, and what they give back."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from provisioner.api.servers.server import Architecture
from provisioner.image.finished.manifest import FileDigest
from provisioner.image.gates.packages.records import Records
from provisioner.image.gates.recipe import GateRules
from provisioner.image.tools.foreign import ForeignPrograms


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """A finished image, before its manifest.

    `root` is the merged tree, `packed` the squashfs of each layer by its name, bottom first. `kernel`, `stage1`: the
    files that boot. `files`: digest and size of each part, as the manifest names them (`kernel`, `layer.base`…; `root`
    for an image of one layer). `versions` are the manifest's. `records`: packages of all layers and the kernel.
    `previous`: the document `sizes` of the image that was built before, None if there is none. `purposes`: package that
    the recipe names → why. `vulnerabilities`: a file of OSV records, if one is given; `today` decides which of the
    recipe's exceptions have ended. `go_versions`: of modules that the build made programs of, by path, where these
    cannot tell.
    """

    recipe: str
    distribution: str
    architecture: Architecture
    source_date_epoch: int
    root: Path
    packed: Mapping[str, Path]
    kernel: Path
    stage1: Path
    files: Mapping[str, FileDigest]
    versions: Mapping[str, str]
    records: Records
    rules: GateRules
    foreign: ForeignPrograms
    purposes: Mapping[str, str] = field(default_factory=dict)
    previous: bytes | None = None
    vulnerabilities: Path | None = None
    today: datetime.date = datetime.date.max
    go_versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """All gates have passed. `documents` by name: `sbom`, `sizes`, `licences`. `lines`: what a person should read."""

    documents: Mapping[str, bytes]
    lines: tuple[str, ...] = ()
