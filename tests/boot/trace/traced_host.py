"""A whole boot host on loopback addresses of its own, and machines that ask it by DHCP, TFTP and HTTP."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from flask import Blueprint

from lab.control_plane.ports import free_port
from provisioner.api import Rack, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.servers.rack import Subnet
from provisioner.boot.dhcp import DhcpConfig
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.host.service import BootService, BootSettings
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.resources import of
from tests.boot.conftest import Programs
from tests.boot.dhcp.messages import message
from tests.boot.objects import rack, server
from tests.boot.test_nginx import make_certificate

SECONDS = 180.0
PXE = {opt.VENDOR_CLASS: b"PXEClient:Arch:00007:UNDI:003016", opt.CLIENT_ARCHITECTURE: b"\x00\x07"}


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"waited too long: {what}"
        time.sleep(0.1)


@dataclass
class TracedHost:
    """network: the first three bytes of its addresses; .1 is the boot host, .2 a relay, .11 the server."""

    cluster: Cluster
    network: str
    settings: BootSettings
    service: BootService

    def at(self, host: int) -> str:
        return f"{self.network}.{host}"

    def register(self, name: str, mac: str) -> None:
        here = Subnet(name="boot", cidr=self.at(0) + "/24", relays=(self.at(2),))
        racked = replace(rack(subnets=(here,)), metadata=replace(rack().metadata, name=f"{name}-rack"))
        self.cluster.create(of(Rack), encode(racked))
        body = encode(server(name, boot_mac_address=mac, rack_ref=racked.name, node_pool_ref=None))
        body["metadata"] = {"name": name}
        body.pop("status")
        self.cluster.create(of(Server), body)
        status = {"address": self.at(11), "subnetName": "boot"}
        self.cluster.apply_status(Server, name, status, manager="provisioner-inventory")

    def discover(self, mac: str, count: int = 1, options: dict[int, bytes] | None = None) -> None:
        """Send DISCOVERs by the relay, and read no answer."""
        dhcp = self.settings.dhcp
        assert dhcp is not None
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as relay:
            relay.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            relay.bind((self.at(2), dhcp.server_port))
            for xid in range(1, count + 1):
                data = message(opt.DISCOVER, mac, giaddr=self.at(2), xid=xid, options=options or PXE)
                relay.sendto(data, (self.at(1), dhcp.server_port))

    def fetch_by_tftp(self, file: str, from_host: int = 11) -> None:
        """All of a file, from the server's address."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.bind((self.at(from_host), 0))
            client.settimeout(SECONDS)
            client.sendto(struct.pack("!H", 1) + file.encode() + b"\0octet\0", (self.at(1), 69))
            while True:
                packet, peer = client.recvfrom(65536)
                code, number = struct.unpack("!HH", packet[:4])
                if code == 5:
                    return
                client.sendto(struct.pack("!HH", 4, number), peer)
                if len(packet) < 516:
                    return

    def get(self, path: str, from_host: int = 11) -> int:
        connection = http.client.HTTPConnection(
            self.at(1), self.settings.http_port, timeout=SECONDS, source_address=(self.at(from_host), 0)
        )
        try:
            connection.request("GET", path, headers={"User-Agent": "iPXE/1.21\x1b[31m"})
            return connection.getresponse().status
        finally:
            connection.close()


@contextlib.contextmanager
def running_host(cluster: Cluster, by: Cluster, programs: Programs) -> Iterator[TracedHost]:
    """`by`: the boot service's own account."""
    generator = random.SystemRandom()
    network = f"127.{generator.randrange(64, 255)}.{generator.randrange(1, 255)}"
    images = programs.shared / "images"
    images.mkdir()
    make_certificate(programs.shared)
    boot = f"{network}.1"
    settings = BootSettings(
        address=boot,
        state=programs.shared / "state",
        images=images,
        certificate=programs.shared / "cert.pem",
        key=programs.shared / "key.pem",
        firmware=(programs.ipxe,),
        http_port=free_port(boot),
        join_port=free_port(boot),
        dhcp=DhcpConfig(server_address=boot, server_port=free_port(boot, socket.SOCK_DGRAM)),
        host="boot1",
    )
    greeting = Blueprint("greeting", __name__)
    greeting.post("/v1/join")(lambda: ({"hello": "join"}, 200))
    service = BootService(
        settings, by, EventRecorder(by, "provisioner-boot"), blueprints=[greeting], enter=programs.enter
    )
    stop = threading.Event()
    thread = threading.Thread(target=service.run, args=(stop,))
    thread.start()
    host = TracedHost(cluster, network, settings, service)
    try:
        wait_until(lambda: _answers(host), "the boot host answers")
        yield host
    finally:
        stop.set()
        thread.join(SECONDS)
        assert not thread.is_alive()


def _answers(host: TracedHost) -> bool:
    with contextlib.suppress(OSError):
        return host.get("/boot.ipxe", from_host=9) == 200 and host.service.ready
    return False
