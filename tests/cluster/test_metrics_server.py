"""Whoever reaches the port of metrics may connect as often as he likes, and Prometheus is answered all the same."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from prometheus_client import CollectorRegistry

from lab.control_plane.ports import free_port
from provisioner.boot.metrics.server import telemetry_server
from provisioner.cli.service.listening import serve_metrics
from provisioner.cluster.metrics_server import MOST_CONNECTIONS, MOST_OF_ONE


@pytest.fixture(params=["controllers", "boot hosts"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    if request.param == "controllers":
        yield serve_metrics(CollectorRegistry(), f"127.0.0.1:{free_port('127.0.0.1')}")
        return
    server = telemetry_server(CollectorRegistry(), (), (), "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def scrape(port: int, source: str = "127.0.0.1") -> int:
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=180, source_address=(source, 0))
    asked.request("GET", "/metrics")
    return asked.getresponse().status


def silent(held: ExitStack, port: int, source: str) -> None:
    held.enter_context(socket.create_connection(("127.0.0.1", port), 180, (source, 0))).send(b"GET /metr")


def test_a_neighbour_who_connects_and_says_nothing_takes_neither_threads_nor_the_place_of_prometheus(port: int) -> None:
    before = threading.active_count()
    with ExitStack() as held:
        for _ in range(3 * MOST_CONNECTIONS):
            silent(held, port, "127.0.0.66")
        assert scrape(port) == 200
        assert threading.active_count() <= before + 2 * MOST_OF_ONE


def test_many_neighbours_take_no_more_threads_than_there_may_be(port: int) -> None:
    before = threading.active_count()
    with ExitStack() as held:
        for number in range(2 * MOST_CONNECTIONS):
            silent(held, port, f"127.0.1.{number // 4 + 1}")
        assert answered_before_long(port), "Prometheus was never answered"
        assert threading.active_count() <= before + MOST_CONNECTIONS + MOST_OF_ONE


def answered_before_long(port: int) -> bool:
    """It asks again and again; it is refused while as many are being closed for others as there may be of one."""
    for _ in range(600):
        with suppress(OSError, http.client.HTTPException):
            return scrape(port) == 200
        time.sleep(0.1)
    return False


def test_who_asks_from_elsewhere_takes_the_place_of_one_of_the_address_with_the_most(port: int) -> None:
    with ExitStack() as held:
        for number in range(MOST_CONNECTIONS):
            silent(held, port, f"127.0.2.{number // MOST_OF_ONE + 1}")
        assert scrape(port) == 200, "at the first attempt"


def test_one_who_asks_as_he_should_is_answered_as_often_as_he_asks(port: int) -> None:
    assert [scrape(port) for _ in range(3 * MOST_OF_ONE)] == [200] * (3 * MOST_OF_ONE)
