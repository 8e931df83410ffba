"""Our two tables of a place as one transaction, and read from a dump."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from provisioner.network.agent.model.naming import TABLE
from provisioner.network.agent.model.state import Chain, Family, Hook, NftRule
from provisioner.network.agent.rules.canonical import canonical

FAMILIES: Final[tuple[Family, ...]] = ("inet", "netdev")
MARK_PREFIX: Final = "enforced_"
"""Of an empty chain whose name tells what was enforced last."""


def replacement(wanted: Iterable[Chain], observed: Iterable[Chain]) -> dict[str, Any]:
    """Commands that leave exactly `wanted`, in one transaction: a packet meets the old rules or the new ones.

    A base chain that stays is not made anew: a new one is asked before its rules are in force. One that changed its
    hook gives way first.
    """
    wanted, observed = list(wanted), list(observed)
    stays = {(chain.family, chain.name) for chain in wanted}
    before = {(chain.family, chain.name): chain for chain in observed}
    changed = {
        key for chain in wanted if (key := (chain.family, chain.name)) in before and before[key].hook != chain.hook
    }
    commands: list[dict[str, Any]] = []
    for family in FAMILIES:
        ours = [chain for chain in wanted if chain.family == family]
        theirs = [chain for chain in observed if chain.family == family]
        if ours or theirs:
            commands.append({"add": {"table": {"family": family, "name": TABLE}}})
            commands.append({"flush": {"table": {"family": family, "name": TABLE}}})
        gone = [chain for chain in theirs if (family, chain.name) not in stays or (family, chain.name) in changed]
        for chain in gone:
            # The kernel takes a base chain away with its device: declared before, it is there in either case.
            commands += [{"add": {"chain": _place(chain)}}, {"delete": {"chain": _place(chain)}}]
        commands += [{"add": {"chain": _declaration(chain)}} for chain in ours]
        for chain in ours:
            at = {"family": family, "table": TABLE, "chain": chain.name}
            commands += [{"add": {"rule": {**at, "expr": json.loads(rule.source)}}} for rule in chain.rules]
    return {"nftables": commands}


def removal(families: Iterable[Family]) -> dict[str, Any]:
    """Commands that take the tables away; those that are not there, too."""
    commands: list[dict[str, Any]] = []
    for family in families:
        table = {"table": {"family": family, "name": TABLE}}
        commands += [{"add": table}, {"delete": table}]
    return {"nftables": commands}


def marking(mark: str, others: Iterable[str]) -> dict[str, Any]:
    """Commands that leave one mark."""
    at = {"family": "inet", "table": TABLE}
    return {
        "nftables": [
            {"add": {"table": {"family": "inet", "name": TABLE}}},
            *({"delete": {"chain": {**at, "name": f"{MARK_PREFIX}{each}"}}} for each in sorted(others)),
            {"add": {"chain": {**at, "name": f"{MARK_PREFIX}{mark}"}}},
        ]
    }


def read_tables(
    dumps: Iterable[Mapping[str, Any]], devices: Mapping[str, str]
) -> tuple[frozenset[Chain], frozenset[str]]:
    """The chains of dumps of our tables, and the marks. A set that no rule names decides nothing: it is passed over.

    `devices`: of the base chains of the netdev table.
    """
    heads: dict[tuple[Family, str], Hook | None] = {}
    rules: dict[tuple[Family, str], list[NftRule]] = {}
    marks = set()
    for dump in dumps:
        for entry in dump.get("nftables", ()):
            for kind, said in entry.items():
                if kind in ("metainfo", "table"):
                    continue
                if kind == "chain" and said["name"].startswith(MARK_PREFIX) and "hook" not in said:
                    marks.add(said["name"].removeprefix(MARK_PREFIX))
                elif kind == "chain":
                    heads[said["family"], said["name"]] = _hook(said, devices)
                elif kind == "rule":
                    expressions = said.get("expr", [])
                    rules.setdefault((said["family"], said["chain"]), []).append(
                        NftRule(canonical(expressions), json.dumps(expressions))
                    )
    chains = {Chain(family, name, hook, tuple(rules.get((family, name), ()))) for (family, name), hook in heads.items()}
    return frozenset(chains), frozenset(marks)


def _declaration(chain: Chain) -> dict[str, Any]:
    declared: dict[str, Any] = _place(chain)
    if chain.hook is not None:
        declared |= {
            "type": "filter",
            "hook": chain.hook.hook,
            "prio": chain.hook.priority,
            "policy": chain.hook.policy,
        }
        if chain.hook.device is not None:
            declared["dev"] = chain.hook.device
    return declared


def _place(chain: Chain) -> dict[str, Any]:
    return {"family": chain.family, "table": TABLE, "name": chain.name}


def _hook(said: Mapping[str, Any], devices: Mapping[str, str]) -> Hook | None:
    if "hook" not in said:
        return None
    device = devices.get(said["name"], "") if said["family"] == "netdev" else None
    return Hook(said["hook"], said.get("prio", 0), said.get("policy", "accept"), device)
