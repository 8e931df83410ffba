"""Runs the tests that `DEFENCES` names twice. Loaded by tests/conftest.py."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import nullcontext
from typing import Final

import pytest

from tests.attacks.taken_away.defence import Defence
from tests.attacks.taken_away.defences import DEFENCES

KEPT: Final = "kept"
WITHOUT: Final = "without"
_FIXTURE: Final = "defence_taken_away"


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    defence = DEFENCES.get(metafunc.definition.nodeid)
    if defence is not None:
        metafunc.parametrize(_FIXTURE, [None, defence], ids=[KEPT, WITHOUT], indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test with parameters one row is enough to show it."""
    shown: set[str] = set()
    kept: list[pytest.Item] = []
    for item in items:
        defence = _defence_of(item)
        test = item.nodeid.partition("[")[0]
        if defence is not None:
            if test in shown or defence.row not in item.nodeid:
                continue
            shown.add(test)
        kept.append(item)
    items[:] = kept


@pytest.fixture(autouse=True)
def defence_taken_away(request: pytest.FixtureRequest) -> Iterator[None]:
    """Before the other fixtures of a test, as those of all tests are."""
    defence: Defence | None = getattr(request, "param", None)
    with defence.is_away() if defence is not None and defence.early else nullcontext():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    defence = _defence_of(pyfuncitem)
    if defence is None:
        return (yield)
    with defence.is_missed(), nullcontext() if defence.early else defence.is_away():
        return (yield)
    return True


def twin_of(test: str) -> str:
    """The run of a test without its defence, as reports name it, parameters left out."""
    return f"{test}[{WITHOUT}]"


def without_parameters(node_id: str) -> str:
    """`path::name`, or `path::name[without]` of a run without the defence."""
    test, _, parameters = node_id.partition("[")
    is_twin = test in DEFENCES and parameters.removesuffix("]").split("-")[0] == WITHOUT
    return twin_of(test) if is_twin else test


def _defence_of(item: pytest.Item) -> Defence | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get(_FIXTURE) if callspec is not None else None
