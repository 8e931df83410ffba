"""The running power controllers and one server with its BMC, on a real API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.maintenance import Maintenance
from provisioner.api.servers.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import BMC_SECRETS, EVENTS, of
from provisioner.power.bmc.pool import BmcPool
from provisioner.power.bmc.power_controller import BmcAccess, PowerController
from provisioner.power.controller import PowerSettings, build_power_controllers
from tests.lab.fake_machine import PASSWORD, USERNAME, FakeServer

PINNED = "http://10.80.0.1/snponly.efi"
BOUND_SECONDS = 180.0


def wait_for(what: str, check: Callable[[], Any]) -> Any:
    """Until `check` returns something; the bound is generous, events decide."""
    deadline = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.05)
    pytest.fail(f"{what}: not within {BOUND_SECONDS} s")


class Site:
    """The running controllers, which go through `door`, and one server with its BMC."""

    ahead = timedelta()
    """By so much is the controllers' clock ahead of the test's."""

    def __init__(self, cluster: Cluster, door: Cluster, name: str, fake: FakeServer) -> None:
        self.cluster, self.door = cluster, door
        self.name = name
        self.fake = fake
        self.settings = PowerSettings(
            http_boot_uris={"x86_64": PINNED},
            poll_seconds=0.3,
            off_seconds=0.1,
            workers={"New": 2, "Prompt": 2, "Slow": 1, "Unreachable": 1},
        )
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._recorder: EventRecorder | None = None

    def write_secret(self, password: str = PASSWORD, username: str = USERNAME) -> None:
        self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": f"{self.name}-bmc", "namespace": BMC_SECRETS},
                "stringData": {"username": username, "password": password},
            },
            manager="test",
        )

    def write_server(self, **spec: Any) -> None:
        """What is None of its BMC is left out."""
        bmc: dict[str, Any] = {
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
                | {"bmc": {key: value for key, value in (bmc | spec.get("bmc", {})).items() if value is not None}},
            },
            manager="test",
        )

    def order(self, id_: str, **more: Any) -> None:
        """As the boot controller writes it."""
        order = {"id": id_, "reason": "FirstBoot", "orderedTime": rfc3339_micro(datetime.now(UTC)), "attempt": 1} | more
        self.cluster.apply_status(Server, self.name, {"order": order}, manager="provisioner-boot-controller")

    def ask(self, method: str, **changes: Any) -> None:
        """As the executor files a Maintenance that is about to reboot by `method`; `changes` are of its attempt."""
        body = {
            "apiVersion": "provisioner.dev/v1alpha1",
            "kind": "Maintenance",
            "metadata": {"name": f"{self.name}-1"},
            "spec": {"serverRef": self.name},
        }
        self.cluster.apply(body, manager="test")
        attempt = {
            "id": "try-1",
            "method": method,
            "imageRef": "gpu",
            "imageDigest": "sha256:" + "ab" * 32,
            "startedTime": rfc3339(datetime.now(UTC)),
            "deadlineTime": rfc3339(datetime.now(UTC)),
        }
        status = {"phase": "Rebooting", "reboot": attempt | changes}
        self.cluster.apply_status(Maintenance, f"{self.name}-1", status, manager="provisioner-maintenance")

    def withdraw(self) -> None:
        self.cluster.delete(of(Maintenance), f"{self.name}-1")

    def order_as_asked(self, id_: str, method: str, reason: str = "Requested") -> None:
        """As the boot controller answers that Maintenance's try."""
        self.order(id_, reason=reason, method=method, maintenanceRef=f"{self.name}-1", attemptID="try-1")

    def accepted(self, status: str, reason: str) -> None:
        """As the inventory judges it."""
        condition = {
            "type": "Accepted",
            "status": status,
            "reason": reason,
            "message": "Server r01-u09 claims the same BMC",
            "lastTransitionTime": rfc3339(datetime.now(UTC)),
        }
        self.cluster.apply_status(Server, self.name, {"conditions": [condition]}, manager="provisioner-inventory")

    def start(
        self,
        pool: BmcPool | None = None,
        *,
        connect: Callable[[BmcAccess], PowerController] | None = None,
        leadership: threading.Event | None = None,
    ) -> None:
        """With `connect` in place of RedfishPower. `leadership` is told to the controllers, but does not stop them."""
        if connect is not None:
            pool = BmcPool(self.door, clock=time.monotonic, connect=connect)
        self._stop = threading.Event()
        informer = Informer(self.door, of(Server), field_selector=f"metadata.name={self.name}")
        self._recorder = EventRecorder(self.door, "power-test")
        controllers = build_power_controllers(
            self.door,
            informer,
            self._recorder,
            self.settings,
            now=lambda: datetime.now(UTC) + self.ahead,
            pool=pool,
            stop=leadership,
        )
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

    def wait_for_events(self, *reasons: str) -> None:
        """They are told after what they tell of was written."""
        wait_for(f"Events {reasons}", lambda: set(reasons) <= self.event_reasons())

    def event_reasons(self) -> set[str]:
        assert self._recorder is not None
        assert self._recorder.flush(BOUND_SECONDS)
        listed = self.cluster.list(EVENTS, namespace="default", field_selector=f"involvedObject.name={self.name}")
        return {event["reason"] for event in listed.items}
