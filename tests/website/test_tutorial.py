"""How the tutorial's page is read by the journey that types its commands."""

from __future__ import annotations

import pytest

from tests.journey.tutorial import PAGE, Step, first_missing, steps


def test_commands_are_read_with_the_lines_that_they_show() -> None:
    page = "text\n```console\n$ one -f\nfirst\n...\nsecond\n$ two\n```\n```\n$ not this\n```\n"
    assert list(steps(page)) == [Step("one -f", ("first", "second")), Step("two", ())]


def test_the_page_has_commands() -> None:
    assert len(list(steps(PAGE.read_text()))) > 10


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("r01-u01   cpu-node-6cdd8f441b65   True   64s", "r01-u01 cpu-node-0123456789ab  True  5m3s\n"),
        ("pod/tutorial-z6zpz condition met", "pod/tutorial-ab12c condition met\n"),
        ("requested: Maintenance r01-u01-1", "requested: Maintenance r01-u01-12\n"),
        ("waits until no job runs, since 8 s", "waits until no job runs, since 1 min 2 s\n"),
    ],
)
def test_what_differs_from_run_to_run_does_not_count(shown: str, printed: str) -> None:
    assert first_missing((shown,), printed) is None


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (("r01-u01 True",), "r01-u01 False"),
        (("a", "b"), "b\na"),
        (("a", "a"), "a"),
        (("refused",), ""),
    ],
)
def test_a_line_that_was_not_printed_in_its_place_is_found(shown: tuple[str, ...], printed: str) -> None:
    assert first_missing(shown, printed) is not None
