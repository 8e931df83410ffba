"""What was declared, what the card says: which command is missing, and what is not in force. Pure.

That something is in force counts only if the card says so: not that a command ended well, nor that it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.backoff import backoff_seconds, unspread
from provisioner.api.network.card import CardDifference, CardSetting, HostAccess
from provisioner.network.agent.card.parse import SWITCHES, HostPrivileges, Setting, Value

PRIVILEGES: Final = "mstprivhost"
SETTINGS: Final = "mstconfig"

_LEVEL: Final = "HOST_PRIV_LEVEL"
_SETTING_OF: Final = {
    "disable_rshim": "HOST_DISABLE_RSHIM",
    "disable_tracer": "HOST_DISABLE_TRACER_OWNER",
    "disable_counter_rd": "HOST_DISABLE_PORT_COUNTER",
    "disable_port_owner": "HOST_DISABLE_PORT_OWNER",
}
ACCESS_SETTINGS: Final = (_LEVEL, *(_SETTING_OF[each] for each in SWITCHES))
"""What mstprivhost stores, by the names that mstconfig has for it. Source: mstprivhost(1), "mlxconfig_name"."""
_LEVELS: Final = {"RESTRICTED": Value("LIMITED", "1"), "PRIVILEGED": Value("PRIVILEGED", "0")}
_SHORTEST_PAUSE_SECONDS: Final = 10.0
_LONGEST_PAUSE_SECONDS: Final = 3600.0
LOOK_SECONDS: Final = 600.0
"""How long what somebody changed on the card stays unnoticed at most."""


@dataclass(frozen=True)
class CardDecision:
    """command: what is to be run, if anything. differences: what is not known to be in force."""

    command: tuple[str, ...] | None
    differences: tuple[CardDifference, ...]


def privileges_query(device: str) -> tuple[str, ...]:
    return (PRIVILEGES, "-d", device, "q")


def settings_query(device: str, names: Sequence[str]) -> tuple[str, ...]:
    return (SETTINGS, "-d", device, "-e", "q", *names)


def decide_access(
    device: str, wanted: HostAccess, stored: HostPrivileges, told: Mapping[str, Setting] | None
) -> CardDecision:
    """stored: what mstprivhost says. told: the same settings as mstconfig has them; None where it knows none of them.

    What mstconfig says to be in force counts where it says the same to be stored: else it speaks of something else.
    """
    level = "RESTRICTED" if wanted == "Restricted" else "PRIVILEGED"
    is_disabled = wanted == "Restricted"
    wishes = {_LEVEL: _LEVELS[level]} | {_SETTING_OF[each]: _flag(is_disabled) for each in SWITCHES}
    held = {_LEVEL: _LEVELS[stored.level]} | {_SETTING_OF[each]: _flag(stored.switches[each]) for each in SWITCHES}
    differences = []
    for name in ACCESS_SETTINGS:
        seen = (told or {}).get(name)
        in_force = seen.in_force if seen is not None and _are_alike(seen.stored, held[name]) else None
        if held[name] != wishes[name] or in_force is None or not _are_alike(in_force, wishes[name]):
            differences.append(_difference(device, name, wishes[name].word, held[name], in_force))
    if all(held[name] == wishes[name] for name in ACCESS_SETTINGS):
        return CardDecision(None, tuple(differences))
    if is_disabled:
        return CardDecision((PRIVILEGES, "-d", device, "r", *(f"--{each}" for each in SWITCHES)), tuple(differences))
    return CardDecision((PRIVILEGES, "-d", device, "p"), tuple(differences))


def decide_settings(device: str, wanted: Sequence[CardSetting], seen: Mapping[str, Setting]) -> CardDecision:
    """seen: each of `wanted`, by name."""
    unstored = [each for each in wanted if not seen[each.name].stored.is_(each.value)]
    differences = tuple(
        _difference(device, each.name, each.value, seen[each.name].stored, seen[each.name].in_force)
        for each in wanted
        if each in unstored or not _is_in_force(seen[each.name], each.value)
    )
    if not unstored:
        return CardDecision(None, differences)
    told = (f"{each.name}={each.value}" for each in unstored)
    return CardDecision((SETTINGS, "-d", device, "-y", "set", *told), differences)


def pause_seconds(attempts: int) -> float:
    """Until the card is looked at again. attempts: how many times in a row it was told something, or failed."""
    if attempts == 0:
        return LOOK_SECONDS
    return backoff_seconds(attempts, first=_SHORTEST_PAUSE_SECONDS, cap=_LONGEST_PAUSE_SECONDS, jitter=unspread)


def _is_in_force(setting: Setting, wanted: str) -> bool:
    return setting.in_force is not None and setting.in_force.is_(wanted)


def _flag(is_true: bool) -> Value:
    return Value("TRUE", "1") if is_true else Value("FALSE", "0")


def _are_alike(one: Value, other: Value) -> bool:
    """By their numbers, or, where one has none, by the words."""
    if one.number is not None and other.number is not None:
        return one.number == other.number
    return one.is_(other.word) or one.word == other.number


def _difference(device: str, name: str, wanted: str, stored: Value, in_force: Value | None) -> CardDifference:
    return CardDifference(
        device=device,
        name=name,
        wanted=wanted,
        stored=str(stored),
        in_force=None if in_force is None else str(in_force),
    )
