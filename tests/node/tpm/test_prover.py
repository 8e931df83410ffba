"""A machine proves itself to a service, with a real software TPM; and what it says where it cannot."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provisioner.node import prover
from provisioner.node.http.post import pinned_context
from provisioner.node.join import NoProver, SealError, fetch_configuration
from provisioner.node.machine.boot_facts import read_boot_facts
from provisioner.node.prover import PATH, TpmProver, choose_prover, read_challenge
from provisioner.node.tpm import device, identity
from provisioner.node.tpm.device import TpmDevice, TpmError
from tests.node import fake_join_server
from tests.node.fake_join_server import Authority, FakeJoinServer
from tests.node.machine import CONFIGURATION, TOKEN, boot_machine
from tests.node.made_machine import write
from tests.node.tpm.fake_tpm import FakeTpm, refused
from tests.node.tpm.service import PCRS, Service, encoded, signature_is_right
from tests.node.tpm.swtpm import Swtpm

PATIENCE_SECONDS = 180.0
SERVER = "r01-u01"
EVENT_LOG = "x" * 5000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Of a machine whose firmware has measured."""
    write(tmp_path, PATH[1:], EVENT_LOG)
    return tmp_path


def proving(tpm: Swtpm, root: Path) -> TpmProver:
    return TpmProver(tpm.open, str(root), lambda _: None)


@pytest.mark.programs
def test_a_proof_is_what_the_service_expects_and_opens_what_is_sealed_to_it(tpm: Swtpm, root: Path) -> None:
    prover, service = proving(tpm, root), Service()
    shown: dict[str, Any] = prover.evidence()
    assert set(shown) == {"type", "endorsementKey", "endorsementCertificates", "attestationKey"}
    challenge = service.challenge(shown)
    proof: dict[str, Any] = prover.answer(challenge) or {}
    assert {key: proof[key] for key in shown} == shown
    assert set(proof) - set(shown) == {"state", "activation", "quote", "signature", "pcrValues", "eventLog"}
    assert proof["state"] == challenge["state"]
    assert proof["activation"] == service.activation()
    attest = base64.b64decode(proof["quote"])
    assert service.nonce in attest
    assert signature_is_right(base64.b64decode(proof["attestationKey"]), base64.b64decode(proof["signature"]), attest)
    assert list(proof["pcrValues"]) == [str(pcr) for pcr in PCRS]
    values = b"".join(bytes.fromhex(value) for value in proof["pcrValues"].values())
    assert attest.endswith(hashlib.sha256(values).digest())
    assert base64.b64decode(proof["eventLog"]) == EVENT_LOG.encode()
    assert prover.open(service.seal(CONFIGURATION, SERVER), SERVER) == CONFIGURATION
    assert tpm.loaded() == 0, "the TPM was given back"


@pytest.mark.programs
def test_after_its_configuration_the_machine_may_prove_itself_anew(tpm: Swtpm, root: Path) -> None:
    prover = proving(tpm, root)
    for _ in range(3):
        service = Service()
        assert prover.answer(service.challenge(prover.evidence())) is not None
        assert prover.open(service.seal(CONFIGURATION, SERVER), SERVER) == CONFIGURATION


@pytest.mark.programs
def test_a_challenge_for_another_machine_is_not_met_and_the_next_request_says_so(
    tpm: Swtpm, other_tpm: Swtpm, root: Path
) -> None:
    prover, other = proving(tpm, root), proving(other_tpm, root)
    prover.evidence()
    assert prover.answer(Service().challenge(other.evidence())) is None
    told = prover.evidence()
    assert told["type"] == "None"
    assert "made for another TPM or another key" in str(told["why"])
    service = Service()
    assert prover.answer(service.challenge(prover.evidence())) is not None, "and the one after it tries again"
    other.close()
    prover.close()
    assert tpm.loaded() == other_tpm.loaded() == 0


@pytest.mark.programs
@pytest.mark.parametrize("other", ["server", "secret", "nonce", "type", "text", "cut", "list", "number"])
def test_what_is_sealed_to_anything_else_is_not_opened(tpm: Swtpm, root: Path, other: str) -> None:
    prover, service = proving(tpm, root), Service()
    prover.answer(service.challenge(prover.evidence()))
    honest: Any = service.seal(CONFIGURATION, SERVER)
    stranger = Service(secret=None if other == "secret" else service.secret)
    forged: Any = {
        "server": service.seal(CONFIGURATION, "r01-u02"),
        "secret": stranger.seal(CONFIGURATION, SERVER),
        "nonce": stranger.seal(CONFIGURATION, SERVER),
        "type": {**honest, "type": "none"},
        "text": {**honest, "ciphertext": "!" + honest["ciphertext"]},
        "cut": {**honest, "ciphertext": honest["ciphertext"][:-4]},
        "list": service.seal([TOKEN], SERVER),
        "number": 7,
    }[other]
    with pytest.raises(SealError) as told:
        prover.open(forged, SERVER)
    assert TOKEN not in str(told.value)
    assert prover.open(honest, SERVER) == CONFIGURATION, "what is sealed to it is"


