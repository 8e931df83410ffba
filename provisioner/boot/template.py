"""jinja2 as this package uses it: the iPXE scripts of `ipxe/` and nginx's configuration."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

_HERE: Final = Path(__file__).parent
FOLDERS: Final = (_HERE / "ipxe", _HERE.parents[1] / "ipxe", _HERE / "host", _HERE / "cache")
"""The iPXE scripts lie beside this file in a wheel, and at the top of a checkout."""


def load_template(name: str) -> Template:
    """The template `name`. An undefined name in it is an error when it is rendered."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDERS),
        undefined=StrictUndefined,
        # The output is iPXE's and nginx's language, not HTML. Values are checked before (choose.py, nginx.py).
        autoescape=False,  # noqa: S701
        keep_trailing_newline=True,
        auto_reload=False,  # else each script looks at the template's file first
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["regex"] = re.escape
    return environment
