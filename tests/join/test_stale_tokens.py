"""Tokens that nobody needs are removed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from provisioner.api.meta import rfc3339
from provisioner.api.server import Server
from provisioner.cluster.resources import SECRETS
from provisioner.join.mint import mint_token, token_secret
from provisioner.join.stale_tokens import TokenCleaner, is_stale
from tests.join.samples import NOW, fetched, server, with_status
from tests.join.world import World


def secret(age_seconds: int = 60) -> dict[str, Any]:
    created = rfc3339(NOW - timedelta(seconds=age_seconds))
    return {"metadata": {"name": "bootstrap-token-abc123", "creationTimestamp": created}}


@pytest.mark.parametrize(
    ("why", "of", "given", "stale"),
    [
        ("it was just handed out", with_status(server(), join=fetched()), secret(), False),
        ("it is too young to judge", None, secret(age_seconds=5), False),
        ("its server is gone", None, secret(), True),
        ("its server was handed nothing", server(), secret(), True),
        ("its server was handed another", with_status(server(), join=fetched(token_id="zzz999")), secret(), True),
        ("it is spent", with_status(server(), join=fetched(certificate_token_id="abc123")), secret(), True),
    ],
)
def test_a_token_is_stale_when_nobody_needs_it(why: str, of: Server | None, given: dict[str, Any], stale: bool) -> None:
    assert is_stale(given, of, NOW) is stale, why


def test_only_tokens_that_nobody_needs_are_removed(world: World) -> None:
    needed = world.joined().bootstrap_token.reveal().split(".")[0]
    left_over = mint_token()
    body = token_secret(left_over, world.name, world.clock(), 600)
    world.admin.create(SECRETS, body)
    foreign = {**token_secret(mint_token(), world.name, world.clock(), 600)}
    foreign["metadata"] = {**foreign["metadata"], "labels": {"team": "blue"}}
    world.admin.create(SECRETS, foreign)
    cleaner = TokenCleaner(cluster=world.approver.cluster, now=world.clock)
    assert cleaner.reconcile("all") > 0
    assert sorted(world.tokens()) == sorted([needed, left_over.id]), "too young"
    world.clock.offset += timedelta(seconds=31)
    cleaner.reconcile("all")
    assert world.tokens() == [needed]
    name = foreign["metadata"]["name"]
    assert world.admin.get(SECRETS, name, namespace="kube-system")["metadata"]["name"] == name
