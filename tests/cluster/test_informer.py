"""The local copy follows the real API server through everything that can go wrong on the way."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import requests

from lab.control_plane.plane import ControlPlane
from provisioner.cluster.changes import read_changes
from provisioner.cluster.client import Cluster
from provisioner.cluster.failures import Expired
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import CONFIG_MAPS, ResourceType
from tests.cluster.fault_injecting_proxy import FaultInjectingProxy, Injected, Seen, status_body

GENEROUS_SECONDS = 180


class Told:
    """What a subscriber was told: (key, old value, new value)."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, str | None, str | None]] = []
        self._changed = threading.Condition()

    def __call__(self, key: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        with self._changed:
            self.changes.append((key.split("/")[-1], old and old["data"]["value"], new and new["data"]["value"]))
            self._changed.notify_all()

    def wait_for(self, *changes: tuple[str, str | None, str | None]) -> None:
        self.wait_until(lambda: self.changes[-len(changes) :] == list(changes))

    def wait_until(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, GENEROUS_SECONDS), self.changes


def put(cluster: Cluster, unique: str, name: str, value: str) -> None:
    metadata = {"name": f"{unique}-{name}", "namespace": "default", "labels": {"set": unique}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value}}
    cluster.apply(body, manager="test")


def remove(cluster: Cluster, unique: str, name: str) -> None:
    cluster.delete(CONFIG_MAPS, f"{unique}-{name}", namespace="default")


def follow(cluster: Cluster, unique: str, stop: threading.Event, watch_seconds: int = 60) -> tuple[Informer, Told]:
    informer = Informer(
        cluster, CONFIG_MAPS, namespace="default", label_selector=f"set={unique}", watch_seconds=watch_seconds
    )
    told = Told()
    informer.subscribe(told)
    informer.start(stop)
    return informer, told


def read_all_changes(cluster: Cluster, position: str) -> None:
    with cluster.watch(CONFIG_MAPS, position, timeout_seconds=5, silence_seconds=30, namespace="default") as stream:
        list(read_changes(stream, deadline=float("inf"), clock=time.monotonic))


def watches_of(seen: list[Seen]) -> list[Seen]:
    return [request for request in seen if request.watches]


def lists_of(seen: list[Seen]) -> list[Seen]:
    return [request for request in seen if not request.watches]


def test_subscribers_are_told_what_was_and_what_is(cluster: Cluster, unique: str, stop: threading.Event) -> None:
    put(cluster, unique, "a", "1")
    informer, told = follow(cluster, unique, stop)
    assert informer.wait_for_sync(GENEROUS_SECONDS)
    told.wait_for((f"{unique}-a", None, "1"))
    put(cluster, unique, "a", "2")
    remove(cluster, unique, "a")
    told.wait_for((f"{unique}-a", None, "1"), (f"{unique}-a", "1", "2"), (f"{unique}-a", "2", None))
    assert informer.items() == []


def test_a_late_subscriber_is_told_of_everything_that_is_there(
    cluster: Cluster, unique: str, stop: threading.Event
) -> None:
    put(cluster, unique, "a", "1")
    informer, _ = follow(cluster, unique, stop)
    assert informer.wait_for_sync(GENEROUS_SECONDS)
    late = Told()
    informer.subscribe(late)
    assert late.changes == [(f"{unique}-a", None, "1")]
    found = informer.get(f"default/{unique}-a")
    assert found is not None
    assert found["data"] == {"value": "1"}


def test_a_handler_that_raises_harms_nobody(cluster: Cluster, unique: str, stop: threading.Event) -> None:
    def broken(key: str, old: object, new: object) -> None:
        raise RuntimeError("broken on purpose")

    informer = Informer(cluster, CONFIG_MAPS, namespace="default", label_selector=f"set={unique}")
    told = Told()
    informer.subscribe(broken)
    informer.subscribe(told)
    informer.start(stop)
    put(cluster, unique, "a", "1")
    told.wait_for((f"{unique}-a", None, "1"))
    put(cluster, unique, "a", "2")
    told.wait_for((f"{unique}-a", "1", "2"))
    assert told.changes == [(f"{unique}-a", None, "1"), (f"{unique}-a", "1", "2")]


