"""The server under clients that behave badly, and words that its pages take from the commands."""

from __future__ import annotations

import gzip
import re
import socket
import threading
import time
from contextlib import ExitStack, suppress
from typing import Any, cast

import pytest
import urllib3

from provisioner.cli.rollout.pool_view import make_view
from provisioner.cli.rollout.screen import render_rollout
from provisioner.cli.service.web_words import WordsOfCommands
from provisioner.cluster.client import Cluster, ListResult
from provisioner.cluster.recent_events import RecentEvents
from provisioner.cluster.resources import LEASES
from provisioner.cluster.source import Source
from provisioner.rollout.borrowed import lending_of
from provisioner.web.pages.pools import bars
from provisioner.web.pages.service import MOST_SENT_BYTES, UNREAD_SECONDS, Listening, WebService, listen_at
from provisioner.web.shared import Shared
from provisioner.web.viewers import TooMany, Viewers
from tests.web.conftest import Served, served
from tests.web.fake_source import fake_caches
from tests.web.made_up_fleet import NOON, make_fleet

PATIENCE_SECONDS = 60


def opened(site: Served, text: str) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", site.port), timeout=PATIENCE_SECONDS)
    made.sendall(text.encode())
    return made


def ask(site: Served, path: str = "/", host: str = "127.0.0.1") -> bytes:
    with opened(site, f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n") as connection:
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_pages_are_answered_while_all_streams_are_taken_and_others_send_nothing(site: Served) -> None:
    with ExitStack() as stack:
        streams = [
            stack.enter_context(opened(site, "GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")) for _ in range(20)
        ]
        for each in streams:
            assert b"200 OK" in each.recv(4096)
        for _ in range(40):
            stack.enter_context(opened(site, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "))
        assert b" 503 " in ask(site, "/events")
        assert b"200 OK" in ask(site)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while site.service.site.viewers.streams:
        assert time.monotonic() < deadline, "a client that went holds no stream"
        site.service.broadcast.publish({"n": 1}, ())
        time.sleep(0.05)


def test_who_opens_connections_without_end_and_says_little_shuts_nobody_out(site: Served) -> None:
    over, began = threading.Event(), threading.Event()

    def hold() -> None:
        """So many that no other would be taken in, each kept alive by a byte; one that was closed is opened anew."""
        with ExitStack() as stack:
            held: list[socket.socket] = []
            while not over.is_set():
                with suppress(OSError):
                    while len(held) < 300:
                        held.append(stack.enter_context(opened(site, "GET / HTTP/1.1\r\nX-Slow: ")))
                began.set()
                for each in list(held):
                    try:
                        each.sendall(b"x")
                    except OSError:
                        held.remove(each)
                over.wait(0.2)

    attacker = threading.Thread(target=hold, daemon=True)
    attacker.start()
    with opened(site, "GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as stream:
        assert b"200 OK" in stream.recv(4096)
        assert began.wait(PATIENCE_SECONDS)
        for _ in range(5):
            assert b"200 OK" in ask(site)
        site.service.broadcast.publish({"n": 7}, ())
        told = b""
        while b'{"n":7}' not in told:
            part = stream.recv(4096)
            assert part, "who follows a page is not closed for others"
            told += part
    over.set()
    attacker.join(PATIENCE_SECONDS)


def test_heads_of_streams_take_no_place_of_a_viewer(site: Served) -> None:
    for _ in range(25):
        with opened(site, "HEAD /events HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n") as asked:
            assert b"200 OK" in asked.recv(4096)
    with opened(site, "GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n") as stream:
        assert b"200 OK" in stream.recv(4096)


def test_one_person_does_not_take_all_streams() -> None:
    viewers = Viewers(5, 2)
    for who in ("ada", "ada", "bob"):
        viewers.enter(who)
    with pytest.raises(TooMany, match="2 pages are followed by you"):
        viewers.enter("ada")
    viewers.leave("ada")
    for who in ("ada", "bob", "eve"):
        viewers.enter(who)
    with pytest.raises(TooMany, match="5 pages are followed already"):
        viewers.enter("joe")


def test_requests_are_bounded_in_size(site: Served) -> None:
    with opened(site, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + "x" * (MOST_SENT_BYTES + 1) + "\r\n\r\n") as sent:
        assert b"431" in sent.recv(4096)
    with opened(
        site, f"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {MOST_SENT_BYTES * 9}\r\n\r\n"
    ) as sent:
        assert b"413" in sent.recv(4096)


def test_the_kernel_gives_up_a_client_that_takes_nothing() -> None:
    accepted = threading.Event()
    found: list[int] = []
    server = listen_at("127.0.0.1", 0)  # what is set on a listening socket holds for what it accepts
    server.listen()

    def accept() -> None:
        connection, _ = server.accept()
        found.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT))
        accepted.set()

    threading.Thread(target=accept, daemon=True).start()
    with socket.create_connection(server.getsockname()):
        assert accepted.wait(PATIENCE_SECONDS)
    assert found == [UNREAD_SECONDS * 1000]
    server.close()


def test_pages_are_compressed_for_who_takes_that(site: Served) -> None:
    def get(accepted: str) -> urllib3.BaseHTTPResponse:
        headers = {"Accept-Encoding": accepted}
        return urllib3.request("GET", f"{site.url}/", headers=headers, decode_content=False, timeout=PATIENCE_SECONDS)

    packed, whole = get("gzip"), get("gzip;q=0")
    assert (packed.headers["Content-Encoding"], packed.headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert "r01-u36" in gzip.decompress(packed.data).decode()
    assert "Content-Encoding" not in whole.headers
    assert "r01-u36" in whole.data.decode()


def test_nothing_is_shown_before_all_is_known() -> None:
    fleet = served(make_fleet(8))
    fleet.source("nodes").has_synced = False
    visitor = fleet.service.app.test_client()
    fleet.service.follower.step()
    assert visitor.get("/readyz", headers={"Host": "127.0.0.1"}).status_code == 503
    assert visitor.get("/", headers={"Host": "127.0.0.1"}).status_code == 503
    assert visitor.get("/healthz", headers={"Host": "127.0.0.1"}).status_code == 200
    fleet.source("nodes").has_synced = True
    fleet.service.follower.step()
    assert visitor.get("/readyz", headers={"Host": "127.0.0.1"}).status_code == 200


def test_a_pool_is_told_as_the_command_tells_it() -> None:
    from provisioner.api import Image, Maintenance, NodePool
    from provisioner.api.machinery.codec import decode

    fleet = make_fleet(48)
    caches = fake_caches(
        racks=fleet.racks, servers=fleet.servers, pools=fleet.pools, images=fleet.images,
        maintenances=fleet.maintenances, nodes=fleet.nodes,
    )  # fmt: skip
    words = WordsOfCommands(caches, now=lambda: NOON)
    for _ in range(2):  # made anew, and from what was kept
        told = words.of_pool("gpu")
        assert told is not None
        view = make_view(
            decode(NodePool, fleet.pools[0]),
            decode(Image, fleet.images[1]),
            fleet.servers,
            {node["metadata"]["name"]: node for node in fleet.nodes},
            [decode(Maintenance, body) for body in fleet.maintenances],
            lending_of([], NOON),
            NOON,
        )
        screen = " ".join(render_rollout(view, everything=True).split())
        assert " ".join(told.told.headline.split()) in screen
        for label, entries in told.told.sections:
            for entry in entries:
                assert " ".join(entry.split()) in screen, label
        for member in told.members:
            assert f"{member.name} {member.word}" in screen
        assert sum(count for *_, count in told.counts) == len(told.members) == len(view.standings)
        parts = bars(told)
        assert sum(width for *_, width in parts) == pytest.approx(1000, abs=1)
    assert words.of_pool("none") is None


def test_who_stands_elsewhere_now_is_judged_anew() -> None:
    fleet = make_fleet(48)
    caches = fake_caches(
        servers=fleet.servers,
        pools=fleet.pools,
        images=fleet.images,
        nodes=fleet.nodes,
        maintenances=fleet.maintenances,
    )
    words = WordsOfCommands(caches, now=lambda: NOON)

    def state(name: str) -> str:
        told = words.of_pool("gpu")
        assert told is not None
        return next(member.state for member in told.members if member.name == name)

    assert state("r06-u36") == "Outdated"
    nodes: Source = caches.nodes
    nodes.delete("r06-u36")  # type: ignore[attr-defined]
    assert state("r06-u36") == "Absent"
    assert state("r01-u26") == "Outdated"
    body = fleet.maintenances[-1]
    claimed = {**body, "status": {**body["status"], "phase": "Draining"}}
    server = body["spec"]["serverRef"]
    caches.maintenances.put(claimed)  # type: ignore[attr-defined]
    assert state(server) == "Updating"


def test_what_is_costly_is_made_once_for_all_who_look_and_rests_after_that() -> None:
    now = [0.0]
    shared: Shared[int] = Shared(2.0, lambda: now[0])
    made: list[float] = []

    def make() -> int:
        made.append(now[0])
        now[0] += 1.0  # it takes a second
        return len(made)

    assert [shared.get("a", make) for _ in range(3)] == [1, 1, 1]
    now[0] += 9.5
    assert shared.get("a", make) == 1, "ten times as long as it took"
    now[0] += 1.0
    assert shared.get("a", make) == 2
    assert shared.get("b", make) == 3
    with pytest.raises(ZeroDivisionError):
        shared.get("c", lambda: 1 // 0)
    assert shared.get("c", make) == 4, "who failed keeps nobody out"


def test_of_many_who_ask_at_once_one_makes_it() -> None:
    shared: Shared[int] = Shared(60.0, time.monotonic)
    begun, may_end, made, got = threading.Event(), threading.Event(), [], []

    def make() -> int:
        begun.set()
        may_end.wait(PATIENCE_SECONDS)
        made.append(1)
        return 7

    threads = [threading.Thread(target=lambda: got.append(shared.get("a", make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert begun.wait(PATIENCE_SECONDS)
    may_end.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert (made, got) == ([1], [7] * 8)


def test_events_are_shown_once_the_newest_first() -> None:
    from provisioner.web.server_events import shown_events

    def event(reason: str, minute: int, kind: str) -> dict[str, object]:
        moment = f"2026-03-04T12:{minute:02d}:00Z"
        return {"metadata": {"creationTimestamp": moment}, "reason": reason, "message": "m", "lastTimestamp": moment,
                "involvedObject": {"kind": kind}, "type": "Normal", "count": 3}  # fmt: skip

    read = RecentEvents((event("A", 1, "Server"), event("B", 2, "Server"), event("A", 3, "Node")))
    shown = shown_events(read)
    assert shown is not None
    assert [(each["reason"], each["time"][14:16]) for each in shown.rows] == [("A", "03"), ("B", "02")]
    assert shown_events(None) is None


class Leases:
    """A cluster in which nobody ever led."""

    def __init__(self) -> None:
        self.reads = 0

    def with_timeout(self, seconds: float) -> Leases:
        return self

    def list(self, kind: Any, **_: Any) -> Any:
        self.reads += kind is LEASES
        return ListResult(items=[], resource_version="1")


def test_every_page_says_that_no_controller_leads_by_one_read_of_the_leases() -> None:
    nobody = Leases()
    made = served(make_fleet(8))
    listening = Listening(
        address="127.0.0.1", port=0, with_tokens=False, audience=None, hosts=("localhost",), viewers=2
    )
    words = WordsOfCommands(made.caches, now=lambda: NOON)
    service = WebService(
        made.caches, words, listening, cluster=cast(Cluster, nobody), now=lambda: NOON, monotonic=lambda: 0.0
    )
    service.follower.step()
    client = service.app.test_client()
    pages = [client.get(path).get_data(as_text=True) for path in ("/", "/maintenances", "/pools", "/servers/r01-u01")]
    assert all("no controller leads, so nothing that waits goes on" in page for page in pages)
    assert nobody.reads == 1


@pytest.mark.parametrize(
    ("servers", "query", "words"),
    [
        (48, "?q=nobody-has-this-name", "Nothing: no server matches."),
        (48, "?state=production", "Nothing: every server that matches is in production, or retired."),
        (0, "", "Nothing: no server is registered yet."),
    ],
)
def test_the_fleet_says_that_nothing_waits_of_the_servers_that_were_asked_for(
    servers: int, query: str, words: str
) -> None:
    site = served(make_fleet(servers))
    site.service.follower.step()
    page = site.service.app.test_client().get(f"/{query}", base_url="http://127.0.0.1").get_data(as_text=True)
    assert words in page


def test_the_sentence_about_a_server_has_the_server_as_its_subject() -> None:
    site = served(make_fleet(48), now=lambda: NOON)
    site.service.follower.step()
    name = next(row.name for row in site.service.fleet.rows() if row.state == "production")
    page = site.service.app.test_client().get(f"/servers/{name}", base_url="http://127.0.0.1").get_data(as_text=True)
    head = " ".join(re.sub("<[^>]*>", " ", page.partition("<dl")[0]).split())
    assert f"{name} is in production; nothing is asked of it" in head
    assert "in production is in production" not in head
