"""Build an image: base -> trees of the layers over it -> a squashfs each -> stage-1 -> signed manifest -> store.

Nothing is built twice: the base is kept by its inputs, each layer's squashfs by its content, an image by its inputs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman, NotFound
from provisioner.api.machinery.values import Sha256Digest
from provisioner.api.servers.server import Architecture
from provisioner.image.assembly.judge import judge, remember
from provisioner.image.assembly.layers import (
    MERGED,
    LayerTree,
    PackedLayer,
    begin_merge,
    copy_over,
    expand,
    forget_old_layers,
    lay_over,
    pack,
)
from provisioner.image.assembly.stage1 import pack_stage1
from provisioner.image.base import Base, build_base
from provisioner.image.driver.build import DriverTree, build_driver
from provisioner.image.driver.fingerprint import driver_fingerprint
from provisioner.image.finished import store
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import FileDigest, Layer, Manifest, digest_of
from provisioner.image.finished.sign import SecretKey
from provisioner.image.inputs import base_fingerprint, image_fingerprint
from provisioner.image.request import BuildRequest, Phases, Report
from provisioner.image.root import assemble_kubelet, assemble_site, compile_agents
from provisioner.image.toolkit.build import obtain_toolkit
from provisioner.image.tools.cache import forget_old, locked, made
from provisioner.image.tools.command import must_be_root, require
from provisioner.image.tools.elf import read_architecture
from provisioner.image.tools.foreign import ForeignPrograms, find_foreign
from provisioner.image.tools.tables import names_of

__all__ = ["PHASES", "BuildRequest", "Built", "Report", "build_image"]

PHASES = ("base", "driver", "trees", "layers", "stage-1", "gates", "manifest")
"""The phases in their order; the driver's is left out where the recipe has none."""

_KEPT_BASES = 4
"""Each is some 400 MB."""


@dataclass(frozen=True)
class Built:
    """An image in the store. `reused`: it had been built from the same inputs before. `lines`: what else to tell."""

    folder: Path
    digest: Sha256Digest
    manifest: Manifest
    reused: bool
    lines: tuple[str, ...] = ()


def build_image(request: BuildRequest, report: Report) -> Built:
    """Build the image, or find it built already.

    Raises: NeedsHuman naming what is missing (a program, an archive, a file) and the remedy; GatesFailed with all that
    is wrong with what was built.
    """
    for what, file in (("kubelet", request.ingredients.kubelet), ("join CA", request.ingredients.join_ca)):
        if not file.is_file():
            raise NotFound(
                f"{what} {file} does not exist", hint=f"give the file with --{what.lower().replace(' ', '-')}"
            )
    _refuse_secret(request.ingredients.join_ca)
    _refuse_foreign(request.ingredients.kubelet, request.choices.architecture)
    base_key = base_fingerprint(request.recipe, request.choices)
    record = request.cache / "built" / image_fingerprint(request, base_key)
    if not request.force and (found := _find_built(record, request)):
        return found
    must_be_root()
    require("mmdebstrap", "mksquashfs", "dpkg-deb", "zstd", "chroot")
    os.umask(0o022)  # folders of the image can be read by all, whoever builds it
    phases = Phases(report)
    foreign = find_foreign(request.choices.architecture, interpreter=request.interpreter)
    base = _base(request, base_key, foreign, phases)
    driver = _driver(request, base, base_key, foreign, phases)
    with tempfile.TemporaryDirectory(prefix="image-", dir=made(request.cache / "work")) as name:
        work = Path(name)
        trees = _trees(request, base, driver, work, foreign)
        phases.end("trees", ", ".join(tree.name for tree in trees) + f": {_tree_bytes(work / MERGED) / 1e6:.0f} MB")
        if request.recipe.squashfs_merge:
            trees = [LayerTree(MERGED, work / MERGED)]
        layers = [pack(request.recipe, tree, request.cache / "layers", force=request.force) for tree in trees]
        phases.end("layers", describe_layers(layers))
        files = {f"layer.{layer.name}": layer.file for layer in layers}
        files |= {"kernel": base.kernel, "stage1": work / "stage1.img"}
        files["stage1"].write_bytes(pack_stage1(request.recipe, base, request.public_key, foreign))
        phases.end("stage-1", f"{_megabytes(files['stage1'])}, kernel {_megabytes(base.kernel)}")
        versions = base.versions | {"kubelet": kubelet_version(request.ingredients.kubelet, foreign)}
        versions |= driver.versions if driver is not None else {}
        records = base.records.joined(driver.records) if driver is not None else base.records
        documents, judged = judge(
            request,
            foreign,
            work / "documents",
            merged=work / MERGED,
            files=files,
            versions=versions,
            records=records,
        )
        phases.end("gates", f"passed; documents: {', '.join(judged.documents)}")
        text = _manifest(request, files | documents, versions).encode()
        digest = digest_of(text)
        signature = request.key.sign(text) if isinstance(request.key, SecretKey) else None
        folder = store.put_image(request.output, text, signature, files | documents)
        remember(request, documents)
        state = "signed with" if signature is not None else "not signed; to be signed with"
        phases.end("manifest", f"{state} key {request.key.number.hex()}")
    forget_old_layers(request.cache / "layers")
    made(record.parent)
    record.write_text(store.folder_name(digest) + "\n")
    return Built(folder, digest, store.read_manifest(folder), reused=False, lines=judged.lines)