def test_the_api_server_killed_and_started_again_is_only_a_pause(
    cluster: Cluster, control_plane: ControlPlane, unique: str, stop: threading.Event
) -> None:
    for name in ("a", "b"):
        put(cluster, unique, name, "1")
    informer, told = follow(cluster, unique, stop)
    assert informer.wait_for_sync(GENEROUS_SECONDS)
    control_plane.kill_api_server()
    assert len(informer.items()) == 2, "the copy is served while the API server is away"
    assert informer.has_synced
    control_plane.start_api_server()
    remove(cluster, unique, "a")
    put(cluster, unique, "c", "1")
    told.wait_until(lambda: (f"{unique}-a", "1", None) in told.changes and (f"{unique}-c", None, "1") in told.changes)
    assert sorted(item["metadata"]["name"] for item in informer.items()) == [f"{unique}-b", f"{unique}-c"]


def test_what_the_api_server_forgot_is_listed_again_and_the_differences_are_told(
    cluster: Cluster,
    control_plane: ControlPlane,
    proxy: FaultInjectingProxy,
    faulty: Cluster,
    unique: str,
    stop: threading.Event,
) -> None:
    for name in ("changed", "deleted", "kept"):
        put(cluster, unique, name, "1")
    informer, told = follow(faulty, unique, stop)
    assert informer.wait_for_sync(GENEROUS_SECONDS)
    proxy.wait_until(lambda seen: len(watches_of(seen)) == 1)
    before = len(told.changes)
    position = watches_of(proxy.seen())[0].query["resourceVersion"][0]
    with proxy.refusing():
        put(cluster, unique, "changed", "2")
        remove(cluster, unique, "deleted")
        put(cluster, unique, "new", "1")
        # Its watch cache now begins after those changes: it cannot tell them any more and must say 410.
        control_plane.kill_api_server()
        control_plane.start_api_server()
        with pytest.raises(Expired, match="too old resource version"):
            read_all_changes(cluster, position)
        lists_before = len(lists_of(proxy.seen()))
    told.wait_until(lambda: len(told.changes) >= before + 3)
    assert sorted(told.changes[before:]) == [
        (f"{unique}-changed", "1", "2"),
        (f"{unique}-deleted", "1", None),
        (f"{unique}-new", None, "1"),
    ]
    assert len(lists_of(proxy.seen())) > lists_before


def test_an_object_nested_too_deeply_is_left_out_and_the_watch_goes_on(
    control_plane: ControlPlane, proxy: FaultInjectingProxy, faulty: Cluster, unique: str, stop: threading.Event
) -> None:
    kind = ResourceType("resource.k8s.io", "v1", "DeviceClass", "deviceclasses")
    keys = control_plane.directory / "pki"

    def put_class(name: str, depth: int) -> None:
        """Parameters of a driver are free."""
        spec = {"config": [{"opaque": {"driver": "example.com", "parameters": {"a": []}}}]}
        metadata = {"name": f"{unique}-{name}", "labels": {"set": unique}}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, "spec": spec}
        answer = requests.patch(
            f"{control_plane.server_url}{kind.collection()}/{metadata['name']}?fieldManager=test",
            data=json.dumps(body).replace("[]", "[" * depth + "]" * depth),
            headers={"Content-Type": "application/apply-patch+yaml"},
            cert=(str(keys / "admin.crt"), str(keys / "admin.key")),
            verify=str(keys / "ca.crt"),
            timeout=GENEROUS_SECONDS,
        )
        assert answer.ok, answer.text

    put_class("grows", 1)
    informer = Informer(faulty, kind, label_selector=f"set={unique}")
    told: queue.Queue[tuple[str, bool]] = queue.Queue()
    informer.subscribe(lambda key, old, new: told.put((key.removeprefix(f"{unique}-"), new is not None)))
    informer.start(stop)
    assert told.get(timeout=GENEROUS_SECONDS) == ("grows", True)
    for name, depth in (("deep", 2000), ("grows", 2000), ("deep", 2001), ("plain", 1)):
        put_class(name, depth)
    assert [told.get(timeout=GENEROUS_SECONDS) for _ in range(2)] == [("grows", False), ("plain", True)]
    assert (len(lists_of(proxy.seen())), len(watches_of(proxy.seen())), informer.failures) == (1, 1, 0)


