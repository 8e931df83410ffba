"""Requests that two programs may read differently, that never end, or that ask for a file which is none of theirs.

Sent to nginx as the boot host runs it, with the service behind it. docs/threat-model.md, "Whoever reaches the boot
host".
"""

from __future__ import annotations

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint, request

from provisioner.join.admission.admit import NotYet
from tests.boot.test_web import World
from tests.join.front import Front, connect, serve, serve_behind_nginx
from tests.join.samples import body

SECRET = "PRIVATE KEY"
NEIGHBOUR, VICTIM = "127.0.0.99", "127.0.0.21"
PATIENCE_SECONDS = 60.0


@dataclass
class Heard:
    """What came through: joins with source and way, and the addresses that reported progress."""

    joins: list[tuple[str, bool]] = field(default_factory=list)
    reports: list[str | None] = field(default_factory=list)

    def join(self, _asked: Any, source_address: str, *, by_dpu: bool = False) -> Any:
        self.joins.append((source_address, by_dpu))
        return NotYet("NotOrdered", "nobody ordered it")

    def beside(self) -> Blueprint:
        blueprint = Blueprint("beside", "beside")

        @blueprint.route("/v1/progress", methods=["GET", "POST"])
        def progress() -> str:
            self.reports.append(request.remote_addr)
            return "reported\n"

        return blueprint


@contextmanager
def front_of(
    heard: Heard, folder: Path, weaken: Callable[[str], str] = lambda configuration: configuration
) -> Iterator[Front]:
    """The private key of its TLS lies in `folder`, beside what is served."""
    with serve_behind_nginx(heard, folder, beside=[heard.beside()], weaken=weaken) as front:
        (folder / "images" / "parts").mkdir()
        assert SECRET in (folder / "server.pem").read_text()
        yield front


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Front, Heard, Path]]:
    """One front for all tests that take nothing out of it, and the folder that it serves from."""
    heard, folder = Heard(), tmp_path_factory.mktemp("front")
    with front_of(heard, folder) as front:
        yield front, heard, folder


@pytest.fixture
def heard(standing: tuple[Front, Heard, Path]) -> Heard:
    heard = standing[1]
    heard.joins.clear()
    heard.reports.clear()
    return heard


@pytest.fixture
def front(standing: tuple[Front, Heard, Path]) -> Front:
    return standing[0]


def send(front: Front, data: bytes, *, tls: bool = False, source: str = NEIGHBOUR) -> bytes:
    """All that comes back for these bytes, until the other end closes."""
    port = front.port if tls else front.http_port
    with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS, (source, 0)) as plain, ExitStack() as stack:
        context = ssl.create_default_context(cadata=front.authority.pem())
        wire = stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1")) if tls else plain
        came = b""
        try:
            wire.sendall(data)
            while piece := wire.recv(65536):
                came += piece
        except (ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
            pass  # it was refused while we were still talking
        return came


def get(target: str, *headers: str, method: str = "GET") -> bytes:
    lines = (f"{method} {target} HTTP/1.1", "Host: boot", "Connection: close", *headers)
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1]) if reply.startswith(b"HTTP/1.1 ") else 0


TRAVERSALS = (
    "/..%2fserver.pem", "/ipxe/..%2f..%2fserver.pem", "/ipxe/%2e%2e/%2e%2e/server.pem", "/images/..%2fserver.pem",
    "/images../server.pem", "/images/parts/..%2f..%2fserver.pem", "/images/parts/../../server.pem",
    "/tftp/..%2fserver.pem",
    "/tftp/..%252fserver.pem", "/ipxe../server.pem", "/..%5cserver.pem", "/ipxe/..%5c..%5cserver.pem",
    "/ipxe/%c0%ae%c0%ae/server.pem", "/ipxe/x%00/../../server.pem", "//..//server.pem", "/./../server.pem",
    "/ipxe.efi/..%2f..%2fserver.pem", "http://boot/../server.pem", "http://boot/images../server.pem", "server.pem",
    "/v1/..%2f..%2fserver.pem", "/ipxe/.%2e/.%2e/server.pem", "/images/sha256-" + "ab" * 32 + "/..%2f..%2fserver.pem",
)  # fmt: skip


def test_no_path_leads_out_of_what_is_served(front: Front) -> None:
    for target in TRAVERSALS:
        reply = send(front, get(target))
        assert SECRET.encode() not in reply, target
        assert status_of(reply) in (200, 400, 404), target
        assert status_of(reply) != 200 or target.startswith("/ipxe/"), "a machine without a script is told to wait"


