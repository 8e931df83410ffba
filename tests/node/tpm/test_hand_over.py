"""Before a kexec the TPM is told what is started; without that nothing is started."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

import pytest

from provisioner.node import real_machine
from provisioner.node.image.manifest import ImageError
from provisioner.node.image.stage import FOLDER
from provisioner.node.real_machine import RealMachine
from provisioner.node.tpm import hand_over
from provisioner.node.tpm.device import NoTpmError, TpmDevice, TpmError
from provisioner.node.tpm.hand_over import PCR, extend, hand_over_digest, measure
from provisioner.node.tpm.identity import TpmIdentity
from tests.node.tpm.fake_tpm import FakeTpm, answered, refused
from tests.node.tpm.swtpm import Swtpm

PATIENCE_SECONDS = 180.0
PARTS = {
    "kernel_sha256": "sha256:" + "aa" * 32,
    "stage1_sha256": "sha256:" + "bb" * 32,
    "image_digest": "sha256:" + "cc" * 32,
    "request_key_sha256": "sha256:" + "dd" * 32,
    "command_line": "quiet console=ttyS0",
}
DIGEST = hand_over_digest(**PARTS)


def test_the_digest_is_that_of_the_text_in_the_definition() -> None:
    text = (
        f"provisioner kexec 1\nkernel sha256:{'aa' * 32}\nstage-1 sha256:{'bb' * 32}\nmanifest sha256:{'cc' * 32}\n"
        f"request-key sha256:{'dd' * 32}\n"
        f"command-line sha256:{hashlib.sha256(b'quiet console=ttyS0').hexdigest()}\n"
    )
    assert "sha256:" + hashlib.sha256(text.encode()).hexdigest() == DIGEST


@pytest.mark.parametrize("part", PARTS)
def test_another_part_is_another_hand_over(part: str) -> None:
    assert hand_over_digest(**{**PARTS, part: PARTS[part] + "0"}) != DIGEST


@pytest.mark.programs
def test_a_hand_over_is_seen_in_the_next_quote_and_taken_back_by_the_firmware_alone(tpm: Swtpm) -> None:
    def quoted() -> bytes:
        identity = TpmIdentity(tpm.open())
        _, _, values = identity.quote(bytes(32), [PCR])
        identity.close()
        return values[PCR]

    before = quoted()
    device = tpm.open()
    extend(device, DIGEST)
    device.close()
    assert quoted() == hashlib.sha256(before + bytes.fromhex(DIGEST[7:])).digest() != before
    with pytest.raises(TpmError):
        tpm.ask("8002 0000001b 0000013d 0000000e 00000009 40000009 0000 00 0000")  # TPM2_PCR_Reset
    assert quoted() != before
    tpm.stop()
    tpm.start()
    assert quoted() == before


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:" + "a" * 63, "sha256:" + "0" * 66, "sha256:" + "z" * 64])
def test_what_is_no_digest_is_not_measured(digest: str) -> None:
    with FakeTpm([answered(b"")]) as tpm, pytest.raises(TpmError, match="no SHA-256 digest"):
        extend(tpm.open(), digest)
    assert tpm.asked == []


class Started:
    """A machine whose loaded kernel would be started: kexec and TPM are the test's."""

    def __init__(
        self,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        tpm: TpmDevice | TpmError,
        tpm_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.did: list[str] = []
        self.machine = RealMachine(str(root))

        def open_tpm(*_: object, **__: object) -> TpmDevice:
            if isinstance(tpm, TpmError):
                raise tpm
            self.did.append("TPM")
            return tpm

        monkeypatch.setattr(hand_over, "open_tpm", open_tpm)
        monkeypatch.setattr(hand_over, "SECONDS", tpm_seconds)
        monkeypatch.setattr(RealMachine, "_must_be_real", lambda _: None)
        monkeypatch.setattr(real_machine.kexec, "start_loaded", lambda: self.did.append("kexec"))


@pytest.fixture
def staged(tmp_path: Path) -> Path:
    """A machine that has loaded an image."""
    folder = Path(f"{tmp_path}{FOLDER}")
    folder.mkdir(parents=True)
    record = {"imageDigest": "sha256:" + "cc" * 32, "arguments": [], "requestKeySHA256": "x", "handOverSHA256": DIGEST}
    (folder / "staged.json").write_text(json.dumps(record))
    return tmp_path


def test_what_is_loaded_is_measured_before_it_is_started(staged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeTpm([answered(b"")]) as tpm:
        started = Started(staged, monkeypatch, tpm.open())
        started.machine.kexec()
        assert tpm.left.wait(PATIENCE_SECONDS), "the device was closed"
    assert started.did == ["TPM", "kexec"]
    assert tpm.asked[0].endswith(bytes.fromhex(DIGEST[7:]))


@pytest.mark.programs
@pytest.mark.parametrize("answer", [refused(0x921), None], ids=["locked", "hung"])
def test_what_the_tpm_does_not_measure_is_not_started(
    staged: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes | None
) -> None:
    with FakeTpm([answer]) as tpm:
        started = Started(staged, monkeypatch, tpm.open(), 0.2 if answer is None else PATIENCE_SECONDS)
        with pytest.raises(ImageError, match="the loaded kernel was not started: the TPM did not measure it"):
            started.machine.kexec()
        assert tpm.left.wait(PATIENCE_SECONDS), "the device was closed"
    assert "kexec" not in started.did


def test_a_machine_without_a_tpm_starts_what_it_has_loaded(staged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(staged, monkeypatch, NoTpmError("none"))
    started.machine.kexec()
    assert started.did == ["kexec"]


def test_what_nobody_knows_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(tmp_path, monkeypatch, NoTpmError("none"))
    with pytest.raises(ImageError, match="has no record of what it is"):
        started.machine.kexec()
    assert started.did == []


@pytest.mark.programs
def test_a_tpm_that_is_given_up_does_not_hold_the_agents_threads_up(staged: Path) -> None:
    """The agent that runs beside the kubelet has threads when it forks whoever waits for the TPM in its place."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, daemon=True)
    thread.start()
    with FakeTpm([None]) as tpm:
        with pytest.raises(TpmError, match="gave no answer"):
            tpm.open().call("TPM2_PCR_Extend", b"\x80\x01\x00\x00\x00\x0a\x00\x00\x01\x82", 0.1)
        assert tpm.left.wait(PATIENCE_SECONDS)
    stop.set()
    thread.join(PATIENCE_SECONDS)
    assert measure(str(staged), DIGEST) is False
