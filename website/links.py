"""Links in pages that are written for a checkout, as links within the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


class BrokenLink(ValueError):
    """A page names a file that the checkout does not have."""


def relink(markdown: str, *, source: str, page: str, pages: Mapping[str, str], checkout: Path) -> str:
    """The Markdown of the file `source` (a path in the checkout), to be shown as the page `page` of the site.

    `pages` says for each file of the checkout that the site shows which page it is. Another file is named, and not
    linked: the site has no copy of it. Links to other hosts, and to places in the same page, stay.

    Raises: BrokenLink for a file that is not there.
    """
    folder, here = posixpath.dirname(source), posixpath.dirname(page)

    def replace(match: re.Match[str]) -> str:
        picture, text, target, anchor = match.group(1), match.group(2), match.group(3), match.group(4) or ""
        path = posixpath.normpath(posixpath.join(folder, target))
        if path in pages:
            return f"{picture}[{text}]({posixpath.relpath(pages[path], here or '.')}{anchor})"
        if path.startswith("..") or not (checkout / path).exists():
            raise BrokenLink(f"{source} links to {target}, and there is no file {path}: mend the link")
        return f"{text} (`{path}` in the checkout)"

    return "".join(part if fenced else _LINK.sub(replace, part) for part, fenced in _without_fences(markdown))


def _without_fences(markdown: str) -> list[tuple[str, bool]]:
    """The text in pieces, with whether a piece is a block of code."""
    pieces = re.split(r"(^```.*?^```[ \t]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return [(piece, piece.startswith("```")) for piece in pieces]
