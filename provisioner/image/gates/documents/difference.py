"""What is another in one image than in another: parts, versions, packages, kernel modules, and what grew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from provisioner.image.finished.manifest import FileDigest, Manifest
from provisioner.image.gates.documents.sizes import Growth, SizeReport, by_name, growth

Change = Literal["same", "changed", "new", "gone"]

_FETCHED: Final = ("kernel", "stage1", "root", "layer.")


@dataclass(frozen=True)
class Described:
    """An image as its signed manifest tells it; `sizes` None if it has no such document (format 1)."""

    name: str
    digest: str
    manifest: Manifest
    sizes: SizeReport | None


@dataclass(frozen=True)
class PartChange:
    """One part: bytes in the first and the second image, 0 where it is not there."""

    name: str
    change: Change
    before_bytes: int
    after_bytes: int


@dataclass(frozen=True)
class VersionChange:
    """A version of the manifest, of a package or of a setting; empty where there is none."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class Difference:
    """`fetched_bytes`: what a server that has all of the first image's parts fetches to boot the second, and
    `after_bytes` what one fetches that has nothing. None stands for what one of the images does not tell."""

    parts: tuple[PartChange, ...]
    settings: tuple[VersionChange, ...]
    versions: tuple[VersionChange, ...]
    packages: tuple[VersionChange, ...] | None
    modules_added: tuple[str, ...] | None
    modules_removed: tuple[str, ...] | None
    growth: tuple[Growth, ...] | None
    fetched_bytes: int
    after_bytes: int

    @property
    def is_empty(self) -> bool:
        """Whether both are the same image, but for what documents say."""
        return all(part.change == "same" or part.name.startswith("document.") for part in self.parts) and not (
            self.settings or self.versions
        )


def compare(before: Described, after: Described) -> Difference:
    """From `before` to `after`."""
    old, new = before.manifest.files(), after.manifest.files()
    known = {file.sha256 for file in old.values()}
    wanted = {name: file for name, file in new.items() if name.startswith(_FETCHED)}
    sizes = (before.sizes, after.sizes) if before.sizes is not None and after.sizes is not None else None
    return Difference(
        parts=tuple(_part(name, old.get(name), new.get(name)) for name in dict.fromkeys([*new, *old])),
        settings=(*_changes(_settings(before.manifest), _settings(after.manifest)), *_arguments(before, after)),
        versions=_changes(before.manifest.versions, after.manifest.versions),
        packages=_changes(_packages(sizes[0]), _packages(sizes[1])) if sizes else None,
        modules_added=tuple(sorted(sizes[1].modules.keys() - sizes[0].modules.keys())) if sizes else None,
        modules_removed=tuple(sorted(sizes[0].modules.keys() - sizes[1].modules.keys())) if sizes else None,
        growth=tuple(growth(by_name(sizes[0].components), by_name(sizes[1].components))) if sizes else None,
        fetched_bytes=sum(file.size_bytes for file in wanted.values() if file.sha256 not in known),
        after_bytes=sum(file.size_bytes for file in wanted.values()),
    )


def _part(name: str, before: FileDigest | None, after: FileDigest | None) -> PartChange:
    if before is None or after is None:
        change: Change = "new" if before is None else "gone"
    else:
        change = "same" if before.sha256 == after.sha256 else "changed"
    return PartChange(name, change, before.size_bytes if before else 0, after.size_bytes if after else 0)


def _settings(manifest: Manifest) -> dict[str, str]:
    return {
        "recipe": manifest.recipe,
        "distribution": manifest.distribution,
        "architecture": manifest.architecture,
        "layers": " ".join(layer.name for layer in manifest.layers),
    }


def _arguments(before: Described, after: Described) -> tuple[VersionChange, ...]:
    """Only the words that the other lacks; all of them where nothing but their order is another."""
    old, new = before.manifest.kernel_arguments, after.manifest.kernel_arguments
    if old == new:
        return ()
    gone, come = [word for word in old if word not in new], [word for word in new if word not in old]
    if not gone and not come:
        gone, come = list(old), list(new)
    return (VersionChange("kernel-arguments", " ".join(gone), " ".join(come)),)


def _packages(sizes: SizeReport) -> dict[str, str]:
    return {each.name: each.version for each in sizes.components if each.version}


def _changes(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[VersionChange, ...]:
    return tuple(
        VersionChange(name, before.get(name, ""), after.get(name, ""))
        for name in sorted(before.keys() | after.keys())
        if before.get(name, "") != after.get(name, "")
    )
