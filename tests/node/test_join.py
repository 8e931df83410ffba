"""Judging answers and failures, rendering files, reading HTTP: without a process of its own."""

from __future__ import annotations

import errno
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from provisioner.node import retry
from provisioner.node.http.post import AnswerError, HttpResponse, pinned_context, read_answer, split_url
from provisioner.node.join import NoProver, SealError, fetch_configuration, read_failure, read_outcome
from provisioner.node.join_files import JoinConfigurationError, render_files
from provisioner.node.machine.boot_facts import BootFactsError, read_boot_facts, request_key
from tests.node import fake_join_server
from tests.node.fake_join_server import Authority, FakeJoinServer
from tests.node.machine import CONFIGURATION, TOKEN, boot_machine

REFUSAL = fake_join_server.Answer(403, {"reason": "NotAccepted", "message": "server r01-u01 is Pending"})


def told(status: int, body: object, **headers: str) -> HttpResponse:
    return HttpResponse(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(body).encode()
    )


@pytest.mark.parametrize(
    ("answer", "kind", "asked"),
    [
        (told(200, CONFIGURATION), "Joined", None),
        (told(200, []), retry.NO_ANSWER, None),
        (told(403, {"reason": "AlreadyFetched", "message": "m"}), retry.REFUSED, None),
        (told(400, {}), retry.REFUSED, None),
        (told(404, "nginx"), retry.REFUSED, None),
        (told(401, {"reason": "Challenge", "challenge": {"nonce": "x"}}), retry.REFUSED, None),
        (told(425, {"retryAfterSeconds": 5}), retry.NOT_YET, 5.0),
        (told(409, {"retryAfterSeconds": "soon"}, retry_after="3"), retry.NOT_YET, 3.0),
        (told(429, {}, retry_after="9"), retry.NO_ANSWER, 9.0),
        (told(503, {}, retry_after="inf"), retry.NO_ANSWER, None),
        (told(502, {}, retry_after="-4"), retry.NO_ANSWER, None),
        (HttpResponse(500, {}, b"\xff\x00" + b"[" * 100_000), retry.NO_ANSWER, None),
    ],
)
def test_every_answer_is_judged(answer: HttpResponse, kind: str, asked: float | None) -> None:
    outcome = read_outcome(answer)
    assert (outcome.kind, outcome.asked_seconds) == (kind, asked)


def test_a_refusal_cannot_write_escape_sequences_on_the_console() -> None:
    outcome = read_outcome(told(403, {"reason": "R", "message": "a\x1b[2Jb\nc"}))
    assert outcome.message == "R: a [2Jb c"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.ENETUNREACH, "unreachable"), retry.NO_ROUTE),
        (OSError(errno.EADDRNOTAVAIL, "not there yet"), retry.NO_ROUTE),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), retry.NO_ANSWER),
        (TimeoutError("timed out"), retry.NO_ANSWER),
        (AnswerError("cut"), retry.NO_ANSWER),
        (ssl.SSLError("handshake"), retry.NO_ANSWER),
    ],
)
def test_every_failure_is_judged(error: OSError, kind: str) -> None:
    assert read_failure(error).kind == kind


def test_a_refused_machine_says_so_once_and_keeps_asking_slowly(tmp_path: Path) -> None:
    authority = Authority.create()
    said: list[str] = []
    reported: list[str] = []
    waits: list[float] = []
    answers = [REFUSAL, REFUSAL, REFUSAL, fake_join_server.Answer(200, CONFIGURATION)]
    with FakeJoinServer(answers, authority.server_context(tmp_path)) as service:
        root = boot_machine(tmp_path / "root", join_port=service.port, boot_port=1, ca=authority.pem())
        configuration = fetch_configuration(
            read_boot_facts(str(root)),
            "00" * 32,
            pinned_context(f"{root}/etc/provisioner/join-ca.pem"),
            say=said.append,
            tell=reported.append,
            sleep=waits.append,
            chance=lambda: 1.0,
            prover=NoProver(),
        )
    assert configuration == CONFIGURATION
    assert said == ["JOIN REFUSED for r01-u01: NotAccepted: server r01-u01 is Pending. Trying again slowly."]
    assert reported == ["NotAccepted: server r01-u01 is Pending"]
    assert waits == [15.0, 30.0, 45.0]


