"""DHCP's counts as Prometheus reads them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import provisioner.boot.dhcp as dhcp_package
from provisioner.boot.dhcp.responder.tally import Tally
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.client import DhcpClient
from provisioner.boot.dhcp.workers.supervisor import WorkerStates
from provisioner.boot.metrics.dhcp import dhcp_families
from provisioner.cluster.series import FamiliesCollector
from tests.boot.metrics.exposition import check_by_promtool, samples

pytestmark = pytest.mark.programs


@dataclass
class FakeResponder:
    """Counts that the test sets."""

    counted: Tally = field(default_factory=Tally)
    wrong: dict[str, str] = field(default_factory=dict)
    workers: WorkerStates = field(default_factory=lambda: WorkerStates(2, 1, 3, 7.5))

    def tally(self) -> Tally:
        return self.counted

    def problems(self) -> dict[str, str]:
        return self.wrong


def told(responder: FakeResponder) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(FamiliesCollector(lambda: dhcp_families(responder)))
    return registry


def test_all_series_are_there_before_the_first_packet_and_promtool_has_nothing_to_say() -> None:
    registry = told(FakeResponder())
    check_by_promtool(registry)
    found = samples(registry)
    assert len([name for name in found if name.startswith("provisioner_dhcp_messages_total{")]) == 6 * 2 * 9
    assert found['provisioner_dhcp_dropped_total{reason="not_the_boot_interface"}'] == 0


def test_each_count_is_told_in_its_series() -> None:
    responder = FakeResponder(wrong={"Rack/r1": "no subnet", "Server/s1": "no rack", "Server/s2": "no rack"})
    responder.counted.counters.update({"offered": 5, "refused": 2, "dropped-bad-mac": 4, "send-failed": 1})
    rows = responder.counted.received()
    rows[opt.DISCOVER][DhcpClient.ARM64_PXE * 2 + 1] += 6
    rows[200][DhcpClient.PLAIN * 2] += 1
    responder.counted.note_wait(0.002, 4)
    responder.counted.note_wait(3.0, 1)
    found = samples(told(responder))
    expected = {
        'dhcp_answers_total{answer="offer"}': 5, 'dhcp_answers_total{answer="nak"}': 2,
        'dhcp_dropped_total{reason="bad_mac"}': 4, 'dhcp_faults_total{fault="send_failed"}': 1,
        'dhcp_messages_total{client="arm64_pxe",relayed="true",type="discover"}': 6,
        'dhcp_messages_total{client="system",relayed="false",type="other"}': 1,
        'dhcp_answer_seconds_bucket{le="0.001"}': 0, 'dhcp_answer_seconds_bucket{le="0.0025"}': 4,
        'dhcp_answer_seconds_bucket{le="2.5"}': 4, 'dhcp_answer_seconds_bucket{le="+Inf"}': 5,
        "dhcp_answer_seconds_count": 5, "dhcp_answer_seconds_sum": 3.008, "dhcp_workers": 2, "dhcp_workers_ready": 1,
        "dhcp_worker_restarts_total": 3, 'dhcp_unserved_objects{kind="Server"}': 2,
        'dhcp_unserved_objects{kind="Rack"}': 1,
    }  # fmt: skip
    assert {name: round(found[f"provisioner_{name}"], 6) for name in expected} == expected


def test_every_reason_for_silence_that_the_responder_knows_has_its_series() -> None:
    source = "".join(path.read_text() for path in Path(dhcp_package.__file__).parent.rglob("*.py"))
    said = {reason.replace("-", "_") for reason in re.findall(r'"dropped-([a-z-]+)"', source)}
    series = (
        re.match(r'provisioner_dhcp_dropped_total\{reason="(\w+)"', name) for name in samples(told(FakeResponder()))
    )
    assert said == {found[1] for found in series if found}
