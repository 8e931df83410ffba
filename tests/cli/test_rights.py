"""The services' accounts have the rights that their code uses, no fewer and no more: asked of a real API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api.machinery.errors import Refused
from provisioner.cli.service.controller import NAMES
from provisioner.cli.service.groups import GROUPS
from provisioner.cli.service.manifests import ACCOUNTS
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import (
    BMC_SECRETS,
    BUILT_IN,
    CREDENTIALS,
    FABRIC_SECRETS,
    LEASES,
    NODE_LEASES,
    SLURM_SECRETS,
    SYSTEM,
    ResourceType,
)
from tests.cli.calls_of_accounts import Right, rights_needed, unreadable_calls
from tests.people import bind, bind_in, until

RULES_REVIEWS = ResourceType("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews")
NAMESPACED = {kind.plural for kind in BUILT_IN if kind.namespaced} | {"serviceaccounts", "bootcredentials"}
TOKENS, CHECKS, DEFAULT = "kube-system", "provisioner-checks", "default"
NAMESPACES = (CREDENTIALS, SYSTEM, BMC_SECRETS, FABRIC_SECRETS, SLURM_SECRETS, TOKENS, NODE_LEASES, CHECKS, DEFAULT)
CHECKED_BY_OTHERS: dict[str, set[Right]] = {
    "approver": {("approve", "signers"), ("pin", "bootcredentials"), ("use", "bootcredentials")},
    "maintenance": {("disrupt-now", "maintenances")},
    "controller": {("impersonate", "serviceaccounts")},
    "network": {("get", "dpunetworks"), ("patch", "dpunetworks/status")},
}
"""What the API server looks for when one approves, lists a credential, carries a request under Now over, acts as
another, or gives a DPU its rights."""
OWN_LEASE: dict[Right, set[str]] = {(verb, "leases"): {SYSTEM} for verb in ("get", "create", "update")}
THE_LIST: dict[Right, set[str]] = {
    (verb, kind): {CREDENTIALS} for verb in ("list", "watch") for kind in ("roles", "rolebindings")
}
OWN_EVENTS: dict[Right, set[str]] = {(verb, "events"): {DEFAULT} for verb in ("get", "create", "patch")}

PLACES: dict[str, dict[Right, set[str]]] = {
    "boot": OWN_EVENTS
    | {("get", "leases"): {NODE_LEASES}, ("create", "secrets"): {TOKENS}, ("delete", "secrets"): {TOKENS}},
    "controller": OWN_LEASE
    | THE_LIST
    | {
        ("list", "leases"): {NODE_LEASES},
        ("watch", "leases"): {NODE_LEASES},
        ("impersonate", "serviceaccounts"): {SYSTEM},
    },
    "inventory": OWN_LEASE | OWN_EVENTS,
    "orders": OWN_LEASE
    | OWN_EVENTS
    | {
        ("get", "leases"): {NODE_LEASES, SYSTEM},
        ("list", "leases"): {NODE_LEASES},
        ("watch", "leases"): {NODE_LEASES},
        ("get", "configmaps"): {SYSTEM},
    },
    "join": OWN_LEASE | OWN_EVENTS,
    "approver": OWN_LEASE
    | OWN_EVENTS
    | THE_LIST
    | {
        ("create", "roles"): {CREDENTIALS},
        ("update", "roles"): {CREDENTIALS},
        ("create", "rolebindings"): {CREDENTIALS},
        ("pin", "bootcredentials"): {CREDENTIALS},
        ("use", "bootcredentials"): {CREDENTIALS},
        ("delete", "secrets"): {TOKENS},
    },
    "authorizer": {("list", "roles"): {CREDENTIALS}, ("watch", "roles"): {CREDENTIALS}},
    "health": OWN_LEASE
    | OWN_EVENTS
    | {
        ("list", "leases"): {NODE_LEASES},
        ("watch", "leases"): {NODE_LEASES},
        ("create", "jobs"): {CHECKS},
        ("delete", "jobs"): {CHECKS},
    },
    "maintenance": OWN_LEASE | {("get", "secrets"): {SLURM_SECRETS}},
    "rollout": OWN_LEASE | OWN_EVENTS | {("get", "secrets"): {SLURM_SECRETS}},
    "infiniband": OWN_LEASE | {("get", "secrets"): {FABRIC_SECRETS}},
    "power": OWN_LEASE | OWN_EVENTS | {("get", "leases"): {NODE_LEASES, SYSTEM}, ("get", "secrets"): {BMC_SECRETS}},
    "network": OWN_LEASE,
    "web": {("list", "events"): {DEFAULT}, ("list", "leases"): {SYSTEM}},
}
"""Where a right is enough in some namespaces; any other is needed in all of them."""


def impersonated(control_plane: ControlPlane, name: str) -> Cluster:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}", "system:authenticated")
    user = f"system:serviceaccount:{SYSTEM}:{name}"
    return Cluster.connect(control_plane.kubeconfig, as_user=user, as_groups=groups)


def granted(somebody: Cluster, namespace: str) -> set[Right]:
    """The rights that the API server says `somebody` has in `namespace`."""
    body = {"apiVersion": RULES_REVIEWS.api_version, "kind": RULES_REVIEWS.kind, "metadata": {}}
    answer = somebody.create(RULES_REVIEWS, body | {"spec": {"namespace": namespace}})
    rules = answer["status"]["resourceRules"]
    return {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule.get("resources") or ()}


def in_place(name: str, rights: set[Right], namespace: str) -> set[Right]:
    """Those of `rights` that are needed in `namespace`."""

    def is_needed(right: Right) -> bool:
        places = PLACES[name].get(right)
        return right[1].split("/")[0] not in NAMESPACED or places is None or namespace in places

    return {right for right in rights if is_needed(right)}


@pytest.mark.parametrize("name", PLACES)
def test_an_account_has_the_rights_that_its_code_uses_and_no_others(
    cluster: Cluster, control_plane: ControlPlane, name: str
) -> None:
    needed = set(rights_needed(name)) | CHECKED_BY_OTHERS.get(name, set())
    somebody = impersonated(control_plane, f"provisioner-{name}")
    anybody = impersonated(control_plane, "nobody")
    assert set(PLACES[name]) <= needed, "a place for a right that nothing uses"
    for namespace in NAMESPACES:
        has = granted(somebody, namespace) - granted(anybody, namespace)
        wanted = in_place(name, needed, namespace)
        assert has - wanted == set(), f"provisioner-{name} may do in {namespace} what no code of it does"
        assert wanted - has == set(), f"provisioner-{name} may not do in {namespace} what its code does"


@pytest.mark.parametrize("name", PLACES)
def test_the_kind_of_every_call_can_be_told(name: str) -> None:
    assert unreadable_calls(name) == [], "name what it asks for in OPAQUE (tests/cli/calls_of_accounts.py)"


def test_there_is_an_account_for_each_group_of_controllers() -> None:
    assert set(PLACES) == {"boot", "controller", "web", "authorizer", *GROUPS} == set(ACCOUNTS)
    assert tuple(GROUPS) == NAMES


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_makes_the_lease_by_which_it_leads_and_that_of_no_other(
    account: Callable[[str], Cluster], cluster: Cluster, group: str
) -> None:
    mine = f"provisioner-{group}"
    others = [f"provisioner-{name}" for name in ("controller", *GROUPS) if name != group]
    cluster.delete(LEASES, mine, namespace=SYSTEM)
    assert account(group).create(LEASES, lease(mine))
    cluster.delete(LEASES, mine, namespace=SYSTEM)
    assert account("controller").create(LEASES, lease(mine)), "the process that runs several groups holds those of each"
    cluster.delete(LEASES, mine, namespace=SYSTEM)
    for name in others:
        with pytest.raises(Refused, match="no Lease that it may not renew"):
            account(group).create(LEASES, lease(name))


def lease(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": SYSTEM}
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": {}}


def test_the_controller_holds_its_own_lease_and_no_other(controller_account: Cluster, cluster: Cluster) -> None:
    with pytest.raises(Refused, match="cannot get resource"):
        controller_account.get(LEASES, "another", namespace=SYSTEM)
    mine = "provisioner-controller"
    cluster.delete(LEASES, mine, namespace=SYSTEM)  # a controller that ran before has released it, and left it
    made = controller_account.create(LEASES, lease(mine) | {"spec": {"holderIdentity": "a"}})
    assert controller_account.replace(LEASES, made | {"spec": {"holderIdentity": "b"}})
    cluster.delete(LEASES, mine, namespace=SYSTEM)


def test_a_viewer_lists_the_leases_of_the_controllers_and_no_others(
    cluster: Cluster, control_plane: ControlPlane
) -> None:
    bind(cluster, "provisioner-viewer", "lea")
    bind_in(cluster, SYSTEM, "provisioner-viewer", "lea")
    lea = Cluster.connect(control_plane.kubeconfig, as_user="lea")
    until(lambda: ("list", "leases") in granted(lea, SYSTEM))
    assert [name for name in NAMESPACES if ("list", "leases") in granted(lea, name)] == [SYSTEM]
