"""Other people's DHCP clients and relays against the running server, in network namespaces."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from provisioner.boot.dhcp import DhcpConfig, DhcpServer, Observation
from provisioner.boot.dhcp.wire import options as opt
from tests.boot.dhcp.messages import (
    CAPTURED,
    SERVER,
    address,
    captured,
    mac_bytes,
    rack,
    read_reply,
    server,
    subnet,
    yiaddr,
)
from tests.boot.dhcp.relay import PATIENCE_SECONDS, counted, wait_until
from tests.boot.dhcp.wire import Namespace, connect, namespaces
from tests.tools import installed

NEAR_MAC = "52:54:00:80:00:15"
FAR_MAC = "52:54:00:90:00:15"
FAR_RELAY = "10.90.0.1"

RACKS = [
    rack("r01", subnet("near", "10.80.0.0/24", gateway=SERVER, mtu=1400, discovery=("10.80.0.200", "10.80.0.203"))),
    rack("r02", subnet("far", "10.90.0.0/24", gateway=FAR_RELAY, mtu=None)),
]
SERVERS = [
    server("near", NEAR_MAC, "10.80.0.21", rack_name="r01", subnet_name="near"),
    server("far", FAR_MAC, "10.90.0.21", rack_name="r02", subnet_name="far"),
]

TELL = """#!/bin/sh
# both clients' hook: udhcpc has $1 and $ip, dhclient $reason and $new_ip_address
case "${1:-$reason}" in
bound|renew|BOUND|RENEW|REBOOT)
    command ip address replace "${ip:-$new_ip_address}/24" dev "$interface"
    name=${new_interface_mtu:-$mtu}
    echo "${1:-$reason} ${ip:-$new_ip_address} router=${router:-$new_routers} mtu=$name" \
        "dns=${dns:-$new_domain_name_servers} server=${serverid:-$new_dhcp_server_identifier}" \
        "lease=${lease:-$new_dhcp_lease_time}" >> @OUT@ ;;
nak|EXPIRE) echo "${1:-$reason}" >> @OUT@ ;;
esac
exit 0
"""


class Place:
    """A boot host with a server in its own rack's network, and a rack behind a router.

    near — eth0 ════ rack0 — boot host — up0 ════ boot0 — router — rack0 ════ eth0 — far
    """

    def __init__(self, made: list[Namespace], folder: Path) -> None:
        self.host, self.router, self.near, self.far = made
        self.folder = folder
        self.observations: list[Observation] = []
        self.server = DhcpServer(DhcpConfig(server_address=SERVER, interfaces=("rack0",)), self.observations.append)
        connect(self.host, "rack0", self.near, "eth0")
        connect(self.host, "up0", self.router, "boot0")
        connect(self.router, "rack0", self.far, "eth0")
        self.near.ip("link", "set", "eth0", "address", NEAR_MAC)
        self.far.ip("link", "set", "eth0", "address", FAR_MAC)
        for namespace, cidr, interface in (
            (self.host, f"{SERVER}/24", "rack0"),
            (self.host, "10.200.0.1/24", "up0"),
            (self.router, "10.200.0.2/24", "boot0"),
            (self.router, f"{FAR_RELAY}/24", "rack0"),
        ):
            namespace.ip("address", "add", cidr, "dev", interface)
        self.host.ip("route", "add", "10.90.0.0/24", "via", "10.200.0.2")
        self.router.ip("route", "add", "10.80.0.0/24", "via", "10.200.0.1")
        self.router.run("sysctl", "-qw", "net.ipv4.ip_forward=1")

    def script(self, name: str) -> tuple[str, Path]:
        """A client's hook, and the file into which it writes what it was told."""
        out = self.folder / f"{name}.out"
        path = self.folder / f"{name}.sh"
        path.write_text(TELL.replace("@OUT@", str(out)))
        path.chmod(0o755)
        return str(path), out


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with namespaces(4) as made:
        where = Place(made, tmp_path)
        with where.host.entered():
            where.server.start()
        try:
            where.server.replace(RACKS, SERVERS)
            yield where
        finally:
            where.server.stop()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def udhcpc(script: str, *more: str) -> list[str]:
    return [installed("busybox"), "udhcpc", "-f", "-i", "eth0", "-s", script, "-t", "20", "-T", "1", *more]


NEAR_TOLD = f"bound 10.80.0.21 router={SERVER} mtu=1400 dns=10.80.0.2 10.80.0.3 server={SERVER} lease=86400"
FAR_TOLD = f"bound 10.90.0.21 router={FAR_RELAY} mtu= dns=10.80.0.2 10.80.0.3 server={SERVER} lease=86400"
WANT_MTU = ("-O", "mtu")


