"""A whole boot host: each metric moved by the real thing, checks that fail and recover, and words of machines that
become no label."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import struct
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from lab.control_plane.ports import free_port
from provisioner.api import Rack, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.servers.rack import Subnet
from provisioner.boot.dhcp import DhcpConfig
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.health import probe
from provisioner.boot.host import health as tftp
from provisioner.boot.host.service import BootSettings
from provisioner.boot.metrics import nginx_status
from provisioner.cli.service.listening import serve_telemetry
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from tests.boot.conftest import Programs
from tests.boot.dhcp.messages import message
from tests.boot.dhcp.relay import RELAY_ADDRESS, Relay, worker_pids
from tests.boot.metrics.exposition import check_by_promtool, risen, samples
from tests.boot.objects import rack, server
from tests.boot.test_nginx import make_certificate
from tests.boot.test_service import Host, publish_image, random_mac, register, wait_until
from tests.tools import need_root

PXE = {opt.VENDOR_CLASS: b"PXEClient:Arch:00007:UNDI:003016", opt.CLIENT_ARCHITECTURE: b"\x00\x07"}
HTTP = {opt.VENDOR_CLASS: b"HTTPClient:Arch:00019", opt.CLIENT_ARCHITECTURE: b"\x00\x13"}
MOST_SERIES = 1200
"""Of a boot host, whatever machines do; its certificates, images and racks are counted, not named."""


@dataclass
class Measured(Host):
    """A boot host with DHCP and TFTP, on a loopback address of its own."""

    @property
    def registry(self) -> CollectorRegistry:
        assert self.service is not None
        return self.service.meters.registry

    def samples(self) -> dict[str, float]:
        return samples(self.registry)

    def value(self, name: str) -> float:
        return self.samples()[f"provisioner_{name}"]

    def check(self, name: str) -> float:
        return self.value(f'readiness_check{{check="{name}"}}')

    def ready(self, query: str = "") -> tuple[int, str]:
        return self.ask("GET", f"/readyz{query}")

    def pid(self, program: str) -> int | None:
        assert self.service is not None
        return next(child.pid for child in self.service._programs if child.name == program)

    def tftp(self, name: str) -> bytes | None:
        """The file as firmware fetches it; None if there is none."""
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
            asked.settimeout(60)
            asked.sendto(struct.pack("!H", 1) + name.encode() + b"\0octet\0", (self.settings.address, 69))
            content = b""
            while True:
                answer, peer = asked.recvfrom(2048)
                code, number = struct.unpack("!HH", answer[:4])
                if code != 3:
                    return None
                asked.sendto(struct.pack("!HH", 4, number), peer)
                content += answer[4:]
                if len(answer) < 516:
                    return content


@pytest.fixture
def host(programs: Programs, cluster: Cluster, unique: str) -> Iterator[Measured]:
    need_root("serve TFTP at port 69")
    chance = random.SystemRandom()
    address = f"127.69.{chance.randrange(1, 255)}.{chance.randrange(1, 255)}"
    (programs.shared / "images").mkdir()
    make_certificate(programs.shared)
    port = free_port(address, socket.SOCK_DGRAM)
    settings = BootSettings(
        address=address,
        state=programs.shared / "state",
        images=programs.shared / "images",
        certificate=programs.shared / "cert.pem",
        key=programs.shared / "key.pem",
        firmware=(programs.ipxe,),
        http_port=free_port(address),
        join_port=free_port(address),
        dhcp=DhcpConfig(server_address=address, server_port=port, workers=2),
    )
    network = Subnet(
        name="boot",
        cidr="127.80.0.0/24",
        gateway="127.80.0.1",
        discovery_range_start="127.80.0.200",
        discovery_range_end="127.80.0.209",
    )
    racked = replace(rack(subnets=(network,)), metadata=replace(rack().metadata, name=f"{unique}-measured"))
    cluster.create(of(Rack), encode(racked))
    host = Measured(settings, cluster, programs)
    yield host
    host.halt()
    cluster.delete(of(Rack), racked.name)


@pytest.fixture(autouse=True)
def _impatient_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many failures count as ever; they are only waited for less."""
    monkeypatch.setattr(probe, "EVERY_SECONDS", 0.3)
    monkeypatch.setattr(nginx_status, "ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(tftp, "ANSWER_SECONDS", 1.0)


def given_server(host: Measured, name: str, rack_name: str, mac: str) -> None:
    body = encode(server(name, boot_mac_address=mac, rack_ref=rack_name, node_pool_ref=None, bmc=None))
    body["metadata"] = {"name": name}
    body.pop("status")
    host.cluster.create(of(Server), body)
    status = {"address": "127.80.0.11", "subnetName": "boot"}
    host.cluster.apply_status(Server, name, status, manager="provisioner-inventory")


def test_what_machines_do_moves_what_is_measured(host: Measured, unique: str, request: pytest.FixtureRequest) -> None:
    mac = random_mac()
    given_server(host, unique, f"{unique}-measured", mac)
    request.addfinalizer(lambda: host.cluster.delete(of(Server), unique))
    host.start()
    wait_until(lambda: host.ready()[0] == 200, "it is ready")
    register(host, f"{unique}-x", random_mac())
    publish_image(host, f"{unique}-x-image")
    wait_until(lambda: host.value('image_store_images{state="complete"}') >= 1, "the image was looked at")
    at_first = host.samples()
    check_by_promtool(host.registry)

    # DHCP, through a relay: firmware, iPXE, a stranger, what is not served, what cannot be read
    assert host.settings.dhcp is not None
    with Relay(host.settings.dhcp) as relay:
        relay.exchange(message(opt.DISCOVER, mac, giaddr=RELAY_ADDRESS, xid=1, options=PXE))
        relay.exchange(message(opt.DISCOVER, mac, giaddr=RELAY_ADDRESS, xid=2, options=PXE | {opt.USER_CLASS: b"iPXE"}))
        relay.exchange(message(opt.DISCOVER, random_mac(), giaddr=RELAY_ADDRESS, xid=3, options=HTTP))
        relay.send(b"what is this")
        relay.send(message(opt.DISCOVER, mac, giaddr="127.99.0.1", xid=4))
        seen = 'dhcp_dropped_total{reason="unknown_relay"}'
        wait_until(lambda: host.value(seen) > at_first[f"provisioner_{seen}"], "DHCP was counted")

    # TFTP and HTTP
    assert host.tftp("autoexec.ipxe")
    assert host.tftp("nothing") is None
    for path in ("/boot.ipxe", "/tftp/autoexec.ipxe", "/nothing", f"/ipxe/{mac.replace(':', '-')}.ipxe"):
        host.ask("GET", path)
    host.script(random_mac())
    kernel = next(path for path in (host.settings.images / "parts").iterdir())
    host.ask("GET", f"/images/parts/{kernel.name}")
    report = {"mac": mac, "stage": "Stage1", "bootID": str(uuid.uuid4())}
    assert host.ask("POST", "/v1/progress", report)[0] == 204
    assert host.ask("POST", "/v1/progress", report | {"mac": random_mac()})[0] == 204
    assert host.ask("POST", "/v1/progress", {"mac": "x"})[0] == 400

    def rose() -> dict[str, float]:
        return risen(at_first, host.samples())

    expected = {
        'dhcp_messages_total{client="x86_64_pxe",relayed="true",type="discover"}', 'dhcp_answers_total{answer="offer"}',
        'dhcp_messages_total{client="ipxe",relayed="true",type="discover"}', 'dhcp_answers_total{answer="offer_lent"}',
        'dhcp_messages_total{client="arm64_http",relayed="true",type="discover"}', "dhcp_answer_seconds_count",
        'dhcp_dropped_total{reason="short_packet"}', 'dhcp_dropped_total{reason="unknown_relay"}',
        'tftp_transfers_total{file="autoexec.ipxe",result="sent"}', 'tftp_sent_bytes_total{file="autoexec.ipxe"}',
        'tftp_transfers_total{file="other",result="not_found"}', 'http_requests_total{class="first_script",code="2xx"}',
        'http_requests_total{class="firmware",code="2xx"}', 'http_sent_bytes_total{class="firmware"}',
        'http_requests_total{class="other",code="4xx"}', 'http_requests_total{class="script",code="2xx"}',
        'http_requests_total{class="waiting_script",code="2xx"}', 'http_requests_total{class="progress",code="2xx"}',
        'http_requests_total{class="progress",code="4xx"}', 'progress_reports_total{result="accepted"}',
        'progress_reports_total{result="unknown_machine"}', 'progress_reports_total{result="malformed"}',
        'progress_writes_total{result="written"}',
        'boot_stages_seen_total{stage="Stage1"}', 'boot_stages_seen_total{stage="Firmware"}',
    }  # fmt: skip
    left = {f"provisioner_{name}" for name in expected if not name.endswith("_count")}
    wait_until(lambda: left <= rose().keys(), "all of these rose")
    found = host.samples()
    assert found["provisioner_dhcp_answer_seconds_count"] >= 1
    parts = sum(rose().get(f'provisioner_http_requests_total{{class="{name}",code="2xx"}}', 0)
                for name in ("kernel", "stage1", "layer"))  # fmt: skip
    assert parts == 1, "a part is what the Image says"
    assert found['provisioner_tftp_sent_bytes_total{file="other"}'] == 0, "what the host fetches itself is not counted"

    # What stands
    assert found["provisioner_dhcp_workers_ready"] == found["provisioner_dhcp_workers"] == 2
    assert found['provisioner_inventory_synced{kind="Server"}'] == 1
    assert found['provisioner_inventory_objects{kind="Rack"}'] >= 2
    assert found['provisioner_inventory_changed_timestamp_seconds{kind="Image"}'] > 0
    assert found["provisioner_scripts"] >= 2
    assert found["provisioner_image_store_free_bytes"] > 0
    assert found["provisioner_state_free_bytes"] > 0
    assert found["provisioner_image_slots"] > 0
    assert found['provisioner_http_connections{state="waiting"}'] >= 0
    assert found['provisioner_program_running{program="nginx"}'] == 1
    assert found['provisioner_certificate_expiry_timestamp_seconds{purpose="join"}'] > 1.7e9
    assert any(name.startswith("provisioner_build_info{") and 'component="boot"' in name for name in found)
    check_by_promtool(host.registry)

    # No machine, whatever it says, makes a series of its own
    names = {name for name in found if "api_request" not in name}
    assert len(names) < MOST_SERIES
    with Relay(host.settings.dhcp) as relay:
        for n in range(300):
            odd = {opt.VENDOR_CLASS: f"PXEClient:Arch:{n:05}".encode(), opt.USER_CLASS: os.urandom(20)}
            relay.send(message(1 + n % 250, random_mac(), giaddr=f"127.80.{n % 9}.9", xid=n, options=odd))
    for n, hostile in enumerate(["x 200 1 0 -", '"} 1', "script", "${request_class}", "%0ascript 200 9 0.0 -", "é"]):
        headers = {"User-Agent": hostile.encode().decode("latin-1"), "Range": f"bytes={n}-", "X-Real-IP": "boot"}
        connection = http.client.HTTPConnection(host.settings.address, host.settings.http_port, timeout=60)
        connection.request("GET", f"/evil/{urllib.request.quote(hostile, safe='%')}", headers=headers)
        assert connection.getresponse().status == 404
        connection.close()
    host.tftp("../../etc/passwd for 1.2.3.4")
    host.tftp("snponly.efi to 10.0.0.1")
    others = 'http_requests_total{class="other",code="4xx"}'
    wait_until(lambda: host.value(others) >= found[f"provisioner_{others}"] + 6, "the hostile ones were counted")
    wait_until(lambda: host.value('dhcp_dropped_total{reason="message_type"}') > 0, "the odd ones were counted")
    after = host.samples()
    assert {name for name in after if "api_request" not in name} == names
    assert after['provisioner_http_log_faults_total{fault="unreadable_line"}'] == 0
    assert after['provisioner_tftp_transfers_total{file="snponly.efi",result="sent"}'] == 0
    assert not [name for name in after if mac in name or unique in name]


def test_what_fails_is_told_by_name_and_why_only_where_people_are(host: Measured) -> None:
    host.start()
    wait_until(lambda: host.ready()[0] == 200, "it is ready")
    assert host.ready() == (200, "ready\n")
    assert host.ask("GET", "/healthz") == (200, "alive\n")
    checks = ("inventory", "scripts", "dhcp", "nginx", "tftp", "store")
    assert host.ready("?verbose") == (200, "".join(f"[+]{name} ok\n" for name in checks) + "readyz check passed\n")

    assert host.service is not None
    address = f"127.0.0.1:{free_port('127.0.0.1')}"
    telemetry = serve_telemetry(host.registry, host.service.health.liveness, host.service.health.readiness, address)
    try:
        with urllib.request.urlopen(f"http://{address}/readyz?verbose", timeout=60) as answer:
            assert "[+]dhcp ok: 2 of 2 workers answer\n" in answer.read().decode()
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            assert "provisioner_dhcp_workers_ready 2.0" in answer.read().decode()
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=60) as answer:
            assert answer.read() == b"ok"
    finally:
        telemetry.shutdown()

    # The image store goes, and comes back
    away = host.settings.images.rename(host.settings.images.with_name("away"))
    wait_until(lambda: host.ready()[0] == 503, "it is not ready")
    status, body = host.ready()
    assert (status, "[-]store failed\n" in body, str(away.parent) in body) == (503, True, False)
    assert "[+]dhcp ok\n" in body
    away.rename(host.settings.images)
    wait_until(lambda: host.ready()[0] == 200, "it is ready again")


