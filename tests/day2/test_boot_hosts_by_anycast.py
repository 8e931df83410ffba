"""Two boot hosts announce one address by BGP: a service fails, a host dies, a check hangs, and machines boot on.

Real FRR with the files of the Ansible role and the router's lines of docs/high-availability.md, real boot services and
dhcrelay, in namespaces.
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
from tests.day2.anycast_hosts import ADDRESS, GATEWAY, LEASE_SECONDS, MACHINE, STABLE_SECONDS, Place, place
from tests.day2.boot_hosts import wait_until
from tests.tools import installed, lab_tools

pytestmark = pytest.mark.long

MAC = "52:54:00:80:64:15"
PART = f"sha256-{'ac' * 32}"
IMAGE_BYTES = 24 << 20


@pytest.fixture(scope="module")
def hosts(control_plane: ControlPlane, cluster: Cluster) -> Iterator[Place]:
    tools = lab_tools()
    name = f"anycast{os.getpid()}"
    cluster.apply(rack(name, subnets=[subnet(cidr="10.80.100.0/24", gateway=GATEWAY)]), manager="tests")
    cluster.apply(server(f"{name}-u01", rackRef=name, bootMACAddress=MAC, acceptance="Accepted"), manager="tests")
    address = {"address": MACHINE, "subnetName": "boot"}
    cluster.apply_status(Server, f"{name}-u01", address, manager="tests-inventory")
    assert control_plane.port is not None
    with tempfile.TemporaryDirectory(prefix="provisioner-test-") as folder, namespaces(4) as made:
        shared = Path(folder)
        shared.chmod(0o755)
        parts = shared / "images/parts"
        parts.mkdir(parents=True)
        (parts / PART).write_bytes(os.urandom(IMAGE_BYTES))
        make_certificate(shared)
        made[3].ip("link", "set", "lo", "up")
        with place(made, shared, tools, control_plane.kubeconfig, control_plane.port) as there:
            there.machine.namespace.ip("link", "set", "eth0", "address", MAC)
            for each in (there.router, *there.hosts):
                each.start()
            try:
                yield there
            finally:
                print(there.words())
    cluster.delete(of(Server), f"{name}-u01")
    cluster.delete(of(Rack), name)


@pytest.fixture
def calm(hosts: Place) -> Place:
    """Both are announced, and the first has the traffic."""
    wait_until(lambda: hosts.run() and all(host.has_address() for host in hosts.hosts), "both are ready")
    wait_until(lambda: len(hosts.router.paths().get("paths", [])) == 2, "the router has heard of both")
    wait_until(lambda: hosts.router.leads_to() == ["first"] and hosts.machine.is_served(), "the first has the traffic")
    return hosts


def dhcp(hosts: Place, folder: Path) -> str:
    """What a DHCP client on the machine was told, through the relay: its address and by whom."""
    hook = folder / "hook.sh"
    hook.write_text(f'#!/bin/sh\n[ "$1" = bound ] && echo "$ip $serverid" > {folder}/told\nexit 0\n')
    hook.chmod(0o755)
    (folder / "told").unlink(missing_ok=True)
    client = [installed("busybox"), "udhcpc", "-f", "-q", "-n", "-i", "eth0", "-s", str(hook), "-t", "20", "-T", "1"]
    ran = hosts.machine.namespace.run(*client)
    return (folder / "told").read_text().strip() if (folder / "told").exists() else ran.stderr


def assert_all_of_a_boot_is_served(hosts: Place, folder: Path) -> None:
    assert dhcp(hosts, folder) == f"{MACHINE} {ADDRESS}"
    script = hosts.machine.curl("-f", f"http://{ADDRESS}/boot.ipxe")
    assert script.stdout.startswith("#!ipxe"), script.stderr
    firmware = hosts.machine.curl("-f", "-o", str(folder / "efi"), f"tftp://{ADDRESS}/snponly.efi")
    assert firmware.returncode == 0, firmware.stderr
    assert (folder / "efi").stat().st_size > 100_000
    join = hosts.machine.curl("-k", "-o/dev/null", "-w%{http_code}", f"https://{ADDRESS}:8443/v1/join")
    assert join.stdout == "405", "the join service is asked by POST"


def test_the_preferred_host_serves_all_of_a_boot_and_a_renewed_loan_is_no_new_route(
    calm: Place, tmp_path: Path
) -> None:
    assert_all_of_a_boot_is_served(calm, tmp_path)
    before = calm.router.versions()
    for _ in range(2):
        wait_until(lambda: calm.first.seconds_lent() < LEASE_SECONDS, "time goes by")
        wait_until(lambda: calm.first.seconds_lent() == LEASE_SECONDS, "the address is lent anew")
    assert calm.router.versions() == before


def test_when_the_service_fails_the_route_goes_and_returns_only_after_a_time_of_being_ready(
    calm: Place, tmp_path: Path
) -> None:
    seconds = calm.machine.gap(lambda: calm.first.kill("boot"))
    print(f"the service failed: nobody answered for {seconds:.1f} s")
    assert calm.router.leads_to() == ["second"]
    assert_all_of_a_boot_is_served(calm, tmp_path)
    wait_until(lambda: not calm.first.has_address(), "the one that failed has no address")
    started = time.monotonic()
    calm.first.start("boot")
    wait_until(calm.first.has_address, "it is announced again")
    assert time.monotonic() - started > STABLE_SECONDS - 1, "the script counts whole seconds"
    wait_until(lambda: calm.router.leads_to() == ["first"], "the preferred one has the traffic")


def test_an_announcement_that_is_ended_hands_over_and_one_that_hangs_is_ended_by_the_kernel(
    calm: Place, tmp_path: Path
) -> None:
    first, second = calm.hosts
    ended = first.processes.pop("announce")
    ended.terminate()
    wait_until(lambda: calm.router.leads_to() == ["second"], "the other one has the traffic")
    ended.wait(60)
    assert not first.has_address()
    assert first.is_ready(), "its service runs on"
    assert_all_of_a_boot_is_served(calm, tmp_path)
    os.kill(second.processes["announce"].pid, signal.SIGSTOP)
    try:
        wait_until(lambda: not second.has_address(), "what was lent has gone")
        wait_until(lambda: calm.router.routes() == [], "the router has no route")
        assert second.is_ready()
    finally:
        os.kill(second.processes["announce"].pid, signal.SIGCONT)
        first.start("announce")


def test_when_the_host_dies_its_session_ends_and_a_file_that_was_under_way_is_fetched_to_its_end(
    calm: Place, tmp_path: Path
) -> None:
    target, url = tmp_path / "part", f"http://{ADDRESS}/images/parts/{PART}"
    # As stage-1 does: a source that gives nothing is left, and what was fetched is gone on with.
    fetching = ["curl", "-sS", "-f", "-C-", "--speed-limit", "1000", "--speed-time", "3", "-o", str(target), url]
    slowly = calm.machine.namespace.command(*fetching, "--limit-rate", "1M")
    fetch = subprocess.Popen(slowly, stderr=subprocess.DEVNULL)
    wait_until(lambda: target.exists() and target.stat().st_size > 1 << 20, "some of it is there")
    seconds = calm.machine.gap(calm.first.fall_silent)
    print(f"the host died, its link did not: nobody answered for {seconds:.1f} s")
    assert calm.router.leads_to() == ["second"]
    assert fetch.wait(120) != 0, "the connection was to the host that died"
    assert target.stat().st_size < IMAGE_BYTES
    again = calm.machine.namespace.run(*fetching)
    assert again.returncode == 0, again.stderr
    assert target.read_bytes() == (calm.images / "parts" / PART).read_bytes()
    assert_all_of_a_boot_is_served(calm, tmp_path)
    calm.first.speak_again()
