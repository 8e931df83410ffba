"""A cluster of fixed objects: it counts what it is asked, and breaks on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from provisioner.api.machinery.errors import Conflict, Retryable
from provisioner.api.machinery.meta import rfc3339
from provisioner.cluster.client import ListResult
from provisioner.cluster.resources import ResourceType

Object = dict[str, Any]


def image(name: str, digest: str, created: datetime, recipe: str = "gpu-node", **metadata: Any) -> Object:
    """An Image object, with what retention reads of it."""
    return {
        "kind": "Image",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": rfc3339(created),
            **metadata,
        },
        "spec": {"digest": digest, "recipe": recipe, "distribution": "debian-13", "architecture": "x86_64"},
    }


def other(kind: str, name: str, **body: Any) -> Object:
    return {"kind": kind, "metadata": {"name": name, **body.pop("metadata", {})}, **body}


class FakeCluster:
    """`breaks_at`: the kind of which a list is not answered. `before_delete`: what happens just before a deletion."""

    def __init__(self, objects: Iterable[Object] = (), *, breaks_at: str | None = None) -> None:
        self.objects = list(objects)
        self.breaks_at = breaks_at
        self.calls: list[str] = []
        self.after_list: Callable[[str], None] = lambda kind: None
        self.around_delete: Callable[[], None] = lambda: None

    def list(
        self,
        type: ResourceType,  # noqa: A002
        *,
        trim: Callable[[Object], Object | None],
    ) -> ListResult:
        self.calls.append(f"LIST {type.kind}")
        if type.kind == self.breaks_at:
            raise Retryable(f"LIST {type.kind}: connection refused")
        items = [trim(each) for each in self.objects if each["kind"] == type.kind]
        self.after_list(type.kind)
        return ListResult([item for item in items if item is not None], "1")

    def delete(self, type: ResourceType, name: str, *, uid: str, resource_version: str) -> bool:  # noqa: A002
        self.calls.append(f"DELETE {type.kind} {name}")
        self.around_delete()
        found = self.find(name)
        if found is None:
            return False
        if (found["metadata"]["uid"], found["metadata"]["resourceVersion"]) != (uid, resource_version):
            raise Conflict(f"DELETE {name}: it is another one by now")
        self.objects.remove(found)
        self.around_delete()
        return True

    def find(self, name: str) -> Object | None:
        return next(
            (each for each in self.objects if each["kind"] == "Image" and each["metadata"]["name"] == name), None
        )

    @property
    def images(self) -> set[str]:
        return {each["metadata"]["name"] for each in self.objects if each["kind"] == "Image"}
