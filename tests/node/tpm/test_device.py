"""What becomes of answers that are late, cut, too long or none: a clear error in bounded time, and a closed device."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from provisioner.node.tpm.device import MAX_BYTES, NoTpmError, TpmDevice, TpmError, open_tpm
from tests.node.tpm.fake_tpm import Answer, FakeTpm, answered, refused

PATIENCE_SECONDS = 180.0
COMMAND = bytes.fromhex("80010000000c0000017b0010")


def ask(tpm: FakeTpm, seconds: float = PATIENCE_SECONDS) -> bytes:
    device = tpm.open()
    try:
        return device.call("TPM2_GetRandom", COMMAND, seconds)
    finally:
        device.close()


def test_an_answer_is_given_without_its_header() -> None:
    with FakeTpm([answered(b"body")]) as tpm:
        assert ask(tpm) == b"body"
    assert tpm.asked == [COMMAND]


def test_an_answer_that_comes_in_pieces_is_put_together() -> None:
    whole = answered(b"body" * 100)
    ours, theirs = os.pipe(), os.pipe()
    del theirs
    with FakeTpm([None]) as tpm:
        device = tpm.open()
        for piece in (whole[:3], whole[3:11], whole[11:]):
            tpm._ours[0].sendall(piece)
        assert device.call("TPM2_GetRandom", COMMAND, PATIENCE_SECONDS) == b"body" * 100
        device.close()
    os.close(ours[0])
    os.close(ours[1])


@pytest.mark.programs
def test_a_hung_tpm_is_given_up_at_the_deadline_and_never_waited_for_again() -> None:
    with FakeTpm([None]) as tpm:
        device = tpm.open()
        begin = time.monotonic()
        with pytest.raises(TpmError, match=r"TPM2_GetRandom: the fake TPM gave no answer in 0.2 s"):
            device.call("TPM2_GetRandom", COMMAND, 0.2)
        with pytest.raises(TpmError, match="was given up before"):
            device.call("TPM2_GetRandom", COMMAND, 2 * PATIENCE_SECONDS)
        device.close()
        assert time.monotonic() - begin < PATIENCE_SECONDS
        assert tpm.left.wait(PATIENCE_SECONDS), "whoever held the device for its end has let go"
        assert len(tpm.asked) == 1


@pytest.mark.programs
def test_who_waits_for_the_hung_tpm_in_our_place_holds_nothing_else_of_ours() -> None:
    mine, other = os.pipe()
    with FakeTpm([None]) as tpm, pytest.raises(TpmError):
        ask(tpm, 0.1)
    os.close(other)
    assert os.read(mine, 1) == b"", "nobody else has the other end"
    os.close(mine)


@pytest.mark.programs
def test_many_slow_answers_have_one_limit_together() -> None:
    now = 0.0

    def slow(_: bytes) -> bytes:
        nonlocal now
        now += 2.0
        return answered(b"slow")

    with FakeTpm([slow]) as tpm:
        device = tpm.open(lambda: now)
        device.limit(5.0)
        for _ in range(2):
            assert device.call("TPM2_GetRandom", COMMAND, 50.0) == b"slow"
        with pytest.raises(TpmError, match=r"gave no answer in [01] s"):  # it had a second left, and then none
            [device.call("TPM2_GetRandom", COMMAND, 50.0) for _ in range(2)]
        assert len(tpm.asked) == 3


def test_a_busy_tpm_is_asked_again() -> None:
    with FakeTpm([refused(0x922), refused(0x90A), refused(0x908), answered(b"at last")]) as tpm:
        assert ask(tpm) == b"at last"


def test_a_tpm_that_stays_busy_is_asked_until_the_deadline() -> None:
    now = 0.0

    def busy(_: bytes) -> bytes:
        nonlocal now
        now += 2.0
        return refused(0x922)

    with FakeTpm([busy]) as tpm:
        device = tpm.open(lambda: now)
        with pytest.raises(TpmError, match=r"0x922 \(TPM_RC_RETRY: it is busy\)"):
            device.call("TPM2_GetRandom", COMMAND, 4.01)
        device.close()
    assert len(tpm.asked) == 2


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0x921, "0x921 (TPM_RC_LOCKOUT: it is locked, after wrong passwords; wait, or clear the lockout)"),
        (0x18B, "0x18b (TPM_RC_HANDLE: nothing is there, handle 1)"),
        (0x9A2, "0x9a2 (TPM_RC_BAD_AUTH: a password is set; clear the TPM in the firmware's setup, session 1)"),
        (0x2D5, "0x2d5 (TPM_RC_SIZE: a field has the wrong size, parameter 2)"),
        (0x101, "0x101 (TPM_RC_FAILURE: it is in failure mode; cut the machine's power)"),
        (0xFFFFFFFF, "0xffffffff (see the TPM 2.0 Library, part 2, 6.6, parameter 15)"),
    ],
)
def test_a_refusal_is_told_in_words_and_by_its_code(code: int, words: str) -> None:
    with FakeTpm([refused(code)]) as tpm, pytest.raises(TpmError) as told:
        ask(tpm)
    assert str(told.value) == f"TPM2_GetRandom: the fake TPM refused with {words}"
    assert told.value.code == code


@pytest.mark.programs
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "was cut after 0 bytes"),
        (answered(b"body") + b"more", "answers 18 bytes and says 14"),
        (b"\x80\x01\x00\x00\x00\x09\x00\x00\x00\x00", "says 9, at most 4096"),
        (b"\x80\x01\xff\xff\xff\xff\x00\x00\x00\x00", "says 4294967295, at most 4096"),
        (answered(b"x" * MAX_BYTES), "says 4106, at most 4096"),
        (answered(b"x", tag=0x1234), "unknown tag 0x1234"),
        (answered(b"", tag=0x00C4), "is a TPM 1.2"),
        (answered(b"body")[:-1], "gave no answer in 0.3 s"),
        (lambda _: b"\x80\x01\x00", "gave no answer in 0.3 s"),
    ],
)
def test_what_is_no_whole_answer_is_refused(answer: Answer, words: str) -> None:
    with FakeTpm([answer]) as tpm, pytest.raises(TpmError, match=words) as told:
        ask(tpm, 0.3 if "no answer" in words else PATIENCE_SECONDS)
    assert told.value.code is None


@pytest.mark.programs
def test_after_a_broken_answer_nothing_is_taken_for_the_next_one() -> None:
    with FakeTpm([answered(b"body") + b"more"]) as tpm:
        device = tpm.open()
        for _ in range(2):
            with pytest.raises(TpmError):
                device.call("TPM2_GetRandom", COMMAND, PATIENCE_SECONDS)
        device.close()
        assert len(tpm.asked) == 1


def test_a_command_that_no_tpm_takes_is_not_sent() -> None:
    with FakeTpm([answered(b"")]) as tpm:
        device = tpm.open()
        with pytest.raises(TpmError, match="4097 bytes"):
            device.call("TPM2_Quote", bytes(MAX_BYTES + 1), 1.0)
        device.close()
    assert tpm.asked == []


def test_a_machine_without_a_tpm_is_not_waited_for(tmp_path: Path) -> None:
    begin = time.monotonic()
    with pytest.raises(NoTpmError, match="this machine has no TPM"):
        open_tpm(str(tmp_path), appear_seconds=2 * PATIENCE_SECONDS)
    assert time.monotonic() - begin < PATIENCE_SECONDS


def test_a_tpm_that_the_firmware_names_is_waited_for_and_then_missed(tmp_path: Path) -> None:
    table = tmp_path / "sys/firmware/acpi/tables/TPM2"
    table.parent.mkdir(parents=True)
    table.touch()
    with pytest.raises(TpmError, match=r"/dev/tpmrm0 did not appear in 0.1 s; does the image have its driver") as told:
        open_tpm(str(tmp_path), appear_seconds=0.1)
    assert not isinstance(told.value, NoTpmError)


@pytest.mark.parametrize("present", [["tpmrm0"], ["tpm0"], ["tpm0", "tpmrm0"]])
def test_the_resource_manager_is_taken_before_the_tpm_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: list[str]
) -> None:
    opened: list[str] = []
    (tmp_path / "dev").mkdir()
    for name in present:
        (tmp_path / "dev" / name).touch()
    monkeypatch.setattr(
        TpmDevice, "__init__", lambda self, number, name, **_: (os.close(number), opened.append(name))[0]
    )
    open_tpm(str(tmp_path))
    assert opened == [f"{tmp_path}/dev/{present[-1]}"]


def test_a_device_that_somebody_else_holds_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/tpm0").touch()

    def busy(*_: object) -> int:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(os, "open", busy)
    with pytest.raises(TpmError, match=r"/dev/tpm0 cannot be opened \(Device or resource busy\)"):
        open_tpm(str(tmp_path))
