"""Packages of this checkout, made once a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import pytest

from artefacts.archive import archive
from artefacts.build import Built, Ingredients
from tests.packaging.container import Container
from tests.packaging.made import make, read_ingredients
from tests.tools import need_root


@pytest.fixture(scope="session")
def ingredients(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Ingredients]:
    """What the image of that name is made of, for this machine."""
    need_root("unpack packages of Debian")
    return read_ingredients(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def built(ingredients: Mapping[str, Ingredients]) -> Callable[[str], Built]:
    """The image of that name."""
    return cache(lambda name: make(ingredients[name]))


@pytest.fixture(scope="session")
def container(built: Callable[[str], Built], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Container]:
    """The image of that name, from its archive, unpacked."""
    return cache(lambda name: Container.unpack(archive(built(name).image), tmp_path_factory.mktemp(name)))
