"""Which fabrics a change concerns: those of the server's ports, and no others."""

from __future__ import annotations

import pytest

from provisioner.api.machinery.codec import encode
from provisioner.cluster.source import Object
from provisioner.cluster.work_queue import WorkQueue
from provisioner.network.infiniband.follow import FabricQueues, FollowFabrics, InfiniBandInformers
from tests.maintenance.chaos.fake_informer import FakeInformer
from tests.network.infiniband.site import attachment, claim, fabric, guid, server, vpc

FABRICS = ("east", "west", "north")


class Caches:
    """Two servers of blue's, on two of three fabrics; a test changes objects."""

    def __init__(self) -> None:
        kinds = ("vpcs", "attachments", "servers", "pools", "claims", "fabrics", "networks")
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in kinds}
        self.seconds = 0.0
        self.fakes = {kind: FakeInformer(kind, lambda kind=kind: dict(self.objects[kind])) for kind in kinds}  # type: ignore[arg-type,misc]
        made = {name: WorkQueue(clock=lambda: self.seconds) for name in ("vpcs", "releases", "pool", "ufms")}
        self.fabrics = WorkQueue(clock=lambda: self.seconds)
        FollowFabrics(InfiniBandInformers(**self.fakes), FabricQueues(**made, fabrics=self.fabrics)).subscribe()  # type: ignore[arg-type]
        for name in FABRICS:
            self.put("fabrics", fabric(name))
        self.put("servers", server("s1", "blue", [guid(1)], fabric="east"))
        self.put("servers", server("s2", "blue", [guid(2)], fabric="west"))
        self.put("vpcs", vpc("blue"), vpc("blue", "other"))
        self.put("attachments", attachment("blue", "s2"))
        self.compiled()

    def put(self, kind: str, *found: object) -> None:
        for each in found:
            body = encode(each)  # type: ignore[type-var]
            key = "/".join(filter(None, (body["metadata"].get("namespace"), body["metadata"]["name"])))
            body["metadata"]["resourceVersion"] = str(len(self.objects[kind]) + 1 + id(each))
            self.objects[kind][key] = body

    def compiled(self) -> set[str]:
        """Fabrics that are to be compiled since this was asked last."""
        for fake in self.fakes.values():
            fake.catch_up()
        self.seconds += 1
        found = set()
        while (name := self.fabrics.get(timeout=0)) is not None:
            found.add(name)
            self.fabrics.done(name)
        return found


@pytest.fixture
def caches() -> Caches:
    return Caches()


def test_an_attachment_concerns_the_fabric_of_its_servers_ports(caches: Caches) -> None:
    caches.put("attachments", attachment("blue", "s1"))
    assert caches.compiled() == {"east"}
    caches.put("attachments", attachment("blue", "s1", quarantined=True))
    assert caches.compiled() == {"east"}
    del caches.objects["attachments"]["blue/s1-main"]
    assert caches.compiled() == {"east"}
    caches.put("attachments", attachment("blue", "s9"))
    assert caches.compiled() == set(), "a server without ports has no fabric"


def test_a_vpc_and_its_p_key_concern_the_fabrics_on_which_it_has_ports(caches: Caches) -> None:
    caches.put("vpcs", vpc("blue", partition=False))
    assert caches.compiled() == {"west"}
    caches.put("claims", claim(0x101, vpc("blue")))
    assert caches.compiled() == {"west"}
    caches.put("vpcs", vpc("blue", "other", partition=False))
    assert caches.compiled() == set()


def test_what_a_server_is_concerns_its_fabrics_and_what_it_has_registered_all(caches: Caches) -> None:
    caches.put("servers", server("s1", "blue", [guid(1)], fabric="east", networkQuarantined=True))
    assert caches.compiled() == {"east"}
    caches.put("servers", server("s1", "red", [guid(1)], fabric="east"))
    assert caches.compiled() == {"east"}
    caches.put("servers", server("s1", "red", [guid(2)], fabric="east"))
    assert caches.compiled() == set(FABRICS), "another server has the same port"