class Reversing(NoProver):
    """Proves that it has read the challenge."""

    def evidence(self) -> dict[str, object]:
        return {"type": "Reverse"}

    def answer(self, challenge: object) -> dict[str, object] | None:
        assert isinstance(challenge, dict)
        return {"type": "Reverse", "proof": challenge["nonce"][::-1]}

    def open(self, sealed: object, server: str) -> dict[str, object]:
        if not isinstance(sealed, str) or not sealed.endswith(server[::-1]):
            raise SealError("it is not for this server")
        return dict(json.loads(sealed.removesuffix(server[::-1])[::-1]))


CHALLENGE = fake_join_server.Answer(401, {"reason": "Challenge", "message": "prove it", "challenge": {"nonce": "abc"}})
SEALED = fake_join_server.Answer(200, {"sealed": json.dumps(CONFIGURATION)[::-1] + "10u-10r"})
BEGINNING, PROOF = {"type": "Reverse"}, {"type": "Reverse", "proof": "cba"}


def ask_as_reversing(
    folder: Path, answers: list[fake_join_server.Answer], prover: NoProver | None = None
) -> tuple[list[Any], list[float], list[str]]:
    """The evidence that was sent until the configuration came, the waits between, and what the console said."""
    authority = Authority.create()
    waits: list[float] = []
    said: list[str] = []
    with FakeJoinServer(answers, authority.server_context(folder)) as service:
        root = boot_machine(folder / "root", join_port=service.port, boot_port=1, ca=authority.pem())
        fetch_configuration(
            read_boot_facts(str(root)),
            "00" * 32,
            pinned_context(f"{root}/etc/provisioner/join-ca.pem"),
            say=said.append,
            tell=lambda _: None,
            sleep=waits.append,
            chance=lambda: 1.0,
            prover=prover or Reversing(),
        )
    return [request.body["evidence"] for request in service.asked], waits, said


def test_a_prover_answers_the_challenge_in_the_next_request_at_once(tmp_path: Path) -> None:
    sent, waits, _ = ask_as_reversing(tmp_path, [CHALLENGE, SEALED])
    assert sent == [BEGINNING, PROOF]
    assert waits == []


def test_a_service_that_challenges_without_end_is_asked_ever_more_slowly_and_counts_as_refusing(tmp_path: Path) -> None:
    sent, waits, said = ask_as_reversing(tmp_path, [*[CHALLENGE] * 8, fake_join_server.Answer(200, CONFIGURATION)])
    assert sent == [*[BEGINNING, PROOF, PROOF, PROOF] * 2, BEGINNING]
    assert waits == [0.5, 1.0, 15.0, 0.5, 1.0, 30.0]
    assert said == ["JOIN REFUSED for r01-u01: Challenge: prove it (after 3 answered challenges). Trying again slowly."]


def test_who_has_proven_itself_takes_nothing_that_is_not_sealed_to_it(tmp_path: Path) -> None:
    unsealed = fake_join_server.Answer(200, CONFIGURATION)
    sent, waits, said = ask_as_reversing(tmp_path, [CHALLENGE, unsealed, CHALLENGE, SEALED])
    assert sent == [BEGINNING, PROOF, BEGINNING, PROOF]
    assert waits == [15.0]
    (words,) = said
    assert (
        "answered a proof by the TPM with a configuration that is not sealed to this machine; it is not used" in words
    )
    assert TOKEN not in words