def test_an_expired_watch_answers_410_in_status_or_in_the_stream(
    proxy: FaultInjectingProxy, faulty: Cluster, cluster: Cluster, unique: str, stop: threading.Event
) -> None:
    put(cluster, unique, "a", "1")
    gone = status_body(410, "too old resource version: 1 (2)")
    answers = [Injected(410, gone), Injected(200, b'{"type":"ERROR","object":' + gone + b"}\n")]
    proxy.inject(lambda request: answers.pop() if request.watches and answers else None)
    _, told = follow(faulty, unique, stop)
    proxy.wait_until(lambda seen: len(watches_of(seen)) == 3)
    assert len(lists_of(proxy.seen())) == 3, "each 410 leads to a list"
    put(cluster, unique, "a", "2")
    told.wait_for((f"{unique}-a", "1", "2"))
    assert told.changes == [(f"{unique}-a", None, "1"), (f"{unique}-a", "1", "2")], "nothing is told twice"


def test_a_new_list_takes_no_memory_for_what_did_not_change_and_shares_its_strings(
    cluster: Cluster, unique: str
) -> None:
    for name, value in (("a", "as it was"), ("b", "as it was"), ("c", "1")):
        put(cluster, unique, name, value)
    informer = Informer(cluster, CONFIG_MAPS, namespace="default", label_selector=f"set={unique}")
    informer._list()
    before = {key: informer.get(f"default/{unique}-{key}") for key in "abc"}

    put(cluster, unique, "c", "2")
    informer._list()
    after = {key: informer.get(f"default/{unique}-{key}") for key in "abc"}

    assert [after[key] is before[key] for key in "abc"] == [True, True, False]
    assert after["a"] is not None
    assert after["b"] is not None
    assert after["a"]["data"]["value"] is after["b"]["data"]["value"]


def test_errors_of_the_server_are_waited_out_more_and_more_patiently(
    proxy: FaultInjectingProxy, faulty: Cluster, cluster: Cluster, unique: str, stop: threading.Event
) -> None:
    put(cluster, unique, "a", "1")
    overloaded = Injected(503, status_body(503, "overloaded"), {"Retry-After": "0"})
    proxy.inject(lambda request: overloaded)
    informer, told = follow(faulty, unique, stop)
    stop.wait(3)
    # 0.2, 0.4, 0.8, 1.6 s, halved at most by jitter: a slow machine only makes it fewer
    assert len(proxy.seen()) <= 6
    assert not informer.has_synced
    proxy.inject(lambda request: None)
    assert informer.wait_for_sync(GENEROUS_SECONDS)
    told.wait_for((f"{unique}-a", None, "1"))


def test_a_watch_that_the_server_ends_at_once_again_and_again_does_not_become_a_loop(
    proxy: FaultInjectingProxy, faulty: Cluster, unique: str, stop: threading.Event
) -> None:
    proxy.inject(lambda request: Injected(200, b"") if request.watches else None)
    informer, _ = follow(faulty, unique, stop)
    assert informer.wait_for_sync(GENEROUS_SECONDS)
    stop.wait(3)
    assert len(watches_of(proxy.seen())) <= 6


