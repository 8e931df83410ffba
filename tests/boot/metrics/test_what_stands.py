"""What is read when Prometheus asks: caches, certificates, disks, programs; and how reports and pulls are counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from prometheus_client import CollectorRegistry

from provisioner.boot.host.metrics import CertificateEnd
from provisioner.boot.host.web import MAX_BODY_BYTES, OF_A_CLIENT, boot_blueprint
from provisioner.boot.metrics.inventory import InventoryMeter
from provisioner.boot.metrics.nginx_status import Connections, read_connections
from provisioner.boot.metrics.programs import health_families, nginx_families, program_families
from provisioner.boot.metrics.progress import ProgressMeter
from provisioner.boot.metrics.store import PullMeter, space_of
from provisioner.boot.observe.progress import ProgressReport
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.cluster.health.checks import Check, ill, well
from provisioner.cluster.series import FamiliesCollector
from tests.boot.fake_source import FakeSource
from tests.boot.metrics.exposition import check_by_promtool, samples
from tests.boot.test_nginx import make_certificate

MAC, BOOT = "52:54:00:12:34:56", "11111111-1111-4111-8111-111111111111"
REPORT = {"mac": MAC, "stage": "Stage1", "bootID": BOOT}


def told(*families: Callable[[], Any]) -> dict[str, float]:
    registry = CollectorRegistry()
    for each in families:
        registry.register(FamiliesCollector(each))
    check_by_promtool(registry)
    return {name.removeprefix("provisioner_"): value for name, value in samples(registry).items()}


@dataclass
class FakeCache:
    """An informer's, set by the test."""

    kind: str
    has_synced: bool = True
    objects: int = 0
    heard: float = 0.0
    watchers: list[Callable[[str, Any, Any], None]] = field(default_factory=list)

    def __len__(self) -> int:
        return self.objects

    def heard_seconds(self) -> float:
        return self.heard

    def subscribe(self, watcher: Callable[[str, Any, Any], None], /) -> None:
        self.watchers.append(watcher)


@pytest.mark.programs
def test_an_inventory_says_how_old_it_is_and_when_it_changed() -> None:
    now = 1000.0
    servers, racks = FakeCache("Server", objects=7, heard=30.0), FakeCache("Rack", has_synced=False)
    meter = InventoryMeter([servers, racks], lambda: now)
    servers.watchers[0]("s1", None, {})
    now = 1100.0
    found = told(meter.families)
    assert found['inventory_objects{kind="Server"}'] == 7
    assert found['inventory_heard_timestamp_seconds{kind="Server"}'] == 1070
    assert found['inventory_changed_timestamp_seconds{kind="Server"}'] == 1000
    assert (found['inventory_synced{kind="Server"}'], found['inventory_synced{kind="Rack"}']) == (1, 0)
    assert found['inventory_heard_timestamp_seconds{kind="Rack"}'] == 0
    assert found['inventory_changed_timestamp_seconds{kind="Rack"}'] == 0


@pytest.mark.programs
def test_a_certificate_is_read_again_once_it_was_renewed_and_one_that_is_none_has_ended(tmp_path: Path) -> None:
    file = tmp_path / "cert.pem"
    end = CertificateEnd("join", file)
    name = 'certificate_expiry_timestamp_seconds{purpose="join"}'
    assert told(end.families)[name] == 0
    make_certificate(tmp_path)
    assert 0 < told(end.families)[name] - time.time() < 2 * 86_400
    file.write_text("no certificate")
    assert told(end.families)[name] == 0


@pytest.mark.programs
def test_a_disk_that_cannot_be_asked_is_left_out(tmp_path: Path) -> None:
    found = told(lambda: space_of("state", tmp_path, "the state"))
    assert 0 < found["state_free_bytes"] <= found["state_size_bytes"]
    assert told(lambda: space_of("state", tmp_path / "no", "the state")) == {}


@dataclass
class FakeProgram:
    name: str
    pid: int | None
    restarts: int


