"""What the kubectl commands print: tables, names, JSON, YAML.

Much of it was written by tenants, nodes and askers: no character of it reaches a terminal that would be an order to it.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click
import yaml

from provisioner.api.machinery.wording import plain
from provisioner.cli import printer
from provisioner.cli.options import F

WIDTH: Final = 110
LABEL: Final = 12

Cell = str | int | None


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o`; without it what a person reads."""
    return click.option("-o", "--output", type=click.Choice(formats), help="Form of the output [words for people].")


def print_in_form(form: str | None, objects: Callable[[], Sequence[Mapping[str, Any]]], names: Iterable[str]) -> bool:
    """What `-o json`, `yaml` and `name` ask for, as kubectl has them; False if it is another form."""
    if form in ("json", "yaml"):
        print_objects(objects(), form)
    elif form == "name":
        printer.say(*names)
    else:
        return False
    return True


def print_objects(objects: Sequence[Mapping[str, Any]], form: str) -> None:
    """One object as itself, several as a List, as kubectl does."""
    shown: Any = objects[0] if len(objects) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    if form == "json":
        told = json.dumps(shown, indent=2, ensure_ascii=False)
        printer.show("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in told))
    else:
        told = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=120)
        if not all(c.isprintable() or c == "\n" for c in told):
            told = yaml.safe_dump(shown, sort_keys=False, allow_unicode=False, width=120)
        printer.show(told)


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]], *, gap: str = "   ") -> str:
    """Columns as wide as they need, `gap` apart; what is not known is `-`. Lines end without spaces."""
    lines = [tuple(header), *(tuple("-" if cell in (None, "") else plain(str(cell)) for cell in row) for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "".join(gap.join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines)


def screen(headline: str, sections: Iterable[tuple[str, Iterable[str]]]) -> str:
    """A headline, an empty line, and each section: its label before its first entry, the further lines of an entry
    below its first one. Ends with a newline."""
    lines = [*textwrap.wrap(plain(headline), WIDTH), ""]
    for label, entries in sections:
        for number, entry in enumerate(entries):
            lines += textwrap.wrap(
                plain(entry),
                WIDTH,
                initial_indent=(label if number == 0 else "").ljust(LABEL),
                subsequent_indent=" " * (LABEL + 2),
                break_long_words=False,
                break_on_hyphens=False,
            )
    return "\n".join(lines).rstrip() + "\n"
