"""A BMC in an attacker's hands costs nothing but its own server: not memory, not time, nobody's password, no terminal.

While each attack is at work an honest BMC is asked by another connection, and answers.
"""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lab.bmc.resources import RESET_ACTION, ROOT, SESSIONS, SYSTEM
from provisioner.power.bmc import redfish_connection, redfish_session
from provisioner.power.bmc.power_controller import MESSAGE_LENGTH, BmcCutOff, BmcRefused, BmcUnreachable, fit
from provisioner.power.bmc.redfish import RedfishPower
from provisioner.power.bmc.redfish_connection import BODY_BYTES, PATH_LENGTH, REDIRECTS, REQUESTS
from tests.http_peer import HttpPeer
from tests.lab.fake_machine import PASSWORD, USERNAME, fake_server
from tests.outbound.tls_flood import CUT_BYTES
from tests.power.hostile_bmc import Attack, HostileBmc, Wire, access_to, hostile_bmc

PATIENCE = 180.0
UNDER_WAY_BYTES = 24 << 20
"""What may be between a sender and a reader who has hung up: buffers of the kernel, of TLS."""
GET_ROOT, GET_SYSTEM, GET_SYSTEMS = f"GET {ROOT}/", f"GET {SYSTEM}", f"GET {ROOT}/Systems"
HONEST_ROOT = {
    "Id": "RootService",
    "Name": "Root",
    "Systems": {"@odata.id": f"{ROOT}/Systems"},
    "Links": {"Sessions": {"@odata.id": SESSIONS}},
}
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[HostileBmc]:
    with hostile_bmc(tmp_path / "hostile") as made:
        yield made


@pytest.fixture
def honest(tmp_path: Path) -> Iterator[RedfishPower]:
    with fake_server(tmp_path / "honest", name="r01-u02") as server, closing(RedfishPower(access_to(server))) as made:
        yield made


def connect(bmc: HostileBmc, **bounds: float) -> RedfishPower:
    return RedfishPower(bmc.access, **bounds)


def while_honest_is_served(honest: RedfishPower, call: Callable[[], Any]) -> Future[Any]:
    """`call` in a thread of its own, over; the honest BMC was asked meanwhile."""
    with ThreadPoolExecutor(1) as threads:
        future = threads.submit(call)
        assert honest.get_power_state() == "Off"
        future.exception(PATIENCE)
    return future


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def endless_body(wire: Wire) -> None:
    wire.send(OK + b"\r\n")
    wire.endless(b"[" * 65536)


def endless_chunks(wire: Wire) -> None:
    wire.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    wire.endless(chunk(b" " * 65536))


def promised_body(wire: Wire) -> None:
    wire.send(OK + b"Content-Length: 1073741824\r\n\r\n")
    wire.endless(b" " * 65536)


def endless_chunk_length(wire: Wire) -> None:
    wire.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    wire.endless(b"0" * 65536)


def endless_header_line(wire: Wire) -> None:
    wire.send(OK + b"X-Long: ")
    wire.endless(b"a" * 65536)


def endless_headers(wire: Wire) -> None:
    wire.send(OK)
    wire.endless(b"X-One: %s\r\n" % (b"a" * 1000))


