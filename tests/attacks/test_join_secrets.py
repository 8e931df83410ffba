"""Tokens and keys are nowhere but where they are needed. docs/threat-model.md, "What is secret"."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import pytest
import structlog

from provisioner.api.machinery.codec import encode
from provisioner.join.tokens.mint import mint_token
from tests.join.conftest import accounts, make_world, world
from tests.join.front import post_as_nginx, serve
from tests.join.samples import KEY, OTHER_KEY, body
from tests.join.world import World

__all__ = ["accounts", "make_world", "world"]


def test_no_log_event_or_status_holds_the_token_or_the_request_key(world: World, tmp_path: Path) -> None:
    minted = []

    def mint() -> object:
        minted.append(mint_token())
        return minted[-1]

    written = io.StringIO()
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(written), cache_logger_on_first_use=False)
    try:
        with serve(world.service(mint=mint), tmp_path / "s") as path:
            assert post_as_nginx(path, body(macAddress=world.mac), world.address).status == 200
            assert post_as_nginx(path, body(macAddress=world.mac, requestKey=OTHER_KEY), world.address).status == 403
            assert post_as_nginx(path, body(macAddress=world.mac, requestKey=KEY + "0"), world.address).status == 400
    finally:
        structlog.configure(**before)
    told = written.getvalue() + json.dumps(encode(world.server())) + repr(world.recorded.told)
    assert "join configuration handed out" in told
    assert minted[0].id in told
    for secret in (minted[0].secret.reveal(), KEY, OTHER_KEY):
        assert secret not in told


def test_a_token_cannot_be_pickled_or_formatted_into_a_message() -> None:
    token = mint_token()
    with pytest.raises(TypeError):
        pickle.dumps(token)
    assert token.secret.reveal() not in f"{token} {token!r} {token.wire()!s}"
