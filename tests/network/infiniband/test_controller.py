"""The controllers of InfiniBand on a real API server: from a VPC to what a fabric does, and back to a free P_Key."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provisioner.api import (
    VPC,
    Condition,
    InfiniBandFabric,
    InfiniBandNetwork,
    NetworkClaim,
    NetworkPool,
    Server,
    VPCAttachment,
)
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.network.infiniband_network import Partition
from provisioner.api.network.network_claim import pkey_claim
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import FABRIC_SECRETS, NAMESPACES, SECRETS, of
from provisioner.network.infiniband.controller import build_infiniband_controllers
from provisioner.network.infiniband.follow import InfiniBandInformers
from provisioner.network.infiniband.opensm.agent import run
from tests.cluster.fake_events import FakeEvents
from tests.network.infiniband.fake_ufm import PASSWORD, USERNAME, FakeUfm
from tests.network.infiniband.simulated_fabric import SimulatedFabric, wait_for

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster

FIRST = 0x1201
LAST = FIRST + 2
"""Nobody else of the shared API server's tests takes P_Keys of the pool."""
KINDS = (VPCAttachment, VPC, Server, InfiniBandFabric, InfiniBandNetwork)


class Site:
    """Objects of one test, in namespaces and under names of its own."""

    def __init__(self, cluster: Cluster, unique: str) -> None:
        self.cluster = cluster
        self.name = unique
        self.blue, self.red = f"{unique}-blue", f"{unique}-red"
        for namespace in (self.blue, self.red):
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            cluster.create(NAMESPACES, body)
        cluster.delete(of(NetworkPool), "default")  # another test's, whose ranges only grow
        self.put(NetworkPool, "default", vniRanges=[{"first": 10001, "last": 20000}], pkeyRanges=[RANGE])

    def put(self, kind: type, name: str, namespace: str | None = None, **spec: Any) -> None:
        type_ = of(kind)
        metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
        body = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": metadata, "spec": spec}
        self.cluster.apply(body, manager="test")

    def server(self, number: int, tenant: str, guid: str) -> None:
        self.put(
            Server,
            f"{self.name}-s{number}",
            rackRef="r01",
            bootMACAddress=f"52:54:00:ab:{int(self.name[1:3], 16):02x}:{number:02x}",
            acceptance="Accepted",
            tenant=tenant,
            infinibandPorts=[{"guid": guid, "fabricRef": self.name}],
        )

    def vpc(self, namespace: str, name: str = "main") -> None:
        self.put(VPC, name, namespace, cidrs=["10.1.0.0/16"], infiniband={"partition": True})

    def attach(self, namespace: str, number: int) -> None:
        spec = {"vpcRef": "main", "serverRef": f"{self.name}-s{number}"}
        self.put(VPCAttachment, f"s{number}", namespace, **spec)

    def detach(self, namespace: str, number: int) -> None:
        self.cluster.delete(of(VPCAttachment), f"s{number}", namespace=namespace)

    def pkey(self, namespace: str, name: str = "main") -> str | None:
        return self.cluster.read(VPC, name, namespace=namespace).status.pkey

    def given_pkey(self, namespace: str, name: str = "main") -> int:
        """As the VPC's status says it. That is written after the claim, by which networks are compiled."""
        return int(wait_for(f"the P_Key of {namespace}/{name}", lambda: self.pkey(namespace, name)), 16)

    def network(self) -> InfiniBandNetwork | None:
        found = self.cluster.find(of(InfiniBandNetwork), self.name)
        return self.cluster.read(InfiniBandNetwork, self.name) if found else None

    def partitions(self) -> tuple[Partition, ...]:
        network = self.network()
        return network.spec.partitions if network is not None else ()

    def condition(self, type_: str, reason: str) -> Condition:
        """Of the fabric, once it has this reason: what is said of a network is written after the network."""

        def found() -> Condition | None:
            conditions = self.cluster.read(InfiniBandFabric, self.name).status.conditions
            there = find_condition(conditions, type_)
            return there if there is not None and there.reason == reason else None

        told: Condition = wait_for(f"{type_} for the reason {reason}", found)
        return told

    def is_ready(self) -> bool:
        status = self.cluster.read(InfiniBandFabric, self.name).status
        network = self.network()
        ready = find_condition(status.conditions, "Ready")
        return (
            network is not None
            and ready is not None
            and ready.status == "True"
            and status.network_generation == network.metadata.generation == network.status.observed_generation
        )


