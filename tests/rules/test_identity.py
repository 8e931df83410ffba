"""Which Server a MAC address is, as a table: the same for the objects and for their JSON."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from provisioner.api import Server
from provisioner.api.machinery.codec import encode
from provisioner.api.servers.server import Interface
from provisioner.rules.identity import find_server, precedence
from tests.boot.objects import server

MAC = "52:54:00:12:34:56"
OTHER = "52:54:00:12:34:99"
OLDER = "2025-01-01T00:00:00Z"


def made(name: str, created: str = "2026-01-02T03:04:05Z", **spec: Any) -> Server:
    known = server(name, boot_mac_address=MAC, **spec) if "boot_mac_address" not in spec else server(name, **spec)
    return replace(known, metadata=replace(known.metadata, creation_timestamp=created))


FURTHER = {"boot_mac_address": OTHER, "interfaces": (Interface(name="eth1", mac_address=MAC),)}


@pytest.mark.parametrize(
    ("sentence", "winner", "others"),
    [
        ("the only one has it", made("a"), []),
        ("an accepted one before an older one that waits", made("b"), [made("a", OLDER, acceptance="Pending")]),
        ("the older one, whatever their names", made("b", OLDER), [made("a")]),
        ("of two of one second the first by name", made("a"), [made("b"), made("c")]),
        ("a boot interface before an accepted one's further", made("b", acceptance="Pending"), [made("a", **FURTHER)]),
        ("a further one, if nobody boots from it", made("a", **FURTHER), [made("b", **FURTHER)]),
        ("nobody who has another one", None, [made("a", boot_mac_address=OTHER)]),
    ],
)  # fmt: skip
def test_of_those_that_claim_a_mac_address(sentence: str, winner: Server | None, others: list[Server]) -> None:
    for claimants in permutations([*others, *([winner] if winner is not None else [])]):
        assert find_server(MAC, claimants) is winner, sentence
        found = find_server(MAC, [encode(each) for each in claimants])
        assert (found or {}).get("metadata", {}).get("name") == (winner.name if winner else None), sentence


def test_an_object_and_its_json_have_one_precedence() -> None:
    for known in (made("a"), made("b", acceptance="Rejected"), server("c")):
        assert precedence(known) == precedence(encode(known))
