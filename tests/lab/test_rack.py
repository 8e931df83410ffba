"""The virtual rack: its description; and two real QEMU machines that boot by network under their BMCs."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lab.child_process import LabProcess
from lab.demo.up import registration
from lab.machine.tpm_manufacture import endorsement_key_sha256
from lab.network import LabNetwork, tap_name
from lab.rack import VirtualRack
from lab.rack_description import RackDescription, ServerKind, describe_rack, from_json, to_json
from lab.tools import Tools
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.machinery.values import Secret
from provisioner.api.servers.server import Server
from provisioner.power.bmc.power_controller import BmcAccess
from provisioner.power.bmc.redfish import RedfishPower

T = TypeVar("T")
BOUND_SECONDS = 400.0
PINNED = "http://10.80.0.1/pinned.efi"
_CLONE_NEWNET = 0x40000000


def description() -> RackDescription:
    return describe_rack(Secret("lab password"), boot_methods={2: "UefiHttp"}, memory_mib=256, cpus=1)


def test_a_rack_is_the_same_every_time_and_its_servers_are_told_apart() -> None:
    assert description() == description()
    servers = describe_rack(Secret("x"), kinds=("UEFI",) * 30).servers
    for field in ("mac", "uuid", "serial", "name"):
        assert len({getattr(server.machine, field) for server in servers}) == 30
    assert [str(server.bmc_address) for server in servers[:2]] == ["10.90.0.11", "10.90.0.12"]


def test_a_dpu_is_an_arm64_machine_in_the_server_before_it(tmp_path: Path) -> None:
    rack = describe_rack(Secret("x"), kinds=("DPU", "BIOS", "DPU", "UEFI", "DPU"), tpms=())
    assert [server.host for server in rack.servers] == ["r01-host", None, "r01-u02", None, "r01-u04"]
    assert [server.machine.architecture for server in rack.servers] == ["arm64", "x86_64", "arm64", "x86_64", "arm64"]
    assert from_json(to_json(rack)) == rack
    virtual = VirtualRack(rack, network=LabNetwork("none"), tools=Tools(tmp_path), directory=tmp_path)
    for server in rack.servers:
        (tmp_path / server.name).mkdir()
        (tmp_path / server.name / "bmc.pem").write_text("-----BEGIN CERTIFICATE-----")
    documents = registration(virtual)
    assert [each["metadata"]["name"] for each in documents[1:]] == ["r01-host", *(each.name for each in rack.servers)]
    servers = {each["metadata"]["name"]: decode(Server, each).spec for each in documents[1:]}
    assert servers["r01-host"].acceptance == "Pending"
    for each in rack.servers:
        found = servers[each.name]
        assert (found.node_pool_ref, found.architecture) == (("dpu", "arm64") if each.host else ("gpu", "x86_64"))
        assert (found.dpu.host_ref if found.dpu else None) == each.host
    assert len({spec.boot_mac_address for spec in servers.values()}) == 6


def test_a_server_that_boots_through_its_dpu_has_no_other_way(tmp_path: Path) -> None:
    rack = describe_rack(Secret("x"), kinds=("BIOS", "UEFI", "ProxyDPU", "UEFI", "DPU"))
    _, host, dpu, other, plain = rack.servers
    assert from_json(to_json(rack)) == rack
    assert (dpu.host, dpu.proxies_boot, plain.proxies_boot) == (host.name, True, False)
    assert dpu.machine.host_port_mac not in (None, *(each.machine.mac for each in rack.servers))
    assert host.machine.boot_attempts > 1, "its firmware asks until the DPU answers"
    assert {each.machine.boot_attempts for each in (dpu, other, plain)} == {1}
    virtual = VirtualRack(rack, network=LabNetwork("none"), tools=Tools(tmp_path), directory=tmp_path)
    (ends,) = virtual.cables
    assert ends[0] == tap_name(host.name)
    assert not set(ends) & set(virtual.taps), "the cable leads to nothing else"
    assert set(virtual.taps) == {tap_name(each.name) for each in rack.servers if each is not host}


@pytest.mark.parametrize("kinds", [("ProxyDPU",), ("BIOS", "ProxyDPU"), ("UEFI", "DPU", "ProxyDPU")])
def test_what_boots_through_a_dpu_is_the_uefi_server_before_it(kinds: tuple[ServerKind, ...]) -> None:
    with pytest.raises(ValueError, match=r"u0\d is a ProxyDPU: what boots through it is the UEFI server"):
        describe_rack(Secret("x"), kinds=kinds)


def test_the_description_survives_its_file_and_hides_the_password() -> None:
    rack = description()
    assert from_json(to_json(rack)) == rack
    assert "lab password" not in repr(rack)


@pytest.fixture
def rack(network: LabNetwork, tools: Tools, short_directory: Path) -> Iterator[VirtualRack]:
    made = VirtualRack(description(), network=network, tools=tools, directory=short_directory / "rack")
    network.create(made.bmc_addresses, made.taps)
    made.prepare(datetime.now(UTC))
    yield made
    made.kill()


def test_what_the_rack_is_registered_with_is_what_its_machines_are(rack: VirtualRack) -> None:
    servers = [decode(Server, body) for body in rack.servers("gpu")]
    assert [server.name for server in servers] == ["r01-u01", "r01-u02"]
    for server, virtual in zip(servers, rack.description.servers, strict=True):
        machine = virtual.machine
        assert (server.spec.boot_mac_address, server.spec.system_uuid, server.spec.serial_number) == (
            machine.mac,
            machine.uuid,
            machine.serial,
        )
        assert server.spec.bmc is not None
        assert (server.spec.bmc.boot_method, server.spec.bmc.credentials_name) == (virtual.boot_method, "r01-bmc")
        assert machine.mac in rack.packing_list()
        has_tpm = machine.firmware == "UEFI"
        assert server.spec.endorsement_key_sha256 == (
            endorsement_key_sha256(rack.files(server.name)) if has_tpm else None
        )
    assert rack.bmc_secret()["stringData"] == {"username": "provisioner", "password": "lab password"}
    before = rack.bmc_of("r01-u01")["certificate"]
    rack.prepare(datetime.now(UTC))
    assert rack.bmc_of("r01-u01")["certificate"] == before, "what was pinned once stays true"
    assert [decode(Server, body) for body in rack.servers("gpu")] == servers, "and a TPM stays the one it is"
    assert rack.endorsement_authorities().count("BEGIN CERTIFICATE") == 2


class Namespace:
    """Runs functions in a thread that has entered the lab's network namespace."""

    def __init__(self, network: LabNetwork) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, initializer=self._enter, initargs=(network.namespace,))

    def run(self, function: Callable[[], T]) -> T:
        return self._thread.submit(function).result()

    def close(self) -> None:
        self._thread.shutdown()

    @staticmethod
    def _enter(name: str) -> None:
        descriptor = os.open(f"/run/netns/{name}", os.O_RDONLY)
        assert ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET) == 0
        os.close(descriptor)


