"""What is declared as owned is there, and is one owner's."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest

from provisioner.api import NetworkClaim, Server
from provisioner.api.machinery.schema import json_name
from provisioner.rules.ownership import OWNERS, Owner

SHARED = {
    (Server, "lifecycle"): "boots begin it, health says more",
    (Server, "condition Joined"): "boot hosts hand the token out, the approver signs",
    (NetworkClaim, "releasedTime"): "of P_Keys by InfiniBand, of others by the network",
    (NetworkClaim, "waitsFor"): "of P_Keys by InfiniBand, of others by the network",
}


def part_of(kind: Any, path: str) -> bool:
    """Whether `path`, as it is in JSON, leads to a field of the kind's status."""
    found = get_type_hints(kind)["status"]
    for name in path.split("."):
        if not is_dataclass(found):
            return False
        named = {json_name(each.name): get_type_hints(found)[each.name] for each in fields(found)}
        if name not in named:
            return False
        found = next((each for each in get_args(named[name]) if is_dataclass(each)), named[name])
    return True


@pytest.mark.parametrize("owner", OWNERS, ids=lambda owner: f"{owner.kind.KIND.kind} {owner.manager}")
def test_every_field_that_is_owned_is_one_of_the_status(owner: Owner) -> None:
    assert [path for path in (*owner.fields, *owner.also) if not part_of(owner.kind, path)] == []
    assert not part_of(owner.kind, "nothing.of.this")


def test_every_part_has_one_owner_but_those_that_are_known() -> None:
    counted = Counter((owner.kind, part) for owner in OWNERS for part in owner.parts)
    assert {each for each, count in counted.items() if count > 1} == set(SHARED)
