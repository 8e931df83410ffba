"""P_Keys where a cache is behind: what it does not show yet is not taken for gone."""

from __future__ import annotations

from datetime import UTC, datetime

from provisioner.api import (
    VPC,
    InfiniBandFabric,
    InfiniBandNetwork,
    NetworkClaim,
    NetworkPool,
    Server,
    VPCAttachment,
)
from provisioner.api.machinery.codec import encode
from provisioner.cluster.resources import NAMESPACES, of
from provisioner.network.infiniband.follow import InfiniBandInformers
from provisioner.network.infiniband.pkey_controller import PKeyReleases, PKeys
from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.fake_events import FakeEvents
from tests.maintenance.chaos.fake_informer import FakeInformer
from tests.network.infiniband.site import claim, pool, vpc


def test_a_claim_is_not_let_go_of_while_its_vpc_is_not_in_the_cache_yet() -> None:
    cluster = FakeCluster()
    cluster.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "blue"}})
    cluster.apply(encode(pool((0x100, 0x1FF))), manager="tests")
    kinds = {
        "vpcs": VPC,
        "attachments": VPCAttachment,
        "servers": Server,
        "pools": NetworkPool,
        "claims": NetworkClaim,
        "fabrics": InfiniBandFabric,
        "networks": InfiniBandNetwork,
    }
    caches = {
        name: FakeInformer(of(kind), lambda kind=kind: dict(cluster.stored(of(kind))))  # type: ignore[misc]
        for name, kind in kinds.items()
    }
    for cache in caches.values():
        cache.catch_up()
    informers = InfiniBandInformers(**caches)
    releases = PKeyReleases(
        cluster,  # type: ignore[arg-type]
        informers,
        PKeys(informers, tell=lambda key: None),
        FakeEvents(),
        clock=lambda: datetime.now(UTC),
    )

    made = cluster.create(of(VPC), encode(vpc("blue")))
    held = encode(claim(0x101, vpc("blue", uid=made["metadata"]["uid"])))
    cluster.create(of(NetworkClaim), held)
    caches["claims"].catch_up()
    releases.reconcile("pkey-0101")
    assert not cluster.get(of(NetworkClaim), "pkey-0101").get("status")

    cluster.delete(of(VPC), "main", namespace="blue")
    releases.reconcile("pkey-0101")
    assert cluster.get(of(NetworkClaim), "pkey-0101")["status"]["releasedTime"]