RANGE = {"first": FIRST, "last": LAST}


@pytest.fixture
def site(cluster: Cluster, unique: str) -> Iterator[Site]:
    made = Site(cluster, unique)
    yield made
    for kind in KINDS:
        for body in cluster.list(of(kind)).items:
            metadata = body["metadata"]
            if metadata["name"].startswith(unique) or metadata.get("namespace", "").startswith(unique):
                cluster.delete(of(kind), metadata["name"], namespace=metadata.get("namespace"))
    for body in cluster.list(of(NetworkClaim)).items:
        if body["spec"]["holder"]["namespace"].startswith(unique):
            cluster.delete(of(NetworkClaim), body["metadata"]["name"])


@pytest.fixture
def controllers(cluster: Cluster, site: Site) -> Iterator[Callable[[], None]]:
    """Starts a leadership; the one before ends."""
    ends: list[Callable[[], None]] = []

    def begin() -> None:
        while ends:
            ends.pop()()
        stop = threading.Event()
        made = {
            name: Informer(cluster, of(kind))
            for name, kind in {
                "vpcs": VPC,
                "attachments": VPCAttachment,
                "servers": Server,
                "pools": NetworkPool,
                "claims": NetworkClaim,
                "fabrics": InfiniBandFabric,
                "networks": InfiniBandNetwork,
            }.items()
        }
        built = build_infiniband_controllers(cluster, InfiniBandInformers(**made), FakeEvents())
        for informer in made.values():
            informer.start(stop)
        threads = [threading.Thread(target=each.run, args=(stop,), daemon=True) for each in built]
        for thread in threads:
            thread.start()

        def end() -> None:
            stop.set()
            for thread in threads:
                thread.join(30)

        ends.append(end)

    yield begin
    while ends:
        ends.pop()()


def members(site: Site) -> dict[str, tuple[str, ...]]:
    return {each.vpc.partition("/")[0].rpartition("-")[2]: each.guids for each in site.partitions()}


def test_a_vpcs_ports_follow_its_attachments_on_a_real_opensm(
    site: Site, controllers: Callable[[], None], programs: SimulatedFabric
) -> None:
    """From objects to the cards' own tables; then a server moves, a VPC goes, and its P_Key is free for another."""
    guids = programs.guids
    programs.start_opensm()
    assert programs.keys(1) == {0xFFFF}
    site.put(InfiniBandFabric, site.name, manager="OpenSM")
    for number, tenant in ((1, site.blue), (2, site.red), (3, site.red)):
        site.server(number, tenant, guids[number])
        site.attach(tenant, number)
    site.vpc(site.blue)
    site.vpc(site.red)
    controllers()
    networks = Informer(site.cluster, of(InfiniBandNetwork), field_selector=f"metadata.name={site.name}")
    stop = threading.Event()
    host = replace(programs.host(site.name), sweep_seconds=10.0)
    agent = threading.Thread(
        target=run,
        args=(site.cluster, networks, host, stop),
        kwargs={"clock": lambda: datetime.now(UTC), "look_seconds": 1.0},
        daemon=True,
    )
    networks.start(stop)
    agent.start()
    try:
        wait_for("a network that is enforced", lambda: len(site.partitions()) == 2 and site.is_ready())
        blue, red = site.given_pkey(site.blue), site.given_pkey(site.red)
        assert {blue, red} == {FIRST, FIRST + 1}
        assert [programs.keys(number) for number in (1, 2, 3)] == [
            {0x7FFF, 0x8000 | blue},
            {0x7FFF, 0x8000 | red},
            {0x7FFF, 0x8000 | red},
        ]
        assert site.condition("DefaultPartitionLimited", "Limited").status == "True"

        site.detach(site.red, 2)
        site.server(2, site.blue, guids[2])
        site.attach(site.blue, 2)
        wait_for("membership to move", lambda: programs.keys(2) == {0x7FFF, 0x8000 | blue} and site.is_ready())

        site.cluster.delete(of(VPC), "main", namespace=site.red)
        wait_for("the port to be alone", lambda: programs.keys(3) == {0x7FFF})
        wait_for("its claim to go", lambda: site.cluster.find(of(NetworkClaim), pkey_claim(red)) is None)
        site.vpc(site.red, "next")
        wait_for("the P_Key to be given again", lambda: site.pkey(site.red, "next") == f"0x{red:04x}")
    finally:
        stop.set()
        agent.join(30)


