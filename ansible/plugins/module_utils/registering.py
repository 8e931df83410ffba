"""Racks and servers are registered as `provisioner rack register` does it: the same checks, the same field manager.

What a task does not name stays as it is, as Ansible's users expect it; the whole of a packing list is applied as it is
written, so that what was taken out of the list is given up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import AnsibleModule

try:
    from provisioner.api.machinery.errors import ProvisionerError
    from provisioner.inventory.lists.entries import BadPackingList, PackingList
    from provisioner.inventory.register import MANAGER, RegistrationStep
    from provisioner.inventory.registrar import RegistrationOutcome, carry_out, plan_registration
except ImportError:
    pass  # told by provisioner_module.make_module


def fields_that_are_ours(body: Mapping[str, Any]) -> dict[str, Any]:
    """Of an object's spec, labels and annotations what registration wrote; all of it where nothing is known to be.

    An apply without these would take them back.
    """
    meta = body["metadata"]
    whole = {key: meta[key] for key in ("labels", "annotations") if meta.get(key)} | {"spec": body["spec"]}
    for entry in meta.get("managedFields") or ():
        if (entry["manager"], entry["operation"], entry.get("subresource")) == (MANAGER, "Apply", None):
            fields = entry["fieldsV1"]
            metadata = fields.get("f:metadata", {})
            flat = {key: metadata[key] for key in ("f:labels", "f:annotations") if key in metadata}
            return _part(whole, flat | {"f:spec": fields.get("f:spec", {})})
    return {"spec": whole["spec"]}


def _part(now: Any, owned: Mapping[str, Any]) -> Any:
    """What `owned`, in the notation of managedFields, names of `now`."""
    parts = {key: part for key, part in owned.items() if key != "."}
    if not parts:
        return now
    if isinstance(now, Mapping):
        return {key: _part(value, parts[f"f:{key}"]) for key, value in now.items() if f"f:{key}" in parts}
    kept = []
    for item in now:
        for name, part in parts.items():
            kind, _, text = name.partition(":")
            key = json.loads(text)
            is_it = item == key if kind == "v" else all(item.get(field) == value for field, value in key.items())
            if is_it:
                kept.append(_part(item, part))
    return kept


def overlay(before: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` over `before`, mappings field by field; lists are taken whole, as a task names all of one.

    An empty string takes a field back.
    """
    merged = dict(before)
    for key, value in given.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = overlay(merged[key], value) if both else value
    return {key: value for key, value in merged.items() if value != ""}


def register(module: AnsibleModule, cluster: Any, wanted: PackingList, acceptance: str | None = None) -> dict[str, Any]:
    """Do it, or in check mode have the API server rehearse it; what the module returns.

    Ends the module with all mistakes at once, nothing written, where the list cannot be registered.
    """
    try:
        plan = plan_registration(cluster, wanted, acceptance=acceptance)
    except BadPackingList as bad:
        module.fail_json(**mistaken(bad))
    outcome = carry_out(cluster, plan, dry_run=module.check_mode)
    steps = [step for step in outcome.steps if step.action != "unchanged"]
    result = {
        "changed": bool(steps),
        "objects": [_told(step) for step in outcome.steps],
        "notes": list(plan.notes),
        "diff": [_diff(step) for step in steps],
    }
    if outcome.failures or outcome.untried:
        module.fail_json(**result, **_failed(outcome))
    return result


def mistaken(bad: BadPackingList) -> dict[str, Any]:
    """Arguments of fail_json: each mistake with place, observed, expected and remedy."""
    mistakes = [mistake.fields() for mistake in bad.mistakes]
    return {"msg": str(bad), "mistakes": mistakes, "notes": list(bad.notes), "remedy": bad.hint, "changed": False}


def _failed(outcome: RegistrationOutcome) -> dict[str, Any]:
    def words(error: ProvisionerError) -> str:
        return str(error)

    lines = [f"{f.step.kind} {f.step.name}: {words(f.error)}" for f in outcome.failures]
    lines += [f"{step.kind} {step.name}: not tried" for step in outcome.untried]
    remedy = "correct what is named; run the task again, it goes on from there"
    return {"msg": "\n".join(["not all of it was written:", *lines, remedy]), "remedy": remedy}


def _told(step: RegistrationStep) -> dict[str, Any]:
    changes = [{"field": c.field, "before": c.before, "after": c.after} for c in step.changes]
    return {"action": step.action, "kind": step.kind, "name": step.name, "reason": step.reason, "changes": changes}


def _diff(step: RegistrationStep) -> dict[str, Any]:
    """Of a Secret no value is shown, of others the fields that change."""
    title = f"{step.kind} {step.name}"
    if step.action == "delete":
        return {"before_header": title, "after_header": title, "before": f"{step.reason}\n", "after": ""}
    before = {c.field: c.before for c in step.changes if c.before is not None}
    after = {c.field: c.after for c in step.changes if c.after is not None}
    return {"before_header": title, "after_header": title, "before": _lines(before), "after": _lines(after)}


def _lines(fields: Mapping[str, Any]) -> str:
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in sorted(fields.items()))
