"""A virtual server's TPM, with the real swtpm: what lasts and what does not, and what is left by who died."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from lab.machine.machine import MachineFiles
from lab.machine.swtpm import SoftwareTpm, swtpm_command
from lab.machine.tpm_manufacture import (
    endorsement_authorities,
    endorsement_key_sha256,
    manufacture_tpm,
)
from lab.tools import Tools
from provisioner.api.machinery.errors import NeedsHuman, Retryable
from tests.lab.tpm_board import Board
from tests.tools import is_running

EMPTY = bytes(32)
MEASURED = b"\x11" * 32
RSA_ENDORSEMENT_KEY = 0x81010001
RSA_ENDORSEMENT_CERTIFICATE = 0x01C00002


@pytest.fixture
def files(short_directory: Path) -> MachineFiles:
    made = MachineFiles(directory=short_directory / "r01-u01")
    made.directory.mkdir()
    return made


@pytest.fixture
def tpm(tools: Tools, files: MachineFiles) -> Iterator[SoftwareTpm]:
    with ThreadPoolExecutor(max_workers=1) as launcher:
        made = SoftwareTpm("r01-u01", files, tools=tools, launcher=launcher)
        yield made
        made.stop()


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} has not ended"
        time.sleep(0.01)


def connected(files: MachineFiles) -> Board:
    """Once somebody listens, whom nobody waited for."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return Board(files.tpm_socket)
        except (FileNotFoundError, ConnectionRefusedError):
            assert time.monotonic() < deadline, "nobody listens"
            time.sleep(0.01)


def test_a_power_cycle_empties_the_registers_and_keeps_the_keys(
    tpm: SoftwareTpm, files: MachineFiles, tools: Tools, short_directory: Path
) -> None:
    manufacture_tpm("r01-u01", files, short_directory / "ca", tools)
    found = []
    for _ in range(2):
        tpm.start()
        with Board(files.tpm_socket) as board:
            assert board.read(4) == EMPTY
            board.extend(4, MEASURED)
            assert board.read(4) != EMPTY
            found.append((board.rsa_modulus(RSA_ENDORSEMENT_KEY), board.stored(RSA_ENDORSEMENT_CERTIFICATE)))
            tpm.stop()
    assert found[0] == found[1]
    key = x509.load_der_x509_certificate(found[0][1]).public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    assert key.public_numbers().n == found[0][0], "the certificate in the chip is that of the key in the chip"


def test_a_reset_of_the_machine_is_one_of_its_tpm(tpm: SoftwareTpm, files: MachineFiles) -> None:
    tpm.start()
    with Board(files.tpm_socket) as board:
        board.extend(4, MEASURED)
        board.reset()
        assert board.read(4) == EMPTY


def test_it_ends_with_the_qemu_that_it_served(tpm: SoftwareTpm, files: MachineFiles) -> None:
    tpm.start()
    pid = tpm.pid
    assert pid is not None
    with Board(files.tpm_socket):
        assert tpm.pid == pid
    wait_until_gone(pid)
    assert tpm.pid is None


def test_what_a_dead_lab_left_does_not_stop_the_next_start(tpm: SoftwareTpm, files: MachineFiles, tools: Tools) -> None:
    files.tpm_state.mkdir()
    left = subprocess.Popen(tools.command(swtpm_command(files), [files.directory]))
    with connected(files) as held:
        held.extend(4, MEASURED)
        tpm.start()
        assert left.wait(60) == -signal.SIGKILL
    with Board(files.tpm_socket) as board:
        assert board.read(4) == EMPTY


def test_a_process_that_got_the_number_of_an_old_tpm_is_left_alone(tpm: SoftwareTpm, files: MachineFiles) -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            files.tpm_pid.write_text(f"{other.pid}\n")
            files.tpm_socket.touch()
            tpm.start()
            assert tpm.pid is not None
            assert other.poll() is None
        finally:
            other.kill()


def test_a_tpm_that_cannot_start_says_why_in_swtpms_words(tools: Tools, short_directory: Path) -> None:
    files = MachineFiles(directory=short_directory / ("long" * 30))
    with ThreadPoolExecutor(max_workers=1) as launcher:
        tpm = SoftwareTpm("r01-u01", files, tools=tools, launcher=launcher)
        with pytest.raises(Retryable, match=r"(?s)TPM of r01-u01 did not start; swtpm said: .*too long"):
            tpm.start()
    assert tpm.pid is None


def test_tpms_are_made_once_and_their_certificates_lead_to_the_labs_own_authority(
    tools: Tools, short_directory: Path
) -> None:
    authority = short_directory / "ca"
    machines = {name: MachineFiles(directory=short_directory / name) for name in ("r01-u01", "r01-u02")}
    with ThreadPoolExecutor(max_workers=2) as at_once:
        list(at_once.map(lambda name: manufacture_tpm(name, machines[name], authority, tools), machines))
    digests = {name: endorsement_key_sha256(files) for name, files in machines.items()}
    assert len(set(digests.values())) == 2
    root, issuer = x509.load_pem_x509_certificates(endorsement_authorities(authority).encode())
    root.verify_directly_issued_by(root)
    issuer.verify_directly_issued_by(root)
    for files in machines.values():
        for path in files.tpm_certificates.iterdir():
            x509.load_der_x509_certificate(path.read_bytes()).verify_directly_issued_by(issuer)
    for name, files in machines.items():
        manufacture_tpm(name, files, authority, tools)
    assert {name: endorsement_key_sha256(files) for name, files in machines.items()} == digests


def test_a_making_that_was_cut_short_is_made_anew(tools: Tools, files: MachineFiles, short_directory: Path) -> None:
    manufacture_tpm("r01-u01", files, short_directory / "ca", tools)
    first = endorsement_key_sha256(files)
    shutil.rmtree(files.tpm_certificates)
    (files.directory / ".tpm.unfinished" / "state").mkdir(parents=True)
    manufacture_tpm("r01-u01", files, short_directory / "ca", tools)
    assert endorsement_key_sha256(files) != first
    assert not (files.directory / ".tpm.unfinished").exists()
    assert oct(files.tpm_state.stat().st_mode & 0o777) == "0o700"


def test_a_tpm_that_cannot_be_made_says_why(tools: Tools, files: MachineFiles, short_directory: Path) -> None:
    authority = short_directory / "ca"
    authority.mkdir()
    for name in ("signkey.pem", "issuercert.pem"):
        (authority / name).write_text("no key\n")
    with pytest.raises(NeedsHuman, match="TPM of r01-u01 was not made: swtpm_setup ended with 1"):
        manufacture_tpm("r01-u01", files, authority, tools)
    assert not files.tpm_state.exists()
    assert [path.name for path in files.directory.iterdir()] == [".tpm.unfinished"]