def test_a_watch_that_died_without_a_word_is_noticed(
    proxy: FaultInjectingProxy, faulty: Cluster, cluster: Cluster, unique: str, stop: threading.Event
) -> None:
    put(cluster, unique, "a", "1")
    _, told = follow(faulty, unique, stop, watch_seconds=2)
    proxy.wait_until(lambda seen: len(watches_of(seen)) == 1)
    proxy.silence_open_streams()
    put(cluster, unique, "a", "2")
    told.wait_for((f"{unique}-a", "1", "2"))
    assert len(lists_of(proxy.seen())) == 1, "the next watch goes on where the dead one was; no new list"


def test_bookmarks_move_a_quiet_watch_on(
    proxy: FaultInjectingProxy, faulty: Cluster, cluster: Cluster, unique: str, stop: threading.Event
) -> None:
    follow(faulty, unique, stop, watch_seconds=4)
    proxy.wait_until(lambda seen: len(watches_of(seen)) == 1)
    put(cluster, f"{unique}-other", "a", "1")  # moves the cluster on, not this collection

    def moved_on(seen: Any) -> bool:
        versions = [int(request.query["resourceVersion"][0]) for request in watches_of(seen)]
        return versions[-1] > versions[0]

    proxy.wait_until(moved_on)


def test_nothing_is_said_to_be_complete_before_it_is(
    proxy: FaultInjectingProxy, faulty: Cluster, unique: str, stop: threading.Event
) -> None:
    with proxy.refusing():
        informer, _ = follow(faulty, unique, stop)
        proxy.wait_until(lambda seen: len(seen) >= 2)
        assert not informer.has_synced
        assert not informer.wait_for_sync(0.1)
    assert informer.wait_for_sync(GENEROUS_SECONDS)


def test_a_quiet_watch_ends_when_it_is_told_to(cluster: Cluster, unique: str, stop: threading.Event) -> None:
    before = set(threading.enumerate())
    informer, _ = follow(cluster, unique, stop, watch_seconds=600)
    threads = set(threading.enumerate()) - before
    assert informer.wait_for_sync(GENEROUS_SECONDS)
    stop.set()
    for thread in threads:
        thread.join(GENEROUS_SECONDS)
        assert not thread.is_alive(), thread.name


def test_an_index_knows_what_its_subscribers_are_just_told(
    cluster: Cluster, unique: str, stop: threading.Event
) -> None:
    informer = Informer(cluster, CONFIG_MAPS, namespace="default", label_selector=f"set={unique}")
    by_value = informer.index(lambda body: [body["data"]["value"]])
    told, found = Told(), []

    def look(key: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        found.append({value: len(by_value.get(value)) for value in ("1", "2")})
        told(key, old, new)

    informer.subscribe(look)
    put(cluster, unique, "a", "1")
    informer.start(stop)
    told.wait_for((f"{unique}-a", None, "1"))
    put(cluster, unique, "a", "2")
    told.wait_for((f"{unique}-a", "1", "2"))
    remove(cluster, unique, "a")
    told.wait_for((f"{unique}-a", "2", None))
    assert found == [{"1": 1, "2": 0}, {"1": 0, "2": 1}, {"1": 0, "2": 0}]


def test_an_index_that_comes_late_has_what_is_there(cluster: Cluster, unique: str, stop: threading.Event) -> None:
    put(cluster, unique, "a", "1")
    informer, _ = follow(cluster, unique, stop)
    assert informer.wait_for_sync(GENEROUS_SECONDS)
    assert [body["metadata"]["name"] for body in informer.index(lambda b: b["data"].values()).get("1")] == [
        f"{unique}-a"
    ]


def test_an_object_that_cannot_be_indexed_is_left_out_and_the_others_are_found(
    cluster: Cluster, unique: str, stop: threading.Event
) -> None:
    put(cluster, unique, "a", "1")
    put(cluster, unique, "b", "2")
    informer, _ = follow(cluster, unique, stop)
    assert informer.wait_for_sync(GENEROUS_SECONDS)
    index = informer.index(lambda body: [{"1": "one"}[body["data"]["value"]]])
    assert [body["metadata"]["name"] for body in index.get("one")] == [f"{unique}-a"]
