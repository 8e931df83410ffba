"""AddressBlocks that lie, are gone, or cannot be written, on a real API server: no address is given twice, no subnet is
blocked, and who waits says for what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import AddressBlock, Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import Forbidden, Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from tests.api.objects import address_block
from tests.inventory.site import Site, eventually
from tests.people import BINDINGS, POLICIES, bind, kubeconfig_of

Leadership = Callable[[], Callable[[], None]]


def forge(site: Site, claimed: dict[str, str | None], revision: int = 1) -> None:
    site.cluster.patch(of(AddressBlock), site.address(0), {"spec": {"revision": revision, "claims": claimed}})


def test_a_forged_claim_takes_no_address_from_the_server_that_has_it(site: Site, leadership: Leadership) -> None:
    """A machine may run with it: were it to move, the next server would get the address of a machine that runs."""
    site.add_rack()
    leadership()
    owner, thief = site.add(1), site.add(2)
    for name in (owner, thief):
        eventually(lambda name=name: (site.accepted(name) or ("",))[0] == "True", f"{name} has an address")
    has = {name: site.cluster.read(Server, name).status.address or "" for name in (owner, thief)}
    forge(site, {has[owner]: thief})
    eventually(lambda: site.claims() == {address: name for name, address in has.items()}, "each has claimed its own")
    third = site.add(3)
    site.becomes(third, "True", "Accepted", site.address(4))
    assert {name: site.cluster.read(Server, name).status.address for name in has} == has


def test_a_forged_block_does_not_fill_a_subnet(site: Site, leadership: Leadership) -> None:
    """Neither with claims of servers that nobody knows, nor of one that has another address, nor with what is none."""
    site.add_rack()
    leadership()
    owner = site.add(1)
    site.becomes(owner, "True", "Accepted", site.address(2))
    forged: dict[str, str | None] = {site.address(host): f"{site.name}-ghost{host}" for host in range(3, 100)}
    forged |= {site.address(host): owner for host in range(100, 200)}
    forged |= {"10.0.0.7": owner, "not-an-address": owner, f"{site.address(7)}777": owner, "": owner}
    forge(site, forged, revision=2**63 - 1)
    later = site.add(2)
    eventually(lambda: (site.accepted(later) or ("",))[0] == "True", "another gets an address")
    wanted = {site.cluster.read(Server, name).status.address: name for name in (owner, later)}
    eventually(lambda: site.claims() == wanted, "only claims of servers that are there are left")
    assert site.cluster.read(Server, owner).status.address == site.address(2)


def test_a_deleted_block_is_made_anew_and_nothing_is_given_twice(site: Site, leadership: Leadership) -> None:
    site.add_rack()
    leadership()
    names = [site.add(number) for number in (1, 2, 3)]
    for name in names:
        eventually(lambda name=name: (site.accepted(name) or ("",))[0] == "True", f"{name} has an address")
    has = {site.cluster.read(Server, name).status.address: name for name in names}
    site.cluster.delete(of(AddressBlock), site.address(0))
    later = site.add(4)
    site.becomes(later, "True", "Accepted", site.address(5))
    eventually(lambda: site.claims() == {**has, site.address(5): later}, "all are claimed again")
    assert {site.cluster.read(Server, name).status.address: name for name in names} == has


def test_a_claim_names_a_server(site: Site, cluster: Cluster) -> None:
    for name in ("", "../racks/r01", "UPPER"):
        with pytest.raises(Refused, match="should match"):
            cluster.apply(address_block(site.address(0), claims={site.address(7): name}), manager="tests")


def test_an_administrator_of_servers_writes_no_claims(
    site: Site, cluster: Cluster, control_plane: ControlPlane, tmp_path: Path
) -> None:
    bind(cluster, "provisioner-administrator", "ada")
    ada = Cluster.connect(kubeconfig_of(control_plane, tmp_path, "ada"))
    with pytest.raises(Forbidden):
        ada.apply(address_block(site.address(0), claims={site.address(7): "r01-u01"}), manager="tests")


@pytest.fixture
def no_claims(cluster: Cluster, site: Site) -> Iterator[Callable[[], None]]:
    """A policy of the site's own refuses to write the block of this test; called, it is taken away."""
    name = f"no-claims-{site.name}"
    block = site.address(0)
    policy = {
        "apiVersion": POLICIES.api_version,
        "kind": POLICIES.kind,
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": ["provisioner.dev"],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": ["addressblocks"],
                    }
                ]
            },
            "validations": [
                {"expression": f"object.metadata.name != '{block}'", "message": "the network team freezes this subnet"}
            ],
        },
    }
    binding = {
        "apiVersion": BINDINGS.api_version,
        "kind": BINDINGS.kind,
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    cluster.create(POLICIES, policy)
    cluster.create(BINDINGS, binding)

    def frozen() -> bool:
        try:
            cluster.create(of(AddressBlock), address_block(block, claims={}))
        except Refused as error:
            return "network team" in str(error)
        cluster.delete(of(AddressBlock), block)
        return False

    def thaw() -> None:
        for type_ in (BINDINGS, POLICIES):
            cluster.delete(type_, name)

    eventually(frozen, "the policy is in force")
    yield thaw
    thaw()


def test_a_claim_that_a_policy_refuses_is_said_of_the_server_and_made_once_it_may_be(
    site: Site, cluster: Cluster, no_claims: Callable[[], None], leadership: Leadership
) -> None:
    site.add_rack()
    leadership()
    name = site.add(1)
    site.becomes(name, "False", "AddressNotClaimed", None)
    accepted = find_condition(cluster.read(Server, name).status.conditions, "Accepted")
    assert accepted is not None
    assert accepted.message.startswith(
        f"An address in subnet boot is free, but claims in AddressBlock {site.address(0)} cannot be written: "
    )
    assert "the network team freezes this subnet" in accepted.message
    assert accepted.message.partition("; ")[2].startswith("the controller must be able to write it: kubectl get addr")
    no_claims()
    site.becomes(name, "True", "Accepted", site.address(2))
