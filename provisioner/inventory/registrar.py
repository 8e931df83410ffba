"""The effects of registration: reads the cluster, asks by dry run, applies."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from provisioner.api import DPU, NodePool, Rack, Server
from provisioner.api.codec import decode
from provisioner.api.errors import NeedsHuman, NotFound, ProvisionerError, Refused
from provisioner.api.server import Acceptance
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import SECRETS, of
from provisioner.inventory.duplicates import find_duplicates
from provisioner.inventory.entries import BadPackingList, Credentials, Entry, Mistake, PackingList
from provisioner.inventory.references import find_dangling, known_racks
from provisioner.inventory.register import (
    CREDENTIALS_NAMESPACE,
    MANAGER,
    Change,
    Step,
    compare,
    credentials_name,
    name_credentials,
    settle_acceptance,
    supersede,
)

_KINDS = {kind.KIND.kind: kind for kind in (Rack, Server, DPU)}
_ORDER = {"Rack": 0, "Server": 1, "DPU": 2}


@dataclass(frozen=True)
class Plan:
    """What registration does, in the order in which it is done."""

    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()

    def count(self, action: str) -> int:
        return sum(1 for step in self.steps if step.action == action)


@dataclass(frozen=True)
class Failure:
    """A step that the API server did not take."""

    step: Step
    error: ProvisionerError


def plan_registration(cluster: Cluster, packing_list: PackingList, *, acceptance: Acceptance | None = None) -> Plan:
    """What registering the list would change. Writes nothing.

    Raises: BadPackingList with everything that is wrong; NeedsHuman if the CRDs are not installed.
    """
    existing = _read(cluster)
    now = {(body["kind"], body["metadata"]["name"]): body for body in existing}
    entries = sorted(packing_list.entries, key=lambda entry: _ORDER[entry.kind])
    entries = [
        settle_acceptance(name_credentials(entry), now.get((entry.kind, entry.name)), acceptance) for entry in entries
    ]
    racks = [decode(Rack, body) for body in existing if body["kind"] == "Rack"]
    mistakes = [*find_duplicates(entries, existing), *find_dangling(entries, known_racks(entries, racks))]
    steps: list[Step] = []
    for entry in entries:
        body = entry.body()
        try:
            after = cluster.apply(body, manager=MANAGER, dry_run=True)
        except Refused as refused:
            mistakes.append(_refused(entry, refused))
            continue
        step = compare(now.get((entry.kind, entry.name)), after, body=body, origin=entry.origin)
        if entry.create_only and step.action == "update":
            mistakes.append(_would_change(entry, step))
        steps.append(step)
        if entry.credentials is not None:
            steps.append(_credentials_step(cluster, entry, entry.credentials))
    if mistakes:
        raise BadPackingList(tuple(mistakes))
    notes = [*packing_list.notes, *_missing_pools(cluster, entries)]
    return Plan((*steps, *supersede(entries, existing)), tuple(notes))


def carry_out(cluster: Cluster, plan: Plan) -> tuple[Failure, ...]:
    """Do it. Safe to repeat: what was done already is unchanged the next time. Returns what failed."""
    failures = []
    for step in plan.steps:
        try:
            if step.action == "delete":
                cluster.delete(of(Server), step.name, uid=step.uid)
            elif step.body is not None and step.action != "unchanged":
                cluster.apply(step.body, manager=MANAGER)
        except ProvisionerError as error:
            failures.append(Failure(step, error))
    return tuple(failures)


def _read(cluster: Cluster) -> list[dict[str, Any]]:
    try:
        return [body for kind in _KINDS.values() for body in cluster.list(of(kind)).items]
    except NotFound as missing:
        raise NeedsHuman(
            "the API server does not know the provisioner's kinds",
            hint="install them: provisioner crds | kubectl apply --server-side -f -",
        ) from missing


def _refused(entry: Entry, refused: Refused) -> Mistake:
    message = Exception.__str__(refused)
    return Mistake(entry.origin, message, "an object that the API server accepts", refused.hint)


def _would_change(entry: Entry, step: Step) -> Mistake:
    fields = ", ".join(change.field for change in step.changes)
    observed = f"{entry.kind} {entry.name} exists already, with other {fields}"
    remedy = f"leave --subnet out, or change it by kubectl edit {entry.kind.lower()} {entry.name} or a YAML list"
    return Mistake(entry.origin, observed, "a Rack that does not exist yet", remedy)


def _missing_pools(cluster: Cluster, entries: Sequence[Entry]) -> Iterable[str]:
    wanted = {entry.spec["nodePoolRef"] for entry in entries if entry.spec.get("nodePoolRef")}
    missing = sorted(wanted - {body["metadata"]["name"] for body in cluster.list(of(NodePool)).items}) if wanted else []
    return [f"NodePool {name} does not exist: its servers wait until it does" for name in missing]


def _credentials_step(cluster: Cluster, entry: Entry, credentials: Credentials) -> Step:
    name = credentials_name(entry.name)
    wanted = {"username": credentials.username, "password": credentials.password.reveal()}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in wanted.items()}
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": CREDENTIALS_NAMESPACE,
            "labels": {"provisioner.dev/server": entry.name},
        },
        "data": data,
    }
    try:
        before = cluster.get(SECRETS, name, namespace=CREDENTIALS_NAMESPACE).get("data") or {}
    except NotFound:
        return Step("create", "Secret", name, body=body, origin=entry.origin)
    changes = tuple(Change(f"data.{key}", "***", "***") for key in data if before.get(key) != data[key])
    return Step("update" if changes else "unchanged", "Secret", name, changes, body, entry.origin)
