"""The effects of registration: one LIST of each kind, then an apply for each object that is not as the list has it."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from provisioner.api import NodePool, Rack, Server
from provisioner.api.machinery.backoff import Backoff
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import (
    Conflict,
    Forbidden,
    NeedsHuman,
    NotFound,
    ProvisionerError,
    Refused,
    Retryable,
)
from provisioner.api.servers.server import Acceptance
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import BMC_SECRETS, SECRETS, of
from provisioner.inventory.duplicates import find_duplicates
from provisioner.inventory.lists.entries import BadPackingList, BmcCredentials, ListEntry, Mistake, Origin, PackingList
from provisioner.inventory.references import find_dangling, known_racks
from provisioner.inventory.register import (
    MANAGER,
    Action,
    FieldChange,
    RegistrationStep,
    compare,
    credentials_name,
    is_settled,
    name_credentials,
    settle_acceptance,
    supersede,
)

CONNECTIONS: Final = 8
PATIENCE_SECONDS: Final = 60.0
ATTEMPTS: Final = 10

T = TypeVar("T")

_KINDS = {kind.KIND.kind: kind for kind in (Rack, Server)}
_WAVES: Final = ("Rack", "Secret", "Server", "delete")
"""What is written together; each waits for those before it. A server's BMC is spoken to once it exists, so its Secret
comes first."""


@dataclass(frozen=True)
class RegistrationPlan:
    """What registration does, in the order in which it is shown. An update may turn out to change nothing."""

    steps: tuple[RegistrationStep, ...]
    notes: tuple[str, ...] = ()

    def count(self, action: str) -> int:
        return sum(1 for step in self.steps if step.action == action)


@dataclass(frozen=True)
class StepFailure:
    """A step that the API server did not take."""

    step: RegistrationStep
    error: ProvisionerError


@dataclass(frozen=True)
class RegistrationOutcome:
    """What came of a plan: its steps with what they changed, those that failed, and those that were not tried."""

    steps: tuple[RegistrationStep, ...]
    failures: tuple[StepFailure, ...]
    untried: tuple[RegistrationStep, ...]
    interrupted: bool = False

    def count(self, action: str) -> int:
        return sum(1 for step in self.steps if step.action == action)

    def mistakes(self) -> tuple[Mistake, ...]:
        """What a rehearsal found that the file's author must correct."""
        return tuple(
            _refused(failure.step, failure.error) for failure in self.failures if isinstance(failure.error, Refused)
        )


def plan_registration(
    cluster: Cluster, packing_list: PackingList, *, acceptance: Acceptance | None = None
) -> RegistrationPlan:
    """What registering the list would change. Writes nothing.

    Costs a LIST of each kind, whatever the list's length. What the API server's own rules say is asked for the first
    object of each kind, so that a list that is wrong throughout is refused whole; for the others `carry_out` asks.
    Raises: BadPackingList with everything that is wrong; NeedsHuman if the CRDs are not installed.
    """
    patience = _Patience()
    existing = patience.call(lambda: _read(cluster))
    now = {(body["kind"], body["metadata"]["name"]): body for body in existing}
    entries = sorted(packing_list.entries, key=lambda entry: _WAVES.index(entry.kind))
    entries = [
        settle_acceptance(name_credentials(entry), now.get((entry.kind, entry.name)), acceptance) for entry in entries
    ]
    racks = [decode(Rack, body) for body in existing if body["kind"] == "Rack"]
    servers = {body["metadata"]["name"] for body in existing if body["kind"] == "Server"}
    duplicates = find_duplicates(entries, existing)
    mistakes = [*duplicates.mistakes, *find_dangling(entries, known_racks(entries, racks), servers)]
    secrets = patience.call(lambda: _read_secrets(cluster, entries))
    written = {(entry.kind, entry.name) for entry in entries if entry.kind == Rack.KIND.kind}
    steps: list[RegistrationStep] = []
    rehearsed: set[str] = set()
    for entry in entries:
        step = _step(entry, now.get((entry.kind, entry.name)), written)
        if step.action != "unchanged" and (entry.kind not in rehearsed or entry.create_only):
            rehearsed.add(entry.kind)
            try:
                step = compare(step, patience.call(partial(_apply, cluster, step, dry_run=True)))
            except Refused as refused:
                mistakes.append(_refused(step, refused))
            if entry.create_only and step.action == "update":
                mistakes.append(_would_change(entry, step))
        steps.append(step)
        if entry.credentials is not None:
            steps.append(_credentials_step(entry, entry.credentials, secrets))
    if mistakes:
        raise BadPackingList(tuple(mistakes), (*packing_list.notes, *duplicates.notes))
    notes = (*packing_list.notes, *duplicates.notes, *_missing_pools(cluster, entries))
    return RegistrationPlan((*steps, *supersede(entries, existing)), notes)


