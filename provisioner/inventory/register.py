"""Registration: what a packing list changes, field by field. Pure; `registrar` does the writing.

The bodies hold only what the file says, so that a server-side apply owns only that. What an apply would make of them
(defaults, fields that the file no longer has) is asked of the API server by a dry run, and compared here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from provisioner.api import Server
from provisioner.api.server import Acceptance
from provisioner.inventory.duplicates import claims_of, is_waiting_stranger
from provisioner.inventory.entries import Entry, Origin

MANAGER: Final = "provisioner-register"
CREDENTIALS_NAMESPACE: Final = "provisioner-system"

Action = Literal["create", "update", "unchanged", "delete"]
Object = Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """One field; None where it is absent."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Step:
    """What is done to one object, and why where that is not obvious."""

    action: Action
    kind: str
    name: str
    changes: tuple[Change, ...] = ()
    body: Object | None = field(default=None, repr=False)  # a Secret's body holds a password
    origin: Origin | None = None
    reason: str | None = None
    uid: str | None = None


def settle_acceptance(entry: Entry, before: Object | None, wanted: Acceptance | None) -> Entry:
    """The entry with its acceptance: as the command says, else the file, else as it is; a new server is Accepted.

    It is always in the body: an apply that left it out would take back an acceptance that an earlier one gave.
    """
    if entry.kind == "Rack":
        return entry
    current = before["spec"].get("acceptance") if before else None
    acceptance = wanted or entry.spec.get("acceptance") or current or "Accepted"
    return replace(entry, spec={**entry.spec, "acceptance": acceptance})


def credentials_name(server: str) -> str:
    """Name of the Secret for a server's BMC."""
    return f"{server}-bmc"


def name_credentials(entry: Entry) -> Entry:
    """The entry, its BMC pointing at the Secret that is written from the file's password column."""
    if entry.credentials is None or not entry.spec.get("bmc"):
        return entry
    return replace(
        entry, spec={**entry.spec, "bmc": {**entry.spec["bmc"], "credentialsName": credentials_name(entry.name)}}
    )


def compare(before: Object | None, after: Object, *, body: Object | None = None, origin: Origin | None = None) -> Step:
    """What an apply changes: `before` is the object now (None: there is none), `after` what the dry run answered."""
    changes = _differences(before["spec"] if before else {}, after["spec"], "")
    for part in ("labels", "annotations"):
        changes += _differences(_metadata(before, part), _metadata(after, part), part)
    action: Action = "create" if before is None else "update" if changes else "unchanged"
    return Step(action, after["kind"], after["metadata"]["name"], tuple(changes), body, origin)


def supersede(entries: Iterable[Entry], existing: Iterable[Object]) -> tuple[Step, ...]:
    """Discovered machines whose MAC address the file registers under a name: their objects go."""
    registered: dict[str, Entry] = {}
    for entry in entries:
        for claim in claims_of(entry.kind, entry.spec):
            if claim.what == "MAC address":
                registered.setdefault(claim.value, entry)
    steps = []
    for body in existing:
        named = registered.get(body["spec"]["bootMACAddress"]) if is_waiting_stranger(body) else None
        if named is not None and named.name != body["metadata"]["name"]:
            reason = f"it is {named.kind} {named.name} now"
            uid = body["metadata"].get("uid")
            steps.append(Step("delete", Server.KIND.kind, body["metadata"]["name"], reason=reason, uid=uid))
    return tuple(steps)


def _metadata(body: Object | None, part: str) -> Object:
    return (body["metadata"].get(part) or {}) if body else {}


def _differences(before: Any, after: Any, path: str) -> list[Change]:
    """Changes from one JSON value to the other, down to the fields; lists of named things by name."""
    if before == after:
        return []
    before_fields, after_fields = _fields(before), _fields(after)
    if before_fields is None or after_fields is None:
        return [Change(path, before, after)]
    changes = []
    for key in [*after_fields, *(key for key in before_fields if key not in after_fields)]:
        joined = key if not path else f"{path}{key}" if key.startswith("[") else f"{path}.{key}"
        changes += _differences(before_fields.get(key), after_fields.get(key), joined)
    return changes


def _fields(value: Any) -> dict[str, Any] | None:
    """The parts of a value that are compared one by one; None if it is compared whole."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list) and value and all(isinstance(item, Mapping) and "name" in item for item in value):
        return {f"[{item['name']}]": {key: part for key, part in item.items() if key != "name"} for item in value}
    return None
