"""Typical machines, as they are found at three in the morning: what is known of each, and how it is asked about."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.nodes.contract import PREPARED_ORDER_ANNOTATION
from provisioner.api.nodes.maintenance import MaintenanceStatus
from provisioner.api.servers.dpu import DPU
from provisioner.api.servers.rack import Subnet
from provisioner.api.servers.server import BootOrder, Interface, JoinStatus, PowerStatus, ServerStatus
from provisioner.boot.explain.facts import BootHost, MachineObjects
from provisioner.boot.explain.firmware import Firmware, usual_firmware
from provisioner.boot.explain.story import tell_boot
from provisioner.boot.host.image_store import files_of
from provisioner.cli.boot.explain_words import Explained
from provisioner.join.admission.admit import JoinFacts
from provisioner.join.admission.foresee import foresee_join
from provisioner.join.nodes.node_object import SERVER_UID_ANNOTATION
from tests.boot.objects import (
    NOON,
    at,
    attempt,
    condition,
    image,
    layered_image,
    maintenance,
    pool,
    rack,
    server,
)

MAC = "52:54:00:12:34:56"
HOST = BootHost.at("10.80.0.1")
OTHER_RACK = replace(
    rack(subnets=(Subnet(name="far", cidr="10.90.0.0/24", gateway="10.90.0.1", relays=("10.90.0.1",)),)),
    metadata=replace(rack().metadata, name="r02"),
)
ORDER = BootOrder(
    id="order-7", reason="FirstBoot", ordered_time=at(-60), attempt=1, image_ref=image().name, node_pool_ref="gpu"
)
ADDRESS = {"address": "10.80.0.21", "subnet_name": "boot"}


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One machine, and what is asked of it."""

    facts: MachineObjects
    node: dict[str, Any] | None = None
    firmware: Firmware | None = None
    via: str | None = None
    lease_known: bool = True
    host: BootHost = field(default=HOST)

    def explained(self) -> Explained:
        facts = self.facts
        named = facts.server if facts.server is not None and facts.server.spec.boot_mac_address == facts.mac else None
        join = JoinFacts(server=None)
        if named is not None:
            join = JoinFacts(server=named, pool=facts.pool, image=facts.image, node=self.node, dpus=facts.dpus)
        return Explained(
            story=tell_boot(facts, self.host, self.firmware or usual_firmware(facts.server), self.via),
            join=foresee_join(join, MAC, NOON),  # type: ignore[arg-type]
            join_facts=join,
            lease_known=self.lease_known,
            address_known=True,
        )


def facts(*claimants: Server, racks: tuple[Rack, ...] = (), **more: Any) -> MachineObjects:
    found: dict[str, Any] = {"pool": pool(), "image": layered_image("base", "driver", available="True"), **more}
    return MachineObjects(mac=MAC, claimants=claimants, racks=racks or (rack(), OTHER_RACK), **found)


def prepared(name: str = "r01-u01", order: str = "order-7") -> dict[str, Any]:
    """A Node that was made for the order."""
    return {"metadata": {"annotations": {SERVER_UID_ANNOTATION: f"uid-{name}", PREPARED_ORDER_ANNOTATION: order}}}


def ordered(**status: Any) -> ServerStatus:
    power = PowerStatus(order_id="order-7", order_time=at(-50), state="On")
    return ServerStatus(**{**ADDRESS, "order": ORDER, "power": power, "boot_stage": "Firmware", **status})


def discovering() -> tuple[Rack, ...]:
    first = replace(rack().spec.subnets[0], discovery_range_start="10.80.0.200", discovery_range_end="10.80.0.250")
    return replace(rack(subnets=(first,))), OTHER_RACK


def stored(found: Image, *, without: str = "") -> dict[str, int | None]:
    return {file.path: None if without and file.path.endswith(without) else 4 for file in files_of(found)}


