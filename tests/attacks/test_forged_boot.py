"""A Maintenance has a living Node booted by its BMC, and somebody reports that the new boot runs already.

Real parts: API server, shipped accounts and policies, boot controller, power controller, a BMC's Redfish, the join, and
the endpoint for reports with its recorder. Played: the machine, its kubelets, and the executor that drained the Node.
docs/threat-model.md, "What anybody can say of a boot".
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.machine.machine import BootPlan
from provisioner.api import Image, Maintenance, NodePool, Rack, Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.servers.server import BMC
from provisioner.boot.host.web import boot_blueprint
from provisioner.boot.observe.discover import Discoverer
from provisioner.boot.observe.recorder import ProgressRecorder
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.boot.orders.controller import build_boot_controllers
from provisioner.boot.orders.informers import BootInformers
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import LEASES, NODES, of
from tests.boot.objects import JUDGED, condition
from tests.join.conftest import accounts, make_world, world
from tests.join.front import Reply, serve
from tests.join.front import post_as_nginx as post
from tests.join.samples import BOOT_ID, DIGEST, KEY, OTHER_KEY, body
from tests.join.world import World
from tests.lab.fake_machine import fake_server
from tests.power.conftest import create_namespace
from tests.power.node_on_server import report as report_as_kubelet
from tests.power.power_site import PINNED, Site, wait_for

__all__ = ["accounts", "make_world", "world"]

NEIGHBOUR = "10.250.0.66"
DISK, HTTP = BootPlan(source="Disk"), BootPlan(source="UefiHttp", http_boot_uri=PINNED)


class OldBoot:
    """The system that runs when the boot is asked for: a kubelet that renews its Lease, and a pod that wants the next
    boot's token. Both end with the machine."""

    def __init__(self, world: World, answers: Path) -> None:
        self._world, self._answers = world, answers
        self._over = threading.Event()
        self.replies: list[Reply] = []
        self._threads = [threading.Thread(target=work) for work in (self._renew, self._ask)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _renew(self) -> None:
        while not self._over.is_set():
            self._world.renew_lease(self._world.clock())
            self._over.wait(2)

    def _ask(self) -> None:
        """It speaks from the server's address, by a boot id and a key of its own."""
        wanted = body(macAddress=self._world.mac, bootID=str(uuid.uuid4()), requestKey=OTHER_KEY)
        while not self._over.is_set():
            self.replies.append(post(self._answers, wanted, self._world.address))
            self._over.wait(0.5)


class Scene:
    """A Node in the boot of order-1, and a Maintenance that is about to reboot it."""

    def __init__(self, world: World, site: Site, answers: Path, old_boot: OldBoot) -> None:
        self.world, self.site, self.answers, self.old_boot = world, site, answers, old_boot

    def report(self, source: str, boot_id: str) -> None:
        """A report of stage-1, and the moment until it is on record."""
        said = json.dumps({"mac": self.world.mac, "stage": "Stage1", "bootID": boot_id}).encode()
        assert post(self.answers, said, source, to="/v1/progress").status == 204

        def is_written() -> bool:
            progress = self.world.server().status.progress
            return progress is not None and (progress.stage, progress.boot_id) == ("Stage1", boot_id)

        wait_for("the report in the status", is_written)

    def ask_for_boot(self, method: str) -> str:
        """As the executor does once the Node is drained; returns the boot controller's order."""
        self.site.ask(method, imageRef=self.world.name, imageDigest=DIGEST)

        def ordered() -> str | None:
            order = self.world.server().status.order
            return order.id if order is not None and order.reason == "Requested" else None

        order: str = wait_for("the order that was asked for", ordered)
        self.world.prepare_node()
        return order

    def join(self, boot_id: str) -> Reply:
        """The ordered boot asks, as often as it is told to wait."""
        wanted = body(macAddress=self.world.mac, bootID=boot_id, requestKey=KEY)

        def answered() -> Reply | None:
            reply = post(self.answers, wanted, self.world.address)
            return reply if reply.status not in (425, 429, 503) else None

        reply: Reply = wait_for("an answer to the ordered boot", answered)
        return reply


@pytest.fixture
def scene(
    world: World,
    cluster: Cluster,
    account: Callable[[str], Cluster],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Scene]:
    create_namespace(cluster)
    world.apply_status("provisioner-inventory", {"address": world.address, "subnetName": "boot"})
    available = condition("Available", "True", message="complete on boot1")
    cluster.apply_status(
        Image, world.name, {"conditions": [to_json(available), to_json(JUDGED)]}, manager="provisioner-boot"
    )
    world.joined()
    stop = threading.Event()
    with fake_server(tmp_path / "bmc", name=world.name) as fake:
        fake.machine.power_on(DISK)
        site = Site(cluster, account("power"), world.name, fake)
        site.write_secret()
        bmc = BMC(
            address=fake.url,
            credentials_name=f"{world.name}-bmc",
            certificate=fake.certificate,
            boot_method="UefiHttp",
        )
        world.change_spec(bmc=bmc)
        report_as_kubelet(site, ready="True", boot_id=BOOT_ID)
        with boot_service(world, tmp_path / "answers", stop) as answers:
            old_boot = OldBoot(world, answers)
            power_off = fake.machine.power_off

            def end_and_power_off() -> None:
                old_boot.end()
                power_off()

            monkeypatch.setattr(fake.machine, "power_off", end_and_power_off)
            controllers = start_boot_controller(account("orders"), world, stop)
            old_boot.start()
            try:
                yield Scene(world, site, answers, old_boot)
            finally:
                old_boot.end()
                site.stop()
                stop.set()
                for thread in controllers:
                    thread.join(60)
                cluster.delete(of(Maintenance), f"{world.name}-1")
                cluster.delete(of(Server), world.name)
                cluster.delete(LEASES, world.name, namespace="kube-node-lease")
                cluster.delete(NODES, world.name)


def boot_service(world: World, socket: Path, stop: threading.Event) -> Any:
    """What answers on a boot host: reports and joins."""
    servers, racks = Informer(world.service_cluster, of(Server)), Informer(world.service_cluster, of(Rack))
    index = ServerIndex(servers)
    index.attach()
    for informer in (servers, racks):
        informer.start(stop)
        assert informer.wait_for_sync(60)
    recorder = ProgressRecorder(world.service_cluster, index, world.recorded)
    threading.Thread(target=recorder.run, args=(stop,), daemon=True).start()
    discoverer = Discoverer(world.service_cluster, index, racks, world.recorded)
    reports = boot_blueprint(index=index, recorder=recorder, discoverer=discoverer, ready=lambda: True)
    return serve(world.service(), socket, beside=[reports])


def start_boot_controller(account: Cluster, world: World, stop: threading.Event) -> list[threading.Thread]:
    informers = {
        "servers": Informer(account, of(Server), field_selector=f"metadata.name={world.name}"),
        "pools": Informer(account, of(NodePool)),
        "images": Informer(account, of(Image)),
        "racks": Informer(account, of(Rack)),
        "nodes": Informer(account, NODES),
        "leases": Informer(account, LEASES, namespace="kube-node-lease"),
        "maintenances": Informer(account, of(Maintenance)),
    }
    for informer in informers.values():
        informer.start(stop)
        assert informer.wait_for_sync(60)
    controllers = build_boot_controllers(account, BootInformers(**informers), world.recorded)
    threads = [threading.Thread(target=controller.run, args=(stop,)) for controller in controllers]
    for thread in threads:
        thread.start()
    return threads


@pytest.mark.parametrize("method", ["Reset", "PowerCycle"])
@pytest.mark.parametrize("lies", [True, False], ids=["forged", "honest"])
def test_a_forged_report_does_not_keep_the_bmc_from_ending_the_old_boot(
    scene: Scene, method: str, lies: bool, make_boot_id: Callable[[], str]
) -> None:
    """Forged: before the BMC was told, a neighbour says that the new boot's stage-1 runs. Honest: nobody says anything
    before it is true. In both the BMC ends the old boot, whose pod gets no token, and the ordered boot gets one."""
    order = scene.ask_for_boot(method)
    if lies:
        scene.report(NEIGHBOUR, make_boot_id())
    wait_for("the pod to try", lambda: "OrderNotCarriedOut" in {reply.reason for reply in scene.old_boot.replies})
    scene.site.start()
    scene.site.wait_for_order(order)
    assert scene.site.fake.machine.boots == [DISK, HTTP], "the BMC was told, and told once"
    assert 200 not in {reply.status for reply in scene.old_boot.replies}
    before = scene.world.server().status.join
    assert before is not None
    assert before.order_id == "order-1", "nobody took the order's configuration"
    boot_id = make_boot_id()
    scene.report(scene.world.address, boot_id)
    reply = scene.join(boot_id)
    assert (reply.status, bool(reply.body)) == (200, True)
    after = scene.world.server().status.join
    assert after is not None
    assert (after.order_id, after.boot_id) == (order, boot_id)


@pytest.fixture
def make_boot_id() -> Callable[[], str]:
    return lambda: str(uuid.uuid4())
