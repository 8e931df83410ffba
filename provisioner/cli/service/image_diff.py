"""`provisioner image diff`: what is another in one image than in another, for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import click

from provisioner.cli import printer
from provisioner.cli.options import FILE, FOLDER
from provisioner.image.finished.sign import read_public_key
from provisioner.image.gates.documents.described import describe_image, find_image
from provisioner.image.gates.documents.difference import Described, Difference, PartChange, VersionChange, compare

_LARGEST: Final = 10
_SMALLEST_TOLD_BYTES: Final = 10_000


@click.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--key", "key_file", type=FILE, required=True, help="Public key that both images must be signed with.")
@click.option(
    "--store",
    "images",
    type=FOLDER,
    help="Image store in which A and B are names or digests; without it they are folders.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def diff(before: str, after: str, key_file: Path, images: Path | None, output: str) -> None:
    """Show what is another in image B than in image A: layers, versions, packages, kernel modules, what grew."""
    key = read_public_key(key_file)
    first, second = (describe_image(find_image(name, images), key) for name in (before, after))
    difference = compare(first, second)
    if output == "json":
        told = {"before": first.digest, "after": second.digest, **asdict(difference)}
        printer.show(json.dumps(told, indent=2, sort_keys=True))
    else:
        printer.show("\n".join(render(first, second, difference)))


def render(before: Described, after: Described, difference: Difference) -> Iterator[str]:
    """The lines that a person reads."""
    yield f"from {before.name} ({before.digest})"
    yield f"to   {after.name} ({after.digest})"
    yield ""
    if difference.is_empty:
        yield "Nothing that boots is another."
        return
    yield from (_part(part) for part in difference.parts if not part.name.startswith("document."))
    yield ""
    yield (
        f"A server that has all of A fetches {_megabytes(difference.fetched_bytes)} for B; "
        f"one that has nothing, {_megabytes(difference.after_bytes)}."
    )
    yield from _versions("settings", difference.settings)
    yield from _versions("versions", difference.versions)
    if difference.packages is None or difference.growth is None:
        yield ""
        yield "Packages, modules and sizes cannot be compared: an image of format 1 does not tell them."
        return
    yield from _versions("packages", difference.packages)
    yield from _modules(difference.modules_added or (), difference.modules_removed or ())
    largest = [each for each in difference.growth if abs(each.bytes) >= _SMALLEST_TOLD_BYTES][:_LARGEST]
    if largest:
        yield ""
        yield "largest differences, packed"
        yield from (f"  {each.bytes / 1e6:+8.2f} MB  {each.name}" for each in largest)


def _part(part: PartChange) -> str:
    sizes = _megabytes(part.after_bytes or part.before_bytes)
    if part.change == "changed":
        grown = (part.after_bytes - part.before_bytes) / 1e6
        sizes = f"{_megabytes(part.before_bytes)} → {_megabytes(part.after_bytes)} ({grown:+.1f} MB)"
    return f"  {part.name:<20}{part.change:<9}{sizes}"


def _versions(title: str, changes: Sequence[VersionChange]) -> Iterator[str]:
    if not changes:
        return
    added = [each for each in changes if not each.before]
    removed = [each for each in changes if not each.after]
    changed = [each for each in changes if each.before and each.after]
    yield ""
    yield f"{title}: {len(changed)} changed, {len(added)} added, {len(removed)} removed"
    yield from (f"  ~ {each.name}  {each.before} → {each.after}" for each in changed)
    yield from (f"  + {each.name}  {each.after}" for each in added)
    yield from (f"  - {each.name}  {each.before}" for each in removed)


def _modules(added: Sequence[str], removed: Sequence[str]) -> Iterator[str]:
    if added or removed:
        yield ""
        yield f"kernel modules: {len(added)} added, {len(removed)} removed"
        yield from (f"  + {name}" for name in added)
        yield from (f"  - {name}" for name in removed)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
