"""The boot service whole: a real API server, a real nginx, and machines that ask over HTTP."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import json
import random
import re
import shutil
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint

from lab.control_plane.plane import ControlPlane
from lab.control_plane.ports import free_port
from provisioner.api import Image, Rack, Server
from provisioner.api.images.image import Artifact, NamedArtifact
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.conditions import is_true
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.servers.rack import Subnet
from provisioner.boot.host import service as service_module
from provisioner.boot.host.service import BootService, BootSettings
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.resources import EVENTS, of
from tests.api.objects import IMAGE_JUDGED
from tests.boot.conftest import Programs
from tests.boot.objects import image, pool, rack, server
from tests.boot.test_nginx import make_certificate

SECONDS = 180


@dataclass
class Host:
    """A boot host that can be stopped, lose its disk, and be started again."""

    settings: BootSettings
    cluster: Cluster
    programs: Programs
    stop: threading.Event | None = None
    thread: threading.Thread | None = None
    service: BootService | None = None

    def start(self) -> None:
        self.stop = threading.Event()
        greeting = Blueprint("greeting", __name__)
        greeting.post("/v1/join")(lambda: ({"hello": "join"}, 200))
        events = EventRecorder(self.cluster, "provisioner-boot")
        self.service = BootService(
            self.settings, self.cluster, events, blueprints=[greeting], enter=self.programs.enter
        )
        self.thread = threading.Thread(target=self.service.run, args=(self.stop,))
        self.thread.start()
        wait_until(self.answers, "the boot host answers")

    def answers(self) -> bool:
        # A port that accepts is not enough: nginx opens it for a moment to check its configuration.
        with contextlib.suppress(OSError):
            return self.ask("GET", "/healthz")[0] == 200
        return False

    def halt(self) -> None:
        if self.stop is not None and self.thread is not None:
            self.stop.set()
            self.thread.join(SECONDS)
            assert not self.thread.is_alive()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.settings.address, self.settings.http_port, timeout=SECONDS)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method, path, body=json.dumps(body) if body is not None else None, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def script(self, mac: str, **said: str) -> str:
        query = "&".join(f"{key}={value}" for key, value in said.items())
        status, text = self.ask("GET", f"/ipxe/{mac.replace(':', '-')}.ipxe?{query}")
        assert status == 200, "firmware never sees an error"
        assert text.startswith("#!ipxe\n")
        return text


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < deadline, f"waited too long: {what}"
        time.sleep(0.1)


def random_mac() -> str:
    return "02:" + ":".join(f"{byte:02x}" for byte in random.SystemRandom().randbytes(5))


@pytest.fixture
def host(programs: Programs, cluster: Cluster) -> Iterator[Host]:
    images = programs.shared / "images"
    images.mkdir()
    make_certificate(programs.shared)
    settings = BootSettings(
        address="127.0.0.1",
        state=programs.shared / "state",
        images=images,
        certificate=programs.shared / "cert.pem",
        key=programs.shared / "key.pem",
        firmware=(programs.ipxe,),
        tftp=False,
        http_port=free_port("127.0.0.1"),
        join_port=free_port("127.0.0.1"),
    )
    host = Host(settings, cluster, programs)
    yield host
    host.halt()


def publish_image(host: Host, name: str) -> None:
    """An image in the store and in the cluster."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    folder, parts = host.settings.images / f"sha256-{digest}", host.settings.images / "parts"
    folder.mkdir()
    parts.mkdir(exist_ok=True)
    for file in ("manifest", "manifest.sig"):
        (folder / file).write_text("four")

    def part(file: str) -> dict[str, Any]:
        sha256 = hashlib.sha256(file.encode()).hexdigest()
        (parts / f"sha256-{sha256}").write_text("four")
        return {"path": f"parts/sha256-{sha256}", "sha256": f"sha256:{sha256}", "size_bytes": 4}

    body = encode(
        image(
            name, available=None, digest=f"sha256:{digest}", kernel=Artifact(**part("kernel")),
            manifest=Artifact(path=f"{folder.name}/manifest", sha256=f"sha256:{digest}", size_bytes=4), root=None,
            stage1=Artifact(**part("stage1")), layers=(NamedArtifact(name="base", **part("base")),),
        )
    )  # fmt: skip
    host.cluster.create(of(Image), body)
    host.cluster.apply_status(Image, name, {"conditions": [IMAGE_JUDGED]}, manager="tests")


