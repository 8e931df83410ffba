"""All that commands print goes through here, so that no character of it is an order to a terminal.

Names, messages and errors were written by tenants, nodes, BMCs and suppliers. What a terminal would obey, or a reader
would not see (ESC, C1, marks of direction), is shown as �. tests/cli/test_printer.py holds every command to
this module.
"""

from __future__ import annotations

import click

from provisioner.api.machinery.wording import plain


def say(*lines: str, err: bool = False) -> None:
    """One line each: a line end within one is shown as a blank, so that no value makes a line of its own."""
    for line in lines:
        click.echo(plain(line), err=err)


def show(text: str) -> None:
    """Several lines that were put together of plain parts: a screen, a table, JSON or YAML. Ends with a newline."""
    click.echo(lines_of(text), nl=not text.endswith("\n"))


def error(message: str, advice: str | None = None) -> None:
    """What went wrong, on stderr, and what to do. Lines within are indented: none passes for one of ours."""
    click.echo(f"error: {_indented(message)}", err=True)
    if advice is not None:
        click.echo(f"  {_indented(advice)}", err=True)


def confirm(question: str) -> bool:
    """Asks on stderr, and reads the answer. Raises: click.Abort."""
    return click.confirm(lines_of(question), err=True)


def lines_of(text: str) -> str:
    """`text` with its line ends, and nothing else that is not shown."""
    return "\n".join(plain(line) for line in text.split("\n"))


def _indented(text: str) -> str:
    return lines_of(text).replace("\n", "\n    ")