def endless_continue(wire: Wire) -> None:
    wire.endless(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def endless_trailers(wire: Wire) -> None:
    wire.send(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
    wire.endless(b"X-One: %s\r\n" % (b"a" * 1000))


@pytest.mark.parametrize(
    "attack",
    [
        endless_body,
        endless_chunks,
        promised_body,
        endless_chunk_length,
        endless_header_line,
        endless_headers,
        endless_continue,
        endless_trailers,
    ],
)
def test_an_answer_without_end_is_cut_off_at_its_bound(
    hostile: HostileBmc, honest: RedfishPower, attack: Attack
) -> None:
    hostile.attacks[GET_SYSTEM] = attack
    with closing(connect(hostile)) as power:
        failed = while_honest_is_served(honest, power.get_power_state).exception()
    assert isinstance(failed, BmcUnreachable), failed
    assert hostile.sent < BODY_BYTES + UNDER_WAY_BYTES, "of a gigabyte"


def test_who_sends_too_much_is_said_to_and_what_was_expected(hostile: HostileBmc, honest: RedfishPower) -> None:
    hostile.attacks[GET_SYSTEM] = promised_body
    with closing(connect(hostile)) as power:
        failed = while_honest_is_served(honest, power.get_power_state).exception()
    assert isinstance(failed, BmcCutOff), failed
    assert failed.reason == "BMCCutOff"
    assert f"it sent more than {BODY_BYTES} bytes" in str(failed)
    assert "reset the BMC or update its firmware" in str(failed)


def dripped_status_line(wire: Wire) -> None:
    wire.drip(b"H")


def dripped_header(wire: Wire) -> None:
    wire.send(OK + b"X-Long: ")
    wire.drip(b"a")


def dripped_chunk_length(wire: Wire) -> None:
    wire.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    wire.drip(b"0")


def dripped_chunks(wire: Wire) -> None:
    wire.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
    wire.drip(chunk(b" "))


def dripped_body(wire: Wire) -> None:
    wire.send(OK + b"Content-Length: 100000\r\n\r\n")
    wire.drip(b" ")


@pytest.mark.parametrize(
    "attack", [dripped_status_line, dripped_header, dripped_chunk_length, dripped_chunks, dripped_body]
)
def test_an_answer_that_drips_ends_with_its_time(hostile: HostileBmc, honest: RedfishPower, attack: Attack) -> None:
    hostile.attacks[GET_ROOT] = attack
    power = connect(hostile, read_seconds=2.5)
    failed = while_honest_is_served(honest, power.get_power_state).exception()
    assert isinstance(failed, BmcUnreachable), failed
    assert "no complete answer in time" in str(failed), "it was not silent"


def test_session_tickets_without_end_end_with_their_time(hostile: HostileBmc, honest: RedfishPower) -> None:
    """OpenSSL reads them inside of one call, which no time-out of a socket ends."""
    hostile.attacks[GET_ROOT] = Wire.flood_tickets
    power = connect(hostile, read_seconds=2.5)
    failed = while_honest_is_served(honest, power.get_power_state).exception()
    assert isinstance(failed, BmcUnreachable), failed
    assert "no complete answer in time" in str(failed)
    assert hostile.sent < CUT_BYTES, "it was cut off long before the flood was over"


def test_many_answers_that_are_each_in_time_end_with_the_call(hostile: HostileBmc, honest: RedfishPower) -> None:
    """Each of the login's requests takes less than a request may."""
    for asked in (GET_ROOT, f"POST {SESSIONS}", GET_SYSTEMS, GET_SYSTEM):

        def late(wire: Wire) -> None:
            hostile.stopped.wait(1.2)
            wire.document(HONEST_ROOT)

        hostile.attacks[asked] = late
    power = connect(hostile, call_seconds=2.0)
    failed = while_honest_is_served(honest, power.get_power_state).exception()
    assert isinstance(failed, BmcUnreachable), failed
    assert "answer in time" in str(failed)
    assert GET_SYSTEM not in hostile.asked


def test_a_packed_answer_is_not_unpacked(hostile: HostileBmc, honest: RedfishPower) -> None:
    bomb = gzip.compress(b" " * (100 << 20))
    assert len(bomb) < BODY_BYTES
    hostile.attacks[GET_SYSTEM] = lambda wire: wire.answer(bomb, "Content-Encoding: gzip")
    with closing(connect(hostile)) as power:
        failed = while_honest_is_served(honest, power.get_power_state).exception()
    assert isinstance(failed, BmcCutOff), failed
    assert "Content-Encoding 'gzip'" in str(failed)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[" * 200_000, "more than 10000 values"),
        (b"[" * 9000 + b"]" * 9000, "nested more than 32 deep"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "nested more than 32 deep"),
        (b'{"Members":[' + b"{}," * 50_000 + b"{}]}", "more than 10000 values"),
        (('{"Members":[' + "0," * 20_000 + "0]}").encode("utf-16"), "more than 10000 values"),
    ],
)
def test_a_document_that_is_far_larger_in_memory_is_not_read(
    hostile: HostileBmc, honest: RedfishPower, body: bytes, words: str
) -> None:
    assert len(body) < BODY_BYTES
    hostile.attacks[GET_SYSTEM] = lambda wire: wire.answer(body)
    with closing(connect(hostile)) as power:
        failed = while_honest_is_served(honest, power.get_power_state).exception()
    assert isinstance(failed, BmcCutOff), failed
    assert words in str(failed)


NO_ROOTS: tuple[Any, ...] = (
    [],
    "x",
    7,
    {"Systems": 5},
    HONEST_ROOT | {"Systems": {"@odata.id": 5}},
    HONEST_ROOT | {"Links": [1]},
    HONEST_ROOT | {"Links": {"Sessions": {"@odata.id": 5}}},
    {"error": 5},
    {"error": {"message": {"a": 1}, "@Message.ExtendedInfo": 5}},
)


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found", "400 Bad Request"])
def test_an_answer_of_another_shape_is_no_usable_answer(hostile: HostileBmc, honest: RedfishPower, status: str) -> None:
    def ask_all() -> None:
        for document in NO_ROOTS:
            hostile.attacks[GET_ROOT] = partial(Wire.document, document=document, status=status)
            with closing(connect(hostile)) as power, pytest.raises((BmcUnreachable, BmcRefused)):
                power.get_power_state()

    while_honest_is_served(honest, ask_all).result()


def test_a_list_of_systems_that_is_none_is_no_usable_answer(hostile: HostileBmc, honest: RedfishPower) -> None:
    def ask_all() -> None:
        for members in ({"a": 1}, [1, 2], [{"@odata.id": 5}], [{"@odata.id": [1]}], [None], "x", []):
            hostile.attacks[GET_SYSTEMS] = partial(Wire.document, document={"Members": members})
            with closing(connect(hostile)) as power, pytest.raises(BmcUnreachable, match="no usable answer"):
                power.get_power_state()

    while_honest_is_served(honest, ask_all).result()


def test_redirects_within_the_bmc_end(hostile: HostileBmc, honest: RedfishPower) -> None:
    hostile.attacks[GET_ROOT] = lambda wire: wire.answer(b"", f"Location: {ROOT}/", status="302 Found")
    power = connect(hostile)
    failed = while_honest_is_served(honest, power.get_power_state).exception()
    assert isinstance(failed, BmcCutOff), failed
    assert f"redirected more than {REDIRECTS} times" in str(failed)
    assert hostile.asked == [GET_ROOT] * (REDIRECTS + 1)


def test_a_redirect_within_the_bmc_is_followed(hostile: HostileBmc) -> None:
    """As honest ones do it, which want another slash."""
    hostile.attacks[GET_SYSTEMS] = lambda wire: wire.answer(b"", f"Location: {ROOT}/Systems/", status="308 Moved")
    with closing(connect(hostile)) as power:
        assert power.get_power_state() == "Off"


def test_a_password_is_not_posted_a_second_time_after_a_redirect(hostile: HostileBmc) -> None:
    hostile.attacks[f"POST {SESSIONS}"] = lambda wire: wire.answer(b"", f"Location: {ROOT}/x", status="307 Moved")
    with closing(connect(hostile)) as power, pytest.raises(BmcCutOff, match="POST with a redirect"):
        power.get_power_state()
    assert f"POST {ROOT}/x" not in hostile.asked


LINKS = (
    "https://{elsewhere}/redfish/v1/x",
    "http://{elsewhere}/redfish/v1/x",
    "//{elsewhere}/redfish/v1/x",
    "https://{own}@{elsewhere}/redfish/v1/x",
    "https://127.0.0.1/redfish/v1/x",
    "/elsewhere",
    "/redfish/" + "a" * PATH_LENGTH,
)


@pytest.mark.parametrize("place", ["root", "redirect", "members", "reset"])
def test_nothing_is_sent_to_where_a_bmc_points(
    hostile: HostileBmc, honest: RedfishPower, httpserver: HttpPeer, place: str
) -> None:
    def follow_all() -> None:
        for form in LINKS:
            link = form.format(elsewhere=f"127.0.0.1:{httpserver.port}", own=hostile.fake.url.removeprefix("https://"))
            lead_to(hostile, place, link)
            with closing(connect(hostile)) as power, pytest.raises(BmcRefused) as caught:
                power.reset()
            assert caught.value.reason == ("PlainHTTP" if link.startswith("http:") else "ForeignLink")
            assert PASSWORD not in str(caught.value)
            assert hostile.asked
            assert not any(link in asked for asked in hostile.asked)

    while_honest_is_served(honest, follow_all).result()
    assert httpserver.log == []


def lead_to(hostile: HostileBmc, place: str, link: str) -> None:
    reset = {"#ComputerSystem.Reset": {"target": link, "ResetType@Redfish.AllowableValues": ["ForceRestart"]}}
    system = {"@odata.id": SYSTEM, "Id": "1", "Name": "1", "PowerState": "On", "Actions": reset}
    root = HONEST_ROOT | {"Systems": {"@odata.id": link}}
    asked, answer = {
        "root": (GET_ROOT, lambda wire: wire.document(root)),
        "redirect": (GET_SYSTEM, lambda wire: wire.answer(b"", f"Location: {link}", status="302 Found")),
        "members": (GET_SYSTEMS, lambda wire: wire.document({"Members": [{"@odata.id": link}]})),
        "reset": (GET_SYSTEM, lambda wire: wire.document(system)),
    }[place]
    hostile.attacks[asked] = answer


def test_a_session_that_is_said_to_be_elsewhere_is_ended_at_the_bmc(hostile: HostileBmc, httpserver: HttpPeer) -> None:
    """Honest ones write it with a name of their own; others would have its token that way."""
    location = f"Location: https://127.0.0.1:{httpserver.port}{SESSIONS}/7"
    hostile.attacks[f"POST {SESSIONS}"] = lambda wire: wire.document({}, location, "X-Auth-Token: t", status="201 Made")
    hostile.attacks[GET_SYSTEMS] = lambda wire: wire.document({"Members": [{"@odata.id": SYSTEM}]})
    hostile.attacks[GET_SYSTEM] = lambda wire: wire.document({"Id": "1", "Name": "1", "PowerState": "On"})
    with closing(connect(hostile)) as power:
        assert power.get_power_state() == "On"
    assert hostile.asked[-1] == f"DELETE {SESSIONS}/7"
    assert httpserver.log == []


def test_of_sessions_without_end_some_are_looked_at(
    hostile: HostileBmc, honest: RedfishPower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a login whose answer got lost, all that it lists could be ours."""
    assert 2 * redfish_session.SESSIONS_LOOKED_AT < REQUESTS
    monkeypatch.setattr(redfish_session, "SESSIONS_LOOKED_AT", 5)
    listed = [{"@odata.id": f"{SESSIONS}/{number}"} for number in range(4000)]
    hostile.attacks[f"GET {SESSIONS}"] = lambda wire: wire.document({"Members": listed})
    for number in range(4000):
        hostile.attacks[f"GET {SESSIONS}/{number}"] = lambda wire: wire.document({"UserName": USERNAME})
        hostile.attacks[f"DELETE {SESSIONS}/{number}"] = lambda wire: wire.answer(b"", status="200 OK")
    hostile.fake.endpoint.faults.answers_lost.append("POST")
    with closing(connect(hostile, call_seconds=PATIENCE)) as power:
        with pytest.raises(BmcUnreachable):
            power.get_power_state()
        before = len(hostile.asked)
        assert while_honest_is_served(honest, power.get_power_state).result() == "Off"
    ended = [asked for asked in hostile.asked if asked.startswith(f"DELETE {SESSIONS}/")]
    assert 5 <= len(ended) <= 6, "and its own at the end"
    assert len(hostile.asked) - before < 20


def test_of_systems_without_end_none_is_asked_for(hostile: HostileBmc, honest: RedfishPower) -> None:
    listed = {
        "Members": [{"@odata.id": f"{ROOT}/Systems/{number}"} for number in range(3000)],
        "Members@odata.nextLink": f"{ROOT}/Systems?$skip=3000",
    }
    hostile.attacks[GET_SYSTEMS] = lambda wire: wire.document(listed)
    with closing(connect(hostile)) as power:
        failed = while_honest_is_served(honest, power.get_power_state).exception()
    assert isinstance(failed, BmcRefused), failed
    assert failed.reason == "SystemNotFound"
    assert "3000 systems" in str(failed)
    assert len(str(failed)) <= MESSAGE_LENGTH
    assert len(hostile.asked) < 10


def test_one_call_leads_to_so_many_requests_and_no_more(
    hostile: HostileBmc, honest: RedfishPower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it answers that makes sushy ask again."""
    monkeypatch.setattr(redfish_connection, "REQUESTS", 4)  # what an honest one needs
    hostile.attacks[GET_SYSTEMS] = lambda wire: wire.answer(b"", f"Location: {ROOT}/Systems/", status="308 Moved")
    power = connect(hostile)
    failed = while_honest_is_served(honest, power.get_power_state).exception()
    assert isinstance(failed, BmcCutOff), failed
    assert [asked for asked in hostile.asked if "DELETE" not in asked][4:] == []


def test_what_a_bmc_says_is_shown_as_a_line_of_words(hostile: HostileBmc, honest: RedfishPower) -> None:
    hostile.fake.machine.running = True

    def listen_to_all() -> None:
        with closing(connect(hostile)) as power:
            for said in ("\x1b]0;title\x07\x1b[2J", "\x9b2J", "\u202e", "x" * 100_000, "a\nb", ["x"] * 4000):
                error = {"error": {"code": "x", "message": said, "@Message.ExtendedInfo": [{"Message": said}]}}
                answer = partial(Wire.document, document=error, status="400 Bad Request")
                hostile.attacks[f"POST {RESET_ACTION}"] = answer
                with pytest.raises(BmcRefused) as caught:
                    power.reset()
                assert caught.value.reason == "RequestRefused"
                assert str(caught.value).isprintable()
                assert len(str(caught.value)) < MESSAGE_LENGTH + 200

    while_honest_is_served(honest, listen_to_all).result()


@pytest.mark.parametrize("words", ["\x1b[2J" * 1000, "a\r\nb", 7, None])
def test_words_are_made_fit_to_be_shown(words: object) -> None:
    assert fit(words).isprintable()
    assert len(fit(words, 50)) <= 50


def test_cookies_are_neither_kept_nor_sent(hostile: HostileBmc) -> None:
    """Each answer could bring another one, for ever."""
    cookie = f"Set-Cookie: a={'b' * 3000}; Path=/"
    hostile.attacks[GET_ROOT] = lambda wire: wire.document(HONEST_ROOT, cookie)
    hostile.attacks[GET_SYSTEMS] = lambda wire: wire.document({"Members": [{"@odata.id": SYSTEM}]}, cookie)
    with closing(connect(hostile)) as power:
        for _ in range(2):
            assert power.get_power_state() == "Off"
    assert len(hostile.heard) >= 5
    assert not any("Cookie" in headers for headers in hostile.heard)


def test_a_bmc_that_does_not_let_go_of_a_session_is_left(hostile: HostileBmc) -> None:
    """The end of a connection, too, has an end."""
    asked = threading.Event()

    def never(wire: Wire) -> None:
        asked.set()
        wire.drip()

    power = connect(hostile)
    assert power.get_power_state() == "Off"
    (identity,) = hostile.fake.endpoint.sessions.values()
    hostile.attacks[f"DELETE {SESSIONS}/{identity}"] = never
    ending = threading.Thread(target=power.close)
    ending.start()
    ending.join(PATIENCE)
    assert (asked.is_set(), ending.is_alive()) == (True, False)
    assert hostile.sent < 600, "it was left long before the drip was over"