def register(host: Host, name: str, mac: str) -> None:
    racked = replace(rack(), metadata=replace(rack().metadata, name=f"{name}-rack"))
    for resource in (racked, pool(f"{name}-pool", image_ref=f"{name}-image")):
        host.cluster.create(of(type(resource)), encode(resource))
    body = encode(server(name, boot_mac_address=mac, rack_ref=f"{name}-rack", node_pool_ref=f"{name}-pool"))
    body["metadata"] = {"name": name}
    status = body.pop("status")
    host.cluster.create(of(Server), body)
    host.cluster.apply_status(Server, name, status, manager="provisioner-inventory")


def test_a_registered_server_gets_its_script_once_its_image_is_there(host: Host, unique: str) -> None:
    mac = random_mac()
    register(host, unique, mac)
    host.start()
    wait_until(lambda: "ImageMissing" in host.script(mac), "the image is missing")
    publish_image(host, f"{unique}-image")
    wait_until(lambda: f"provisioner.server={unique}" in host.script(mac), "the server boots")
    found = host.cluster.read(Image, f"{unique}-image")
    assert is_true(found.status.conditions, "Available")
    kernel = next(word for word in host.script(mac).split() if "/images/parts/" in word)
    assert host.ask("GET", "/images/" + kernel.split("/images/")[1]) == (200, "four")


def test_a_lost_disk_is_filled_again_and_the_machines_notice_nothing(host: Host, unique: str) -> None:
    mac = random_mac()
    register(host, unique, mac)
    publish_image(host, f"{unique}-image")
    host.start()
    wait_until(lambda: f"provisioner.server={unique}" in host.script(mac), "the server boots")
    before = host.script(mac)
    host.halt()
    shutil.rmtree(host.settings.state)
    host.start()
    wait_until(lambda: host.script(mac) == before, "the same script is served again")


def test_an_unknown_machine_is_recorded_told_to_wait_and_boots_when_accepted(host: Host, unique: str) -> None:
    mac = random_mac()
    name = f"unknown-{mac.replace(':', '')}"
    here = Subnet(
        name="boot", cidr="127.0.0.0/24", discovery_range_start="127.0.0.200", discovery_range_end="127.0.0.250"
    )
    racked = replace(rack(subnets=(here,)), metadata=replace(rack().metadata, name=f"{unique}-rack"))
    host.cluster.create(of(Rack), encode(racked))
    host.start()
    wait_until(lambda: host.ask("GET", "/readyz")[0] == 200, "the service is ready")
    script = host.script(mac, serial="S%201", manufacturer="Acme", product="X1", buildarch="x86_64")
    assert f"kubectl provision accept {name}" in script
    assert "sleep 15" in script

    def recorded() -> Server | None:
        with contextlib.suppress(NeedsHuman):
            found = host.cluster.read(Server, name)
            return found if found.status.discovery is not None else None
        return None

    wait_until(lambda: recorded() is not None, "the machine is a Server")
    found = recorded()
    assert found is not None
    assert found.spec.acceptance == "Pending"
    assert found.status.discovery is not None
    assert (found.status.discovery.serial_number, found.status.discovery.manufacturer) == ("S 1", "Acme")
    wait_until(lambda: "PendingAcceptance" in host.script(mac), "its own script")
    host.cluster.delete(of(Server), name)
    host.cluster.delete(of(Rack), racked.name)


