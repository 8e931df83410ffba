"""Have the gates judge a finished image, and keep the documents that they give of it."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

from provisioner.image.finished import store
from provisioner.image.gates.packages.records import Records
from provisioner.image.gates.request import GateReport, GateRequest
from provisioner.image.gates.run import run_gates
from provisioner.image.recipe import Recipe
from provisioner.image.request import BuildRequest
from provisioner.image.toolkit.build import MODULE as TOOLKIT
from provisioner.image.tools.cache import made
from provisioner.image.tools.foreign import ForeignPrograms

_SIZES = "sizes"


def judge(
    request: BuildRequest,
    foreign: ForeignPrograms,
    folder: Path,
    *,
    merged: Path,
    files: Mapping[str, Path],
    versions: Mapping[str, str],
    records: Records,
) -> tuple[dict[str, Path], GateReport]:
    """The documents, written into `folder`, by the manifest's key; and what a person should read.

    `files`: by the manifest's key. `merged`: the layers over one another.
    Raises: GatesFailed with all that is wrong with the image.
    """
    recipe, choices, previous = request.recipe, request.choices, _previous(request)
    report = run_gates(
        GateRequest(
            recipe=recipe.name,
            distribution=choices.distribution.identifier,
            architecture=choices.architecture,
            source_date_epoch=recipe.source_date_epoch,
            root=merged,
            packed={name.removeprefix("layer."): file for name, file in files.items() if name.startswith("layer.")},
            kernel=files["kernel"],
            stage1=files["stage1"],
            files={name: store.measure(file) for name, file in files.items()},
            versions=versions,
            records=records,
            rules=recipe.gates,
            foreign=foreign,
            purposes=_purposes(recipe, choices.distribution.name),
            previous=previous.read_bytes() if previous.exists() else None,
            vulnerabilities=request.vulnerabilities,
            today=datetime.datetime.now(datetime.UTC).date(),
            go_versions={TOOLKIT.path: TOOLKIT.version},
        )
    )
    made(folder)
    for name, content in report.documents.items():
        (folder / name).write_bytes(content)
    return {f"document.{name}": folder / name for name in sorted(report.documents)}, report


def remember(request: BuildRequest, documents: Mapping[str, Path]) -> None:
    """With the sizes of this image the next one is compared."""
    sizes = documents.get(f"document.{_SIZES}")
    if sizes is not None:
        made(_previous(request).parent)
        _previous(request).write_bytes(sizes.read_bytes())


def _previous(request: BuildRequest) -> Path:
    choices = request.choices
    name = f"{request.recipe.name}-{choices.distribution.identifier}-{choices.architecture}.json"
    return request.cache / _SIZES / name


def _purposes(recipe: Recipe, distribution: str) -> dict[str, str]:
    """Why a package is installed, of those that the recipe names."""
    chosen = recipe.distributions[distribution]
    groups = [*recipe.root.install, *chosen.install, *chosen.stage1_install]
    if recipe.driver is not None:
        groups += recipe.driver.source(distribution).install
    return {name: group.why for group in groups for name in group.names}
