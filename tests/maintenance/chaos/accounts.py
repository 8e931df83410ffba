"""Who writes what: on a real API server each with the rights and under the policies that are shipped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from provisioner.api import Maintenance
from provisioner.api.errors import Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.lab.control_plane.plane import ControlPlane
from tests.cluster.fake_cluster import FakeCluster
from tests.maintenance.chaos.client import WRITES
from tests.people import bind, kubeconfig_of, until

PERSON = "alice@example.com"


@dataclass
class WriteCount:
    """How often any of them wrote."""

    writes: int = 0


class CountedCluster:
    """A real client, whose writes are counted."""

    def __init__(self, inner: Any, count: WriteCount) -> None:
        self._inner, self._count = inner, count

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return partial(self._write, found) if name in WRITES else found

    def _write(self, write: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return write(*args, **kwargs)
        finally:
            self._count.writes += 1


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
