"""Options of services as environment variables: `PROVISIONER_BOOT_ADDRESS` is `provisioner boot --address`.

So that a unit file is the same on every host, and a container needs no command line of its own. An option on the
command line comes before its variable, an empty variable is none, and a repeated option takes words with blanks
between. None of these options is a secret: those that concern one name a file.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Mapping
from typing import Final

import click

PREFIX: Final = "PROVISIONER"
SERVICES: Final = ("authorizer", "boot", "cache", "controller", "infiniband", "reflector", "web")
"""Commands that run for years. Those that people run, and which change something once, heed no forgotten variable."""

_OF_KUBERNETES: Final = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)$")
"""What Kubernetes tells a pod of Services beside it, unless `enableServiceLinks: false`: PROVISIONER_WEB_PORT."""


def name_variables(command: click.Command, *path: str) -> None:
    """Have each option of `command` heed its variable, and say so in the help. Doing it twice changes nothing."""
    for option in _options(command):
        option.envvar = variable_of(option, *path)
        option.show_envvar = True
        if option.multiple:
            # Paths would be split at colons, everything else at blanks.
            option.type = copy.copy(option.type)
            option.type.envvar_list_splitter = None  # type: ignore[misc]


def variable_of(option: click.Option, *path: str) -> str:
    """The variable of an option of `provisioner *path`, named after the word that one writes: its first long flag."""
    flag = next(flag for flag in option.opts if flag.startswith("--"))
    return "_".join([PREFIX, *path, flag.removeprefix("--")]).upper().replace("-", "_")


def unknown_variables(command: click.Command, *path: str, environment: Mapping[str, str] = os.environ) -> list[str]:
    """Variables that look like options of `provisioner *path`, and are none: most likely misspelt. Sorted."""
    known = {variable_of(option, *path) for option in _options(command)}
    prefix = variable_prefix(*path)
    return sorted(
        name
        for name in environment
        if name.startswith(prefix) and name not in known and not _OF_KUBERNETES.search(name.removeprefix(prefix[:-1]))
    )


def variable_prefix(*path: str) -> str:
    return "_".join([PREFIX, *path]).upper().replace("-", "_") + "_"


def _options(command: click.Command) -> Iterator[click.Option]:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and any(flag.startswith("--") for flag in parameter.opts):
            yield parameter