class BootHost:
    """dnsmasq with DHCP and TFTP, and a web server: just enough to see which way a machine came."""

    def __init__(self, network: LabNetwork, tools: Tools, directory: Path) -> None:
        directory.mkdir()
        directory.chmod(0o755)
        for way in ("tftp", "http"):
            (directory / way).mkdir()
        ipxe = tools.path("/usr/lib/ipxe/snponly.efi").read_bytes()
        (directory / "tftp" / "snponly.efi").write_bytes(ipxe)
        (directory / "http" / "pinned.efi").write_bytes(ipxe)
        # By HTTP the machine is sent around once more; by TFTP it stays.
        (directory / "http" / "autoexec.ipxe").write_text("#!ipxe\necho CAME-BY-HTTP ${serial} ${uuid} END\nreboot\n")
        (directory / "tftp" / "autoexec.ipxe").write_text(
            "#!ipxe\necho CAME-BY-TFTP ${serial} ${uuid} END\n:wait\nsleep 60\ngoto wait\n"
        )
        dnsmasq = [
            *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--log-facility=-", "--user=root"),
            *("--port=0", "--interface=boot0", "--bind-interfaces", "--leasefile-ro"),
            *("--dhcp-range=10.80.0.50,10.80.0.99,2m", "--enable-tftp", f"--tftp-root={directory / 'tftp'}"),
            *("--dhcp-match=set:ipxe,175", "--dhcp-match=set:uefi,93,7", "--dhcp-vendorclass=set:http,HTTPClient"),
            *("--dhcp-boot=tag:ipxe,autoexec.ipxe", "--dhcp-boot=tag:uefi,tag:!ipxe,snponly.efi"),
            # UEFI takes an HTTP offer only whole, with a URL; the one that its BMC has set must win over this one.
            *("--dhcp-option-force=tag:http,60,HTTPClient",),
            *("--dhcp-boot=tag:http,tag:!ipxe,http://10.80.0.1/named-by-dhcp.efi",),
        ]
        self.web_log = directory / "web.log"
        self._processes = [
            LabProcess("dnsmasq", network.command(tools.command(dnsmasq, [directory])), directory / "dnsmasq.log"),
            LabProcess(
                "web",
                network.command(
                    # Not pytest-httpserver: files from a folder, in a network namespace, with nothing to program.
                    [
                        *(sys.executable, "-u", "-m", "http.server", "--protocol", "HTTP/1.1"),
                        *("--bind", "10.80.0.1", "--directory", str(directory / "http"), "80"),
                    ]
                ),
                self.web_log,
            ),
        ]
        for process in self._processes:
            process.start()

    def close(self) -> None:
        for process in self._processes:
            process.kill()