def test_udhcpc_on_the_same_network_gets_its_address_and_renews_it(place: Place) -> None:
    script, out = place.script("near")
    with place.near.started(*udhcpc(script, *WANT_MTU)) as client:
        wait_until(lambda: bool(lines(out)), "udhcpc was not answered")
        assert lines(out) == [NEAR_TOLD]
        os.kill(client.pid, signal.SIGUSR1)  # renew now: a REQUEST from its address to the server's
        wait_until(lambda: len(lines(out)) == 2, "the renewal was not answered")
        assert lines(out)[1] == NEAR_TOLD.replace("bound", "renew")
    assert place.observations == []


def test_udhcpc_of_an_unknown_machine_gets_a_lent_address_until_it_is_known(place: Place) -> None:
    stranger = "52:54:00:99:99:99"
    place.near.ip("link", "set", "eth0", "address", stranger)
    script, out = place.script("near")
    with place.near.started(*udhcpc(script)) as client:
        wait_until(lambda: bool(lines(out)), "udhcpc was not answered")
        lent = lines(out)[0].split()[1]
        assert lent in {f"10.80.0.{n}" for n in range(200, 204)}
        assert lines(out)[0].endswith("lease=120")
        wait_until(lambda: bool(place.observations), "the machine was not seen")
        seen = place.observations[0]
        assert (seen.mac_address, seen.kind, seen.server, seen.address) == (stranger, "System", None, lent)
        place.server.put_server(server("new", stranger, "10.80.0.99", rack_name="r01", subnet_name="near"))
        os.kill(client.pid, signal.SIGUSR1)
        wait_until(lambda: any(line.startswith("bound 10.80.0.99 ") for line in lines(out)), "it was not moved")


def test_udhcpc_behind_a_switch_that_adds_option_82_and_with_a_malformed_option_57(place: Place) -> None:
    """Both are sent by the client here: nothing on the way tells where an option comes from. Its own option 57 and
    this one are joined to three bytes."""
    script, out = place.script("near")
    hook = Path(script)
    hook.write_text(hook.read_text().replace("exit 0", f'echo "option 82 is $opt82" >> {out}'))
    with place.near.started(*udhcpc(script, "-x", "0x52:010465746833", "-x", "0x39:05", *WANT_MTU)):
        wait_until(lambda: NEAR_TOLD in lines(out), "udhcpc was not answered")
        wait_until(lambda: "option 82 is 010465746833" in lines(out), f"it was not echoed: {lines(out)}")


def dhclient(place: Place, script: str, lease: Path) -> list[str]:
    program = installed("dhclient")
    return [program, "-4", "-d", "-1", "-sf", script, "-lf", str(lease), "-pf", str(place.folder / "pid"), "eth0"]


def test_dhclient_gets_its_address(place: Place) -> None:
    script, out = place.script("near")
    with place.near.started(*dhclient(place, script, place.folder / "leases")):
        wait_until(lambda: bool(lines(out)), "dhclient was not answered")
        assert lines(out)[0].startswith(f"BOUND 10.80.0.21 router={SERVER} mtu=1400 dns=10.80.0.2 10.80.0.3 ")


def test_dhclient_that_remembers_a_stale_address_is_refused_it_and_gets_its_own(place: Place) -> None:
    lease = place.folder / "leases"
    lease.write_text(
        'lease { interface "eth0"; fixed-address 10.80.0.99; option subnet-mask 255.255.255.0;'
        f" option dhcp-lease-time 99999999; option dhcp-server-identifier {SERVER};"
        " renew 3 2037/01/01 00:00:00; rebind 3 2037/01/01 00:00:00; expire 3 2037/01/01 00:00:00; }\n"
    )
    script, out = place.script("near")
    with place.near.started(*dhclient(place, script, lease)):
        wait_until(lambda: any(line.startswith("BOUND") for line in lines(out)), "dhclient was not answered")
        assert lines(out)[-1].startswith("BOUND 10.80.0.21 ")
    wait_until(lambda: counted(place.server, "refused") >= 1, "nothing was refused")


NETWORKD = """
mount --make-rprivate /
mount -o remount,ro,bind /sys  # so that networkd does not wait for udev
mount -t tmpfs tmpfs /run/systemd
mkdir -p /run/systemd/network /run/systemd/netif/leases /run/systemd/netif/links /run/systemd/netif/lldp
chown -R systemd-network /run/systemd/netif
cat > /run/systemd/network/10-boot.network <<END
[Match]
Name=eth0
[Network]
DHCP=ipv4
LinkLocalAddressing=no
[DHCPv4]
ClientIdentifier=mac
UseMTU=yes
END
exec "$0"
"""


