"""Pages of the commands, generated from what `--help` says."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click

from website.reference.markdown import code, heading, table, words

_AS_IT_IS = "\b"
"""A paragraph that begins with it is printed by `--help` as it stands (click)."""


def commands_page(root: click.Group, called: str) -> str:
    """One page for `root` and all commands below it, each with its usage, its words and its options."""
    parts = [heading(1, called)]
    for context in contexts(root, called):
        if context.command is not root:
            parts.append(heading(2, context.command_path))
        parts += _about(context)
    return "\n\n".join(part for part in parts if part) + "\n"


def contexts(command: click.Command, called: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """The command and, depth first and by name, those below it that `--help` lists."""
    context = click.Context(command, info_name=called, parent=parent, **(command.context_settings or {}))
    yield context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from contexts(below, name, context)


def _about(context: click.Context) -> list[str]:
    command = context.command
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [f"```\n{usage}\n```", *_help(command)]
    rows = [
        (", ".join(code(each) for each in (*option.opts, *option.secondary_opts)), *_option(option, context))
        for option in command.get_params(context)
        if isinstance(option, click.Option) and not option.hidden and "--help" not in option.opts
    ]
    if rows:
        parts.append(table(("option", "default", "meaning"), rows))
    return parts


def _help(command: click.Command) -> Iterator[str]:
    for paragraph in (command.help or "").strip().split("\n\n"):
        lines = paragraph.strip("\n").splitlines()
        if lines and lines[0].strip() == _AS_IT_IS:
            yield "```\n" + textwrap.dedent("\n".join(line.rstrip() for line in lines[1:])) + "\n```"
        else:
            yield words(paragraph.replace(_AS_IT_IS, ""))


def _option(option: click.Option, context: click.Context) -> tuple[str, str]:
    shown = option.get_help_extra(context)
    default = code(str(shown["default"])) if shown.get("default") else ""
    said = [words(option.help or "")]
    if option.required:
        said.append("Required.")
    if option.multiple:
        said.append("May be repeated.")
    if isinstance(option.type, click.Choice):
        said.append("One of " + ", ".join(code(str(each)) for each in option.type.choices) + ".")
    if shown.get("range"):
        said.append(f"({code(str(shown['range']))})")
    variables = shown.get("envvars") or ()
    if variables:
        said.append("Also " + ", ".join(code(each) for each in variables) + ".")
    return default, " ".join(each for each in said if each)
