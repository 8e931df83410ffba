"""The power controllers on a real API server, with the lab's own BMCs over fake machines."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.conditions import find_condition
from provisioner.api.meta import rfc3339_micro
from provisioner.api.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import EVENTS, SECRETS, of
from provisioner.lab.machine import BootPlan
from provisioner.power.bmc_pool import BmcPool
from provisioner.power.controller import MANAGER, PowerSettings, build_power_controllers
from provisioner.power.redfish import BmcAccess, RedfishPower
from tests.lab.fake_machine import PASSWORD, USERNAME, FakeServer, fake_server

PINNED = "http://10.80.0.1/snponly.efi"
BOUND_SECONDS = 60.0
NAMESPACE = "provisioner-system"


def wait_for(what: str, check: Callable[[], Any]) -> Any:
    """Until `check` returns something; the bound is generous, events decide."""
    deadline = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.05)
    pytest.fail(f"{what}: not within {BOUND_SECONDS} s")


class Site:
    """The running controllers, and one server with its BMC."""

    def __init__(self, cluster: Cluster, name: str, fake: FakeServer) -> None:
        self.cluster = cluster
        self.name = name
        self.fake = fake
        self.settings = PowerSettings(
            http_boot_uris={"x86_64": PINNED}, poll_seconds=0.3, workers=2, unreachable_workers=1
        )
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._recorder: EventRecorder | None = None

    def write_secret(self, password: str = PASSWORD) -> None:
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": f"{self.name}-bmc", "namespace": NAMESPACE},
                "stringData": {"username": USERNAME, "password": password},
            },
            manager="test",
        )

    def write_server(self, **spec: Any) -> None:
        bmc = {
            "address": self.fake.url,
            "credentialsName": f"{self.name}-bmc",
            "certificate": self.fake.certificate,
            "bootMethod": "UefiHttp",
        }
        self.cluster.apply(
            {
                "apiVersion": "provisioner.dev/v1alpha1",
                "kind": "Server",
                "metadata": {"name": self.name},
                "spec": {
                    "rackRef": "r01",
                    "bootMACAddress": "52:54:00:00:00:01",
                    "acceptance": "Accepted",
                    "nodePoolRef": "gpu",
                }
                | spec
                | {"bmc": bmc | spec.get("bmc", {})},
            },
            manager="test",
        )

    def order(self, id_: str) -> None:
        """As the boot controller writes it."""
        order = {"id": id_, "reason": "FirstBoot", "orderedTime": rfc3339_micro(datetime.now(UTC)), "attempt": 1}
        self.cluster.apply_status(Server, self.name, {"order": order}, manager="provisioner-boot-controller")

    def start(self, pool: BmcPool | None = None) -> None:
        self._stop = threading.Event()
        informer = Informer(self.cluster, of(Server), field_selector=f"metadata.name={self.name}")
        self._recorder = EventRecorder(self.cluster, "power-test")
        controllers = build_power_controllers(self.cluster, informer, self._recorder, self.settings, pool=pool)
        informer.start(self._stop)
        assert informer.wait_for_sync(BOUND_SECONDS)
        self._threads = [threading.Thread(target=controller.run, args=(self._stop,)) for controller in controllers]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(BOUND_SECONDS)
        self._threads = []

    def read(self) -> Server:
        return self.cluster.read(Server, self.name)

    def wait_for_condition(self, reason: str) -> Any:
        def check() -> Any:
            condition = find_condition(self.read().status.conditions, "PoweredOn")
            return condition if condition and condition.reason == reason else None

        return wait_for(f"PoweredOn with reason {reason}", check)

    def wait_for_order(self, id_: str) -> Server:
        def check() -> Server | None:
            server = self.read()
            return server if server.status.power and server.status.power.order_id == id_ else None

        found: Server = wait_for(f"order {id_} recorded", check)
        return found

    def wait_until_looked_at(self) -> None:
        """Until the condition speaks of the newest spec."""

        def check() -> bool:
            server = self.read()
            condition = find_condition(server.status.conditions, "PoweredOn")
            return condition is not None and condition.observed_generation == server.metadata.generation

        wait_for("a look at the newest spec", check)

    def event_reasons(self) -> set[str]:
        assert self._recorder is not None
        assert self._recorder.flush(BOUND_SECONDS)
        listed = self.cluster.list(EVENTS, namespace="default", field_selector=f"involvedObject.name={self.name}")
        return {event["reason"] for event in listed.items}


@pytest.fixture
def site(cluster: Cluster, unique: str, tmp_path: Path) -> Iterator[Site]:
    create_namespace(cluster)
    with fake_server(tmp_path / "bmc", name=unique) as fake:
        made = Site(cluster, unique, fake)
        made.write_secret()
        try:
            yield made
        finally:
            made.stop()
            cluster.delete(of(Server), unique)
            cluster.delete(SECRETS, f"{unique}-bmc", namespace=NAMESPACE)


def create_namespace(cluster: Cluster) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, manager="test")


def test_an_order_powers_a_server_on_by_its_boot_method_and_only_once(site: Site) -> None:
    site.write_server()
    site.start()
    site.wait_for_condition("PowerOff")
    site.order("order-1")
    server = site.wait_for_order("order-1")
    assert server.status.power is not None
    assert (server.status.power.state, site.fake.machine.running) == ("On", True)
    site.wait_for_condition("On")
    site.stop()
    assert site.fake.endpoint.sessions == {}, "who stops leaves no session behind: a BMC has few"
    site.start()
    site.order("order-2")
    site.wait_for_order("order-2")
    assert site.fake.machine.boots == [BootPlan(source="UefiHttp", http_boot_uri=PINNED)] * 2
    assert "BootOrderAccepted" in site.event_reasons()


def test_a_controller_that_died_after_the_reset_does_not_reset_a_boot_under_way(site: Site) -> None:
    site.write_server()
    site.order("order-1")
    # The BMC accepted it, and nobody wrote that down; then stage-1 was heard of.
    site.fake.machine.power_on(BootPlan(source="Pxe"))
    progress = {
        "stage": "Stage1",
        "bootID": "b1",
        "stageTimes": [{"stage": "Stage1", "time": rfc3339_micro(datetime.now(UTC))}],
    }
    site.cluster.apply_status(Server, site.name, {"progress": progress}, manager="provisioner-boot")
    site.start()
    site.wait_for_order("order-1")
    assert len(site.fake.machine.boots) == 1


def test_a_server_that_nobody_accepted_stays_off(site: Site) -> None:
    site.write_server(acceptance="Pending")
    site.order("order-1")
    site.start()
    site.wait_for_condition("NotAccepted")
    assert site.fake.machine.boots == []


def test_power_that_is_lost_is_noticed_and_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.power.status.SETTLING", timedelta(0))
    site.write_server()
    site.order("order-1")
    site.start()
    site.wait_for_condition("On")
    site.fake.power.cut_power()
    condition = site.wait_for_condition("PowerOff")
    assert condition.status == "False"
    power = site.read().status.power
    assert power is not None
    assert (power.state, power.order_id) == ("Off", "order-1")
    assert "PowerLost" in site.event_reasons()
    assert not site.fake.machine.running, "bringing it back is the boot controller's decision"


def test_a_server_that_shall_be_off_is_asked_and_then_cut(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.write_server()
    site.order("order-1")
    site.start()
    site.wait_for_condition("On")
    site.fake.machine.hangs = True
    site.write_server(powerState="Off")
    site.wait_for_condition("ShuttingDown")
    assert site.fake.machine.running
    monkeypatch.setattr("provisioner.power.decide.SHUTDOWN_PATIENCE", timedelta(0))
    site.wait_for_condition("Off")
    assert (site.fake.machine.running, site.fake.machine.button_presses) == (False, 1)
    assert {"ShuttingDown", "PowerCut"} <= site.event_reasons()


def test_a_bmc_that_is_away_is_told_and_its_order_carried_out_when_it_is_back(site: Site) -> None:
    port = site.fake.port
    site.fake.endpoint.stop()
    site.write_server(bmc={"address": f"https://127.0.0.1:{port}"})
    site.order("order-1")
    site.start()
    condition = site.wait_for_condition("BMCUnreachable")
    assert condition.status == "Unknown"
    assert "Connection refused" in condition.message
    site.fake.endpoint = site.fake.new_endpoint(port)
    site.fake.endpoint.start()
    site.wait_for_order("order-1")
    site.wait_for_condition("On")


def test_a_wrong_password_is_tried_once_until_the_secret_changes(site: Site) -> None:
    attempts: list[str] = []

    def connect(access: BmcAccess) -> RedfishPower:
        attempts.append(access.password.reveal())
        return RedfishPower(access)

    site.write_secret("wrong")
    site.write_server()
    site.start(BmcPool(site.cluster, clock=time.monotonic, connect=connect))
    condition = site.wait_for_condition("CredentialsRefused")
    assert f"{site.name}-bmc" in condition.message
    for number in range(3):
        # Each change makes the controller look again: it must not make it log in again.
        site.write_server(position=f"u{number:02d}")
        site.wait_until_looked_at()
    assert attempts == ["wrong"]
    site.write_secret()
    site.write_server(position="u09")
    site.wait_for_condition("PowerOff")
    assert attempts == ["wrong", PASSWORD]


@pytest.mark.parametrize(
    ("bmc", "reason"),
    [
        ({"protocol": "IPMI", "bootMethod": "Pxe"}, "ProtocolNotSupported"),
        ({"credentialsName": "absent"}, "CredentialsMissing"),
        ({"systemID": "Blade7"}, "SystemNotFound"),
    ],
)
def test_what_a_person_must_correct_is_named(site: Site, bmc: dict[str, str], reason: str) -> None:
    site.write_server(bmc=bmc)
    site.start()
    condition = site.wait_for_condition(reason)
    assert (condition.status, "; " in condition.message) == ("Unknown", True)
    assert reason in site.event_reasons()


def test_a_dead_bmc_does_not_hold_up_the_others(site: Site, cluster: Cluster, unique: str) -> None:
    """More dead BMCs than workers: the living one is still served."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        dead = [Site(cluster, f"{unique}-dead-{number}", site.fake) for number in range(3)]
        try:
            for one in dead:
                one.write_server(
                    bmc={
                        "address": f"https://127.0.0.1:{silent.getsockname()[1]}",
                        "credentialsName": f"{unique}-bmc",
                    }
                )
            site.write_server()
            _run_all(site, dead)
        finally:
            for one in dead:
                cluster.delete(of(Server), one.name)


