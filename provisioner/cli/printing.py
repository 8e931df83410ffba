"""What the kubectl commands print: tables, names, JSON, YAML."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import click
import yaml

F = TypeVar("F", bound=Callable[..., Any])
Format = Literal["text", "wide", "json", "yaml", "name"]


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o`; without it what a person reads."""
    return click.option(
        "-o", "--output", type=click.Choice(formats), default=None, help="Form of the output [words for people]."
    )


def print_objects(objects: Sequence[Mapping[str, Any]], form: str) -> None:
    """One object as itself, several as a List, as kubectl does."""
    shown: Any = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    if form == "json":
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))
    else:
        click.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=120), nl=False)


def table(header: Sequence[str], rows: Iterable[Sequence[str | None]]) -> str:
    """Columns as wide as they need, three spaces apart; what is not known is `-`. Lines end without spaces."""
    lines = [tuple(header), *(tuple(cell or "-" for cell in row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "".join("   ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines)


def clip(words: str, length: int) -> str:
    """At most `length` characters."""
    return words if len(words) <= length else words[: length - 1] + "…"
