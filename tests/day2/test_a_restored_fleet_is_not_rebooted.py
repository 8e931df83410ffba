"""After a restoration, with all controllers at work and BMCs that count: no server that runs is booted, whatever came
back of its past. One that runs nothing is booted, as ever.

BMCs are the lab's on loopback; kubelets are played, as what they report is what counts. docs/backup.md.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lab.binaries.etcd_tools import EtcdTools
from lab.control_plane.plane import ControlPlane
from lab.control_plane.snapshot import restore_snapshot, save_snapshot
from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import BMC_SECRETS, NODES, of
from tests.api.objects import IMAGE_JUDGED, image, node_pool, rack, server, subnet
from tests.lab.fake_machine import PASSWORD, USERNAME, FakeServer, fake_server

SECONDS = 240.0


def until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while True:
        with suppress(ProvisionerError):
            if true():
                return
        assert time.monotonic() < deadline, f"waited too long: {what}"
        time.sleep(0.2)


class Fleet:
    """Servers with BMCs, and the kubelets of those that run."""

    def __init__(self, admin: Cluster, prefix: str, machines: dict[str, FakeServer]) -> None:
        self.admin, self.prefix, self.machines = admin, prefix, machines
        self.boots: dict[str, str] = {}
        self._stop = threading.Event()
        threading.Thread(target=self._report, daemon=True).start()

    def name(self, of_server: str) -> str:
        return f"{self.prefix}-{of_server}"

    def status(self, of_server: str) -> Any:
        return self.admin.read(Server, self.name(of_server)).status

    def joins(self, of_server: str, boot: str) -> None:
        """It gets its join configuration; from then on its kubelet reports."""
        order = self.status(of_server).order
        join = {"orderID": order.id, "bootID": boot, "fetchedTime": rfc3339_micro(datetime.now(UTC))}
        self.admin.apply_status(Server, self.name(of_server), {"join": join}, manager="provisioner-join")
        self.boots[of_server] = boot

    def order_was_long_ago(self, of_server: str) -> None:
        """As in a snapshot of this morning: the boot under way has had its time."""
        morning = rfc3339_micro(datetime.now(UTC) - timedelta(hours=3))
        status = {"order": {"orderedTime": morning}, "power": {"orderTime": morning}}
        self.admin.patch(of(Server), self.name(of_server), {"status": status}, subresource="status")

    def stop(self) -> None:
        self._stop.set()

    def _report(self) -> None:
        """As kubelets do, also while the API server is away."""
        while not self._stop.wait(1.0):
            for of_server, boot in list(self.boots.items()):
                with suppress(ProvisionerError):
                    self._report_one(self.name(of_server), boot)

    def _report_one(self, name: str, boot: str) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
        status = {"conditions": [ready], "nodeInfo": {"bootID": boot}}
        self.admin.strategic_patch(NODES, name, {"status": status}, subresource="status", manager="kubelet")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": rfc3339_micro(datetime.now(UTC))}
        metadata = {"name": name, "namespace": "kube-node-lease"}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        self.admin.apply(lease, manager="kubelet")


@pytest.fixture
def fleet(admin: Cluster, unique: str, tmp_path: Path) -> Iterator[Fleet]:
    octet = int(unique[1:3], 16) % 250 + 1
    admin.apply(rack(unique, subnets=[subnet(cidr=f"10.{octet}.90.0/24", gateway=f"10.{octet}.90.1")]), manager="tests")
    admin.apply(image(f"{unique}-image"), manager="tests")
    now = rfc3339(datetime.now(UTC))
    said = {"type": "Available", "status": "True", "reason": "Stored", "message": "", "lastTransitionTime": now}
    stored = {"conditions": [said, IMAGE_JUDGED], "stores": [{"host": "boot1", "time": now}]}
    admin.apply_status(Image, f"{unique}-image", stored, manager="provisioner-boot")
    pool = node_pool(unique, imageRef=f"{unique}-image", attestation="Optional")
    admin.apply(pool, manager="tests")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{unique}-bmc", "namespace": BMC_SECRETS}}
    admin.apply({**secret, "stringData": {"username": USERNAME, "password": PASSWORD}}, manager="tests")
    machines: dict[str, FakeServer] = {}
    with ExitStack() as stack:
        for number, which in enumerate(("ran", "rebooted", "joined", "silent")):
            fake = stack.enter_context(fake_server(tmp_path / which, name=f"{unique}-{which}"))
            machines[which] = fake
            bmc = {"address": fake.url, "credentialsName": f"{unique}-bmc", "certificate": fake.certificate}
            mac = f"52:54:00:{octet:02x}:90:{number:02x}"
            spec = {
                "rackRef": unique,
                "nodePoolRef": unique,
                "bootMACAddress": mac,
                "acceptance": "Accepted",
                "bmc": bmc,
            }
            admin.apply(server(f"{unique}-{which}", **spec), manager="tests")
        made = Fleet(admin, unique, machines)
        stack.callback(made.stop)
        yield made
    for which in machines:
        admin.delete(of(Server), f"{unique}-{which}")
        admin.delete(NODES, f"{unique}-{which}")
    for kind, name in ((NodePool, unique), (Image, f"{unique}-image"), (Rack, unique)):
        admin.delete(of(kind), name)


class Controllers:
    """`provisioner controller`, all of it."""

    def __init__(self, plane: ControlPlane, log: Path) -> None:
        self._plane, self._log = plane, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "provisioner.cli", "controller", f"--kubeconfig={self._plane.kubeconfig}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--boot-url=http://127.0.0.1:9", "--power-poll-seconds=1"], stdout=log, stderr=log
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._process = None


@pytest.fixture
def controllers(own_plane: ControlPlane, tmp_path: Path) -> Iterator[Controllers]:
    made = Controllers(own_plane, tmp_path / "controller.log")
    yield made
    made.stop()


def test_no_server_that_runs_is_booted_for_what_came_back_of_its_past(
    own_plane: ControlPlane, etcd_tools: EtcdTools, fleet: Fleet, controllers: Controllers, tmp_path: Path
) -> None:
    controllers.start()
    for which, machine in fleet.machines.items():
        until(lambda machine=machine: len(machine.machine.boots) >= 1, f"{which} is booted")  # type: ignore[misc]
    for which in ("ran", "rebooted"):
        fleet.joins(which, boot="0a" * 16)
        until(lambda which=which: fleet.status(which).boot_stage == "Ready", f"{which} is Ready")  # type: ignore[misc]
    controllers.stop()
    for which in ("joined", "silent"):
        fleet.order_was_long_ago(which)
    save_snapshot(own_plane, etcd_tools, tmp_path / "snapshot.db")
    orders = {which: fleet.status(which).order for which in fleet.machines}
    # What the snapshot does not know: one was rebooted, one joined. The fourth never came up.
    fleet.boots |= {"rebooted": "0b" * 16, "joined": "0c" * 16}
    before = {which: len(machine.machine.boots) for which, machine in fleet.machines.items()}
    restore_snapshot(own_plane, etcd_tools, tmp_path / "snapshot.db")
    for which, boot in fleet.boots.items():

        def reports(which: str = which, boot: str = boot) -> bool:
            return bool(fleet.admin.get(NODES, fleet.name(which))["status"]["nodeInfo"]["bootID"] == boot)

        until(reports, f"the kubelet of {which} has reported")
    controllers.start()
    silent = fleet.machines["silent"].machine
    until(lambda: len(silent.boots) > before["silent"], "the server that runs nothing is booted anew")
    time.sleep(5)  # and the controllers look at the others a few times more
    for which in ("ran", "rebooted", "joined"):
        machine = fleet.machines[which].machine
        assert (len(machine.boots), machine.button_presses) == (before[which], 0), f"{which} was booted"
        assert machine.running
        assert fleet.status(which).order == orders[which], f"another boot of {which} was ordered"
