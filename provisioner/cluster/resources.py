"""What the API server calls things: group, version, plural, and the paths that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from provisioner.api import KINDS
from provisioner.api.machinery.meta import Resource
from provisioner.api.machinery.schema import GROUP, VERSION


@dataclass(frozen=True)
class ResourceType:
    """A kind of object and where its collection is."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """Path of the group and version below the API server's root."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def path(self) -> str:
        """Path of the collection; of all namespaces together where the kind has namespaces."""
        return f"{self.root}/{self.plural}"

    def collection(self, namespace: str | None = None) -> str:
        """Path of the collection in `namespace`; of all namespaces without one."""
        if namespace is None:
            return self.path
        if not self.namespaced:
            raise ValueError(f"{self.kind} has no namespaces; namespace {namespace!r} was given")
        return f"{self.root}/namespaces/{namespace}/{self.plural}"

    def item(self, name: str, namespace: str | None = None, subresource: str | None = None) -> str:
        """Path of one object. Raises: ValueError without a namespace where one is needed, or without a name."""
        if not name or "/" in name:
            raise ValueError(f"{self.kind} name {name!r} is not a name")
        if self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} was named without its namespace")
        path = f"{self.collection(namespace)}/{name}"
        return f"{path}/{subresource}" if subresource else path

    def __str__(self) -> str:
        return self.kind


NODES: Final = ResourceType("", "v1", "Node", "nodes")
NAMESPACES: Final = ResourceType("", "v1", "Namespace", "namespaces")
PODS: Final = ResourceType("", "v1", "Pod", "pods", namespaced=True)
SECRETS: Final = ResourceType("", "v1", "Secret", "secrets", namespaced=True)
CONFIG_MAPS: Final = ResourceType("", "v1", "ConfigMap", "configmaps", namespaced=True)
EVENTS: Final = ResourceType("", "v1", "Event", "events", namespaced=True)
LEASES: Final = ResourceType("coordination.k8s.io", "v1", "Lease", "leases", namespaced=True)
CSRS: Final = ResourceType("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests")
CRDS: Final = ResourceType("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
JOBS: Final = ResourceType("batch", "v1", "Job", "jobs", namespaced=True)
POD_DISRUPTION_BUDGETS: Final = ResourceType(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", namespaced=True
)
CLUSTER_ROLES: Final = ResourceType("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles")
CLUSTER_ROLE_BINDINGS: Final = ResourceType(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings"
)
ROLES: Final = ResourceType("rbac.authorization.k8s.io", "v1", "Role", "roles", namespaced=True)
ROLE_BINDINGS: Final = ResourceType("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", namespaced=True)
TOKEN_REVIEWS: Final = ResourceType("authentication.k8s.io", "v1", "TokenReview", "tokenreviews")
ACCESS_REVIEWS: Final = ResourceType("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews")
SELF_REVIEWS: Final = ResourceType("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews")

NODE_LEASES: Final = "kube-node-lease"
"""Namespace of the Leases that kubelets renew."""
SYSTEM: Final = "provisioner-system"
"""Namespace of the services' accounts and of their Leases. Whoever reads its Secrets may be any of the accounts."""
BMC_SECRETS: Final = "provisioner-bmcs"
"""Namespace of the Secrets with BMCs' passwords, which the account of the power controller alone reads."""
SLURM_SECRETS: Final = "provisioner-slurm"
"""Namespace of the Secrets with Slurm's tokens, which the account of the maintenance controller alone reads."""
CREDENTIALS: Final = "provisioner-credentials"
"""Namespace of the Roles that list which client certificates are of the current boot of their server."""
FABRIC_SECRETS: Final = "provisioner-fabrics"
"""Namespace of the Secrets with UFMs' passwords, which the account of the InfiniBand controller alone reads."""
ATTESTATION_SECRETS: Final = "provisioner-attestation"
"""Namespace of the Secret with the keys that seal challenges, which boot hosts and the join controller read."""

BUILT_IN: Final = (
    NODES,
    NAMESPACES,
    PODS,
    SECRETS,
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    CSRS,
    CRDS,
    JOBS,
    POD_DISRUPTION_BUDGETS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    ROLES,
    ROLE_BINDINGS,
)


def of(kind: type[Resource]) -> ResourceType:
    """The resource type of one of the project's own kinds: `of(Server)`."""
    return ResourceType(GROUP, VERSION, kind.KIND.kind, kind.KIND.plural, namespaced=kind.KIND.namespaced)


def regarding(object_: Resource) -> dict[str, Any]:
    """One of the project's own objects as Events refer to it."""
    type_ = of(type(object_))
    return {
        "apiVersion": type_.api_version,
        "kind": type_.kind,
        "metadata": {"name": object_.name, "uid": object_.metadata.uid},
    }


KNOWN: Final[dict[tuple[str, str], ResourceType]] = {
    (type_.api_version, type_.kind): type_ for type_ in (*BUILT_IN, *(of(kind) for kind in KINDS))
}
"""By apiVersion and kind; what is not in it is asked of the API server."""
