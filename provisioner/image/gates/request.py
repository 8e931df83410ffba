"""What the gates are given, and what they give back."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from provisioner.api.server import Architecture
from provisioner.image.finished.manifest import File
from provisioner.image.foreign import Foreign
from provisioner.image.gates.documents.sizes import SizeReport
from provisioner.image.gates.packages.records import Records
from provisioner.image.recipe import GateRules


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """A finished image, before its manifest.

    `root` is the merged tree, `layers` the trees that it is made of by name, bottom first. `packed`: the squashfs of
    each layer, by the same names. `files`: digest and size of every part, as the manifest names them (`kernel`,
    `stage1`, `layer.base`…; `root` for an image of one layer). `versions` are the manifest's. `records`: packages of
    all layers and the kernel. `previous`: the document `sizes` of the image that was built before, None if there is
    none. `purposes`: package that the recipe names → why. `vulnerabilities`: a file of OSV records, if one is given;
    `today` decides which of the recipe's exceptions have ended.
    """

    recipe: str
    distribution: str
    architecture: Architecture
    source_date_epoch: int
    root: Path
    layers: Mapping[str, Path]
    packed: Mapping[str, Path]
    kernel: Path
    files: Mapping[str, File]
    versions: Mapping[str, str]
    records: Records
    rules: GateRules
    foreign: Foreign
    purposes: Mapping[str, str] = field(default_factory=dict)
    previous: bytes | None = None
    vulnerabilities: Path | None = None
    today: datetime.date = datetime.date.max


@dataclass(frozen=True, kw_only=True)
class GateReport:
    """All gates have passed. `documents` by name: `sbom`, `sizes`, `licences`. `lines`: what a person should read."""

    documents: Mapping[str, bytes]
    sizes: SizeReport
    lines: tuple[str, ...] = ()