def _find_built(record: Path, request: BuildRequest) -> Built | None:
    try:
        folder = request.output / record.read_text().strip()
        checked = check_image(folder, request.public_key, contents=False)
    except (OSError, NeedsHuman):
        return None  # never built, or what was built is not whole any more: build it again
    return Built(folder, checked.digest, checked.manifest, reused=True)


def _base(request: BuildRequest, key: str, foreign: ForeignPrograms, phases: Phases) -> Base:
    folder = request.cache / "base" / key
    with locked(folder.parent / f".{key}.lock"):
        if request.force:
            shutil.rmtree(folder, ignore_errors=True)
        if folder.is_dir():
            os.utime(folder)
            phases.end("base", "reused: same packages")
            return Base(folder)
        base = build_base(request.recipe, request.choices, folder, foreign)
    forget_old(folder.parent, _KEPT_BASES)
    phases.end("base", f"{request.choices.distribution.identifier}, kernel {base.versions['kernel']}")
    return base


def _driver(
    request: BuildRequest, base: Base, base_key: str, foreign: ForeignPrograms, phases: Phases
) -> DriverTree | None:
    if request.recipe.driver is None:
        return None
    key = request.module_key
    name = driver_fingerprint(request.recipe, request.choices, base_key, key.certificate if key is not None else None)
    folder = made(request.cache / "driver") / name
    reused = folder.is_dir() and not request.force
    driver = build_driver(
        request.recipe, base, request.choices, foreign, key, folder, request.cache, force=request.force
    )
    said = f"{driver.versions.get('driver', 'of no version')}, modules signed by {driver.versions['driver-signer']:.16}"
    phases.end("driver", f"reused: {said}" if reused else said)
    return driver


def _trees(
    request: BuildRequest, base: Base, driver: DriverTree | None, work: Path, foreign: ForeignPrograms
) -> list[LayerTree]:
    """The layers before they are packed, the bottom first; `work / MERGED` has them over one another."""
    recipe, merged = request.recipe, work / MERGED
    trees = [LayerTree("base", base.root, expand(base.root, names_of(recipe.root.build_only)))]
    begin_merge(trees[0], merged)

    def add(tree: LayerTree) -> None:
        lay_over(tree, merged)
        trees.append(tree)

    if driver is not None:
        copy_over(driver.root, made(work / "driver"))  # what is kept is not changed
        if recipe.driver is not None and recipe.driver.container_toolkit:
            copy_over(obtain_toolkit(request.choices.architecture, request.cache), work / "driver")
        add(LayerTree("driver", work / "driver"))
    kubelet, site = LayerTree("kubelet", work / "kubelet"), LayerTree("site", work / "site")
    assemble_kubelet(request.ingredients.kubelet, kubelet.root)
    add(kubelet)
    assemble_site(recipe, merged, request.ingredients, request.trusted, site.root)
    add(site)
    compile_agents(recipe, merged, site.root, foreign)
    return trees


def describe_layers(layers: Iterable[PackedLayer]) -> str:
    """`base 61.2 MB (kept), kubelet 18.0 MB, site 1.1 MB`."""
    return ", ".join(f"{each.name} {_megabytes(each.file)}{' (kept)' * each.reused}" for each in layers)


def _manifest(request: BuildRequest, files: Mapping[str, Path], versions: Mapping[str, str]) -> Manifest:
    measured = {name: store.measure(file) for name, file in files.items()}

    def of(kind: str) -> dict[str, FileDigest]:
        return {name.removeprefix(kind): file for name, file in measured.items() if name.startswith(kind)}

    return Manifest(
        recipe=request.recipe.name,
        distribution=request.choices.distribution.identifier,
        architecture=request.choices.architecture,
        kernel=measured["kernel"],
        stage1=measured["stage1"],
        layers=tuple(Layer(name, file) for name, file in of("layer.").items()),
        documents=of("document."),
        kernel_arguments=request.recipe.kernel_arguments,
        versions=versions,
    )


def kubelet_version(kubelet: Path, foreign: ForeignPrograms) -> str:
    """`v1.36.3`, as the kubelet itself says. Raises: NeedsHuman if it does not run here."""
    command = foreign.command([str(kubelet.absolute()), "--version"])
    try:
        done = subprocess.run(command, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise NeedsHuman(
            f"kubelet {kubelet} does not run: {error}", hint=f"give an executable kubelet for {foreign.architecture}"
        ) from error
    match = re.fullmatch(r"Kubernetes (v\S+)", done.stdout.strip())
    if match is None:
        raise NeedsHuman(
            f"kubelet {kubelet} says {done.stdout.strip()[:80]!r}, not 'Kubernetes v…'", hint="give a kubelet"
        )
    return match[1]


def _refuse_foreign(kubelet: Path, wanted: Architecture) -> None:
    with kubelet.open("rb") as stream:
        made_for = read_architecture(stream.read(20))
    if made_for not in (wanted, None):
        raise NeedsHuman(f"kubelet {kubelet} is for {made_for}, the image for {wanted}", hint=f"give one for {wanted}")


def _refuse_secret(join_ca: Path) -> None:
    text = join_ca.read_text(errors="replace")
    if "PRIVATE KEY" in text or "-----BEGIN CERTIFICATE-----" not in text:
        raise NeedsHuman(
            f"join CA {join_ca} is not a file of certificates alone",
            hint="give the CA's certificate; its key never goes into an image",
        )


def _megabytes(file: Path) -> str:
    return f"{file.stat().st_size / 1e6:.1f} MB"


def _tree_bytes(root: Path) -> int:
    return sum(file.lstat().st_size for file in root.rglob("*") if file.is_file() and not file.is_symlink())
