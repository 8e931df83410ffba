"""Whose token it is, and whether that person may look: asked of the API server, and not too often."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api.machinery.errors import Retryable
from provisioner.web.access.gate import (
    ADMITTED_SECONDS,
    ANSWERS,
    REFUSED_SECONDS,
    REVIEWS_OF_A_SOURCE,
    SHOWN,
    Gate,
    NotAllowed,
    UnknownToken,
    Viewer,
)
from provisioner.web.access.guard import Guard

ADA = "token-of-ada"
HERE = "10.0.0.1"


class FakeReviews:
    """The API server's answers: whose each token is, and what each may list."""

    def __init__(self) -> None:
        self.users = {ADA: {"username": "ada", "groups": ["ops"], "uid": "u1", "extra": {"a": ["b"]}}}
        self.audiences: dict[str, list[str]] = {}
        self.refused: dict[str, set[str]] = {}
        self.asked: list[tuple[str, Any]] = []
        self.away = False

    def with_timeout(self, seconds: float) -> FakeReviews:
        return self

    def create(self, kind: Any, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((kind.kind, body["spec"]))
        if self.away:
            raise Retryable("the API server is away")
        if kind.kind == "TokenReview":
            user = self.users.get(body["spec"]["token"])
            if user is None:
                return {"status": {"error": "invalid bearer token"}}
            named = self.audiences.get(body["spec"]["token"])
            return {"status": {"authenticated": True, "user": user} | ({"audiences": named} if named else {})}
        asked = body["spec"]["resourceAttributes"]
        return {"status": {"allowed": asked["resource"] not in self.refused.get(body["spec"]["user"], set())}}

    def list(self, *_: Any, **__: Any) -> Any:
        raise Retryable("no Events here")

    def reviews(self) -> int:
        return sum(1 for kind, _ in self.asked if kind == "TokenReview")


class World:
    def __init__(self, audience: str | None = None) -> None:
        self.now = 1000.0
        self.api: Any = FakeReviews()
        self.gate = Gate(self.api, audience, lambda: self.now)

    def admit(self, token: str = ADA, source: str = HERE) -> Viewer:
        return self.gate.admit(token, source)


def test_a_viewer_is_asked_about_with_all_that_is_known_of_that_person() -> None:
    world = World()
    assert world.admit() == Viewer("ada")
    (token, *rights) = world.api.asked
    assert token == ("TokenReview", {"token": ADA})
    assert len(rights) == len(SHOWN)
    for (_, spec), shown in zip(rights, SHOWN, strict=True):
        assert (spec["user"], spec["groups"], spec["uid"], spec["extra"]) == ("ada", ["ops"], "u1", {"a": ["b"]})
        assert spec["resourceAttributes"] == {"verb": "list", **shown}


def test_what_the_pages_show_is_all_asked_for_and_nothing_of_tenants_networks_is_shown() -> None:
    assert {each["resource"] for each in SHOWN} == {
        "servers", "racks", "nodepools", "images", "maintenances", "nodes", "events",
    }  # fmt: skip


@pytest.mark.parametrize("shown", [each["resource"] for each in SHOWN])
def test_who_may_not_list_one_of_them_sees_none(shown: str) -> None:
    world = World()
    world.api.refused["ada"] = {shown}
    with pytest.raises(NotAllowed, match=f"ada may not list {shown}; .*--clusterrole=provisioner-viewer --user=ada"):
        world.admit()


@pytest.mark.parametrize("token", ["", "short", "with space in it", "x" * 9000, "new\nline-in-it", "ünïcode-token"])
def test_what_is_no_token_is_not_asked_about(token: str) -> None:
    world = World()
    with pytest.raises(UnknownToken):
        world.admit(token)
    assert world.api.asked == []


def test_an_answer_is_kept_for_a_minute_and_a_refusal_for_less() -> None:
    world = World()
    for _ in range(3):
        world.admit()
    assert world.api.reviews() == 1
    world.api.users = {}
    world.now += ADMITTED_SECONDS - 1
    world.admit()
    world.now += 2
    with pytest.raises(UnknownToken):
        world.admit()
    world.api.users = {ADA: {"username": "ada"}}
    with pytest.raises(UnknownToken):
        world.admit()
    world.now += REFUSED_SECONDS + 1
    assert world.admit() == Viewer("ada")


def test_no_answer_is_kept_where_the_api_server_is_away() -> None:
    world = World()
    world.api.away = True
    with pytest.raises(Retryable):
        world.admit()
    world.api.away = False
    assert world.admit() == Viewer("ada")


def test_a_token_must_be_for_the_audience_that_was_named() -> None:
    world = World("provisioner-web")
    with pytest.raises(UnknownToken):
        world.admit()
    assert world.api.asked == [("TokenReview", {"token": ADA, "audiences": ["provisioner-web"]})]
    world.now += REFUSED_SECONDS + 1
    world.api.audiences[ADA] = ["provisioner-web"]
    assert world.admit() == Viewer("ada")


def test_one_address_has_so_many_tokens_looked_at_and_others_are_not_kept_waiting_by_it() -> None:
    world = World()
    world.admit(source="10.0.0.2")
    for number in range(int(REVIEWS_OF_A_SOURCE)):
        with pytest.raises(UnknownToken):
            world.admit(f"guess-{number:08}")
    before = world.api.reviews()
    with pytest.raises(Retryable, match="too many tokens"):
        world.admit("one-more-guess")
    assert world.api.reviews() == before
    assert world.admit() == Viewer("ada"), "what is known already is not asked about"
    with pytest.raises(UnknownToken):
        world.admit("one-more-guess", source="10.0.0.3")


def test_answers_that_are_kept_are_bounded_and_hold_no_token() -> None:
    world = World()
    for number in range(ANSWERS + 10):
        world.now += 1.0
        with pytest.raises(UnknownToken):
            world.admit(f"guess-{number:08}")
    assert len(world.gate._answers) == ANSWERS
    assert all(len(key) == 32 for key in world.gate._answers)


def flood(world: World) -> None:
    """From the address of the proxy, as fast as one is let."""
    for number in range(int(2 * REVIEWS_OF_A_SOURCE)):
        with pytest.raises((UnknownToken, Retryable)):
            world.gate.admit(f"token-of-nobody-{number}", HERE)


def test_who_sends_tokens_of_nobody_through_the_same_proxy_does_not_shut_viewers_out() -> None:
    world = World()
    assert world.gate.admit(ADA, HERE) == Viewer("ada")
    world.now += ADMITTED_SECONDS + 1
    flood(world)
    assert world.gate.admit(ADA, HERE) == Viewer("ada")
    with pytest.raises(Retryable, match="too many tokens"):
        world.gate.admit("token-of-grace", HERE)


def test_whose_token_was_revoked_does_not_keep_a_stream_by_sending_other_tokens() -> None:
    world = World()
    assert world.gate.admit(ADA, HERE) == Viewer("ada")
    del world.api.users[ADA]
    world.now += ADMITTED_SECONDS + 1
    flood(world)
    guard = Guard(gate=world.gate, hosts=())
    assert not guard.admits(ADA, HERE)
    with pytest.raises(UnknownToken):
        world.gate.admit(ADA, HERE)
