"""Two boot hosts share an address by keepalived: one of them dies, or its service does, and machines boot on.

Real keepalived with the files of the Ansible role, real boot services, in namespaces. docs/high-availability.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import Rack, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from tests.api.objects import rack, server, subnet
from tests.boot.dhcp.wire import namespaces
from tests.boot.test_nginx import make_certificate
from tests.day2.boot_hosts import MACHINE, VIRTUAL, Place, place, wait_until
from tests.tools import installed, lab_tools

pytestmark = pytest.mark.long

MAC = "52:54:00:77:00:64"
IMAGE_BYTES = 24 << 20


@pytest.fixture(scope="module")
def hosts(control_plane: ControlPlane, cluster: Cluster) -> Iterator[Place]:
    installed("keepalived")
    tools = lab_tools()
    name = f"ha{os.getpid()}"
    cluster.apply(rack(name, subnets=[subnet(cidr="10.77.0.0/24", gateway="10.77.0.254")]), manager="tests")
    cluster.apply(server(f"{name}-u01", rackRef=name, bootMACAddress=MAC, acceptance="Accepted"), manager="tests")
    address = {"address": MACHINE, "subnetName": "boot"}
    cluster.apply_status(Server, f"{name}-u01", address, manager="tests-inventory")
    assert control_plane.port is not None
    with tempfile.TemporaryDirectory(prefix="provisioner-test-") as folder, namespaces(4) as made:
        shared = Path(folder)
        shared.chmod(0o755)
        parts = shared / "images/parts"
        parts.mkdir(parents=True)
        (parts / f"sha256-{'ab' * 32}").write_bytes(os.urandom(IMAGE_BYTES))
        make_certificate(shared)
        made[3].ip("link", "set", "lo", "up")
        with place(made, shared, tools, control_plane.kubeconfig, control_plane.port) as there:
            there.machine.namespace.ip("link", "set", "eth0", "address", MAC)
            for host in there.hosts:
                host.start()
            try:
                wait_until(
                    lambda: len(there.holders()) == 1 and there.machine.is_served(), "a boot host has the address"
                )
                wait_until(lambda: all(host.is_ready() for host in there.hosts), "both are ready")
                yield there
            finally:
                print(there.words())
    cluster.delete(of(Server), f"{name}-u01")
    cluster.delete(of(Rack), name)


@pytest.fixture
def calm(hosts: Place) -> Place:
    """Both are up and ready, and one of them has the address."""
    wait_until(lambda: all(host.is_ready() for host in hosts.hosts), "both are ready")
    wait_until(lambda: len(hosts.holders()) == 1 and hosts.machine.is_served(), "one has the address")
    return hosts


def holder(hosts: Place) -> tuple[int, int]:
    """Index of the boot host that has the address, and of the other one."""
    (name,) = hosts.holders()
    return (0, 1) if name == "first" else (1, 0)


def dhcp(hosts: Place, folder: Path) -> str:
    """What a DHCP client on the machine was told: its address and by whom."""
    hook = folder / "hook.sh"
    hook.write_text(f'#!/bin/sh\n[ "$1" = bound ] && echo "$ip $serverid $siaddr" > {folder}/told\nexit 0\n')
    hook.chmod(0o755)
    (folder / "told").unlink(missing_ok=True)
    client = [installed("busybox"), "udhcpc", "-f", "-q", "-n", "-i", "eth0", "-s", str(hook), "-t", "10", "-T", "1"]
    ran = hosts.machine.namespace.run(*client)
    return (folder / "told").read_text().strip() if (folder / "told").exists() else ran.stderr


def assert_all_of_a_boot_is_served(hosts: Place, folder: Path) -> None:
    assert dhcp(hosts, folder).split()[:2] == [MACHINE, VIRTUAL]
    script = hosts.machine.curl("-f", f"http://{VIRTUAL}/boot.ipxe")
    assert script.stdout.startswith("#!ipxe"), script.stderr
    firmware = hosts.machine.curl("-f", "-o", str(folder / "efi"), f"tftp://{VIRTUAL}/snponly.efi")
    assert firmware.returncode == 0, firmware.stderr
    assert (folder / "efi").stat().st_size > 100_000
    join = hosts.machine.curl("-k", "-o/dev/null", "-w%{http_code}", f"https://{VIRTUAL}:8443/v1/join")
    assert join.stdout == "405", "the join service is asked by POST"


def test_one_boot_host_has_the_address_and_serves_all_of_a_boot(calm: Place, tmp_path: Path) -> None:
    assert len(calm.holders()) == 1
    assert_all_of_a_boot_is_served(calm, tmp_path)


def test_when_the_service_fails_the_address_moves_and_stays_there(calm: Place, tmp_path: Path) -> None:
    now, other = holder(calm)
    seconds = calm.machine.gap(lambda: calm.hosts[now].kill("boot"))
    print(f"the service failed: nobody answered for {seconds:.1f} s")
    wait_until(lambda: calm.holders() == [calm.hosts[other].name], "the other one has it")
    assert_all_of_a_boot_is_served(calm, tmp_path)
    calm.hosts[now].start("boot")
    wait_until(calm.hosts[now].is_ready, "the service is back")
    time.sleep(6)  # longer than it takes keepalived to see that
    assert calm.holders() == [calm.hosts[other].name], "nobody takes it back from one that has it"


def test_when_the_host_dies_the_address_moves_and_a_file_that_was_under_way_is_fetched_to_its_end(
    calm: Place, tmp_path: Path
) -> None:
    now, other = holder(calm)
    target, url = tmp_path / "part", f"http://{VIRTUAL}/images/parts/sha256-{'ab' * 32}"
    # As stage-1 does: a source that gives nothing is left, and what was fetched is gone on with.
    fetching = ["curl", "-sS", "-f", "-C-", "--speed-limit", "1000", "--speed-time", "3", "-o", str(target), url]
    slowly = calm.machine.namespace.command(*fetching, "--limit-rate", "4M")
    fetch = subprocess.Popen(slowly, stderr=subprocess.DEVNULL)
    wait_until(lambda: target.exists() and target.stat().st_size > 1 << 20, "some of it is there")

    def die() -> None:
        calm.hosts[now].namespace.ip("link", "set", "eth0", "down")

    seconds = calm.machine.gap(die)
    print(f"the host died: nobody answered for {seconds:.1f} s")
    wait_until(calm.hosts[other].has_address, "the other one has it")
    assert fetch.wait(120) != 0, "the connection was to the host that died"
    had = target.stat().st_size
    assert had < IMAGE_BYTES
    again = calm.machine.namespace.run(*fetching)
    assert again.returncode == 0, again.stderr
    assert target.read_bytes() == (calm.images / f"parts/sha256-{'ab' * 32}").read_bytes()
    assert_all_of_a_boot_is_served(calm, tmp_path)
    calm.hosts[now].namespace.ip("link", "set", "eth0", "up")
    wait_until(lambda: calm.holders() == [calm.hosts[other].name], "the one that was away steps back")


def test_a_host_whose_keepalived_is_ended_hands_the_address_over_at_once(calm: Place, tmp_path: Path) -> None:
    now, other = holder(calm)
    seconds = calm.machine.gap(lambda: os.kill(calm.hosts[now].processes["keepalived"].pid, signal.SIGTERM))
    print(f"handed over: nobody answered for {seconds:.1f} s")
    wait_until(lambda: calm.holders() == [calm.hosts[other].name], "the other one has it")
    calm.hosts[now].processes.pop("keepalived").wait(60)
    calm.hosts[now].start("keepalived")
    assert_all_of_a_boot_is_served(calm, tmp_path)


def test_with_no_host_ready_nobody_has_the_address(calm: Place) -> None:
    for host in calm.hosts:
        host.kill("boot")
    wait_until(lambda: calm.holders() == [], "no host that serves nothing has the address")
    for host in calm.hosts:
        host.start("boot")
    wait_until(lambda: len(calm.holders()) == 1 and calm.machine.is_served(), "one has it again")
