"""Which Images and folders of a store go, and why each of the others stays. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.values import Sha256Digest
from provisioner.api.machinery.wording import some

_NAMED: Final = 2


@dataclass(frozen=True, kw_only=True)
class RetentionRules:
    """keep: so many of each kind (recipe, distribution, architecture), the newest. grace: what is younger stays."""

    keep: int = 3
    grace: timedelta = timedelta(hours=24)


@dataclass(frozen=True, kw_only=True)
class PublishedImage:
    """What of an Image object counts. `line`: images of it replace one another."""

    name: str
    uid: str
    resource_version: str
    digest: Sha256Digest
    line: tuple[str, str, str]
    created: datetime | None
    """None: it cannot be read, and the image stays."""
    is_kept: bool = False
    """A person said so, by the label provisioner.dev/keep."""


@dataclass(frozen=True)
class StoredImage:
    """An image's folder in the store. `written`: when it, or its publication, was written last."""

    digest: Sha256Digest
    written: datetime


Uses = Mapping[str, Mapping[str, Collection[str]]]
"""By name or digest of an Image: by kind and field, the objects that name it there."""


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What becomes of an Image, or of a folder without one. `image`: its object, if it has one."""

    digest: Sha256Digest
    goes: bool
    why: str
    image: PublishedImage | None = None
    is_stored: bool = False

    @property
    def label(self) -> str:
        """How people know it."""
        return self.image.name if self.image is not None else self.digest


def decide_retention(
    images: Sequence[PublishedImage],
    stored: Sequence[StoredImage],
    uses: Uses,
    rules: RetentionRules,
    now: datetime,
    *,
    begun: Collection[Sha256Digest] = (),
) -> tuple[Fate, ...]:
    """One fate for each Image, and for each folder that has none; those that go come last.

    begun: images of which the object was deleted by a run that was ended since: what is left of them waits for nothing.
    """
    places, written = _places(images), {each.digest: each.written for each in stored}
    fates = [_fate(image, places[image.name], written.get(image.digest), uses, rules, now) for image in images]
    stays = {fate.digest for fate in fates if not fate.goes}
    known = {image.digest for image in images}
    fates += [
        _fate_of_rest(each.digest, each.written, uses, rules, now, begun=each.digest in begun)
        for each in stored
        if each.digest not in known
    ]
    fates += [
        _fate_of_rest(digest, None, uses, rules, now, begun=True) for digest in sorted({*begun} - known - {*written})
    ]
    for number, fate in enumerate(fates):
        if fate.goes and fate.digest in stays:
            other = next(each.label for each in fates if not each.goes and each.digest == fate.digest)
            fates[number] = Fate(
                digest=fate.digest, goes=False, why=f"Image {other!r} has the same digest and stays", image=fate.image,
                is_stored=fate.is_stored,
            )  # fmt: skip
    return tuple(sorted(fates, key=lambda fate: (fate.goes, fate.label)))


def _fate(
    image: PublishedImage, place: int, written: datetime | None, uses: Uses, rules: RetentionRules, now: datetime
) -> Fate:
    line = " ".join(image.line)
    used = _words_of(uses, image.name, image.digest)
    if used:
        goes, why = False, used
    elif image.is_kept:
        goes, why = False, "its label provisioner.dev/keep says so"
    elif image.created is None:
        goes, why = False, "its creationTimestamp cannot be read"
    elif now - image.created < rules.grace:
        goes, why = False, f"it is {_age(now - image.created)} old, younger than {_age(rules.grace)}"
    elif written is not None and now - written < rules.grace:
        goes, why = False, f"its folder was written {_age(now - written)} ago; perhaps it is being published again"
    elif place < rules.keep:
        goes, why = False, f"it is among the last {rules.keep} of {line}"
    else:
        goes, why = True, f"nothing names it, and {place} newer ones of {line} are there"
    return Fate(digest=image.digest, goes=goes, why=why, image=image, is_stored=written is not None)


def _fate_of_rest(
    digest: Sha256Digest, written: datetime | None, uses: Uses, rules: RetentionRules, now: datetime, *, begun: bool
) -> Fate:
    """Of what has no Image: a folder, or, where there is none either, what a registry may have yet."""
    used, age = _words_of(uses, digest), now - (written or now)
    if used:
        goes, why = False, f"it has no Image, but is {used}"
    elif begun and (written is None or age >= rules.grace):  # else it was published again since
        goes, why = True, "its Image was deleted by an earlier run, which did not get to its end"
    elif age < rules.grace:
        goes, why = False, f"it has no Image; perhaps it is being published: it came {_age(age)} ago"
    else:
        goes, why = True, f"it has no Image, and came {_age(age)} ago"
    return Fate(digest=digest, goes=goes, why=why, is_stored=written is not None)


def _places(images: Sequence[PublishedImage]) -> dict[str, int]:
    """How many of its line are newer, by name."""
    lines: dict[tuple[str, str, str], list[PublishedImage]] = defaultdict(list)
    for image in images:
        lines[image.line].append(image)
    places: dict[str, int] = {}
    for line in lines.values():
        # One whose time cannot be read stays anyway, and takes no place from others.
        line.sort(key=lambda image: (image.created is not None, image.created, image.name), reverse=True)
        places |= {image.name: place for place, image in enumerate(line)}
    return places


def _words_of(uses: Uses, *keys: str) -> str:
    """Who names it, in words: a few by name, the others by their number."""
    found: dict[str, set[str]] = defaultdict(set)
    for key in keys:
        for where, names in uses.get(key, {}).items():
            found[where] |= set(names)
    if not found:
        return ""
    said = []
    for where, names in sorted(found.items()):
        said.append(f"{where} of {some(sorted(names), _NAMED)}")
    return f"named by {'; '.join(said)}"


def _age(span: timedelta) -> str:
    hours = span.total_seconds() / 3600
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{max(hours, 0):.1f} h"
