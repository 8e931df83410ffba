"""People of a tenant, with the rights that they have in its namespace and no others, and kubectl's plugin called by
them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lab.control_plane.plane import ControlPlane
from provisioner.api import VPC, SecurityGroup, VPCAttachment
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.api.machinery.meta import Resource
from provisioner.cli.main import kubectl
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from tests.inventory.site import eventually
from tests.network.control.objects import vpc
from tests.network.control.site import Site
from tests.people import kubeconfig_of

Leadership = Callable[[], Callable[[], None]]
"""Has the network's controllers lead; what it gives ends that."""
RBAC = "rbac.authorization.k8s.io"


@pytest.fixture
def blue(site: Site) -> str:
    """A namespace with the VPC main."""
    namespace = site.tenant("blue")
    site.add(vpc(namespace))
    return namespace


@dataclass(frozen=True)
class Person:
    """Somebody who asks, in one namespace."""

    kubeconfig: Path
    namespace: str

    def run(self, *arguments: str) -> Result:
        """`kubectl provision vpc …`."""
        command = ["vpc", *arguments, "-n", self.namespace, "--kubeconfig", str(self.kubeconfig)]
        return CliRunner().invoke(kubectl, command)

    def done(self, *arguments: str) -> str:
        """The same, where it must work; what it printed."""
        result = self.run(*arguments)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def refused(self, *arguments: str, code: int = 1) -> str:
        """The same, where it must fail in words; what it said of it."""
        result = self.run(*arguments)
        assert result.exit_code == code, (result.output, result.exception)
        assert isinstance(result.exception, SystemExit), "it fails by its exit code, and by nothing else"
        return result.stderr


def person_with(admin: Cluster, plane: ControlPlane, directory: Path, namespace: str, role: str) -> Person:
    """Somebody who has one of Kubernetes' own roles, in that namespace, and nothing else."""
    user = f"{namespace}-{role}"
    admin.apply(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": role, "namespace": namespace},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
        },
        manager="tests",
    )
    path = kubeconfig_of(plane, directory, user)
    somebody = Cluster.connect(path)

    until_listed(somebody, namespace, VPC, VPCAttachment, SecurityGroup)
    return Person(path, namespace)


def until_listed(somebody: Cluster, namespace: str | None, *kinds: type[Resource]) -> None:
    """Until their rights are in force, and the API server serves the kinds: one that has just started does not yet."""

    def are_listed() -> bool:
        try:
            for kind in kinds:
                somebody.list(of(kind), namespace=namespace)
        except ProvisionerError:
            return False
        return True

    eventually(are_listed, f"{', '.join(kind.KIND.plural for kind in kinds)} are listed")
