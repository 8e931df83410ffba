"""What is made of a VPC is kept until something of that VPC changes, and what is made meanwhile is not."""

from __future__ import annotations

from collections.abc import Callable

from provisioner.network.control.compile.view import VPCView
from provisioner.network.control.records.views import MOST_REMEMBERED, Views
from tests.network.control.test_compile import endpoint, view


class Made:
    """Makes views, counts them, and does what a test wants while it makes one."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.views = Views(self._make)

    def _make(self, key: str) -> VPCView | None:
        self.made.append(key)
        self.meanwhile()
        return view(key, 1, endpoint(1, "10.1.0.3")) if key != "t/none" else None


def test_a_view_is_made_once_and_again_after_a_change_of_its_own() -> None:
    made = Made()
    assert made.views.get("t/a") is made.views.get("t/a")
    made.views.get("t/b")
    made.views.forget(["t/a"])
    made.views.get("t/b")
    assert made.made == ["t/a", "t/b"]
    made.views.get("t/a")
    assert made.made == ["t/a", "t/b", "t/a"]


def test_what_changed_while_it_was_made_is_made_again() -> None:
    for change in (lambda m: m.views.forget(["t/a"]), lambda m: m.views.forget_attachment("t/gone")):
        made = Made()
        made.meanwhile = lambda change=change, made=made: change(made)  # type: ignore[misc]
        made.views.get("t/a")
        made.meanwhile = lambda: None
        made.views.get("t/a")
        made.views.get("t/a")
        assert made.made == ["t/a", "t/a"]


def test_an_attachment_that_is_gone_takes_the_views_with_it_that_had_it() -> None:
    made = Made()
    made.views.get("t/a")
    made.views.forget_attachment("t/other")
    made.views.get("t/a")
    assert made.made == ["t/a"]
    made.views.forget_attachment("t/10.1.0.3")
    made.views.get("t/a")
    assert made.made == ["t/a", "t/a"]


def test_names_that_come_and_go_take_no_room() -> None:
    made = Made()
    made.views.get("t/none")
    for number in range(MOST_REMEMBERED + 10):
        made.views.forget([f"t/{number}"])
    assert len(made.views._changed) <= MOST_REMEMBERED
    assert made.views._kept == {}
