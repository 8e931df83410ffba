"""The rules of a port: those of all its security groups, in the order in which they decide. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.api import VPC, SecurityGroup, VPCAttachment
from provisioner.api.network.dpu_network import PortRule
from provisioner.api.network.security_group import Direction, SecurityRule
from provisioner.network.control.compile.trouble import Trouble

MOST_RULE_BYTES: Final = 65536
"""Of one port. An object of the API server has 1.5 MiB, and a DPU 256 ports."""


_DIRECTIONS: Final[frozenset[Direction]] = frozenset(("Ingress", "Egress"))
_ALL_PASSES: Final = {
    each: PortRule(direction=each, action="Allow", protocol="Any", stateful=True) for each in _DIRECTIONS
}


@dataclass(frozen=True, kw_only=True)
class OrderedRule:
    """A rule, and where it stands: which one of its group, from 1 on."""

    group: SecurityGroup
    number: int
    rule: SecurityRule


def groups_of(vpc: VPC, attachment: VPCAttachment) -> tuple[str, ...]:
    """Names of the groups that hold for an attachment, each once: the VPC's before its own."""
    return tuple(dict.fromkeys((*vpc.spec.security_group_refs, *attachment.spec.security_group_refs)))


def missing_of(names: Iterable[str], groups: Mapping[str, SecurityGroup]) -> list[str]:
    """Those of `names` that are not there."""
    return [each for each in names if each not in groups]


def size_of_rule(ports: Sequence[str], cidrs: Sequence[str]) -> int:
    """About how many bytes it is in a DPUNetwork."""
    return 96 + sum(len(each) + 3 for each in (*ports, *cidrs))


def group_trouble(vpc: VPC, attachment: VPCAttachment, groups: Mapping[str, SecurityGroup]) -> Trouble | None:
    """Why the groups of an attachment isolate it: what one that is missing would have refused is not known, and rules
    that are too long cannot be told whole. `groups`: those of them that are there."""
    names = groups_of(vpc, attachment)
    missing = missing_of(names, groups)
    if missing:
        whose = "it" if missing[0] in attachment.spec.security_group_refs else f"VPC '{vpc.name}'"
        return Trouble(
            reason="SecurityGroupNotFound",
            message=f"there is no SecurityGroup '{missing[0]}', which {whose} names, so that nothing passes: make it, "
            "or take it out of spec.securityGroupRefs",
        )
    rules = (rule for each in names for rule in groups[each].spec.rules)
    if sum(size_of_rule(rule.ports, rule.cidrs) for rule in rules) > MOST_RULE_BYTES:
        return Trouble(
            reason="TooManyRules",
            message=f"the rules of its SecurityGroups ({', '.join(names)}) are more than {MOST_RULE_BYTES} bytes, "
            "so that nothing passes: name fewer groups, or fewer ports and cidrs in them",
        )
    return None


def in_order(groups: Sequence[SecurityGroup]) -> list[OrderedRule]:
    """Sorted by priority; of one priority those that deny come first, and then in the order of groups and rules."""
    entries = [
        OrderedRule(group=group, number=number, rule=rule)
        for group in groups
        for number, rule in enumerate(group.spec.rules, start=1)
    ]
    return sorted(entries, key=lambda entry: (entry.rule.priority, entry.rule.action != "Deny"))


def remembers_what_passes(rules: Sequence[OrderedRule]) -> bool:
    """Whether answers pass to what passes as no rule speaks of its direction: with a stateful group they do, as to what
    a rule lets pass. A host with rules for Ingress alone can open connections."""
    return any(each.group.spec.stateful for each in rules)


def rules_of(groups: Sequence[SecurityGroup]) -> tuple[PortRule, ...]:
    """What a DPU is told of them. It knows no directions of which no rule speaks, where one is to be remembered."""
    ordered = in_order(groups)
    spoken = {each.rule.direction for each in ordered}
    silent = _DIRECTIONS - spoken if spoken and remembers_what_passes(ordered) else frozenset()
    told = (
        PortRule(
            direction=entry.rule.direction,
            action=entry.rule.action,
            protocol=entry.rule.protocol,
            ports=entry.rule.ports,
            cidrs=entry.rule.cidrs,
            stateful=entry.group.spec.stateful,
        )
        for entry in ordered
    )
    return *told, *(_ALL_PASSES[each] for each in sorted(silent))
