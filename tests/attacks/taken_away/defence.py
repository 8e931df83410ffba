"""One defence, and how it is patched away."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

import pytest

Patch = Callable[[Any], Any]
"""What stands at a place, to what stands there instead."""

Failed: Final = pytest.fail.Exception
"""Of `pytest.raises` where nothing was raised, and of `pytest.fail`."""


@dataclass(frozen=True)
class Defence:
    """taken_away: how, in words. patches: by `package.module:name`, or `package.module:Class.name`, of where it is
    looked up when it is used. sees: a regular expression for what the test says when it fails: what the attack
    gained. row: of a test with parameters, the one that is run, by a part of its id; the first one if empty. early:
    the fixtures of the test's own scope are made without it, too, such as a service that reads a bound when it starts.
    """

    taken_away: str
    patches: Mapping[str, Patch]
    sees: str
    row: str = ""
    early: bool = False

    @contextmanager
    def is_away(self) -> Iterator[None]:
        """Without the defence, while the block lasts."""
        with pytest.MonkeyPatch.context() as monkeypatch:
            for place, patch in self.patches.items():
                module, _, name = place.partition(":")
                found = attrgetter(name)(importlib.import_module(module))
                monkeypatch.setattr(f"{module}.{name}", patch(found))
            yield

    @contextmanager
    def is_missed(self) -> Iterator[None]:
        """The block is the test: it has to fail, by an assertion or by what the service raises, and to say `sees`."""
        try:
            yield
        except (Exception, Failed) as error:
            if re.search(self.sees, f"{type(error).__name__}: {error}") is None:
                raise AssertionError(f"without it ({self.taken_away}) the test failed by something else") from error
            return
        raise AssertionError(f"the attack was refused although its defence was taken away: {self.taken_away}")


def always(answer: Any) -> Patch:
    """A function that answers so, whatever it is asked."""
    return lambda _: lambda *_args, **_more: answer


def instead(other: Any) -> Patch:
    """Another value, such as a bound that nothing reaches."""
    return lambda _: other


NOTHING: Final = always(None)
"""A function that objects to nothing."""
