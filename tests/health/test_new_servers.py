"""How long nothing is said of the life of a server that was just registered: the order that comes next says it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from provisioner.api.machinery.meta import parse_time
from provisioner.health.controller import NEW_SECONDS, UNORDERED_SECONDS, _new_for

CREATED = "2026-01-02T12:00:00Z"
READY = {"type": "Ready", "status": "False", "reason": "ImageMissing"}


def server(acceptance: str = "Accepted", **status: Any) -> dict[str, Any]:
    return {"metadata": {"creationTimestamp": CREATED}, "spec": {"acceptance": acceptance}, "status": status}


@pytest.mark.parametrize(
    ("sentence", "body", "seconds"),
    [
        ("one that is to be ordered next", server(), UNORDERED_SECONDS),
        ("one of which the boot controller says why it is not ordered", server(conditions=[READY]), NEW_SECONDS),
        ("one that nobody accepted", server("Pending"), NEW_SECONDS),
        ("one that was ordered", server(order={"id": "o1"}), 0),
        ("one of which something was said", server(lifecycle="Accepted"), 0),
    ],
)
def test_it_is_waited_with_what_is_said_of(sentence: str, body: dict[str, Any], seconds: float) -> None:
    created = parse_time(CREATED)
    assert _new_for(body, created) == seconds, sentence
    assert _new_for(body, created + timedelta(seconds=1)) == max(0, seconds - 1)
    assert _new_for(body, created + timedelta(seconds=UNORDERED_SECONDS)) == 0
    assert _new_for(body, created - timedelta(hours=1)) == 0, "a clock that was set back"