@pytest.mark.parametrize("program", ["nginx", "dnsmasq"])
def test_a_program_that_hangs_or_dies_is_told_and_comes_back(host: Measured, program: str) -> None:
    check = {"nginx": "nginx", "dnsmasq": "tftp"}[program]
    host.start()
    wait_until(lambda: host.check(check) == 1, "it answers")
    first = host.pid(program)
    assert first is not None
    # nginx's workers answer, not its master: all of them
    group = [
        int(pid)
        for pid in subprocess.run(
            ["pgrep", "-g", str(first)], capture_output=True, text=True, check=True
        ).stdout.split()
    ]
    for pid in group:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: host.check(check) == 0, "it is told that it does not answer")
    if program == "dnsmasq":
        assert host.ready()[0] == 503
    for pid in group:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: host.check(check) == 1, "it answers again")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: host.value(f'program_restarts_total{{program="{program}"}}') == 1, "it was started again")
    wait_until(lambda: host.check(check) == 1 and host.pid(program) not in (None, first), "the next one answers")
    wait_until(lambda: host.answers() and host.ready()[0] == 200, "the host is ready again")


def test_a_dhcp_worker_that_cannot_be_replaced_is_told(host: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    host.start()
    wait_until(lambda: host.ready()[0] == 200, "it is ready")
    assert host.service is not None
    assert host.service._dhcp is not None
    real, is_full = subprocess.Popen, True

    def popen(command: Any, *arguments: Any, **named: Any) -> Any:
        if is_full and "provisioner.boot.dhcp.workers.worker" in command:
            raise BlockingIOError(11, "no process")
        return real(command, *arguments, **named)

    monkeypatch.setattr(subprocess, "Popen", popen)
    os.kill(worker_pids(host.service._dhcp.dhcp)[0], signal.SIGKILL)
    wait_until(lambda: host.value("dhcp_workers_ready") == 1, "one is gone")
    wait_until(lambda: host.ready()[0] == 503, "it is not ready")
    assert "[-]dhcp failed\n" in host.ready()[1]
    is_full = False
    wait_until(lambda: host.ready()[0] == 200, "it is ready again")
    assert host.value("dhcp_worker_restarts_total") >= 1


def test_the_api_server_being_away_makes_no_boot_host_unready(host: Measured) -> None:
    """All would step back at once, and nobody would be left: how old the inventory is a metric tells."""
    host.start()
    wait_until(lambda: host.ready()[0] == 200, "it is ready")
    assert host.service is not None
    heard = 'inventory_heard_timestamp_seconds{kind="Server"}'
    for cache in (host.service._servers, host.service._racks, host.service._pools, host.service._images):
        cache._cluster = Cluster.connect(dead_kubeconfig(host))
        if cache._stream is not None:
            cache._stream.abort()
    servers = host.service._servers
    wait_until(lambda: servers.failures > 1, "it is away")
    assert host.ready() == (200, "ready\n")
    assert host.ask("GET", "/healthz") == (200, "alive\n")
    wait_until(lambda: time.time() - host.value(heard) > 3, "it is told how old the inventory is")
    assert host.ready() == (200, "ready\n")


def dead_kubeconfig(host: Measured) -> Any:
    path = host.programs.shared / "dead.kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"https://127.0.0.1:{free_port('127.0.0.1')}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [cluster],
                "contexts": [context],
                "users": [{"name": "u", "user": {}}],
                "current-context": "c",
            }
        )
    )
    return path
