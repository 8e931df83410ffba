"""The rules of a port: those of all its security groups, in the order in which they decide. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from provisioner.api import VPC, SecurityGroup, VPCAttachment
from provisioner.api.dpu_network import PortRule


def groups_of(vpc: VPC, attachment: VPCAttachment) -> tuple[str, ...]:
    """Names of the groups that hold for an attachment, each once: the VPC's before its own."""
    return tuple(dict.fromkeys((*vpc.spec.security_group_refs, *attachment.spec.security_group_refs)))


def missing_of(names: Iterable[str], groups: Mapping[str, SecurityGroup]) -> list[str]:
    """Those of `names` that are not there."""
    return [each for each in names if each not in groups]


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
