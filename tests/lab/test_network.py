"""The lab's network namespace, on the real kernel."""

from __future__ import annotations

import fcntl
import json
import os
import select
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from lab.child_process import LabProcess
from lab.demo.leftovers import clean_lab
from lab.network import LabNetwork, tap_name
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.network.agent.model.namespaces import inside as network_namespace

pytestmark = pytest.mark.programs

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
BMCS = [IPv4Address("10.90.0.11"), IPv4Address("10.90.0.12")]


def show(network: LabNetwork, *what: str) -> Any:
    ran = subprocess.run(["ip", "-n", network.namespace, "-json", *what], capture_output=True, check=True)
    return json.loads(ran.stdout)


def links(network: LabNetwork) -> list[dict[str, Any]]:
    """Without what the kernel finds out of a link by itself a moment after it was made: whether anybody is there."""
    found = show(network, "link")
    return [{key: value for key, value in each.items() if key not in ("operstate", "flags")} for each in found]


def test_a_lab_has_bridge_taps_and_bmc_addresses_and_no_way_out(network: LabNetwork) -> None:
    network.create(BMCS, ["tap-a", "tap-b"])
    links = {link["ifname"]: link for link in show(network, "link")}
    assert set(links) == {"lo", "boot0", "tap-a", "tap-b"}
    assert {links[tap]["master"] for tap in ("tap-a", "tap-b")} == {"boot0"}
    addresses = {f"{info['local']}/{info['prefixlen']}" for link in show(network, "addr") for info in link["addr_info"]}
    assert addresses == {"127.0.0.1/8", "10.90.0.11/32", "10.90.0.12/32", "10.80.0.1/24"}, "and nothing of IPv6"
    assert [route["dst"] for route in show(network, "route")] == ["10.80.0.0/24"]


def test_making_it_again_changes_nothing_and_adds_what_is_missing(network: LabNetwork) -> None:
    network.create(BMCS[:1], ["tap-a"])
    before = links(network)
    network.create(BMCS[:1], ["tap-a"])
    assert links(network) == before
    network.create(BMCS, ["tap-a", "tap-b"])
    assert "tap-b" in {link["ifname"] for link in show(network, "link")}


def test_a_cable_leads_from_tap_to_tap_and_to_nothing_of_this_machine(network: LabNetwork) -> None:
    cables = [("tap-host", "tap-dpu-pf0")]
    network.create(BMCS, ["tap-dpu"], cables)
    network.create(BMCS, ["tap-dpu"], cables)
    links = {link["ifname"]: link for link in show(network, "link")}
    assert "master" not in links["tap-host"]
    assert "master" not in links["tap-dpu-pf0"]
    with tap(network, "tap-host") as host, tap(network, "tap-dpu-pf0") as port, tap(network, "tap-dpu") as dpu:
        asks_for_the_boot_host = frame(
            "ff:ff:ff:ff:ff:ff", "0806", "00010800060400015254000000010a5000140000000000000a500001"
        )
        for way, other in ((host, port), (port, host)):
            assert first_that_comes(way, asks_for_the_boot_host, other) == asks_for_the_boot_host
            assert nothing_comes(way), "this machine, whose address it is, does not answer"
        answer = first_that_comes(dpu, asks_for_the_boot_host, dpu)
        assert b"\x0a\x50\x00\x01" in answer, "as it does on the bridge"
        assert nothing_comes(host)


@contextmanager
def tap(network: LabNetwork, name: str) -> Iterator[int]:
    """A virtual machine's end of a tap."""
    with network_namespace(network.namespace):
        opened = os.open("/dev/net/tun", os.O_RDWR)
    try:
        fcntl.ioctl(opened, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
        yield opened
    finally:
        os.close(opened)


def frame(destination: str, kind: str, content: str) -> bytes:
    return bytes.fromhex(destination.replace(":", "") + "525400000001" + kind + content)


def first_that_comes(way: int, sent: bytes, other: int) -> bytes:
    """What the other end reads: sent until it does, as a tap drops frames until its link is told to be up."""
    for _ in range(300):
        os.write(way, sent)
        if not nothing_comes(other):
            came = os.read(other, 2000)
            while not nothing_comes(other):
                os.read(other, 2000)
            return came
    return b""


def nothing_comes(opened: int) -> bool:
    return not select.select([opened], [], [], 0.3)[0]


def test_a_lab_that_was_killed_half_way_is_cleaned_with_all_its_processes(network: LabNetwork) -> None:
    network.create()
    # An orphan that does not listen to SIGTERM, and a child of its own.
    script = "trap '' TERM; (trap '' TERM; exec sleep 3600) & exec sleep 3600"
    orphan = subprocess.Popen(network.command(["sh", "-c", script]), start_new_session=True)
    bystander = subprocess.Popen(["sleep", "3600"])
    try:
        while len(network.process_ids()) < 2:
            assert orphan.poll() is None
        clean_lab(network)
        assert orphan.wait(120) != 0
        assert bystander.poll() is None, "what is not in the namespace is not touched"
        assert not network.exists
        clean_lab(network)
    finally:
        for process in (orphan, bystander):
            process.kill()
            process.wait()


def test_cleaning_from_within_spares_the_one_who_cleans(network: LabNetwork) -> None:
    network.create()
    code = (
        "from lab.network import LabNetwork; from lab.demo.leftovers import clean_lab\n"
        f"clean_lab(LabNetwork({network.lab!r})); print('done')"
    )
    ran = subprocess.run(
        network.command(["sh", "-c", f'{sys.executable} -c "{code}"; echo shell']),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.splitlines()[-2:] == ["done", "shell"]
    assert not network.exists


def test_a_child_dies_with_the_one_who_started_it(network: LabNetwork, tmp_path: Path) -> None:
    """What makes a killed demo leave nothing behind in the first place."""
    network.create()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        process = LabProcess("child", network.command(["sleep", "3600"]), tmp_path / "log")
        process.start()
        os.write(writer, b"started")
        os.kill(os.getpid(), 9)
    assert os.read(reader, 7) == b"started"
    os.waitpid(pid, 0)
    os.close(reader)
    os.close(writer)
    deadline = 6000
    while network.process_ids() and deadline:
        deadline -= 1
        subprocess.run(["sleep", "0.02"], check=True)
    assert network.process_ids() == []


def test_a_child_whose_parent_was_killed_before_the_kernel_was_asked_does_not_begin(tmp_path: Path) -> None:
    """It would be left behind in the lab's namespace."""
    begun = tmp_path / "begun"
    command = LabProcess("late", ["touch", str(begun)], tmp_path / "log").guarded_command
    subprocess.run(["/bin/sh", "-c", '("$@"; true)', "sh", *command], check=True)
    assert not begun.exists()
    subprocess.run(command, check=True)
    assert begun.exists()


def test_what_the_kernel_refuses_is_told_with_the_namespace(network: LabNetwork) -> None:
    with pytest.raises(NeedsHuman, match=f"namespace {network.namespace}: Invalid argument"):
        network.create(taps=["lo"])


def test_tap_names_fit_the_kernel_and_stay_apart() -> None:
    names = ["r01-u01", "r01-u02", "a-rather-long-rack-name-u01", "a-rather-long-rack-name-u02"]
    taps = [tap_name(name) for name in names]
    assert len(set(taps)) == 4
    assert max(map(len, taps)) <= 15
    assert taps[0] == "tap-r01-u01"