def test_a_path_out_of_what_is_served_succeeds_without_the_expression_of_names(heard: Heard, tmp_path: Path) -> None:
    """An alias of a prefix without its slash, as many write it, gives what lies beside the folder."""

    def weaken(configuration: str) -> str:
        careless = f'location /images {{ alias {tmp_path}/images/; }}\n        location ~ "^/images/'
        assert 'location ~ "^/images/' in configuration
        return configuration.replace('location ~ "^/images/', careless, 1)

    with front_of(heard, tmp_path, weaken) as front:
        assert SECRET.encode() in send(front, get("/images../server.pem"))


ASKED = body()
JSON = "Content-Type: application/json"
SMUGGLED = get("/by-dpu/v1/join", JSON, f"Content-Length: {len(ASKED)}", method="POST") + ASKED
AMBIGUOUS = {
    "two lengths": ("Content-Length: 0", f"Content-Length: {len(SMUGGLED)}"),
    "two lengths in one": (f"Content-Length: 0, {len(SMUGGLED)}",),
    "length and chunks": (f"Content-Length: {len(SMUGGLED)}", "Transfer-Encoding: chunked"),
    "chunks and length": ("Transfer-Encoding: chunked", "Content-Length: 0"),
    "chunks that are none": ("Transfer-Encoding: xchunked",),
    "chunks twice": ("Transfer-Encoding: chunked, identity",),
    "a blank before the colon": ("Transfer-Encoding : chunked", "Content-Length: 0"),
    "a negative length": ("Content-Length: -1",),
    "a length with a sign": ("Content-Length: +0",),
    "a length in hexadecimal digits": ("Content-Length: 0x0",),
    "a length beyond all numbers": (f"Content-Length: {'9' * 40}",),
}


