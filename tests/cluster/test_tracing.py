"""One boot as a trace: what is in it, that it is told once, and that no collector holds anybody up."""

from __future__ import annotations

import gzip
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client import CollectorRegistry, generate_latest
from pytest_httpserver import URI_DEFAULT
from werkzeug import Request, Response

from provisioner.api import ObjectMeta, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import NeedsHuman, Refused
from provisioner.api.servers.server import ServerSpec, ServerStatus
from provisioner.api.servers.server_status import BootOrder, BootProgress, JoinStatus, PowerStatus, StageTime
from provisioner.cli.main import provisioner
from provisioner.cluster.tracing.boot_trace import BootTrace, Span, trace_of_boot, trace_of_change
from provisioner.cluster.tracing.otlp import otlp_sender, traces_url
from provisioner.cluster.tracing.tracer import MAX_WAITING, BootTracer
from tests.cluster.test_metrics import FakeCache
from tests.http_peer import HttpPeer
from tests.people import until


def at(second: float) -> str:
    return datetime.fromtimestamp(1_767_355_200 + second, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


ORDER = BootOrder(
    id="order-1",
    reason="FirstBoot",
    ordered_time=at(0),
    attempt=1,
    image_ref="gpu-2026-01",
    node_pool_ref="gpu",
    message="the machine says: password hunter2",
)
HEARD = BootProgress(
    stage="Token",
    stage_times=(
        StageTime(stage="Firmware", time=at(9)),
        StageTime(stage="IPXE", time=at(20)),
        StageTime(stage="Root", time=at(30)),
        StageTime(stage="Token", time=at(50)),
    ),
    message="hunter2",
)
BOOTED = ServerStatus(
    order=ORDER,
    power=PowerStatus(order_id="order-1", order_time=at(1), state="On"),
    progress=HEARD,
    join=JoinStatus(order_id="order-1", fetched_time=at(52), token_id="abcdef"),
    ready_time=at(60),
    node_ref="r01-u01",
)


def server(status: ServerStatus = BOOTED) -> Server:
    spec = ServerSpec(boot_mac_address="52:54:00:80:01:01", rack_ref="r01", node_pool_ref="gpu")
    return Server(metadata=ObjectMeta(name="r01-u01"), spec=spec, status=status)


def spans(trace: BootTrace | None) -> dict[str, Span]:
    assert trace is not None
    return {span.name.removeprefix("boot "): span for span in trace.spans}


def test_a_boot_has_a_span_for_each_stage_that_was_seen_from_its_order_to_ready() -> None:
    found = spans(trace_of_boot(server()))
    seconds = {name: (span.ended - span.began).total_seconds() for name, span in found.items()}
    assert seconds == {"boot": 60, "Ordered": 1, "Firmware": 19, "IPXE": 10, "Root": 20, "Token": 2, "Kubelet": 8}
    root = found.pop("boot")
    assert {span.parent_id for span in found.values()} == {root.span_id}
    assert root.attributes == {
        "host.name": "r01-u01",
        "host.arch": "amd64",
        "k8s.node.name": "r01-u01",
        "provisioner.rack": "r01",
        "provisioner.pool": "gpu",
        "provisioner.image": "gpu-2026-01",
        "provisioner.order.id": "order-1",
        "provisioner.order.reason": "FirstBoot",
        "provisioner.order.attempt": 1,
        "provisioner.boot.seconds": 59.0,
    }


def test_what_a_machine_says_is_marked_as_hearsay_and_its_words_are_left_out() -> None:
    found = spans(trace_of_boot(server()))
    stage = "provisioner.boot.stage"
    proven = {
        name: (span.attributes[f"{stage}.began_proven"], span.attributes[f"{stage}.ended_proven"])
        for name, span in found.items()
        if name != "boot"
    }  # fmt: skip
    assert proven == {
        "Ordered": (True, True),
        "Firmware": (True, False),
        "IPXE": (False, False),
        "Root": (False, False),
        "Token": (False, True),
        "Kubelet": (True, True),
    }
    assert "hunter2" not in str(found)
    assert "abcdef" not in str(found)
    unproven = replace(BOOTED, power=None)
    firmware = spans(trace_of_boot(server(unproven)))["Firmware"]
    assert firmware.attributes["provisioner.boot.stage.began_proven"] is False


def test_every_replica_makes_the_same_ids_and_another_order_others() -> None:
    one, again = trace_of_boot(server()), trace_of_boot(server())
    assert one == again
    other = trace_of_boot(
        server(replace(BOOTED, order=replace(ORDER, id="order-2"), power=PowerStatus(), join=JoinStatus()))
    )
    assert one is not None
    assert other is not None
    assert one.trace_id != other.trace_id
    assert not {span.span_id for span in one.spans} & {span.span_id for span in other.spans}
    assert 0 < one.trace_id < 2**128
    assert all(0 < span.span_id < 2**64 for span in one.spans)


def test_a_boot_is_over_once_it_is_ready_or_another_order_takes_its_place() -> None:
    under_way = server(replace(BOOTED, ready_time=None))
    assert trace_of_change(under_way, under_way) is None
    assert trace_of_change(under_way, server()) == trace_of_boot(server())
    assert trace_of_change(server(), server()) is None
    again = server(replace(BOOTED, order=replace(ORDER, id="order-2", reason="TimedOut", ordered_time=at(900)),
                           ready_time=None))  # fmt: skip
    given_up = spans(trace_of_change(under_way, again))
    assert given_up["boot"].error == given_up["Kubelet"].error == "TimedOut"
    assert given_up["Token"].error is None
    assert (given_up["Kubelet"].ended - given_up["Kubelet"].began).total_seconds() == 848
    assert trace_of_change(server(), again) is None, "it came to Ready, and was told then"


def test_a_report_from_the_future_makes_no_stage_longer_than_the_boot() -> None:
    lies = BootProgress(stage_times=(StageTime(stage="IPXE", time=at(9_000_000)),))
    later = replace(ORDER, id="order-2", reason="TimedOut", ordered_time=at(900))
    again = server(replace(BOOTED, order=later, ready_time=None))
    found = spans(trace_of_change(server(replace(BOOTED, progress=lies, join=None, ready_time=None)), again))
    assert {span.ended >= span.began for span in found.values()} == {True}
    assert max(span.ended for span in found.values()) == found["boot"].ended


class FakeCollector(HttpPeer):
    """An OpenTelemetry collector as far as OTLP/HTTP goes: takes protobuf, answers with `status`."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 200
        self.hangs = threading.Event()
        self.hangs.set()
        self.asked = 0
        self.got: list[Any] = []
        self.expect_request(URI_DEFAULT, method="POST").respond_with_handler(self._take)

    def _take(self, request: Request) -> Response:
        self.asked += 1
        body = gzip.decompress(request.data) if request.headers.get("Content-Encoding") == "gzip" else request.data
        self.hangs.wait(300)
        if self.status == 200 and request.path == "/v1/traces":
            assert request.headers["Content-Type"] == "application/x-protobuf"
            self.got.append(ExportTraceServiceRequest.FromString(body))
        return Response(status=self.status)

    def spans(self) -> list[Any]:
        return [span for request in self.got for resource in request.resource_spans for scope in resource.scope_spans
                for span in scope.spans]  # fmt: skip


@pytest.fixture
def collector() -> Iterator[FakeCollector]:
    with FakeCollector() as made:
        yield made
        made.hangs.set()


def results(registry: CollectorRegistry) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in generate_latest(registry).decode().splitlines())
    return {n.split('"')[1]: float(v) for n, _, v in lines if n.startswith("provisioner_boot_traces_total{")}


def booted_before(number: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """A Server under way, and the same Ready, as the API server has them."""
    order = replace(ORDER, id=f"order-{number}")
    status = replace(
        BOOTED, order=order, power=PowerStatus(order_id=order.id, order_time=at(1)), join=JoinStatus(order_id=order.id)
    )
    return encode(server(replace(status, ready_time=None))), encode(server(status))


def test_a_collector_gets_the_boot_as_otlp_with_its_service(collector: FakeCollector) -> None:
    registry = CollectorRegistry()
    tracer = BootTracer(otlp_sender(collector.url, service="provisioner-controller", instance="a-1"), registry)
    under_way, ready = booted_before()
    servers = FakeCache(under_way)
    tracer.follow(servers)
    for body in (ready, ready):
        servers.put(body)
    until(lambda: results(registry)["Exported"] == 1)
    tracer.close()
    expected = trace_of_boot(server(replace(BOOTED, order=replace(ORDER, id="order-0"), join=None,
                                            power=PowerStatus(order_id="order-0", order_time=at(1)))))  # fmt: skip
    assert expected is not None
    got = collector.spans()
    assert [span.name for span in got] == [span.name for span in expected.spans]
    assert {span.trace_id.hex() for span in got} == {f"{expected.trace_id:032x}"}
    assert [int.from_bytes(span.span_id) for span in got] == [span.span_id for span in expected.spans]
    assert got[0].parent_span_id == b""
    assert {span.parent_span_id for span in got[1:]} == {got[0].span_id}
    assert got[0].end_time_unix_nano - got[0].start_time_unix_nano == 60 * 10**9
    resource = {each.key: each.value.string_value for each in collector.got[0].resource_spans[0].resource.attributes}
    assert resource["service.name"] == "provisioner-controller"
    assert resource["service.instance.id"] == "a-1"


def test_a_collector_that_hangs_holds_nobody_up_and_no_more_wait_than_may(
    collector: FakeCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = CollectorRegistry()
    collector.hangs.clear()
    tracer = BootTracer(otlp_sender(collector.url, service="s", instance="i"), registry)
    servers = FakeCache(booted_before()[0])
    tracer.follow(servers)
    servers.put(booted_before()[1])
    until(lambda: collector.asked == 1)
    more = 40
    bodies = [body for number in range(1, MAX_WAITING + more + 1) for body in booted_before(number)]
    began = time.process_time()
    for body in bodies:  # of each the order before it came to Ready, so that each is told once
        servers.put(body)
    assert time.process_time() - began < 30
    assert results(registry)["Dropped"] == more
    assert results(registry)["Exported"] == 0
    collector.hangs.set()
    until(lambda: results(registry)["Exported"] + results(registry)["Failed"] == MAX_WAITING + 1)


@pytest.mark.parametrize("status", [400, 404])
def test_a_collector_that_refuses_costs_its_traces_and_nothing_else(collector: FakeCollector, status: int) -> None:
    registry = CollectorRegistry()
    collector.status = status
    tracer = BootTracer(otlp_sender(collector.url, service="s", instance="i"), registry)
    servers = FakeCache(booted_before()[0])
    tracer.follow(servers)
    servers.put(booted_before()[1])
    until(lambda: results(registry)["Failed"] == 1)
    collector.status = 200
    servers.put(booted_before(1)[0])
    servers.put(booted_before(1)[1])
    until(lambda: results(registry)["Exported"] == 1)
    tracer.close()


def test_a_sender_that_raises_ends_no_thread() -> None:
    registry = CollectorRegistry()
    sent: list[int] = []

    def send(traces: Sequence[BootTrace]) -> bool:
        sent.append(len(traces))
        if len(sent) == 1:
            raise RuntimeError("a fault in somebody's library")
        return True

    tracer = BootTracer(send, registry)
    servers = FakeCache(booted_before()[0])
    tracer.follow(servers)
    servers.put(booted_before()[1])
    until(lambda: results(registry)["Failed"] == 1)
    servers.put(booted_before(1)[0])
    servers.put(booted_before(1)[1])
    tracer.close()
    assert results(registry)["Exported"] == 1


def test_what_a_new_leader_finds_was_told_by_the_one_before() -> None:
    sent: list[Any] = []
    tracer = BootTracer(lambda traces: bool(sent.append(traces)) or True, CollectorRegistry())
    tracer.follow(FakeCache(booted_before()[1]))
    tracer.close()
    assert sent == []


def test_a_server_that_cannot_be_read_hides_no_other() -> None:
    sent: list[Any] = []
    tracer = BootTracer(lambda traces: bool(sent.extend(traces)) or True, CollectorRegistry())
    under_way, ready = booted_before()
    servers = FakeCache(under_way)
    tracer.follow(servers)
    servers.put(ready | {"spec": {}, "metadata": {"name": "r01-u02"}})
    servers.put(under_way | {"spec": {}, "metadata": {"name": "r01-u02"}})
    servers.put(ready)
    tracer.close()
    assert len(sent) == 1


def test_without_the_extra_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(NeedsHuman, match="OpenTelemetry is not installed") as raised:
        otlp_sender("http://collector:4318", service="s", instance="i")
    assert ".whl[tracing]" in str(raised.value.hint)
    ran = CliRunner().invoke(
        provisioner, ["controller", "--boot-url=http://10.80.0.1", "--trace-endpoint=http://collector:4318"]
    )
    assert isinstance(ran.exception, NeedsHuman)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector/", "https://collector/v1/traces"),
        ("http://collector:4318/otlp/v1/traces", "http://collector:4318/otlp/v1/traces"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
    ],
)
def test_an_endpoint_without_a_path_gets_that_of_the_standard(given: str, url: str) -> None:
    assert traces_url(given) == url


@pytest.mark.parametrize("given", ["collector:4318", "grpc://collector:4317", "http://", "http://[", "http://a:x"])
def test_what_is_no_url_is_refused(given: str) -> None:
    with pytest.raises(Refused, match="is no URL"):
        traces_url(given)


def test_a_password_in_the_endpoint_is_refused_and_not_repeated() -> None:
    with pytest.raises(Refused) as raised:
        traces_url("https://user:hunter2@collector:4318")
    assert "hunter2" not in str(raised.value)
