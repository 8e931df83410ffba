"""Label selectors: as kubectl takes them (`app=training,tier in (a, b),!debug`), and as objects hold them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from provisioner.api.machinery.errors import Refused

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]

_TOKEN: Final = re.compile(r"\s*(==|!=|=|!|,|\(|\)|<|>|[^\s,()=!<>]+)")
_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_DOMAIN: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_EXAMPLE: Final = "write it as kubectl -l takes it, such as app=training,tier in (a,b),!debug"


@dataclass(frozen=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether `labels` meet it. As in Kubernetes, NotIn is met by the absence of the label."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                number, bound = _integer(value), int(self.values[0])
                return number is not None and (number > bound if self.operator == "Gt" else number < bound)


@dataclass(frozen=True)
class Selector:
    """All of its requirements must be met; without any it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    """Read a selector with the grammar of kubectl's -l. Raises: Refused, saying where it is wrong."""
    tokens = _split(text)
    if not tokens:
        raise _wrong(text, "it is empty, which would match every pod")
    requirements, rest = [], tokens
    while True:
        requirement, rest = _requirement(text, rest)
        requirements.append(requirement)
        if not rest:
            return Selector(tuple(requirements))
        if rest[0] != ",":
            raise _wrong(text, f"a comma was expected before {rest[0]!r}")
        rest = rest[1:]


def read_selector(body: Mapping[str, Any] | None) -> Selector | None:
    """A LabelSelector of an object; None (which matches nothing) if there is none."""
    if body is None:
        return None
    by_label = [Requirement(key, "In", (value,)) for key, value in (body.get("matchLabels") or {}).items()]
    by_expression = [
        Requirement(entry["key"], entry["operator"], tuple(entry.get("values") or ()))
        for entry in body.get("matchExpressions") or []
    ]
    return Selector((*by_label, *by_expression))


def _requirement(text: str, tokens: list[str]) -> tuple[Requirement, list[str]]:
    negated = tokens[:1] == ["!"]
    key, rest = _word(text, tokens[1:] if negated else tokens, "a label's name")
    _check_key(text, key)
    if negated:
        return Requirement(key, "DoesNotExist"), rest
    operator = rest[0] if rest else ","
    if operator == ",":
        return Requirement(key, "Exists"), rest
    if operator in ("in", "notin"):
        values, rest = _values(text, rest[1:])
        return Requirement(key, "In" if operator == "in" else "NotIn", values), rest
    if operator in ("=", "==", "!="):
        # `app=` is fine: an empty value.
        value, rest = ("", rest[1:]) if rest[1:2] in ([], [","]) else _word(text, rest[1:], "a value")
        return Requirement(key, "NotIn" if operator == "!=" else "In", (_check_value(text, value),)), rest
    if operator in ("<", ">"):
        value, rest = _word(text, rest[1:], "a whole number")
        if _integer(value) is None:
            raise _wrong(text, f"{operator} needs a whole number, not {value!r}")
        return Requirement(key, "Gt" if operator == ">" else "Lt", (value,)), rest
    raise _wrong(text, f"one of = == != in notin < > was expected after {key!r}, not {operator!r}")


def _values(text: str, tokens: list[str]) -> tuple[tuple[str, ...], list[str]]:
    if tokens[:1] != ["("] or ")" not in tokens:
        raise _wrong(text, "in and notin need values in parentheses")
    end = tokens.index(")")
    # As in Kubernetes, nothing between two commas is the empty value.
    values = [""]
    for word in tokens[1:end]:
        if word == ",":
            values.append("")
        elif values[-1]:
            raise _wrong(text, f"a comma was expected before {word!r}")
        else:
            values[-1] = _check_value(text, word)
    return tuple(values), tokens[end + 1 :]


def _word(text: str, tokens: list[str], what: str) -> tuple[str, list[str]]:
    if not tokens or not tokens[0][0].isalnum():
        raise _wrong(text, f"{what} was expected" + (f", not {tokens[0]!r}" if tokens else " at the end"))
    return tokens[0], tokens[1:]


def _check_key(text: str, key: str) -> None:
    domain, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or len(name) > 63 or (slash and (not _DOMAIN.fullmatch(domain) or len(domain) > 253)):
        raise _wrong(text, f"{key!r} is not a label's name")


def _check_value(text: str, value: str) -> str:
    if value and (not _NAME.fullmatch(value) or len(value) > 63):
        raise _wrong(text, f"{value!r} is not a label's value")
    return value


def _split(text: str) -> list[str]:
    tokens, position, end = [], 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        assert found is not None  # noqa: S101 - every character is in one of the alternatives
        tokens.append(found.group(1))
        position = found.end()
    return tokens


def _integer(value: str | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def _wrong(text: str, why: str) -> Refused:
    return Refused(f"label selector {text!r} is not readable: {why}", hint=_EXAMPLE)