def test_systemd_networkd_gets_its_address_and_mtu(place: Place) -> None:
    networkd = installed("systemd-networkd")
    with place.near.started("unshare", "-m", "sh", "-c", NETWORKD, networkd):
        wait_until(
            lambda: "inet 10.80.0.21/24 " in place.near.ip("-4", "address", "show", "dev", "eth0"),
            "networkd was not answered",
        )
        wait_until(lambda: "mtu 1400 " in place.near.ip("link", "show", "dev", "eth0"), "the MTU was not taken")
        wait_until(lambda: f"default via {SERVER} " in place.near.ip("route", "show"), "the route was not taken")


def relays() -> dict[str, list[str]]:
    return {
        "dhcrelay": ["-4", "-d", "-a", "-i", "rack0", "-i", "boot0", SERVER],
        "dnsmasq": ["-k", "--conf-file=/dev/null", "--port=0", f"--dhcp-relay={FAR_RELAY},{SERVER}",
                    "--interface=rack0", "--user=root", "--pid-file"],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["dhcrelay", "dnsmasq"])
def test_a_machine_behind_a_relay_gets_its_address_and_renews_it(place: Place, name: str) -> None:
    script, out = place.script("far")
    with (
        place.router.started(installed(name), *relays()[name]),
        place.far.started(*udhcpc(script, *WANT_MTU)) as client,
    ):
        wait_until(lambda: bool(lines(out)), "udhcpc was not answered through the relay")
        assert lines(out)[0] == FAR_TOLD
        place.far.ip("route", "replace", "default", "via", FAR_RELAY)
        os.kill(client.pid, signal.SIGUSR1)  # renews past the relay, straight to the server
        wait_until(lambda: len(lines(out)) == 2, "the renewal was not answered")
        assert lines(out)[1] == FAR_TOLD.replace("bound", "renew")


def test_an_unknown_machine_behind_a_relay_without_discovery_range_is_left_alone(place: Place) -> None:
    place.far.ip("link", "set", "eth0", "address", "52:54:00:99:99:98")
    script, out = place.script("far")
    with (
        place.router.started(installed("dhcrelay"), *relays()["dhcrelay"]),
        place.far.started(*udhcpc(script)),
    ):
        wait_until(
            lambda: counted(place.server, "dropped-no-discovery-range") >= 2,
            "its packets did not arrive",
        )
    assert lines(out) == []


@contextlib.contextmanager
def client_socket(namespace: Namespace) -> Iterator[socket.socket]:
    """Port 68 of an interface without an address, as firmware has it."""
    with namespace.entered():
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
        sock.bind(("255.255.255.255", 68))
        sock.settimeout(1.0)
        yield sock


def exchange(sock: socket.socket, packet: bytes, wanted: int) -> tuple[bytes, tuple[str, int]]:
    """The answer of that type, and who sent it. Asked again until it is there, as firmware does: the workers may not
    have been told of the inventory yet."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        sock.sendto(packet, ("255.255.255.255", 67))
        with contextlib.suppress(TimeoutError):
            while True:
                data, sender = sock.recvfrom(4096)
                if read_reply(data).options[opt.MESSAGE_TYPE] == bytes((wanted,)):
                    return data, sender
    raise AssertionError("no answer")


BOOTING = ("pxe-discover", "http-discover")
FIRMWARE = [name for name in CAPTURED if name.endswith(BOOTING)]


@pytest.mark.parametrize("name", FIRMWARE)
def test_the_packets_of_real_firmware_are_answered_on_the_wire(place: Place, name: str) -> None:
    packet = captured(name)
    packet = packet[:28] + mac_bytes(NEAR_MAC) + packet[34:]
    place.near.ip("address", "add", "169.254.1.1/16", "dev", "eth0")  # a sender needs some source address
    place.near.ip("route", "add", "default", "dev", "eth0")
    with client_socket(place.near) as sock:
        data, sender = exchange(sock, packet, opt.OFFER)
        assert sender == (SERVER, 67)
        offer = read_reply(data)
        assert yiaddr(offer) == "10.80.0.21"
        request = packet[:240] + opt.encode_option(opt.MESSAGE_TYPE, bytes((opt.REQUEST,)))
        request += opt.encode_option(opt.REQUESTED_ADDRESS, address("10.80.0.21"))
        request += opt.encode_option(opt.SERVER_IDENTIFIER, address(SERVER)) + packet[243:]
        ack = read_reply(exchange(sock, request, opt.ACK)[0])
    assert ack.options[opt.BOOT_FILE] == offer.options[opt.BOOT_FILE]
    expected = "IPXE" if "ipxe" in name else "Firmware"
    wait_until(lambda: bool(place.observations), "the boot was not seen")
    assert {(seen.kind, seen.server) for seen in place.observations} == {(expected, "near")}
