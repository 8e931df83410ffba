"""What the network's controllers keep of a tenant's objects decides as the whole object does."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from provisioner.api import SecurityGroup
from provisioner.api.machinery.codec import decode
from provisioner.network.control.compile.security import MOST_RULE_BYTES, rules_of, size_of_rule
from provisioner.network.control.records.informers import trim_group


def group(rules: int, entries: int) -> dict[str, Any]:
    cidrs = [f"fd00:1000:2000:3000:4000:5000:6000:{each:04x}/128" for each in range(entries)]
    made = [{"direction": "Ingress", "action": "Allow", "protocol": "TCP", "cidrs": cidrs} for _ in range(rules)]
    return {"metadata": {"name": "g", "namespace": "n"}, "spec": {"rules": made, "stateful": True}}


def size_of(group: SecurityGroup) -> int:
    return sum(size_of_rule(rule.ports, rule.cidrs) for rule in group.spec.rules)


@pytest.mark.parametrize("rules", [0, 1, 128])
def test_rules_that_a_port_can_have_are_kept_whole(rules: int) -> None:
    whole = group(rules, 4)
    kept = trim_group(copy.deepcopy(whole))
    assert kept["spec"] == whole["spec"]
    assert rules_of([decode(SecurityGroup, kept)]) == rules_of([decode(SecurityGroup, whole)])


def test_of_rules_that_no_port_can_have_so_many_are_kept_that_they_are_still_too_many() -> None:
    whole = group(128, 32)
    kept = decode(SecurityGroup, trim_group(copy.deepcopy(whole)))
    assert size_of(decode(SecurityGroup, whole)) > 2 * MOST_RULE_BYTES
    assert MOST_RULE_BYTES < size_of(kept) < 1.1 * MOST_RULE_BYTES


def test_what_hangs_on_an_object_is_not_kept() -> None:
    whole = group(1, 1)
    whole["metadata"] |= {"annotations": {"a": "x" * 200_000}, "labels": {"b": "c"}, "managedFields": [{}]}
    assert len(json.dumps(trim_group(whole))) < 500
