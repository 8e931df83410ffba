"""How large each part of an image is, and each component in it: packed, as servers fetch it, and unpacked."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from provisioner.api.machinery.errors import Refused

_FORMAT: Final = 1
_MAX_BYTES: Final = 16 << 20


@dataclass(frozen=True, order=True, kw_only=True)
class ComponentSize:
    """One component in one layer. `version` empty if it has none of its own."""

    layer: str
    name: str
    version: str = ""
    purpose: str = ""
    files: int = 0
    unpacked_bytes: int = 0
    packed_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class SizeReport:
    """`parts`: bytes of each file of the image by name. `components` sorted by layer and name.

    `versions` are the manifest's. `modules`: kernel modules of the root, by name with their size unpacked.
    """

    recipe: str
    distribution: str
    architecture: str
    parts: Mapping[str, int]
    components: tuple[ComponentSize, ...]
    modules: Mapping[str, int]

    @property
    def root_bytes(self) -> int:
        """All layers."""
        return sum(size for name, size in self.parts.items() if name == "root" or name.startswith("layer."))


@dataclass(frozen=True)
class Growth:
    """A component that has another size than before: `before` 0 of a new one, `after` 0 of one that is gone."""

    name: str
    before: int
    after: int

    @property
    def bytes(self) -> int:
        return self.after - self.before


def encode_sizes(report: SizeReport) -> bytes:
    """As JSON, the same bytes for the same report."""
    return (json.dumps({"format": _FORMAT, **asdict(report)}, indent=1, sort_keys=True) + "\n").encode()


def decode_sizes(data: bytes) -> SizeReport:
    """Raises: Refused if it is no report of this format."""
    if len(data) > _MAX_BYTES:
        raise Refused(f"the size report has {len(data)} bytes, more than {_MAX_BYTES}", hint="build the image again")
    try:
        loaded: dict[str, Any] = json.loads(data)
        if loaded.pop("format") != _FORMAT:
            raise ValueError("it is of another format")
        loaded["components"] = tuple(ComponentSize(**each) for each in loaded["components"])
        report = SizeReport(**loaded)
        _must_be_sizes(report)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Refused(f"the size report cannot be read: {error}", hint="build the image again") from error
    return report


def _must_be_sizes(report: SizeReport) -> None:
    sizes = [*report.parts.values(), *report.modules.values()]
    sizes += [size for each in report.components for size in (each.packed_bytes, each.unpacked_bytes, each.files)]
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError("a size is no whole number")
    texts = [text for each in report.components for text in (each.layer, each.name, each.version, each.purpose)]
    texts += [*report.parts, *report.modules, report.recipe, report.distribution, report.architecture]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a name is no text")


def growth(before: Mapping[str, int], after: Mapping[str, int]) -> list[Growth]:
    """What has another size, the largest difference first."""
    names = before.keys() | after.keys()
    changed = [Growth(name, before.get(name, 0), after.get(name, 0)) for name in names]
    return sorted((each for each in changed if each.bytes), key=lambda each: (-abs(each.bytes), each.name))


def by_name(components: Iterable[ComponentSize]) -> dict[str, int]:
    """Packed bytes of each component, over all layers."""
    total: dict[str, int] = {}
    for each in components:
        total[each.name] = total.get(each.name, 0) + each.packed_bytes
    return total