@pytest.mark.programs
def test_before_a_proof_nothing_is_opened(tpm: Swtpm, root: Path) -> None:
    prover, service = proving(tpm, root), Service()
    prover.evidence()
    with pytest.raises(SealError, match="nothing was proven"):
        prover.open(service.seal(CONFIGURATION, SERVER), SERVER)
    prover.close()


GOOD = {
    "type": "TPM2",
    "credentialBlob": encoded(b"\x00\x02ab"),
    "encryptedSecret": encoded(b"\x00\x01c"),
    "nonce": encoded(bytes(32)),
    "pcrs": PCRS,
    "state": encoded(b"state"),
}


def test_a_whole_challenge_is_read() -> None:
    asked = read_challenge(GOOD)
    assert (asked.blob, asked.secret, asked.nonce, asked.pcrs) == (b"\x00\x02ab", b"\x00\x01c", bytes(32), PCRS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "TPM3"),
        ("credentialBlob", None),
        ("credentialBlob", encoded(b"")),
        ("credentialBlob", encoded(b"\x00\x03ab")),
        ("credentialBlob", encoded(b"\x02\x00" + bytes(512))),
        ("encryptedSecret", encoded(b"\x00\x01cc")),
        ("encryptedSecret", "not base64"),
        ("nonce", encoded(bytes(31))),
        ("nonce", encoded(bytes(33))),
        ("nonce", 7),
        ("pcrs", []),
        ("pcrs", [24]),
        ("pcrs", [-1]),
        ("pcrs", [True]),
        ("pcrs", [1.0]),
        ("pcrs", ["1"]),
        ("pcrs", [1, 1]),
        ("pcrs", list(range(25))),
        ("pcrs", "0"),
        ("pcrs", [[0]]),
        ("state", encoded(bytes(2049))),
        ("state", None),
        ("state", "\N{SNOWMAN}"),
    ],
)
def test_a_malformed_challenge_is_not_met_and_the_tpm_not_asked(root: Path, field: str, value: Any) -> None:
    said: list[str] = []
    with FakeTpm([None]) as tpm:
        prover = TpmProver(tpm.open, str(root), said.append)
        for _ in range(2):
            assert prover.answer({**GOOD, field: value}) is None
    assert len(said) == 1
    assert said[0].startswith("the join service's challenge cannot be answered:")
    assert tpm.opened == 0


@pytest.mark.parametrize("challenge", [None, [], "x", 7, {}])
def test_what_is_no_challenge_is_not_met(root: Path, challenge: object) -> None:
    with FakeTpm([None]) as tpm:
        assert TpmProver(tpm.open, str(root), lambda _: None).answer(challenge) is None


@pytest.mark.programs
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "gave no answer in 0.2 s"),
        (refused(0x101), "TPM_RC_FAILURE"),
        (refused(0x921), "TPM_RC_LOCKOUT"),
        (b"", "cut"),
    ],
    ids=["hung", "broken", "locked", "gone"],
)
def test_a_tpm_that_fails_is_told_of_once_on_the_console_and_in_each_request_and_tried_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None, why: str
) -> None:
    patience_seconds = 0.2 if answer is None else PATIENCE_SECONDS
    monkeypatch.setattr(TpmDevice.call, "__defaults__", (patience_seconds,))
    monkeypatch.setattr(identity, "CREATE_SECONDS", patience_seconds)
    said: list[str] = []
    with FakeTpm([answer]) as tpm:
        prover = TpmProver(tpm.open, str(root), said.append)
        begin = time.monotonic()
        for _ in range(3):
            evidence = prover.evidence()
            assert evidence["type"] == "None"
            assert why in str(evidence["why"])
            assert len(str(evidence["why"])) <= 200
        assert time.monotonic() - begin < PATIENCE_SECONDS
        assert tpm.opened == 3
    assert len(said) == 1
    assert said[0].startswith("the TPM proves nothing: ")


def test_a_machine_without_a_tpm_says_so(tmp_path: Path) -> None:
    chosen = choose_prover(str(tmp_path), lambda _: None)
    assert type(chosen) is NoProver
    assert chosen.evidence() == {
        "type": "None",
        "why": "this machine has no TPM: neither its firmware nor its kernel names one",
    }


