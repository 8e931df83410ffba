"""Who writes what: on a real API server each with the rights and under the policies that are shipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from lab.control_plane.plane import ControlPlane
from provisioner.api import Maintenance
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import Resource
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import KNOWN, ResourceType, of
from tests.cluster.fake_cluster import FakeCluster
from tests.maintenance.chaos.client import WRITES
from tests.people import bind, kubeconfig_of, until

PERSON = "alice@example.com"


@dataclass
class WriteCount:
    """How often any of them wrote."""

    writes: int = 0
    by_type: Counter[ResourceType | None] = field(default_factory=Counter)
    """None: what may have changed objects of any kind."""

    def note(self, method: str, target: Any) -> None:
        """`target`: the first argument of the client's `method`. A deletion may take others with it."""
        self.writes += 1
        self.by_type[None if method == "delete" else _type_of(target)] += 1

    def touching(self, type_: ResourceType) -> int:
        """Writes that may have changed objects of this kind."""
        return self.by_type[type_] + self.by_type[None]


def _type_of(target: Any) -> ResourceType | None:
    if isinstance(target, ResourceType):
        return target
    if isinstance(target, Mapping):
        return KNOWN.get((target["apiVersion"], target["kind"]))
    return of(target) if isinstance(target, type) and issubclass(target, Resource) else None


class CountedCluster:
    """A real client, whose writes are counted."""

    def __init__(self, inner: Any, count: WriteCount) -> None:
        self._inner, self._count = inner, count

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return partial(self._write, name, found) if name in WRITES else found

    def _write(self, method: str, write: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return write(*args, **kwargs)
        finally:
            self._count.note(method, args[0] if args else None)


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """The clients of a world. admin: may do anything, sets it up and looks at it. person: asks, as a provisioner's
    administrator. service: by the name of its account. node: what the kubelet and the agent of a server write by."""

    admin: Any
    person: Any
    service: Callable[[str], Any]
    node: Callable[[str], Any]
    count: WriteCount | None = None

    @classmethod
    def of_fake(cls, cluster: FakeCluster) -> Accounts:
        """A FakeCluster knows no rights."""
        return cls(admin=cluster, person=cluster, service=lambda name: cluster, node=lambda name: cluster)

    @classmethod
    def on(cls, plane: ControlPlane, admin: Cluster, account: Callable[[str], Cluster], folder: Path) -> Accounts:
        """On a real control plane, with certificates made in `folder`."""
        count = WriteCount()

        def connect(user: str, group: str | None = None) -> Any:
            return CountedCluster(Cluster.connect(kubeconfig_of(plane, folder, user, group=group)), count)

        bind(admin, "provisioner-administrator", PERSON)
        person = connect(PERSON)
        until(lambda: _may_ask(person))
        return cls(
            admin=CountedCluster(admin, count),
            person=person,
            service=cache(lambda name: CountedCluster(account(name), count)),
            node=cache(lambda name: connect(f"system:node:{name}", "system:nodes")),
            count=count,
        )


def _may_ask(person: Any) -> bool:
    """Rights are in force a moment after they were given."""
    try:
        person.list(of(Maintenance))
    except Refused:
        return False
    return True
