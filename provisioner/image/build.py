"""Build an image: base -> trees of the layers over it -> a squashfs each -> stage-1 -> signed manifest -> store.

Nothing is built twice: the base is kept by its inputs, each layer's squashfs by its content, an image by its inputs.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from provisioner.api.errors import NeedsHuman, NotFound
from provisioner.api.server import Architecture
from provisioner.api.values import Sha256Digest
from provisioner.image.base import Base, build_base
from provisioner.image.command import must_be_root, require
from provisioner.image.elf import read_architecture
from provisioner.image.finished import store
from provisioner.image.finished.check import check_image
from provisioner.image.finished.manifest import Layer, Manifest, digest_of
from provisioner.image.finished.sign import SecretKey
from provisioner.image.foreign import Foreign, find_foreign
from provisioner.image.inputs import base_fingerprint, image_fingerprint
from provisioner.image.layers import (
    MERGED,
    LayerTree,
    PackedLayer,
    begin_merge,
    expand,
    forget_old,
    lay_over,
    pack,
)
from provisioner.image.plan import Choices
from provisioner.image.recipe import Recipe
from provisioner.image.root import Ingredients, assemble_kubelet, assemble_site, compile_agents
from provisioner.image.stage1 import pack_stage1

Report = Callable[[str, str, float], None]
"""Called when a phase has ended: its name, what came of it, and its seconds."""
PHASES = ("base", "trees", "layers", "stage-1", "manifest")
"""The phases in their order."""

_KEPT_BASES = 4


@dataclass(frozen=True)
class Built:
    """An image in the store. `reused`: it had been built from the same inputs before."""

    folder: Path
    digest: Sha256Digest
    manifest: Manifest
    reused: bool


@dataclass(frozen=True, kw_only=True)
class Request:
    """One build."""

    recipe: Recipe
    choices: Choices
    ingredients: Ingredients
    key: SecretKey
    output: Path
    cache: Path
    force: bool = False
    interpreter: Path | None = None
    """The qemu-user by which programs of another architecture are run, if not the one that is found here."""


def build_image(request: Request, report: Report, clock: Callable[[], float] = time.monotonic) -> Built:
    """Build the image, or find it built already.

    Raises: NeedsHuman naming what is missing (a program, an archive, a file) and the remedy.
    """
    for what, file in (("kubelet", request.ingredients.kubelet), ("join CA", request.ingredients.join_ca)):
        if not file.is_file():
            raise NotFound(
                f"{what} {file} does not exist", hint=f"give the file with --{what.lower().replace(' ', '-')}"
            )
    _refuse_secret(request.ingredients.join_ca)
    _refuse_foreign(request.ingredients.kubelet, request.choices.architecture)
    base_key = base_fingerprint(request.recipe, request.choices)
    image_key = image_fingerprint(request.recipe, request.choices, request.ingredients, request.key.public, base_key)
    record = request.cache / "built" / image_key
    if not request.force and (found := _find_built(record, request)):
        return found
    must_be_root()
    require("mmdebstrap", "mksquashfs", "dpkg-deb", "zstd", "chroot")
    os.umask(0o022)  # folders of the image can be read by all, whoever builds it
    phases = _Phases(report, clock)
    foreign = find_foreign(request.choices.architecture, interpreter=request.interpreter)
    base = _base(request, base_key, foreign, phases)
    with tempfile.TemporaryDirectory(prefix="image-", dir=_made(request.cache / "work")) as name:
        work = Path(name)
        trees = _trees(request, base, work, foreign)
        phases.end("trees", ", ".join(tree.name for tree in trees) + f": {_tree_bytes(work / MERGED) / 1e6:.0f} MB")
        layers = _layers(request, trees, work)
        phases.end("layers", describe_layers(layers))
        files = {f"layer.{layer.name}": layer.file for layer in layers} | {"kernel": base.kernel}
        files["stage1"] = work / "stage1.img"
        files["stage1"].write_bytes(pack_stage1(request.recipe, base, request.key.public, foreign))
        phases.end("stage-1", f"{_megabytes(files['stage1'])}, kernel {_megabytes(base.kernel)}")
        manifest = _manifest(request, base, files, foreign)
        text = manifest.encode()
        digest = digest_of(text)
        folder = store.put_image(request.output, text, request.key.sign(text), files)
        phases.end("manifest", f"signed with key {request.key.number.hex()}")
    forget_old(request.cache / "layers")
    _made(record.parent)
    record.write_text(store.folder_name(digest) + "\n")
    return Built(folder, digest, manifest, reused=False)


def _find_built(record: Path, request: Request) -> Built | None:
    try:
        folder = request.output / record.read_text().strip()
        checked = check_image(folder, request.key.public, contents=False)
    except (OSError, NeedsHuman):
        return None  # never built, or what was built is not whole any more: build it again
    return Built(folder, checked.digest, checked.manifest, reused=True)


def _base(request: Request, key: str, foreign: Foreign, phases: _Phases) -> Base:
    folder = request.cache / "base" / key
    # Two builds at once (a demo and a test) need one base; the second waits for the first.
    with _locked(_made(folder.parent) / f".{key}.lock"):
        if request.force:
            shutil.rmtree(folder, ignore_errors=True)
        if folder.is_dir():
            os.utime(folder)
            phases.end("base", "reused: same packages")
            return Base(folder)
        base = build_base(request.recipe, request.choices, folder, foreign)
    _forget_old(folder.parent)
    phases.end("base", f"{request.choices.distribution.identifier}, kernel {base.versions['kernel']}")
    return base


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _forget_old(bases: Path) -> None:
    """Keep the bases that were used last: each is some 400 MB."""
    whole = [folder for folder in bases.iterdir() if folder.is_dir() and not folder.name.endswith(".partial")]
    for folder in sorted(whole, key=lambda folder: folder.stat().st_mtime)[:-_KEPT_BASES]:
        shutil.rmtree(folder, ignore_errors=True)


def _trees(request: Request, base: Base, work: Path, foreign: Foreign) -> list[LayerTree]:
    """The layers before they are packed, the bottom first; `work / MERGED` has them over one another."""
    recipe, merged = request.recipe, work / MERGED
    trees = [LayerTree("base", base.root, expand(base.root, recipe.root.build_only))]
    begin_merge(trees[0], merged)

    def add(tree: LayerTree) -> None:
        lay_over(tree, merged)
        trees.append(tree)

    kubelet, site = LayerTree("kubelet", work / "kubelet"), LayerTree("site", work / "site")
    assemble_kubelet(request.ingredients.kubelet, kubelet.root)
    add(kubelet)
    assemble_site(recipe, merged, request.ingredients, request.key.public, site.root)
    add(site)
    compile_agents(recipe, merged, site.root, foreign)
    return trees


def _layers(request: Request, trees: list[LayerTree], work: Path) -> list[PackedLayer]:
    if request.recipe.squashfs_merge:
        trees = [LayerTree(MERGED, work / MERGED)]
    return [pack(request.recipe, tree, request.cache / "layers", force=request.force) for tree in trees]


def describe_layers(layers: Iterable[PackedLayer]) -> str:
    """`base 61.2 MB (kept), kubelet 18.0 MB, site 1.1 MB`."""
    return ", ".join(f"{each.name} {_megabytes(each.file)}{' (kept)' * each.reused}" for each in layers)


def _manifest(request: Request, base: Base, files: Mapping[str, Path], foreign: Foreign) -> Manifest:
    measured = {name: store.measure(file) for name, file in files.items()}
    return Manifest(
        recipe=request.recipe.name,
        distribution=request.choices.distribution.identifier,
        architecture=request.choices.architecture,
        kernel=measured["kernel"],
        stage1=measured["stage1"],
        layers=tuple(
            Layer(name.removeprefix("layer."), file) for name, file in measured.items() if name.startswith("layer.")
        ),
        documents={
            name.removeprefix("document."): file for name, file in measured.items() if name.startswith("document.")
        },
        kernel_arguments=request.recipe.kernel_arguments,
        versions=base.versions | {"kubelet": kubelet_version(request.ingredients.kubelet, foreign)},
    )


def kubelet_version(kubelet: Path, foreign: Foreign) -> str:
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


class _Phases:
    """Seconds between the ends of phases."""

    def __init__(self, report: Report, clock: Callable[[], float]) -> None:
        self._report, self._clock, self._last = report, clock, clock()

    def end(self, name: str, outcome: str) -> None:
        now = self._clock()
        self._report(name, outcome, now - self._last)
        self._last = now


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _megabytes(file: Path) -> str:
    return f"{file.stat().st_size / 1e6:.1f} MB"


def _tree_bytes(root: Path) -> int:
    return sum(file.lstat().st_size for file in root.rglob("*") if file.is_file() and not file.is_symlink())