class Console:
    """What a machine said since the last question: a line of the scripts above, from its first words to END."""

    def __init__(self, rack: VirtualRack, server: str) -> None:
        self._log = rack.files(server).console_log
        self._offset = 0

    def wait_for(self, words: str) -> str:
        deadline = time.monotonic() + BOUND_SECONDS
        while time.monotonic() < deadline:
            said = self._log.read_bytes() if self._log.exists() else b""
            found = said.find(words.encode(), self._offset)
            end = said.find(b"END", found)
            if found >= 0 and end >= 0:
                self._offset = end
                return said[found:end].decode(errors="replace").replace("\r\n", "")
            time.sleep(0.1)
        pytest.fail(f"{words!r} was not said in {BOUND_SECONDS} s; last: {said[-1500:].decode(errors='replace')}")


def bmc_client(rack: VirtualRack, server: str) -> RedfishPower:
    bmc = rack.bmc_of(server)
    return RedfishPower(
        BmcAccess(
            address=bmc["address"],
            username=rack.description.username,
            password=rack.description.password,
            credentials_name=bmc["credentialsName"],
            certificate=bmc["certificate"],
        )
    )


def wait_until(what: str, check: Callable[[], Any]) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while not check():
        assert time.monotonic() < deadline, f"{what}: not in {BOUND_SECONDS} s"
        time.sleep(0.1)


def test_two_machines_boot_by_network_as_their_bmcs_were_told(
    rack: VirtualRack, network: LabNetwork, tools: Tools, short_directory: Path
) -> None:
    with ExitStack() as stack:
        host = stack.enter_context(closing(BootHost(network, tools, short_directory / "boot")))
        inside = stack.enter_context(closing(Namespace(network)))
        rack.start()
        bios, uefi = bmc_client(rack, "r01-u01"), bmc_client(rack, "r01-u02")
        assert [inside.run(bmc.get_power_state) for bmc in (bios, uefi)] == ["Off", "Off"]

        inside.run(lambda: bios.set_boot_override("Pxe"))
        inside.run(bios.power_on)
        inside.run(lambda: uefi.set_boot_override("UefiHttp", PINNED))
        inside.run(uefi.power_on)
        assert [inside.run(bmc.get_power_state) for bmc in (bios, uefi)] == ["On", "On"]

        # Who booted is who was registered: serial number and UUID reach iPXE through SMBIOS.
        for server, way in zip(rack.description.servers, ("TFTP", "HTTP"), strict=True):
            said = Console(rack, server.name).wait_for(f"CAME-BY-{way}")
            assert server.machine.serial in said
            assert server.machine.uuid in said
        assert "GET /pinned.efi" in host.web_log.read_text(), "the URL came from the BMC"
        assert "named-by-dhcp" not in host.web_log.read_text()

        # The UEFI machine rebooted itself. Once is spent: now it comes by PXE.
        console = Console(rack, "r01-u02")
        console.wait_for("CAME-BY-HTTP")
        console.wait_for("CAME-BY-TFTP")
        assert host.web_log.read_text().count("GET /pinned.efi") == 1

        rack.inject("r01-u01", "PowerCut")
        assert inside.run(bios.get_power_state) == "Off"
        inside.run(bios.power_on)
        assert inside.run(bios.get_power_state) == "On"
        for bmc in (bios, uefi):
            inside.run(bmc.close)


def test_when_the_bmcs_are_killed_no_machine_is_left(rack: VirtualRack, network: LabNetwork) -> None:
    with closing(Namespace(network)) as inside:
        rack.start()
        for server in ("r01-u01", "r01-u02"):
            client = bmc_client(rack, server)
            inside.run(client.power_on)
            inside.run(client.close)
        assert len(network.process_ids()) == 4, "the BMCs, and two machines, of which one has a TPM"
        subprocess.run(["kill", "-9", str(rack.pid)], check=True)
        wait_until("all processes gone", lambda: network.process_ids() == [])


def test_a_rack_that_cannot_start_says_why(network: LabNetwork, tools: Tools, short_directory: Path) -> None:
    broken = VirtualRack(description(), network=network, tools=tools, directory=short_directory / "rack")
    network.create(taps=broken.taps)
    broken.prepare(datetime.now(UTC))
    with pytest.raises(NeedsHuman, match="Cannot assign requested address"):
        broken.start()
