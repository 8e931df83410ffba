"""Registration: what a packing list changes, field by field. Pure; `registrar` does the writing.

The bodies hold only what the file says, so that a server-side apply owns only that. Whether an apply would change
anything is told by the object as a LIST gave it; what it changes (defaults, fields that the file no longer has), by the
API server's answer to the apply or its dry run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from provisioner.api import Server
from provisioner.api.servers.server import Acceptance
from provisioner.inventory.duplicates import claims_of, is_waiting_stranger
from provisioner.inventory.lists.entries import ListEntry, Origin

MANAGER: Final = "provisioner-register"

Action = Literal["create", "update", "unchanged", "delete"]
Object = Mapping[str, Any]


@dataclass(frozen=True)
class FieldChange:
    """One field; None where it is absent."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True)
class RegistrationStep:
    """What is done to one object, and why where that is not obvious."""

    action: Action
    kind: str
    name: str
    changes: tuple[FieldChange, ...] = ()
    body: Object | None = field(default=None, repr=False)  # a Secret's body holds a password
    origin: Origin | None = None
    reason: str | None = None
    uid: str | None = None
    before: Object | None = field(default=None, repr=False)
    """The object as it is in the cluster."""
    needs: tuple[str, str] | None = None
    """Kind and name of what must have been written before this is."""


def settle_acceptance(entry: ListEntry, before: Object | None, wanted: Acceptance | None) -> ListEntry:
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


def name_credentials(entry: ListEntry) -> ListEntry:
    """The entry, its BMC pointing at the Secret that is written from the file's password column."""
    if entry.credentials is None or not entry.spec.get("bmc"):
        return entry
    return replace(
        entry, spec={**entry.spec, "bmc": {**entry.spec["bmc"], "credentialsName": credentials_name(entry.name)}}
    )


def is_settled(body: Object, now: Object) -> bool:
    """Whether an apply of `body` would leave the object as it is: MANAGER owns these very fields, with these values."""
    owned = next(
        (
            entry["fieldsV1"]
            for entry in now["metadata"].get("managedFields") or ()
            if (entry["manager"], entry["operation"], entry.get("subresource")) == (MANAGER, "Apply", None)
        ),
        None,
    )
    wanted = {"spec": body["spec"], "metadata": {key: body["metadata"].get(key) for key in ("labels", "annotations")}}
    wanted["metadata"] = {key: value for key, value in wanted["metadata"].items() if value}
    return bool(owned) and _is_owned({key: value for key, value in wanted.items() if value}, now, owned)


def _is_owned(wanted: Any, now: Any, owned: Mapping[str, Any] | None) -> bool:
    """Whether `owned`, in the notation of managedFields, names all of `wanted` and nothing else, and `now` has it."""
    parts = {key: part for key, part in (owned or {}).items() if key != "."}
    if not parts or type(wanted) is not type(now) or not isinstance(wanted, (dict, list)):
        return bool(wanted == now)  # a scalar, or a list or mapping that is owned whole
    if isinstance(wanted, dict):
        fields = {f"f:{key}": key for key in wanted}
        return parts.keys() == fields.keys() and all(
            key in now and _is_owned(wanted[key], now[key], parts[part]) for part, key in fields.items()
        )
    if len(parts) != len(wanted):
        return False
    return all(_item_is_owned(part, wanted, now, inner) for part, inner in parts.items())


def _item_is_owned(part: str, wanted: list[Any], now: list[Any], owned: Mapping[str, Any]) -> bool:
    """One item of a list that is owned item by item: `k:{"name":"boot"}` by its keys, `v:"a"` by its value."""
    kind, _, value = part.partition(":")
    key = json.loads(value)
    if kind == "v":
        return key in wanted and key in now
    found = [
        next((item for item in items if all(item.get(name) == part for name, part in key.items())), None)
        for items in (wanted, now)
    ]
    return kind == "k" and None not in found and _is_owned(found[0], found[1], owned)


def compare(step: RegistrationStep, after: Object) -> RegistrationStep:
    """The step with what its apply changed: `after` is what the API server answered, to the apply or its dry run."""
    before = step.before
    changes = _differences(before["spec"] if before else {}, after["spec"], "")
    for part in ("labels", "annotations"):
        changes += _differences(_metadata(before, part), _metadata(after, part), part)
    action: Action = "create" if before is None else "update" if changes else "unchanged"
    return replace(step, action=action, changes=tuple(changes))


def supersede(entries: Iterable[ListEntry], existing: Iterable[Object]) -> tuple[RegistrationStep, ...]:
    """Discovered machines whose MAC address the file registers under a name: their objects go."""
    registered: dict[str, ListEntry] = {}
    for entry in entries:
        for claim in claims_of(entry.spec):
            if claim.what == "MAC address":
                registered.setdefault(claim.value, entry)
    steps = []
    for body in existing:
        named = registered.get(body["spec"]["bootMACAddress"]) if is_waiting_stranger(body) else None
        if named is not None and named.name != body["metadata"]["name"]:
            reason = f"it is {named.kind} {named.name} now"
            uid = body["metadata"].get("uid")
            needs = (named.kind, named.name)
            name = body["metadata"]["name"]
            steps.append(RegistrationStep("delete", Server.KIND.kind, name, reason=reason, uid=uid, needs=needs))
    return tuple(steps)


def _metadata(body: Object | None, part: str) -> Object:
    return (body["metadata"].get(part) or {}) if body else {}


def _differences(before: Any, after: Any, path: str) -> list[FieldChange]:
    """Changes from one JSON value to the other, down to the fields; lists of named things by name."""
    if before == after:
        return []
    before_fields, after_fields = _fields(before), _fields(after)
    if before_fields is None or after_fields is None:
        return [FieldChange(path, before, after)]
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