def test_progress_is_recorded_with_times_and_events(host: Host, unique: str) -> None:
    mac, boot_id = random_mac(), str(uuid.uuid4())
    register(host, unique, mac)
    host.start()
    wait_until(lambda: host.ask("GET", "/readyz")[0] == 200, "the service is ready")
    for stage in ("Stage1", "Root"):
        report = {"mac": mac, "stage": stage, "bootID": boot_id}
        assert host.ask("POST", "/v1/progress", report)[0] == 204
    retry = {"mac": mac, "stage": "Root", "bootID": boot_id, "message": "digest is\x1b[31m wrong\n"}
    assert host.ask("POST", "/v1/progress", retry)[0] == 204

    def message() -> str | None:
        progress = host.cluster.read(Server, unique).status.progress
        return progress.message if progress is not None else None

    wait_until(lambda: message() == "digest is [31m wrong", "the message is shown")
    progress = host.cluster.read(Server, unique).status.progress
    assert progress is not None
    assert [entry.stage for entry in progress.stage_times] == ["Stage1", "Root"]
    assert progress.boot_id == boot_id
    mine = f"involvedObject.name={unique}"
    wait_until(
        lambda: (
            {"BootStageStage1", "BootStageRoot"}
            <= {event["reason"] for event in host.cluster.list(EVENTS, field_selector=mine).items}
        ),
        "the Events are there",
    )


def test_a_renewed_certificate_needs_no_restart(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    often = functools.partial(service_module.follow_certificate, look_seconds=0.1)
    monkeypatch.setattr(service_module, "follow_certificate", often)
    host.start()
    make_certificate(host.programs.shared)
    renewed = (host.programs.shared / "cert.pem").read_text()
    address = (host.settings.address, host.settings.join_port)
    wait_until(lambda: ssl.get_server_certificate(address, timeout=SECONDS) == renewed, "the renewed one is served")


def test_two_boot_hosts_answer_alike(host: Host, unique: str) -> None:
    mac = random_mac()
    register(host, unique, mac)
    publish_image(host, f"{unique}-image")
    second = replace(host)
    second.settings = replace(
        host.settings, state=host.programs.shared / "other", join_port=free_port("127.0.0.1"), host="other"
    )
    host.start()
    wait_until(lambda: f"provisioner.server={unique}" in host.script(mac), "the first one serves it")
    first = host.script(mac)
    host.halt()
    second.start()
    try:
        wait_until(lambda: f"provisioner.server={unique}" in second.script(mac), "the second one serves it")
        own_ports = {f":{settings.join_port}" for settings in (host.settings, second.settings)}
        texts = [first, second.script(mac)]
        for port in own_ports:
            texts = [text.replace(port, ":join") for text in texts]
        assert texts[0] == texts[1]

        def stores() -> set[str]:
            return {report.host for report in host.cluster.read(Image, f"{unique}-image").status.stores}

        wait_until(lambda: stores() == {host.settings.host, "other"}, "both say that they have it")
    finally:
        second.halt()
    assert is_true(host.cluster.read(Image, f"{unique}-image").status.conditions, "Available")


def test_without_the_api_server_machines_are_told_to_wait(host: Host, control_plane: ControlPlane, unique: str) -> None:
    """A boot host that starts while the API server is away: no machine is unknown, none gets an error."""
    dead = host.programs.shared / "dead.kubeconfig"
    nobody = f"server: https://127.0.0.1:{free_port('127.0.0.1')}"
    dead.write_text(re.sub(r"server: https://\S+", nobody, control_plane.kubeconfig.read_text()))
    host.cluster = Cluster.connect(dead)
    host.start()
    assert "echo the boot service starts, or cannot reach the API server" in host.script(random_mac())
    assert host.ask("GET", "/readyz")[0] == 503
    report = {"mac": random_mac(), "stage": "Root", "bootID": str(uuid.uuid4())}
    assert host.ask("POST", "/v1/progress", report)[0] == 204
    assert host.ask("GET", "/boot.ipxe")[0] == 200


def test_blueprints_of_others_are_served_over_tls(host: Host) -> None:
    import ssl

    host.start()
    context = ssl.create_default_context(cafile=str(host.settings.certificate))
    connection = http.client.HTTPSConnection("127.0.0.1", host.settings.join_port, context=context, timeout=SECONDS)
    connection.request("POST", "/v1/join", body=b"{}", headers={"Content-Type": "application/json"})
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())) == (200, {"hello": "join"})
    connection.close()


def test_a_missing_certificate_is_named_at_the_start(host: Host) -> None:
    host.settings = replace(host.settings, certificate=Path("/nonexistent.pem"))
    service = BootService(host.settings, host.cluster, EventRecorder(host.cluster, "x"), enter=host.programs.enter)
    with pytest.raises(NeedsHuman, match=r"nonexistent\.pem"):
        service.run(threading.Event())
