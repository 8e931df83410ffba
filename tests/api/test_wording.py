"""Counts in sentences."""

from __future__ import annotations

import pytest

from provisioner.api.machinery.wording import quantity


@pytest.mark.parametrize(
    ("count", "forms", "words"),
    [
        (0, ("server",), "0 servers"),
        (1, ("server",), "1 server"),
        (2, ("server",), "2 servers"),
        (1, ("server waits", "servers wait"), "1 server waits"),
        (2, ("server waits", "servers wait"), "2 servers wait"),
    ],
)
def test_noun_and_verb_follow_the_count(count: int, forms: tuple[str, ...], words: str) -> None:
    assert quantity(count, *forms) == words
