"""Everything that commands print goes through one printer, and what it prints is no order to a terminal."""

from __future__ import annotations

import ast
import importlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import pytest
import structlog
from click.testing import CliRunner

from provisioner.api.crd import crds_yaml
from provisioner.cli import printer
from provisioner.cli.main import configure_logging, kubectl, provisioner

ROOT: Final = Path(__file__).parents[2]
PRINTER: Final = "provisioner/cli/printer.py"
OF_CLICK: Final = {
    "echo",
    "secho",
    "echo_via_pager",
    "confirm",
    "prompt",
    "clear",
    "get_text_stream",
    "get_binary_stream",
}
SCREENS: Final[Mapping[str, str]] = {
    "provisioner/cli/progress.py": "redraws its line; what it shows is its own words and numbers",
    "provisioner/cli/rollout/watching.py": "redraws its screen, whose cells fleet_picture.py makes plain",
    "provisioner/cli/main.py": "hands stderr to the log, whose values it makes plain",
}
"""Who else has a stream of the terminal, and why no stranger's character gets there."""


def commands(group: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command of a tree, with the words by which it is called."""
    yield name, group
    if isinstance(group, click.Group):
        with click.Context(group) as context:
            for each in group.list_commands(context):
                command = group.get_command(context, each)
                assert command is not None
                yield from commands(command, f"{name} {each}")


COMMANDS: Final = dict([*commands(provisioner, "provisioner"), *commands(kubectl, "kubectl provision")])


def printed_past_the_printer(path: Path) -> list[str]:
    """The lines of a module that print by themselves."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            of_click = node.value.id == "click" and node.attr in OF_CLICK
            of_sys = node.value.id == "sys" and node.attr in ("stdout", "stderr")
        else:
            imported = node.names if isinstance(node, ast.ImportFrom) and node.module == "click" else []
            of_click = any(each.name in OF_CLICK for each in imported)
            of_sys = isinstance(node, ast.Name) and node.id == "print"
        if of_click or of_sys:
            found.append(f"{path.relative_to(ROOT)}:{node.lineno}")  # type: ignore[attr-defined]
    return found


def test_each_command_prints_by_the_printer_alone() -> None:
    modules = sorted((ROOT / "provisioner/cli").rglob("*.py"))
    exempt = {PRINTER, *SCREENS}
    past = [line for path in modules for line in printed_past_the_printer(path) if line.split(":")[0] not in exempt]
    assert past == [], "use provisioner.cli.printer"
    assert [screen for screen in SCREENS if not printed_past_the_printer(ROOT / screen)] == [], "exempt without need"


def test_each_command_stands_where_that_is_looked_for() -> None:
    assert len(COMMANDS) > 60
    elsewhere = {
        name: command.callback.__module__
        for name, command in COMMANDS.items()
        if command.callback is not None and not command.callback.__module__.startswith("provisioner.cli.")
    }
    assert elsewhere == {}
    for command in COMMANDS.values():
        if command.callback is not None:
            module = importlib.import_module(command.callback.__module__)
            assert Path(str(module.__file__)).is_relative_to(ROOT / "provisioner/cli")


ORDERS: Final = ["\x1b[2J", "\x9b2J", "\r", "\u202e", "\u2028", "\x85", "\b", "\x07", "\u200b", "\ud800"]


def is_plain(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("order", ORDERS, ids=ascii)
def test_what_is_printed_is_no_order_to_a_terminal(order: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = f"before{order}after"
    printer.say(words, f"{words}\nerror: not ours")
    printer.show(f"{words}\n{words}\n")
    printer.error(f"{words}\nerror: not ours", f"try: {words}")
    out, err = capsys.readouterr()
    assert is_plain(out + err)
    assert len(out.splitlines()) == 4, "no value makes a line of its own"
    assert not err.splitlines()[1].startswith("error"), "nor one that passes for ours"
    assert out.count("before") == out.count("after") == 4


@pytest.mark.parametrize("group", [provisioner, kubectl])
@pytest.mark.parametrize(
    "arguments", [["no\x1b[2Jsuch"], ["accept", "--no\x1b[2Jsuch"], ["rack", "register", "\x1b[2J"]]
)
def test_what_is_said_of_a_wrong_command_line_is_no_order(group: click.Group, arguments: list[str]) -> None:
    result = CliRunner().invoke(group, arguments)
    assert result.exit_code == 2
    assert is_plain(result.output), repr(result.output)


def test_a_log_on_a_terminal_is_none_either(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(json=False, verbose=False)
    try:
        structlog.get_logger("test").info("written", name="x\x1b[2J", error="y\x9b2J\u202e")
        told = capsys.readouterr().err
    finally:
        structlog.reset_defaults()
    assert "written" in told
    assert is_plain(told), repr(told)


def test_what_other_programs_read_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    for text in (crds_yaml(), json.dumps({"name": "Gehäuse …"}, indent=2, ensure_ascii=False) + "\n"):
        printer.show(text)
        assert capsys.readouterr().out == text