def _run_all(site: Site, dead: list[Site]) -> None:
    stop = threading.Event()
    informer = Informer(site.cluster, of(Server))
    pool = BmcPool(
        site.cluster,
        clock=time.monotonic,
        connect=lambda access: RedfishPower(access, connect_seconds=1.0, read_seconds=1.0),
    )
    recorder = EventRecorder(site.cluster, "power-test")
    controllers = build_power_controllers(site.cluster, informer, recorder, site.settings, pool=pool)
    informer.start(stop)
    assert informer.wait_for_sync(BOUND_SECONDS)
    threads = [threading.Thread(target=controller.run, args=(stop,)) for controller in controllers]
    for thread in threads:
        thread.start()
    try:
        for one in dead:
            one.wait_for_condition("BMCUnreachable")
        for number in range(3):
            site.order(f"order-{number}")
            site.wait_for_order(f"order-{number}")
    finally:
        stop.set()
        for thread in threads:
            thread.join(BOUND_SECONDS)


def test_the_power_manager_owns_nothing_but_its_part(site: Site) -> None:
    site.write_server()
    site.order("order-1")
    site.start()
    site.wait_for_order("order-1")
    site.wait_for_condition("On")
    fields = next(
        entry["fieldsV1"]["f:status"]
        for entry in site.cluster.get(of(Server), site.name)["metadata"]["managedFields"]
        if entry["manager"] == MANAGER
    )
    assert set(fields) == {"f:power", "f:conditions"}
    assert [key for key in fields["f:conditions"] if key.startswith("k:")] == ['k:{"type":"PoweredOn"}']