@pytest.mark.programs
def test_programs_checks_and_connections_are_told() -> None:
    programs = [FakeProgram("nginx", 7, 2), FakeProgram("dnsmasq", None, 0)]
    checks = (Check("tftp", lambda: ill("no")), Check("nginx", well))
    found = told(
        lambda: program_families(programs),
        lambda: health_families([Check("threads", well)], checks),
        lambda: nginx_families(Connections(1, 2, 3), 9),
    )
    assert found == {
        'program_running{program="nginx"}': 1, 'program_running{program="dnsmasq"}': 0,
        'program_restarts_total{program="nginx"}': 2, 'program_restarts_total{program="dnsmasq"}': 0,
        'readiness_check{check="tftp"}': 0, 'readiness_check{check="nginx"}': 1, 'liveness_check{check="threads"}': 1,
        "image_slots": 9, 'http_connections{state="reading"}': 1, 'http_connections{state="writing"}': 2,
        'http_connections{state="waiting"}': 3,
    }  # fmt: skip
    assert told(lambda: nginx_families(None, 9)) == {"image_slots": 9}


def test_an_nginx_that_is_not_there_is_an_error_and_no_figure(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        read_connections(tmp_path / "none.sock")


@dataclass
class FakeRecorder:
    is_known: bool = True

    def observe(self, report: ProgressReport) -> bool:
        return self.is_known


@pytest.mark.parametrize(
    ("sent", "is_known", "result"),
    [
        ({"json": REPORT}, True, "accepted"), ({"json": REPORT}, False, "unknown_machine"),
        ({"json": {**REPORT, "mac": "no"}}, True, "malformed"), ({"data": b"{"}, True, "malformed"),
        ({"json": {**REPORT, "message": "x" * MAX_BODY_BYTES}}, True, "too_large"),
    ],
)  # fmt: skip
def test_a_report_is_counted_by_what_became_of_it(sent: dict[str, Any], is_known: bool, result: str) -> None:
    registry = CollectorRegistry()
    client = answering(registry, is_known)
    client.post("/v1/progress", **sent)
    found = samples(registry)
    assert [name for name, value in found.items() if value] == [
        f'provisioner_progress_reports_total{{result="{result}"}}'
    ]


def test_reports_that_come_too_often_are_counted_as_that() -> None:
    registry = CollectorRegistry()
    client = answering(registry, True)
    for _ in range(int(OF_A_CLIENT.burst) + 7):
        client.post("/v1/progress", json=REPORT)
    assert samples(registry)['provisioner_progress_reports_total{result="rate_limited"}'] >= 5


def answering(registry: CollectorRegistry, is_known: bool) -> Any:
    application = Flask("test")
    index = ServerIndex(FakeSource())
    application.register_blueprint(
        boot_blueprint(
            index=index, recorder=FakeRecorder(is_known), discoverer=None, ready=lambda: True,  # type: ignore[arg-type]
            meter=ProgressMeter(registry),
        )
    )  # fmt: skip
    return application.test_client()


def test_a_check_says_on_the_boot_network_whether_and_not_why() -> None:
    application = Flask("test")
    checks = (
        Check("store", lambda: ill("/srv/secret/place cannot be read")),
        Check("nginx", lambda: well("7 connections")),
    )
    application.register_blueprint(
        boot_blueprint(
            index=ServerIndex(FakeSource()), recorder=None, discoverer=None, ready=lambda: True,  # type: ignore[arg-type]
            liveness=(Check("threads", lambda: ill("ended: boot-renderer")),), readiness=checks,
        )
    )  # fmt: skip
    client = application.test_client()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "[-]store failed\n[+]nginx ok\nreadyz check failed\n")
    answer = client.get("/healthz?exclude=threads")
    assert (answer.status_code, answer.text) == (503, "[-]threads failed\nhealthz check failed\n")


def test_pulls_are_counted_with_their_bytes_and_their_end() -> None:
    registry = CollectorRegistry()
    meter = PullMeter(registry)
    meter.began()
    meter.began()
    assert samples(registry)["provisioner_image_pulls_under_way"] == 2
    meter.ended(succeeded=True, fetched_bytes=5, seconds=2.0)
    meter.ended(succeeded=False, fetched_bytes=0, seconds=1.0)
    found = samples(registry)
    assert found["provisioner_image_pulls_under_way"] == 0
    assert found['provisioner_image_pulls_total{result="succeeded"}'] == 1
    assert found['provisioner_image_pulls_total{result="failed"}'] == 1
    assert found["provisioner_image_pulled_bytes_total"] == 5
