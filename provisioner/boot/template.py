"""The jinja2 templates of this package: iPXE scripts and nginx's configuration."""

from __future__ import annotations

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template


def load_template(name: str) -> Template:
    """The template `templates/<name>`. An undefined name in it is an error when it is rendered."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("provisioner.boot", "templates"),
        undefined=StrictUndefined,
        # The output is iPXE's and nginx's language, not HTML. Values are checked before (choose.py, nginx.py).
        autoescape=False,  # noqa: S701
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["regex"] = re.escape
    return environment