def carry_out(
    cluster: Cluster,
    plan: RegistrationPlan,
    *,
    dry_run: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> RegistrationOutcome:
    """Do it, or have the API server rehearse it (`dry_run`); `advance` is called after each step that is not unchanged.

    What fails is collected and the rest goes on. Safe to repeat, and to end at any moment: what was written is
    unchanged the next time. Ctrl-C waits for what is under way; if the API server answers nothing for a minute, the
    rest is not tried either.
    """
    patience = _Patience()
    results: dict[int, RegistrationStep | StepFailure] = {
        number: step for number, step in enumerate(plan.steps) if step.action == "unchanged"
    }
    lost: set[tuple[str, str]] = set()

    def do(number: int) -> None:
        if patience.is_over:
            return
        step = plan.steps[number]
        try:
            if step.needs in lost:
                kind, name = step.needs or ("", "")
                raise NeedsHuman(f"not tried, as {kind} {name} was not written", hint="correct that one")
            results[number] = patience.call(lambda: _do(cluster, step, dry_run=dry_run))
        except ProvisionerError as error:
            results[number] = StepFailure(step, error)
        advance()

    interrupted = False
    waves: dict[int, list[int]] = {}
    for number, step in enumerate(plan.steps):
        if number not in results:
            waves.setdefault(_WAVES.index(step.kind if step.action != "delete" else "delete"), []).append(number)
    for _, numbers in sorted(waves.items()):
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            try:
                list(pool.map(do, numbers))
            except KeyboardInterrupt:
                interrupted = True
                patience.end()
        lost |= {(r.step.kind, r.step.name) for r in results.values() if isinstance(r, StepFailure)}
    return RegistrationOutcome(
        steps=tuple(step for _, step in sorted(results.items()) if isinstance(step, RegistrationStep)),
        failures=tuple(failure for _, failure in sorted(results.items()) if isinstance(failure, StepFailure)),
        untried=tuple(step for number, step in enumerate(plan.steps) if number not in results),
        interrupted=interrupted,
    )


class _Patience:
    """Calls again what the API server could not take just now (429, 5xx, no answer), with longer and longer pauses.

    Shared by threads: over once someone ended it, or nothing was answered for PATIENCE_SECONDS.
    """

    def __init__(self) -> None:
        self._over = threading.Event()
        self._answered = time.monotonic()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        self._over.set()

    def call(self, call: Callable[[], T]) -> T:
        """Raises: what `call` raised last."""
        backoff = Backoff(first=0.25, cap=10.0)
        while True:
            try:
                answer = call()
            except Conflict:
                raise
            except Retryable as error:
                if time.monotonic() - self._answered > PATIENCE_SECONDS:
                    self.end()
                if self._over.wait(max(error.after_seconds, backoff.failed())) or backoff.failures >= ATTEMPTS:
                    raise
            else:
                self._answered = time.monotonic()
                return answer


def _step(entry: ListEntry, before: dict[str, Any] | None, racks: set[tuple[str, str]]) -> RegistrationStep:
    body = entry.body()
    action: Action = "create" if before is None else "unchanged" if is_settled(body, before) else "update"
    rack = (Rack.KIND.kind, str(entry.spec.get("rackRef")))
    return RegistrationStep(
        action,
        entry.kind,
        entry.name,
        body=body,
        origin=entry.origin,
        before=before,
        needs=rack if rack in racks else None,
    )


def _do(cluster: Cluster, step: RegistrationStep, *, dry_run: bool) -> RegistrationStep:
    if step.kind == SECRETS.kind:
        # A rehearsal would be refused where the namespace is still to be made; what changes is known.
        if not dry_run:
            _apply(cluster, step, dry_run=False)
        return step
    if step.action == "delete":
        if not dry_run:
            cluster.delete(of(Server), step.name, uid=step.uid)
        return step
    return compare(step, _apply(cluster, step, dry_run=dry_run))


def _apply(cluster: Cluster, step: RegistrationStep, *, dry_run: bool) -> dict[str, Any]:
    assert step.body is not None  # noqa: S101 - only a delete has none
    return cluster.apply(step.body, manager=MANAGER, dry_run=dry_run)


def _read(cluster: Cluster) -> list[dict[str, Any]]:
    try:
        return [body for kind in _KINDS.values() for body in cluster.list(of(kind)).items]
    except NotFound as missing:
        raise NeedsHuman(
            "the API server does not know the provisioner's kinds",
            hint="install them: provisioner crds | kubectl apply --server-side -f -",
        ) from missing


def _refused(step: RegistrationStep, refused: Refused) -> Mistake:
    message = Exception.__str__(refused)
    return Mistake(step.origin or Origin(""), message, "an object that the API server accepts", refused.hint)


def _would_change(entry: ListEntry, step: RegistrationStep) -> Mistake:
    fields = ", ".join(change.field for change in step.changes)
    observed = f"{entry.kind} {entry.name} exists already, with other {fields}"
    remedy = f"leave --subnet out, or change it by kubectl edit {entry.kind.lower()} {entry.name} or a YAML list"
    return Mistake(entry.origin, observed, "a Rack that does not exist yet", remedy)


def _missing_pools(cluster: Cluster, entries: Sequence[ListEntry]) -> Iterable[str]:
    wanted = {entry.spec["nodePoolRef"] for entry in entries if entry.spec.get("nodePoolRef")}
    missing = sorted(wanted - {body["metadata"]["name"] for body in cluster.list(of(NodePool)).items}) if wanted else []
    return [f"NodePool {name} does not exist: its servers wait until it does" for name in missing]


def _read_secrets(cluster: Cluster, entries: Sequence[ListEntry]) -> Mapping[str, Any] | None:
    """The data of the Secrets that are there, by name; None if they may be written and not read."""
    if not any(entry.credentials for entry in entries):
        return {}
    try:
        secrets = cluster.list(SECRETS, namespace=BMC_SECRETS).items
    except Forbidden:
        return None
    return {body["metadata"]["name"]: body.get("data") or {} for body in secrets}


def _credentials_step(
    entry: ListEntry, credentials: BmcCredentials, existing: Mapping[str, Any] | None
) -> RegistrationStep:
    name = credentials_name(entry.name)
    wanted = {"username": credentials.username, "password": credentials.password.reveal()}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in wanted.items()}
    metadata = {"name": name, "namespace": BMC_SECRETS, "labels": {"provisioner.dev/server": entry.name}}
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    if existing is not None and name not in existing:
        return RegistrationStep("create", "Secret", name, body=body, origin=entry.origin)
    before = existing[name] if existing else {}
    changes = tuple(FieldChange(f"data.{key}", "***", "***") for key in data if before.get(key) != data[key])
    return RegistrationStep("update" if changes else "unchanged", "Secret", name, changes, body, entry.origin)
