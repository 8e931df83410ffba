"""bgpd's configuration as sections of lines: read from `show running-config`, compared, led to another. Pure.

A section is named by the lines that lead to it: ("router bgp 64512", "address-family l2vpn evpn"); () is the top. Only
what bgpd itself prints is written, so that the two can be compared line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

Section = tuple[str, ...]
Configuration = Mapping[Section, tuple[str, ...]]
"""Sections in the order in which they can be entered, lines in that in which bgpd takes them."""

_HEADER: Final = re.compile(r"(router bgp |address-family |route-map \S+ (permit|deny) \d+\Z)")
_PASSED_OVER: Final = ("!", "exit", "exit-address-family", "end")
_OURS_AT_THE_TOP: Final = "bgp extcommunity-list "
_WITHOUT_VALUE: Final = re.compile(r"(network .*) routermac \S+\Z")
"""What `no` does not take the end of."""


def read_running(text: str) -> dict[Section, tuple[str, ...]]:
    """What of `show running-config` this package writes; of the rest, the sections that would be in its way."""
    found: dict[Section, list[str]] = {}
    path: list[str] = []
    for line in text.splitlines():
        words = line.strip()
        depth = len(line) - len(line.lstrip(" "))
        if not words or words.startswith("!") or words in _PASSED_OVER:
            continue
        del path[depth:]
        if _HEADER.match(words):
            path.append(words)
            found.setdefault(tuple(path), [])
        elif path or words.startswith(_OURS_AT_THE_TOP):
            found.setdefault(tuple(path), []).append(words)
    return {section: tuple(lines) for section, lines in found.items()}


def commands(wanted: Configuration, running: Configuration) -> list[str]:
    """What leads from the one to the other, for `configure terminal`; empty where they agree.

    Lists and route-maps are there before a neighbour is bound to them, and go after it.
    """
    gone = [section for section in running if section not in wanted]
    strangers = {section[:1] for section in gone if len(section) == 1 and _is_bgp(section)}
    found = [f"no {section[0]}" for section in sorted(strangers)]
    outside_in = sorted(wanted, key=len)
    for policy in (each for each in outside_in if not _is_bgp(each)):
        if policy and _old(wanted, running, policy):
            # Of a setting that has one value, `no` would take the new one away as well.
            found += [f"no {policy[0]}", *_within(policy, wanted[policy])]
        else:
            found += _within(policy, _new(wanted, running, policy))
    for speaker in sorted(running, key=len)[::-1]:
        if _is_bgp(speaker) and speaker[:1] not in strangers:
            found += _within(speaker, _without_the_gone(wanted, running, speaker))
    for speaker in (each for each in outside_in if _is_bgp(each)):
        found += _within(speaker, _new(wanted, running, speaker))
    found += [f"no {section[0]}" for section in gone if len(section) == 1 and section[0].startswith("route-map ")]
    kept = {_entry(line) for line in wanted.get((), ())}  # what has the number of a former one has taken its place
    return found + [_negated(line) for line in reversed(running.get((), ())) if _entry(line) not in kept]


def agree(wanted: Configuration, running: Configuration) -> bool:
    """Whether bgpd has exactly what is wanted; in which order it prints that is its own affair."""
    return {each: frozenset(lines) for each, lines in wanted.items() if lines or each} == {
        each: frozenset(lines) for each, lines in running.items() if lines or each
    }


def to_refresh(wanted: Configuration, running: Configuration) -> list[str]:
    """Neighbours whose routes have to pass their route-maps once more, for what those say has changed: bgpd would wait
    5 s by itself, and for what it has taken already never ask."""
    changed_lists = {
        line.split()[3]
        for one, other in ((wanted, running), (running, wanted))
        for line in set(one.get((), ())) - set(other.get((), ()))
    }
    changed = {
        section[0].split()[1]
        for configuration in (wanted, running)
        for section, lines in configuration.items()
        if section and section[0].startswith("route-map ")
        if frozenset(wanted.get(section, ())) != frozenset(running.get(section, ()))
        or any(line.split()[-1] in changed_lists for line in lines if line.startswith("match extcommunity "))
    }
    return sorted({words[1] for words in _of_neighbours(wanted) if words[2] == "route-map" and words[3] in changed})


def neighbours(configuration: Configuration) -> set[str]:
    """With whom routes are exchanged."""
    return {words[1] for words in _of_neighbours(configuration)}


def _of_neighbours(configuration: Configuration) -> Iterator[list[str]]:
    lines = (line for section, lines in configuration.items() if len(section) > 1 for line in lines)
    return (line.split() for line in lines if line.startswith("neighbor "))


def _entry(line: str) -> tuple[str, ...]:
    """Kind, name and number of a list's entry."""
    return tuple(line.split()[2:6])


def _is_bgp(section: Section) -> bool:
    return bool(section) and section[0].startswith("router bgp ")


def _new(wanted: Configuration, running: Configuration, section: Section) -> Sequence[str] | None:
    """None: the section is to be made, though it has no new line."""
    there = frozenset(running.get(section, ()))
    new = [line for line in wanted[section] if line not in there]
    return None if not new and section not in running else new


def _old(wanted: Configuration, running: Configuration, section: Section) -> list[str]:
    meant = frozenset(wanted.get(section, ()))
    return [_negated(line) for line in reversed(running.get(section, ())) if line not in meant]


def _without_the_gone(wanted: Configuration, running: Configuration, section: Section) -> list[str]:
    """As `_old`; of a neighbour that goes, that it does and nothing else: line by line its filters would go first."""
    meant = frozenset(wanted.get(section[:1], ()))
    lines = (line.split() for line in running.get(section[:1], ()) if line not in meant)
    gone = {each[1] for each in lines if each[0] == "neighbor" and each[2:3] == ["remote-as"]}
    found = ((line, line.removeprefix("no ").split()) for line in _old(wanted, running, section))
    return [
        line
        for line, words in found
        if words[:1] != ["neighbor"] or gone.isdisjoint(words[1:2]) or words[2:3] == ["remote-as"]
    ]


def _negated(line: str) -> str:
    if line.startswith("no "):
        return line.removeprefix("no ")
    return "no " + _WITHOUT_VALUE.sub(r"\1", line)


def _within(section: Section, lines: Sequence[str] | None) -> list[str]:
    if lines is not None and not lines:
        return []
    inside = [*section, *(lines or ())]
    leave = [*(["exit-address-family"] if len(section) > 1 else []), *(["exit"] if section else [])]
    return [*inside, *leave]