def test_what_was_sealed_to_another_machine_is_not_taken(tmp_path: Path) -> None:
    foreign = fake_join_server.Answer(200, {"sealed": json.dumps(CONFIGURATION)[::-1] + "20u-10r"})
    sent, waits, said = ask_as_reversing(tmp_path, [CHALLENGE, foreign, CHALLENGE, SEALED])
    assert sent == [BEGINNING, PROOF, BEGINNING, PROOF]
    assert waits == [15.0]
    assert "the join configuration does not open: it is not for this server" in said[0]


def test_who_has_proven_nothing_takes_nothing_that_is_sealed(tmp_path: Path) -> None:
    sent, waits, said = ask_as_reversing(
        tmp_path, [SEALED, fake_join_server.Answer(200, CONFIGURATION)], NoProver("no TPM\x1b[2J" + "x" * 300)
    )
    assert waits == [15.0]
    assert "this machine proved nothing to which it could be sealed" in said[0]
    assert sent == [{"type": "None", "why": "no TPM [2J" + "x" * 190}] * 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("nodeName", 'r01" --anonymous-auth=true "'),
        ("nodeName", None),
        ("nodeAddress", "10.80.0.21 --anonymous-auth=true"),
        ("apiServer", "http://10.80.0.1:6443"),
        ("bootstrapToken", "abc123"),
        ("clusterCA", "nothing"),
        ("kubeletConfiguration", {"kind": "KubeProxyConfiguration"}),
    ],
)
def test_an_answer_that_no_kubelet_could_use_is_refused_without_naming_the_token(field: str, value: Any) -> None:
    with pytest.raises(JoinConfigurationError) as refused:
        render_files({**CONFIGURATION, field: value})
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://10.80.0.1:8443/v1/join", (True, "10.80.0.1", 8443, "/v1/join")),
        ("http://boot.example", (False, "boot.example", 80, "/")),
        ("https://[fd00::1]:8443/x", (True, "fd00::1", 8443, "/x")),
        ("https://[fd00::1]/x", (True, "fd00::1", 443, "/x")),
    ],
)
def test_urls_are_split(url: str, expected: tuple[bool, str, int, str]) -> None:
    assert split_url(url) == expected


@pytest.mark.parametrize("url", ["ftp://x/", "10.80.0.1:8443", "https://", "https:///v1/join"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        split_url(url)


def test_a_chunked_answer_is_put_together() -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    assert read_answer(raw).body == b"abcde"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1",
    ],
)
def test_what_is_no_whole_answer_is_refused(raw: bytes) -> None:
    with pytest.raises(AnswerError):
        read_answer(raw)


@pytest.mark.parametrize("missing", ["mac", "url", "join", "imageDigest", "server"])
def test_an_incomplete_boot_file_names_what_is_missing(tmp_path: Path, missing: str) -> None:
    root = boot_machine(tmp_path, join_port=1, boot_port=2, ca="")
    path = root / "run/provisioner/boot.json"
    facts = json.loads(path.read_text())
    del facts[missing]
    path.write_text(json.dumps(facts))
    with pytest.raises(BootFactsError, match=missing):
        read_boot_facts(str(root))


def test_a_board_without_smbios_has_no_system_uuid(tmp_path: Path) -> None:
    root = boot_machine(tmp_path, join_port=1, boot_port=2, ca="")
    (root / "sys/class/dmi/id/product_uuid").unlink()
    assert read_boot_facts(str(root)).system_uuid == ""


def test_the_digest_may_be_written_as_the_store_names_it(tmp_path: Path) -> None:
    root = boot_machine(tmp_path, join_port=1, boot_port=2, ca="")
    path = root / "run/provisioner/boot.json"
    path.write_text(path.read_text().replace("sha256:", "sha256-"))
    assert read_boot_facts(str(root)).image_digest == "sha256:" + "9f" * 32


def test_a_half_written_request_key_is_made_anew(tmp_path: Path) -> None:
    root = boot_machine(tmp_path, join_port=1, boot_port=2, ca="")
    (root / "run/provisioner/request-key").write_text("abc")
    key = request_key(str(root), lambda count: b"\x01" * count)
    assert key == "01" * 32
    assert request_key(str(root), lambda count: b"\x02" * count) == key
