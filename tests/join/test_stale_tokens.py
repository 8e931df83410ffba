"""Tokens that nobody needs are removed, and nobody else's."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.cluster.resources import SECRETS
from provisioner.join.tokens.mint import mint_token, token_secret
from provisioner.join.tokens.stale_tokens import TokenCleaner, left_over
from tests.join.world import World


def handed(token_id: str | None) -> dict[str, Any]:
    return {"status": {"join": {"orderID": "o1", "tokenID": token_id}}} if token_id else {"spec": {}}


@pytest.mark.parametrize(
    ("why", "old", "new", "stale"),
    [
        ("it was just handed out", None, handed("abc123"), None),
        ("it is the one that was handed out last", handed("abc123"), handed("abc123"), None),
        ("its server was handed another", handed("abc123"), handed("zzz999"), "abc123"),
        ("its server is gone", handed("abc123"), None, "abc123"),
        ("its server was registered anew", handed("abc123"), handed(None), "abc123"),
        ("its server was never handed one", handed(None), None, None),
    ],
)
def test_a_token_is_left_over_when_its_server_does_not_name_it(
    why: str, old: dict[str, Any] | None, new: dict[str, Any] | None, stale: str | None
) -> None:
    assert left_over(old, new) == stale, why


def test_only_tokens_of_ours_are_removed(world: World) -> None:
    left, foreign = mint_token(), mint_token()
    world.admin.create(SECRETS, token_secret(left, world.name, world.clock()))
    theirs = token_secret(foreign, world.name, world.clock())
    theirs["metadata"] = {**theirs["metadata"], "labels": {"team": "blue"}}
    world.admin.create(SECRETS, theirs)
    cleaner = TokenCleaner(cluster=world.approver.cluster)
    for token_id in (left.id, foreign.id, left.id, "../secrets"):
        cleaner.reconcile(token_id)
    assert world.tokens() == []
    name = theirs["metadata"]["name"]
    assert world.admin.get(SECRETS, name, namespace="kube-system")["metadata"]["name"] == name
    world.admin.delete(SECRETS, name, namespace="kube-system")
