"""Bootstrap tokens."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from provisioner.api.machinery.meta import rfc3339
from provisioner.join.tokens.mint import mint_token, token_id_of_user, token_secret, token_secret_name
from tests.join.samples import NOW


def test_tokens_differ_and_look_as_kubernetes_wants_them() -> None:
    tokens = [mint_token() for _ in range(50)]
    assert len({token.wire().reveal() for token in tokens}) == 50
    assert all(re.fullmatch(r"[a-z0-9]{6}\.[a-z0-9]{16}", token.wire().reveal()) for token in tokens)


def test_a_token_does_not_show_its_secret() -> None:
    token = mint_token()
    assert token.secret.reveal() not in f"{token!r} {token} {token.wire()!r} {token.wire()}"


def test_the_secret_is_for_one_server_and_authentication_alone() -> None:
    token = mint_token(lambda letters: letters[0])
    assert token_secret(token, "r01-u01", NOW) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {
            "name": "bootstrap-token-aaaaaa",
            "namespace": "kube-system",
            "labels": {"provisioner.dev/server": "r01-u01"},
        },
        "immutable": True,
        "stringData": {
            "token-id": "aaaaaa",
            "token-secret": "a" * 16,
            "expiration": rfc3339(NOW + timedelta(minutes=10)),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:provisioner",
            "description": "join of server r01-u01",
        },
    }


def test_a_token_of_no_server_is_not_made() -> None:
    with pytest.raises(ValueError, match="must be named"):
        token_secret(mint_token(), "", NOW)


@pytest.mark.parametrize("text", ["", "abc", "ABC123", "abc123x", "../../x"])
def test_what_is_no_token_id_names_no_secret(text: str) -> None:
    with pytest.raises(ValueError, match="not the id"):
        token_secret_name(text)


@pytest.mark.parametrize(
    ("username", "token_id"),
    [
        ("system:bootstrap:abc123", "abc123"),
        ("system:bootstrap:abc1234", None),
        ("system:bootstrap:", None),
        ("abc123", None),
        ("system:node:abc123", None),
    ],
)
def test_the_user_of_a_token_is_recognised(username: str, token_id: str | None) -> None:
    assert token_id_of_user(username) == token_id
