"""The rules of a port: those of all its security groups, in the order in which they decide. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from provisioner.api import VPC, SecurityGroup, VPCAttachment
from provisioner.api.dpu_network import PortRule

MOST_RULE_BYTES: Final = 65536
"""Of one port. An object of the API server has 1.5 MiB, and a DPU 256 ports."""


def groups_of(vpc: VPC, attachment: VPCAttachment) -> tuple[str, ...]:
    """Names of the groups that hold for an attachment, each once: the VPC's before its own."""
    return tuple(dict.fromkeys((*vpc.spec.security_group_refs, *attachment.spec.security_group_refs)))


def missing_of(names: Iterable[str], groups: Mapping[str, SecurityGroup]) -> list[str]:
    """Those of `names` that are not there."""
    return [each for each in names if each not in groups]


def size_of(groups: Iterable[SecurityGroup]) -> int:
    """About how many bytes their rules are in a DPUNetwork."""
    return sum(size_of_rule(rule.ports, rule.cidrs) for group in groups for rule in group.spec.rules)


def size_of_rule(ports: Sequence[str], cidrs: Sequence[str]) -> int:
    return 96 + sum(len(each) + 3 for each in (*ports, *cidrs))


def rules_of(groups: Sequence[SecurityGroup]) -> tuple[PortRule, ...]:
    """Sorted by priority; of one priority those that deny come first, and then in the order of groups and rules."""
    entries = [(rule, group.spec.stateful) for group in groups for rule in group.spec.rules]
    ordered = sorted(entries, key=lambda entry: (entry[0].priority, entry[0].action != "Deny"))
    return tuple(
        PortRule(
            direction=rule.direction,
            action=rule.action,
            protocol=rule.protocol,
            ports=rule.ports,
            cidrs=rule.cidrs,
            stateful=stateful,
        )
        for rule, stateful in ordered
    )
