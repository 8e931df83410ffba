"""All gates, in one pass over the finished image; and the documents that tell what it is made of."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import provisioner
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.wording import some
from provisioner.image.gates.allowed import reasons
from provisioner.image.gates.documents.sbom import SbomContents, render_sbom
from provisioner.image.gates.documents.sizes import (
    ComponentSize,
    SizeReport,
    by_name,
    decode_sizes,
    encode_sizes,
    growth,
)
from provisioner.image.gates.failure import GateFailure, GatesFailed
from provisioner.image.gates.leftovers import check_leftovers, check_packed_times, check_python, check_times
from provisioner.image.gates.libraries import check_libraries
from provisioner.image.gates.licences import check_licences, licence_archive
from provisioner.image.gates.modules import (
    ModprobeOutput,
    asked_for,
    check_firmware,
    check_modules,
    check_symbols,
    probe_modules,
    read_modules,
)
from provisioner.image.gates.packages.go_binary import GoBuild, versioned
from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.packages.osv import read_vulnerabilities
from provisioner.image.gates.paths import check_paths
from provisioner.image.gates.privileges import check_privileges
from provisioner.image.gates.read.components import OWN, components
from provisioner.image.gates.read.kernel_image import read_exports, read_release
from provisioner.image.gates.read.squashfs import Squashfs, read_squashfs
from provisioner.image.gates.read.tree import Tree, read_tree
from provisioner.image.gates.request import GateReport, GateRequest
from provisioner.image.gates.secrets import check_secrets, check_stage1
from provisioner.image.gates.sizes import check_sizes, megabytes
from provisioner.image.gates.versions import check_agreement, check_driver, check_kernel, driver_versions
from provisioner.image.gates.vulnerabilities import Hit, check_vulnerabilities, find_hits, parts_of
from provisioner.image.tools.foreign import ForeignPrograms

# What stage-1 holds: an archive of files one behind the other, unpacked.


def read_stage1(file: Path) -> bytes:
    """Raises: Refused if it is not packed with zstd."""
    done = subprocess.run(["zstd", "-dcq", str(file)], capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Refused(
            f"stage-1 {file} cannot be unpacked: {done.stderr.decode(errors='replace')[:200]}", hint="build it again"
        )
    return done.stdout


# Why a package is in the image: the recipe names some, those bring others along.

ESSENTIAL: Final = "the distribution's own minimum"


def purposes(packages: Iterable[InstalledPackage], named: Mapping[str, str]) -> dict[str, str]:
    """Package → purpose: its own of those that are named, else that of the first (in `named`'s order) that needs it."""
    known = {package.name: package for package in packages}
    found = {name: purpose for name, purpose in named.items() if name in known}
    for name, purpose in list(found.items()):
        waiting = list(known[name].depends)
        while waiting:
            needed = waiting.pop(0)
            if needed in known and needed not in found:
                found[needed] = purpose
                waiting += known[needed].depends
    return {name: found.get(name, ESSENTIAL) for name in known}


ProbesModules = Callable[[Path, str, Iterable[str], ForeignPrograms], ModprobeOutput]

_TOLD: Final = 5


def run_gates(request: GateRequest, probe: ProbesModules = probe_modules) -> GateReport:
    """Judge the image. Reads, and runs the image's own modprobe (`probe`); writes nothing.

    Raises: GatesFailed, a NeedsHuman, with all that any gate found.
    """
    tree = read_tree(request.root)
    packed = {layer: read_squashfs(file) for layer, file in request.packed.items()}
    owners = components(tree, request.records.packages)
    report = measure(request, tree, packed, owners)
    hits = _hits(request, tree)
    exceptions = reasons(request.rules.allow_vulnerabilities)
    vulnerable = check_vulnerabilities(hits, exceptions, request.today)
    failures = sorted({*_judge(request, tree, packed, report, probe), *vulnerable})
    if failures:
        raise GatesFailed(request.recipe, failures)
    documents = {
        "sbom": render_sbom(_contents(request, tree, packed, owners)),
        "sizes": encode_sizes(report),
        "licences": licence_archive(request.records, request.source_date_epoch),
    }
    return GateReport(documents=documents, lines=(*_lines(report, request.previous), *_unfixed(hits)))


def _judge(
    request: GateRequest, tree: Tree, packed: Mapping[str, Squashfs], report: SizeReport, probe: ProbesModules
) -> Iterator[GateFailure]:
    rules, versions = request.rules, request.versions
    kernel = request.kernel.read_bytes()
    modules, unreadable = read_modules(tree)
    release = versions["kernel"]
    needed = [name for group in rules.needed_modules for name in group.names]
    probed = probe(request.root, release, asked_for(tree, release, needed), request.foreign)
    yield from check_sizes(
        report.parts, rules.root_budget_bytes, rules.stage1_budget_bytes, list(by_name(report.components).items())
    )
    yield from unreadable
    yield from check_modules(tree, release, probed)
    yield from check_symbols(modules, read_exports(kernel), reasons(rules.allow_missing_symbols))
    yield from check_firmware(tree, modules, reasons(rules.allow_missing_firmware))
    yield from check_kernel(tree, modules, release, read_release(kernel))
    yield from check_driver(driver_versions(tree, modules, request.records.packages), versions)
    yield from check_agreement(versions, rules.agree)
    yield from check_libraries(tree, request.architecture, reasons(rules.allow_missing_libraries))
    yield from check_privileges(tree, reasons(rules.allow_setuid), reasons(rules.allow_world_writable))
    yield from check_secrets(tree, reasons(rules.allow_public_keys))
    yield from check_stage1(read_stage1(request.stage1))
    yield from check_leftovers(tree, reasons(rules.allow_leftovers))
    yield from check_times(tree, request.source_date_epoch)
    yield from check_packed_times(packed, request.source_date_epoch)
    yield from check_python(tree)
    yield from check_paths(tree, reasons(rules.needed_files), reasons(rules.forbid))
    yield from check_licences(request.records)


def _programs(request: GateRequest, tree: Tree) -> dict[str, GoBuild]:
    """Those that Go built, by path."""
    return {entry.path: versioned(entry.go, request.go_versions) for entry in tree.files() if entry.go is not None}


def _hits(request: GateRequest, tree: Tree) -> list[Hit]:
    if request.vulnerabilities is None:
        return []
    programs = _programs(request, tree)
    parts = parts_of(request.distribution, request.records.packages, programs)
    return find_hits(parts, read_vulnerabilities(request.vulnerabilities))


def _unfixed(hits: Sequence[Hit]) -> Iterator[str]:
    names = list(dict.fromkeys(hit.identifier for hit in hits if not hit.fix and hit.severity != 0))
    if names:
        yield f"known vulnerabilities without a fix: {some(names, _TOLD)}"


def measure(request: GateRequest, tree: Tree, packed: Mapping[str, Squashfs], owners: Mapping[str, str]) -> SizeReport:
    """The size report: each component in each layer."""
    versions = {package.name: package.version for package in request.records.packages}
    versions |= {
        entry.go.main.path: entry.go.main.version for entry in tree.files() if entry.go is not None and entry.go.main
    }
    why = purposes(request.records.packages, request.purposes) if request.purposes else {}
    sums: dict[tuple[str, str], list[int]] = {}
    for layer, squashfs in packed.items():
        for file in squashfs.files:
            owner = owners.get(file.path)
            if owner is None:
                continue  # a folder, or a file that a layer above replaces
            total = sums.setdefault((layer, owner), [0, 0, 0])
            total[0] += 1
            total[1] += file.size_bytes
            total[2] += file.packed_bytes
    sizes = [
        ComponentSize(
            layer=layer,
            name=name,
            version=versions.get(name, provisioner.__version__ if name == OWN else ""),
            purpose=why.get(name, ""),
            files=files,
            unpacked_bytes=unpacked,
            packed_bytes=inside,
        )
        for (layer, name), (files, unpacked, inside) in sums.items()
    ]
    return SizeReport(
        recipe=request.recipe,
        distribution=request.distribution,
        architecture=request.architecture,
        parts={name: file.size_bytes for name, file in request.files.items()},
        components=tuple(sorted(sizes)),
        modules={
            entry.path.rpartition("/")[2].removesuffix(".ko"): entry.size_bytes
            for entry in tree.files()
            if entry.path.endswith(".ko")
        },
    )


def _contents(
    request: GateRequest, tree: Tree, packed: Mapping[str, Squashfs], owners: Mapping[str, str]
) -> SbomContents:
    placed: dict[str, set[str]] = {}
    for layer, squashfs in packed.items():
        part = layer if layer in request.files else f"layer.{layer}"
        for file in squashfs.files:
            if (owner := owners.get(file.path)) is not None:
                placed.setdefault(owner, set()).add(part)
                placed.setdefault(file.path, set()).add(part)
    for package in request.records.packages:
        if package.unpacked_for in request.files:
            placed.setdefault(package.name, set()).add(package.unpacked_for)
    names = {package.name for package in request.records.packages}
    programs = _programs(request, tree)
    return SbomContents(
        recipe=request.recipe,
        distribution=request.distribution,
        architecture=request.architecture,
        epoch=request.source_date_epoch,
        version=provisioner.__version__,
        parts=request.files,
        packages=tuple(package for package in request.records.packages if package.name in placed),
        placed={name: tuple(sorted(parts)) for name, parts in placed.items()},
        programs=programs,
        program_digests={path: tree.entries[path].sha256 for path in programs},
        owners={path: owners[path] for path in programs if owners[path] in names},
    )


def _lines(report: SizeReport, previous: bytes | None) -> Iterator[str]:
    sizes = sorted(by_name(report.components).items(), key=lambda each: (-each[1], each[0]))[:_TOLD]
    yield "largest: " + ", ".join(f"{name} {megabytes(size)}" for name, size in sizes)
    if previous is None:
        return
    try:
        before = decode_sizes(previous)
    except Refused as error:
        yield f"not compared with the last build: {error}"
        return
    difference = report.root_bytes - before.root_bytes
    changed = growth(by_name(before.components), by_name(report.components))[:_TOLD]
    told = ", ".join(f"{each.name} {each.bytes / 1e6:+.1f} MB" for each in changed if abs(each.bytes) >= 50_000)
    yield f"since the last build: layers {difference / 1e6:+.1f} MB" + (f" ({told})" if told else "")