@pytest.mark.parametrize("headers", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_a_request_of_two_lengths_carries_no_second_one_past_the_front(
    front: Front, heard: Heard, headers: tuple[str, ...]
) -> None:
    """The second one would ask as what DPUs pass on, which has no way but a port of its own."""
    ambiguous = get("/v1/join", JSON, *headers, method="POST") + b"0\r\n\r\n"
    reply = send(front, ambiguous + SMUGGLED, tls=True)
    assert [by_dpu for _, by_dpu in heard.joins if by_dpu] == []
    assert status_of(reply) in (0, 400, 408, 411, 413, 501), reply[:80]


def test_what_dpus_pass_on_is_asked_for_at_any_port_without_the_list_of_paths(heard: Heard, tmp_path: Path) -> None:
    """The twin of the one above: behind a front that passes all paths on, there is the other way."""

    def weaken(configuration: str) -> str:
        plain, tls, encrypted = configuration.partition(" ssl backlog=")
        encrypted = encrypted.replace("        location / { return 404; }\n", "")
        return plain + tls + encrypted.replace("location = /v1/join {", "location / {")

    with front_of(heard, tmp_path, weaken) as front:
        send(front, SMUGGLED, tls=True)
    assert heard.joins == [(NEIGHBOUR, True)]


TOO_LARGE = {
    "a line": (get("/" + "a" * 9000), (414,)),
    "a header": (get("/boot.ipxe", "X-A: " + "a" * 9000), (400, 431)),
    "many headers": (get("/boot.ipxe", *(f"X-{n}: {'a' * 1000}" for n in range(60))), (400, 431)),
    "the name of a header": (get("/boot.ipxe", "X" * 9000 + ": a"), (400, 431)),
}


@pytest.mark.parametrize(("sent", "statuses"), TOO_LARGE.values(), ids=TOO_LARGE)
def test_a_head_that_is_too_large_is_refused(front: Front, sent: bytes, statuses: tuple[int, ...]) -> None:
    assert status_of(send(front, sent)) in statuses


def test_a_head_of_any_size_is_taken_without_the_bound_of_a_head(tmp_path: Path) -> None:
    def weaken(configuration: str) -> str:
        assert "large_client_header_buffers 4 8k;" in configuration
        return configuration.replace("large_client_header_buffers 4 8k;", "large_client_header_buffers 64 64k;")

    with front_of(Heard(), tmp_path, weaken) as front:
        assert [status_of(send(front, sent)) for sent, _ in TOO_LARGE.values()] == [404, 404, 404, 404]


CONFUSED = {
    "two hosts": b"GET /v1/progress HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
    "no host": b"GET /v1/progress HTTP/1.1\r\nConnection: close\r\n\r\n",
    "a host that is a path": b"GET /v1/progress HTTP/1.1\r\nHost: a/../b\r\nConnection: close\r\n\r\n",
    "a host with a blank": b"GET /v1/progress HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n",
    "a byte of zero": b"GET /v1/progress HTTP/1.1\r\nHost: a\r\nX-A: a\x00b\r\nConnection: close\r\n\r\n",
    "another version": b"GET /v1/progress HTTP/3.7\r\nHost: a\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a proxy's method": b"CONNECT 10.90.0.11:443 HTTP/1.1\r\nHost: 10.90.0.11:443\r\n\r\n",
    "a method that repeats what it was sent": get("/v1/progress", method="TRACE"),
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(80),
}


@pytest.mark.parametrize("sent", CONFUSED.values(), ids=CONFUSED)
def test_what_is_no_request_of_ours_is_not_passed_on(front: Front, heard: Heard, sent: bytes) -> None:
    reply = send(front, sent)
    assert status_of(reply) in (0, 400, 405, 505), reply[:80]
    assert heard.reports == []
    assert status_of(send(front, get("/v1/progress"))) == 200
    assert heard.reports == [NEIGHBOUR]


def test_what_is_no_request_of_ours_is_passed_on_without_the_front(tmp_path: Path) -> None:
    """The service itself takes what has two hosts, none, or one that is no name."""
    heard = Heard()
    with serve(heard, tmp_path / "s", beside=[heard.beside()]) as path:
        for why in ("two hosts", "no host", "a host that is a path", "a host with a blank"):
            with connect(path) as client:
                line, _, rest = CONFUSED[why].partition(b"\r\n")
                client.sendall(line + f"\r\nX-Real-IP: {VICTIM}\r\n".encode() + rest)
                assert status_of(client.recv(4096)) == 200, why
    assert heard.reports == [VICTIM] * 4


def test_an_absolute_address_asks_this_host_and_no_other(front: Front, heard: Heard) -> None:
    assert status_of(send(front, get("http://10.90.0.11/redfish/v1"))) == 404
    assert status_of(send(front, get("https://10.90.0.11:6443/api/v1/secrets"))) == 404
    reply = send(front, get("https://boot/v1/join", "Content-Length: 0", method="POST"))
    assert (status_of(reply), b"NotEncrypted" in reply) == (403, True), "a word of the client's is no TLS"
    assert heard == Heard()


def test_a_join_in_the_clear_succeeds_without_the_fronts_refusal(heard: Heard, tmp_path: Path) -> None:
    """Also as if by https."""

    def weaken(configuration: str) -> str:
        refusal = next(line for line in configuration.splitlines() if "NotEncrypted" in line)
        return configuration.replace(refusal, "")

    asked = (JSON, f"Content-Length: {len(ASKED)}")
    with front_of(heard, tmp_path, weaken) as front:
        for target in ("/v1/join", "https://boot/v1/join"):
            assert status_of(send(front, get(target, *asked, method="POST") + ASKED)) == 425
    assert heard.joins == [(NEIGHBOUR, False)] * 2


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1@evil.example"])
def test_no_host_that_a_machine_names_comes_into_a_script(host: str) -> None:
    """Else who poisons a cache or a redirect would have machines fetch from elsewhere."""
    client = World().client()
    asked = "/v1/unknown?mac=52-54-00-12-34-56"
    assert client.get(asked, headers={"Host": host}).text == client.get(asked).text


LIES = ("X-Real-IP", "X-Forwarded-For", "X_Real_IP", "X-Real-Ip ", "Forwarded", "X-Original-Forwarded-For", "Via")


@pytest.mark.parametrize("name", LIES)
def test_an_address_that_a_client_writes_is_not_its_address(front: Front, heard: Heard, name: str) -> None:
    said = f"for={VICTIM}" if name == "Forwarded" else VICTIM
    reply = send(front, get("/v1/progress", f"{name}: {said}", f"{name}: {said}"))
    assert heard.reports == ([NEIGHBOUR] if status_of(reply) == 200 else [])
    assert status_of(reply) in (200, 400)


def test_an_address_that_a_client_writes_succeeds_without_the_fronts_own_word(heard: Heard, tmp_path: Path) -> None:
    def weaken(configuration: str) -> str:
        return configuration.replace("X-Real-IP $remote_addr", "X-Real-IP $http_x_real_ip")

    with front_of(heard, tmp_path, weaken) as front:
        send(front, get("/v1/progress", f"X-Real-IP: {VICTIM}"))
    assert heard.reports == [VICTIM]


def _seconds(of: str) -> Callable[[str], str]:
    """The same configuration with another time for a head; and few connections, so that few are all."""

    def change(configuration: str) -> str:
        assert "client_header_timeout 15s;" in configuration
        few = configuration.replace("worker_connections 256;", "worker_connections 32;")
        return few.replace("client_header_timeout 15s;", f"client_header_timeout {of};")

    return change


@contextmanager
def _slow_clients(front: Front) -> Iterator[None]:
    """As many connections as nginx has, each with half a head."""
    with ExitStack() as stack:
        for _ in range(100):
            client = stack.enter_context(
                socket.create_connection(("127.0.0.1", front.http_port), PATIENCE_SECONDS, (NEIGHBOUR, 0))
            )
            client.settimeout(0.05)
            try:
                client.sendall(b"GET /v1/progress HTTP/1.1\r\nHost: b")
                client.recv(1)
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            break  # closed at once: there is no room for more
        yield


def test_clients_that_never_end_their_request_are_left_and_the_next_is_answered(heard: Heard, tmp_path: Path) -> None:
    with front_of(heard, tmp_path, _seconds("1s")) as front, _slow_clients(front):
        assert answered(front, VICTIM, within_seconds=PATIENCE_SECONDS)
    assert heard.reports == [VICTIM]


def test_clients_that_never_end_their_request_succeed_without_the_time_for_a_head(heard: Heard, tmp_path: Path) -> None:
    with front_of(heard, tmp_path, _seconds("1h")) as front, _slow_clients(front):
        assert not answered(front, VICTIM, within_seconds=4.0)


def test_who_sends_on_and_on_after_a_refusal_is_cut_off(front: Front) -> None:
    with socket.create_connection(("127.0.0.1", front.http_port), PATIENCE_SECONDS, (NEIGHBOUR, 0)) as client:
        client.sendall(get("/v1/progress", "Content-Length: 1000000", method="POST"))
        assert status_of(client.recv(65536)) == 413
        deadline = time.monotonic() + PATIENCE_SECONDS

        def drip() -> None:
            while time.monotonic() < deadline:
                client.sendall(b"x")
                time.sleep(0.05)

        with pytest.raises(ConnectionError):
            drip()


def answered(front: Front, source: str, *, within_seconds: float) -> bool:
    """nginx closes a connection at once when it has no room; who boots asks again."""
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        with (
            suppress(TimeoutError, ConnectionError),
            socket.create_connection(("127.0.0.1", front.http_port), within_seconds, (source, 0)) as client,
        ):
            client.sendall(get("/v1/progress"))
            if status_of(client.recv(4096)) == 200:
                return True
        time.sleep(0.05)
    return False


def test_what_is_logged_of_a_hostile_request_is_one_line(standing: tuple[Front, Heard, Path]) -> None:
    front, _, folder = standing
    assert clients_that_are_logged(front, folder) == {NEIGHBOUR}


def test_what_is_logged_names_another_client_without_the_escapes(tmp_path: Path) -> None:
    def weaken(configuration: str) -> str:
        assert "escape=json" in configuration
        return configuration.replace("escape=json", "escape=none")

    with front_of(Heard(), tmp_path, weaken) as front:
        assert "forged" in clients_that_are_logged(front, tmp_path)


def clients_that_are_logged(front: Front, folder: Path) -> set[str]:
    """Of requests that would write a line of their own, or end a value to write the next one."""
    log, forged = folder / "access.log", '{"client":"forged"}'
    send(front, get(f"/ipxe/%0a{forged}", f'User-Agent: a"\\x0a{forged}', "Referer: \x1b[2J", "X-Last: yes"))
    send(front, get("/boot.ipxe", 'User-Agent: a","client":"forged'))
    send(front, get("/boot.ipxe", "User-Agent: the-last-one"))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "the-last-one" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return {client_of(line) for line in log.read_text().splitlines()}


def client_of(line: str) -> str:
    """Empty of what is no line of the log."""
    try:
        return str(json.loads(line)["client"])
    except ValueError:
        return ""