def card(name: str = "r01-u01-dpu", *, ready: bool, **spec: Any) -> Server:
    conditions = (condition("Ready", "True"),) if ready else ()
    return server(
        name,
        architecture="arm64",
        boot_mac_address="52:54:00:12:34:57",
        dpu=DPU(host_ref="r01-u01", vtep_address="10.99.0.1", **spec),
        status=ServerStatus(address="10.80.0.22", subnet_name="boot", conditions=conditions),
    )


def _lacking() -> Asked:
    lacks = layered_image("base", "driver", available="False")
    return Asked(facts=facts(server(status=ordered()), image=lacks, sizes=stored(lacks, without=".sig")))


def _in_store() -> Asked:
    found = layered_image("base", "driver", available="True")
    return Asked(facts=facts(server(status=ordered()), image=found, sizes=stored(found)), node=prepared())


def _other_image() -> Asked:
    """It runs what is assigned to it, while a Maintenance is about to boot another Image."""
    running = ServerStatus(
        **ADDRESS, order=ORDER, ready_time=at(-30), node_pool_ref="gpu", lifecycle="Maintenance", boot_stage="Ready",
        assigned_image_ref=image().name, join=JoinStatus(order_id="order-7", fetched_time=at(-40), boot_id="b"),
    )  # fmt: skip
    held = maintenance(reboot=attempt("Reset", image_ref="gpu-node-cdcdcdcdcdcd"))
    wanted: NodePool = pool(image_ref="gpu-node-cdcdcdcdcdcd")
    assert isinstance(held.status, MaintenanceStatus)
    return Asked(facts=facts(server(status=running), pool=wanted, maintenance=held), node=prepared())


MACHINES: dict[str, Callable[[], Asked]] = {
    "unknown": lambda: Asked(facts=facts(pool=None, image=None, racks=discovering())),
    "unknown-in-its-subnet": lambda: Asked(facts=facts(pool=None, image=None, racks=discovering()), via="10.80.0.1"),
    "unknown-without-a-range": lambda: Asked(facts=facts(pool=None, image=None), via="10.90.0.1"),
    "unknown-relay": lambda: Asked(facts=facts(pool=None, image=None), via="172.16.0.1"),
    "pending": lambda: Asked(
        facts=facts(server("unknown-525400123456", acceptance="Pending", node_pool_ref=None, status=ServerStatus()),
                    pool=None, image=None, racks=discovering()),
    ),
    "rejected": lambda: Asked(facts=facts(server(acceptance="Rejected"))),
    "without-address": lambda: Asked(facts=facts(server(status=ServerStatus()))),
    "ordered": _in_store,
    "ordered-http": lambda: Asked(
        facts=facts(server(status=ordered())), node=prepared(), firmware="x86_64-uefi-http"
    ),
    "not-ordered": lambda: Asked(facts=facts(server())),
    "wrong-subnet": lambda: Asked(facts=facts(server(status=ordered())), via="10.90.0.1"),
    "further-interface": lambda: Asked(
        facts=facts(server(boot_mac_address="52:54:00:12:34:99", interfaces=(Interface(name="b", mac_address=MAC),))),
    ),
    "duplicate": lambda: Asked(facts=facts(server("r01-u02"), server())),
    "dpu": lambda: Asked(
        facts=facts(replace(card(ready=False), spec=replace(card(ready=False).spec, boot_mac_address=MAC)),
                    pool=pool("dpu"), image=image(architecture="arm64")),
    ),
    "host-behind-dpu": lambda: Asked(
        facts=facts(server(status=ordered()), dpus=(card(ready=True, host_boot="Proxied"),)), node=prepared()
    ),
    "host-waits-for-dpu": lambda: Asked(
        facts=facts(server(status=ordered()), dpus=(card(ready=False, host_boot="Proxied"),)), node=prepared()
    ),
    "maintenance-with-another-image": _other_image,
    "image-missing-from-store": _lacking,
    "attestation": lambda: Asked(
        facts=facts(server(status=ordered()), pool=pool(attestation="Required")), node=prepared()
    ),
    "without-bmc": lambda: Asked(
        facts=facts(server(status=ordered(power=None), bmc=None)), node=prepared(), lease_known=False
    ),
}  # fmt: skip
