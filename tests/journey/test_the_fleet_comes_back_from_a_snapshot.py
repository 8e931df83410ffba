"""etcd of a rack that runs is put back to a snapshot while everything else goes on: no server is booted for that.

The services are not stopped, as docs/backup.md says they should be: so they meet what goes back under their feet.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab.binaries.etcd_tools import EtcdTools, entry_of, obtain_etcd_tools
from lab.control_plane.snapshot import BUMP
from lab.demo.show import is_ready
from lab.network import LabNetwork
from provisioner.api import Rack
from provisioner.api.machinery.meta import parse_time
from provisioner.cluster.resources import LEASES, NODE_LEASES, of
from tests.api.objects import rack as rack_object
from tests.api.objects import subnet
from tests.journey.virtual_rack import VirtualRack
from tests.tools import CACHE, missing

pytestmark = pytest.mark.timeout(2400)

SERVERS = ("r01-u01", "r01-u02")
CONTROL_PLANE = ("kube-scheduler", "kube-controller-manager", "kube-apiserver", "etcd")
WATCHED_SECONDS = 75
"""Longer than it takes until a Node that has gone silent is called so, and a server without one is ordered to boot."""


@pytest.fixture
def tools() -> EtcdTools:
    if not entry_of(CACHE).is_dir():
        missing("etcdctl")
    return obtain_etcd_tools(CACHE)


def inside(rack: VirtualRack, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run in the lab's network."""
    told = LabNetwork(rack.state.name).command([str(word) for word in command])
    return subprocess.run(told, capture_output=True, text=True, timeout=300, check=False)


def save(rack: VirtualRack, tools: EtcdTools, file: Path) -> None:
    plane = rack.state.directory / "control-plane"
    words = Path(f"/proc/{rack.pid('etcd')}/cmdline").read_bytes().decode().split("\0")
    url = next(word for word in words if word.startswith("--listen-client-urls=")).partition("=")[2]
    keys = {"cacert": "etcd-ca.crt", "cert": "apiserver-etcd.crt", "key": "apiserver-etcd.key"}
    options = [f"--{option}={plane / 'pki' / name}" for option, name in keys.items()]
    saved = inside(rack, tools.etcdctl, f"--endpoints={url}", *options, "snapshot", "save", file)
    assert saved.returncode == 0, saved.stderr


def restore(rack: VirtualRack, tools: EtcdTools, file: Path) -> None:
    """The lab starts its control plane again by itself, a while after all of it has ended."""
    data = rack.state.directory / "control-plane/etcd"
    beside = data.with_name("etcd-restored")
    shutil.rmtree(beside, ignore_errors=True)
    bump = (f"--bump-revision={BUMP}", "--mark-compacted")
    restored = inside(rack, tools.etcdutl, "snapshot", "restore", file, f"--data-dir={beside}", *bump)
    assert restored.returncode == 0, restored.stderr
    killed = rack.kill(*CONTROL_PLANE)
    shutil.rmtree(data)
    beside.rename(data)
    rack.wait_for_restart(killed)


def renewed(rack: VirtualRack, name: str) -> datetime:
    lease = rack.look(LEASES, name, namespace=NODE_LEASES)
    return parse_time(lease["spec"]["renewTime"])


def test_servers_stay_ready_and_in_the_boot_that_they_run(rack: VirtualRack, tools: EtcdTools, tmp_path: Path) -> None:
    for name in SERVERS:
        rack.wait(f"{name} is in production", lambda name=name: is_ready(rack.server(name)))  # type: ignore[misc]
    before = {name: rack.server(name).status for name in SERVERS}
    save(rack, tools, tmp_path / "snapshot.db")
    undone = rack_object("undone", subnets=[subnet(cidr="10.81.0.0/24", gateway="10.81.0.1")])
    rack.create(undone)
    restore(rack, tools, tmp_path / "snapshot.db")
    moment = datetime.now(UTC)
    rack.wait("the state is that of the snapshot", lambda: rack.ask(lambda c: c.find(of(Rack), "undone")) is None)
    for name in SERVERS:
        rack.wait(f"{name} reports", lambda name=name: renewed(rack, name) > moment)  # type: ignore[misc]
    until = time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < until:
        for name in SERVERS:
            status = rack.server(name).status
            assert status.order == before[name].order, "no boot was ordered"
            assert rack.node_boot_id(name) == before[name].boot_id
        time.sleep(3)
    for name in SERVERS:
        rack.wait(f"{name} is Ready", lambda name=name: is_ready(rack.server(name)))  # type: ignore[misc]
    # The controllers see what is written from now on, and the boot service serves it.
    rack.create(undone | {"metadata": {"name": "after"}})
    rack.wait("the controllers follow", lambda: rack.ask(lambda c: c.read(Rack, "after")).status.servers == 0)
    assert rack.is_served()
    rack.kubectl("delete", "rack", "after")
    command = (sys.executable, "-m", "provisioner.cli", "restore", "review", "--kubeconfig", rack.state.kubeconfig)
    reviewed = inside(rack, *command)
    assert (reviewed.returncode, reviewed.stdout) == (0, "nothing of the past is left to see to\n"), reviewed.stdout