@pytest.mark.programs
def test_a_tpm_that_does_not_open_yet_is_tried_again(tpm: Swtpm, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Callable[[], TpmDevice]] = [tpm.open]

    def open_tpm(*_: object, **__: object) -> TpmDevice:
        if len(opened) == 1:
            opened.append(tpm.open)
            raise TpmError("/dev/tpm0 cannot be opened")
        return tpm.open()

    monkeypatch.setattr(prover, "open_tpm", open_tpm)
    chosen = choose_prover(str(root), lambda _: None)
    assert chosen.evidence()["type"] == "TPM2"
    assert isinstance(chosen, TpmProver)
    chosen.close()


class Joining:
    """The agent's part of a join with a TPM, and all that was said."""

    def __init__(self, folder: Path) -> None:
        self.said: list[str] = []
        self.waits: list[float] = []
        self._folder = folder

    def join(
        self, open_device: Callable[[], TpmDevice], answers: list[fake_join_server.Answer]
    ) -> list[dict[str, Any]]:
        """The evidence that was sent until a configuration was taken."""
        authority = Authority.create()
        with FakeJoinServer(answers, authority.server_context(self._folder)) as service:
            root = boot_machine(self._folder / "root", join_port=service.port, boot_port=1, ca=authority.pem())
            self.configuration = fetch_configuration(
                read_boot_facts(str(root)),
                "00" * 32,
                pinned_context(f"{root}/etc/provisioner/join-ca.pem"),
                say=self.said.append,
                tell=lambda _: None,
                sleep=self.waits.append,
                chance=lambda: 1.0,
                prover=TpmProver(open_device, str(root), self.said.append),
            )
            return [request.body["evidence"] for request in service.asked]


def shown_by(tpm: Swtpm, root: Path) -> dict[str, Any]:
    """The keys, as the service has seen them before: they follow from the TPM."""
    prover = proving(tpm, root)
    shown = prover.evidence()
    prover.close()
    return shown


@pytest.mark.programs
def test_a_machine_joins_by_its_tpm_over_tls(tpm: Swtpm, tmp_path: Path) -> None:
    service, joining = Service(), Joining(tmp_path)
    challenge = service.challenge(shown_by(tpm, tmp_path))
    sent = joining.join(
        tpm.open,
        [
            fake_join_server.Answer(401, {"reason": "Challenge", "message": "prove it", "challenge": challenge}),
            fake_join_server.Answer(200, {"sealed": service.seal(CONFIGURATION, SERVER)}),
        ],
    )
    assert joining.configuration == CONFIGURATION
    assert [evidence["type"] for evidence in sent] == ["TPM2", "TPM2"]
    assert sent[1]["activation"] == service.activation()
    assert joining.waits == []
    assert tpm.loaded() == 0


@pytest.mark.programs
def test_a_service_that_answers_a_proof_in_the_clear_is_refused(tpm: Swtpm, tmp_path: Path) -> None:
    service, joining = Service(), Joining(tmp_path)
    challenged = fake_join_server.Answer(
        401, {"reason": "Challenge", "challenge": service.challenge(shown_by(tpm, tmp_path))}
    )
    in_the_clear = fake_join_server.Answer(200, {**CONFIGURATION, "bootstrapToken": "intru1.der5der5der5der5"})
    sealed = fake_join_server.Answer(200, {"sealed": service.seal(CONFIGURATION, SERVER)})
    joining.join(tpm.open, [challenged, in_the_clear, challenged, sealed])
    assert joining.configuration == CONFIGURATION
    assert any("is not sealed to this machine; it is not used" in line for line in joining.said)


@pytest.mark.programs
def test_a_machine_whose_tpm_hangs_asks_without_it_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TpmDevice.call, "__defaults__", (0.2,))
    joining = Joining(tmp_path)
    with FakeTpm([None]) as tpm:
        (sent,) = joining.join(tpm.open, [fake_join_server.Answer(200, CONFIGURATION)])
    assert joining.configuration == CONFIGURATION, "in a pool that takes machines without proof"
    assert sent["type"] == "None"
    assert "gave no answer" in sent["why"]
    assert len(joining.said) == 1


@pytest.mark.programs
def test_a_tpm_that_fails_at_the_proof_is_told_to_the_service_in_the_next_request(
    tpm: Swtpm, other_tpm: Swtpm, tmp_path: Path
) -> None:
    joining = Joining(tmp_path)
    foreign = Service().challenge(shown_by(other_tpm, tmp_path))
    sent = joining.join(
        tpm.open,
        [
            fake_join_server.Answer(401, {"reason": "Challenge", "challenge": foreign}),
            fake_join_server.Answer(200, CONFIGURATION),
        ],
    )
    assert [evidence["type"] for evidence in sent] == ["TPM2", "None"]
    assert "made for another TPM" in sent[1]["why"]
    assert joining.waits == [15.0]


def test_no_deadline_is_longer_than_what_a_boot_may_take() -> None:
    assert device.COMMAND_SECONDS <= 10.0
    assert identity.CREATE_SECONDS <= 60.0