def test_a_p_key_stays_in_quarantine_while_a_fabric_was_not_read_back(
    site: Site, controllers: Callable[[], None]
) -> None:
    site.put(InfiniBandFabric, site.name, manager="OpenSM")
    site.server(1, site.blue, "0x506b4b0300a1b201")
    site.attach(site.blue, 1)
    site.vpc(site.blue)
    controllers()
    wait_for("a partition", lambda: members(site) == {"blue": ("0x506b4b0300a1b201",)})
    told = site.condition("Ready", "NotAcknowledged")
    assert f"provisioner infiniband --fabric {site.name}" in told.message
    claim = pkey_claim(site.given_pkey(site.blue))
    site.cluster.delete(of(VPC), "main", namespace=site.blue)
    wait_for("quarantine", lambda: site.cluster.read(NetworkClaim, claim).status.waits_for == (site.name,))
    wait_for("its port to be in none", lambda: site.partitions() == ())
    site.vpc(site.blue, "next")
    assert pkey_claim(site.given_pkey(site.blue, "next")) != claim
    wait_for("the count", lambda: site.cluster.read(NetworkPool, "default").status.quarantined_pkeys == 1)


def test_ports_that_are_left_out_are_told_to_their_vpc_and_to_the_fabric(
    site: Site, controllers: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def reason() -> str | None:
        found = find_condition(site.cluster.read(VPC, "main", namespace=site.blue).status.conditions, "PKeyAssigned")
        return found.reason if found else None

    monkeypatch.setattr("provisioner.network.infiniband.compile.MOST_BYTES", 1)
    site.put(InfiniBandFabric, site.name, manager="OpenSM")
    site.server(1, site.blue, "0x506b4b0300a1b201")
    site.attach(site.blue, 1)
    site.vpc(site.blue)
    controllers()
    wait_for("the VPC to be told", lambda: reason() == "PortsLeftOut")
    assert f"{site.blue}/main" in site.condition("PartitionsFit", "TooManyMembers").message
    assert site.given_pkey(site.blue) >= FIRST, "its P_Key stays"
    monkeypatch.undo()
    site.server(2, site.red, "0x506b4b0300a1b202")
    wait_for("the VPC to have its partition", lambda: reason() == "Claimed")
    assert members(site) == {"blue": ("0x506b4b0300a1b201",)}


def test_a_pool_without_free_p_keys_is_said_at_the_vpc_and_the_next_release_serves_it(
    site: Site, controllers: Callable[[], None]
) -> None:
    controllers()

    def reason() -> str | None:
        status = site.cluster.read(VPC, "late", namespace=site.blue).status
        found = find_condition(status.conditions, "PKeyAssigned")
        return found.reason if found else None

    given = set()
    for name in ("v1", "v2"):
        site.vpc(site.blue, name)
        given.add(site.given_pkey(site.blue, name))
    site.vpc(site.blue, "late")
    wait_for("the rest to be left to others", lambda: reason() == "PKeyShareExhausted")
    site.vpc(site.red)
    given.add(site.given_pkey(site.red))
    assert given == set(range(FIRST, LAST + 1))
    site.cluster.patch(of(VPC), "late", {"metadata": {"labels": {"again": "yes"}}}, namespace=site.blue)
    wait_for("none to be left", lambda: reason() == "NoPKeyFree")
    site.cluster.delete(of(VPC), "v1", namespace=site.blue)
    wait_for("a P_Key for who waited", lambda: site.pkey(site.blue, "late"))


def test_who_leads_next_gives_no_second_p_key(site: Site, controllers: Callable[[], None]) -> None:
    site.vpc(site.blue)
    controllers()
    wait_for("a P_Key", lambda: site.pkey(site.blue))
    before = site.pkey(site.blue)
    # As if the leader had died between claim and status.
    site.cluster.patch(of(VPC), "main", {"status": {"pkey": None}}, namespace=site.blue, subresource="status")
    controllers()
    wait_for("the same P_Key", lambda: site.pkey(site.blue) == before)
    claims = [
        body for body in site.cluster.list(of(NetworkClaim)).items if body["spec"]["holder"]["namespace"] == site.blue
    ]
    assert len(claims) == 1


@pytest.fixture
def ufm(tmp_path: Path) -> Iterator[FakeUfm]:
    with FakeUfm(tmp_path, default_membership="full") as fake:
        yield fake


def test_a_ufm_is_told_and_its_full_default_partition_keeps_the_fabric_from_being_ready(
    site: Site, controllers: Callable[[], None], ufm: FakeUfm
) -> None:
    guid = "0x506b4b0300a1b2{:02x}".format
    site.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": site.name, "namespace": FABRIC_SECRETS},
            "stringData": {"username": USERNAME, "password": PASSWORD},
        },
        manager="test",
    )
    access = {"url": ufm.url, "credentialsName": site.name, "certificate": ufm.certificate}
    site.put(InfiniBandFabric, site.name, manager="UFM", ufm=access)
    for number, tenant in ((1, site.blue), (2, site.red)):
        site.server(number, tenant, guid(number))
        site.attach(tenant, number)
        site.vpc(tenant)
    ufm.put(0x42, guid(9))
    controllers()
    blue, red = site.given_pkey(site.blue), site.given_pkey(site.red)
    wait_for("both", lambda: (ufm.members(blue), ufm.members(red)) == ({guid(1): "full"}, {guid(2): "full"}))
    assert set(ufm.partitions) == {0x7FFF, 0x42, blue, red}

    def acknowledged() -> InfiniBandNetwork | None:
        network = site.network()
        is_new = network is not None and network.status.observed_generation == network.metadata.generation
        return network if is_new and len(site.partitions()) == 2 else None

    assert wait_for("an acknowledgement", acknowledged).status.read_from == "UFM"
    site.condition("Ready", "FullMembers")
    assert "default_membership = limited" in site.condition("DefaultPartitionLimited", "FullMembers").message

    ufm.default_membership = "limited"
    site.detach(site.red, 2)
    wait_for("the member to go", lambda: ufm.members(red) == {} and site.is_ready())
    assert ufm.members(0x42) == {guid(9): "full"}

    ufm.answer_instead = (503, b"{}")
    site.detach(site.blue, 1)
    site.condition("Ready", "UFMFailed")
    assert PASSWORD not in str(site.cluster.get(of(InfiniBandFabric), site.name))
    ufm.answer_instead = None
    wait_for("the last member to go", lambda: ufm.members(blue) == {} and site.is_ready())
    site.cluster.delete(SECRETS, site.name, namespace=FABRIC_SECRETS)


def test_a_fabric_that_is_deleted_leaves_nobody_in_a_partition(site: Site, controllers: Callable[[], None]) -> None:
    site.put(InfiniBandFabric, site.name, manager="OpenSM")
    site.server(1, site.blue, "0x506b4b0300a1b201")
    site.attach(site.blue, 1)
    site.vpc(site.blue)
    controllers()
    wait_for("a partition", site.partitions)
    site.cluster.delete(of(InfiniBandFabric), site.name)
    wait_for("an empty network", lambda: site.network() is not None and site.partitions() == ())
