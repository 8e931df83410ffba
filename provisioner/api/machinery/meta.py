"""What every object of the API has: metadata, conditions, and times as Kubernetes writes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ClassVar, Literal

from provisioner.api.machinery.schema import Kind, described, optional

ConditionStatus = Literal["True", "False", "Unknown"]


@dataclass(frozen=True, kw_only=True)
class ObjectMeta:
    """The part of Kubernetes' ObjectMeta that the project reads. `resource_version` is opaque."""

    name: str
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One observation about an object, after Kubernetes' api-conventions."""

    type: str = described("Name of the condition, CamelCase.", max_length=316)
    status: ConditionStatus = described("True, False or Unknown.")
    reason: str = described("Why the condition has this status, one CamelCase word.", max_length=1024)
    message: str = described("What a person should know: what is waited for, and the remedy.", max_length=32768)
    last_transition_time: str = described("When the status last changed.", format="date-time")
    observed_generation: int | None = optional("Generation of the object that was looked at.")


@dataclass(frozen=True, kw_only=True)
class NoStatus:
    """Nothing is observed of it."""


@dataclass(frozen=True, kw_only=True)
class Resource:
    """Base of the kinds; `KIND` says how the API server knows them."""

    KIND: ClassVar[Kind]
    metadata: ObjectMeta

    @property
    def name(self) -> str:
        return self.metadata.name


def rfc3339(moment: datetime) -> str:
    """`2026-01-02T03:04:05Z`, whole seconds, as `metav1.Time`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(moment: datetime) -> str:
    """`2026-01-02T03:04:05.678901Z`, as `metav1.MicroTime`."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_time(value: object) -> datetime | None:
    """A time that anybody may have written; None for what is no time with a zone."""
    if not isinstance(value, str):
        return None
    try:
        moment = parse_time(value)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def parse_time(text: str) -> datetime:
    """Read either of the two forms above."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
