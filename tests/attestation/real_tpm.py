"""A TPM 2.0 (swtpm), spoken to in its own commands: what a machine does to attest, and what a liar would try."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.attestation.tpm.algorithms import Algorithm, Attribute, Curve
from provisioner.attestation.tpm.public import EccPart, PublicArea, RsaPart, Scheme, Symmetric, parse_public
from tests.tools import installed

NO_SCHEME: Final = Scheme(Algorithm.NULL)
STORAGE: Final = Symmetric(Algorithm.AES, 128, Algorithm.CFB)
POLICY_A: Final = bytes.fromhex("837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa")
EK_ATTRIBUTES: Final = Attribute(0x000300B2)
AK_ATTRIBUTES: Final = Attribute(0x00050072)
ENDORSEMENT: Final = 0x4000000B
OWNER: Final = 0x40000001
_RETRY: Final = 0x922
"""TPM_RC_RETRY: what Linux answers by sending the command again."""
_PASSWORD: Final = struct.pack(">IHBH", 0x40000009, 0, 0, 0)
_RSA_EK_CERTIFICATE: Final = 0x01C00002


def sized(data: bytes) -> bytes:
    return struct.pack(">H", len(data)) + data


def ek_template(kind: str) -> bytes:
    """L-1 (rsa) or L-2 (ecc) of the EK Credential Profile."""
    if kind == "rsa":
        part: RsaPart | EccPart = RsaPart(STORAGE, NO_SCHEME, 2048, 0, bytes(256))
    else:
        part = EccPart(STORAGE, NO_SCHEME, Curve.NIST_P256, NO_SCHEME, bytes(32), bytes(32))
    return PublicArea(Algorithm.SHA256, EK_ATTRIBUTES, POLICY_A, part).marshalled


def ak_template(kind: str, attributes: Attribute = AK_ATTRIBUTES) -> bytes:
    none = Symmetric(Algorithm.NULL)
    if kind == "rsa":
        part: RsaPart | EccPart = RsaPart(none, Scheme(Algorithm.RSASSA, Algorithm.SHA256), 2048, 0, b"")
    else:
        part = EccPart(none, Scheme(Algorithm.ECDSA, Algorithm.SHA256), Curve.NIST_P256, NO_SCHEME, b"", b"")
    return PublicArea(Algorithm.SHA256, attributes, b"", part).marshalled


@dataclass(frozen=True)
class Loaded:
    """A key in the TPM. public: its TPMT_PUBLIC."""

    handle: int
    public: bytes

    @property
    def area(self) -> PublicArea:
        return parse_public(self.public)


class TpmError(Exception):
    """The TPM answered with a response code."""


class RealTpm:
    """Commands to one TPM. Owner and endorsement passwords are empty."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def command(self, code: int, handles: Iterable[int], parameters: bytes, *sessions: bytes) -> bytes:
        """What follows the header of the answer."""
        area = b"".join(sessions)
        body = b"".join(struct.pack(">I", handle) for handle in handles)
        body += (struct.pack(">I", len(area)) + area if area else b"") + parameters
        tag = 0x8002 if area else 0x8001
        for _ in range(5):
            self._stream.sendall(struct.pack(">HII", tag, 10 + len(body), code) + body)
            _, size, response = struct.unpack(">HII", self._receive(10))
            rest = self._receive(size - 10)
            if response != _RETRY:
                break
        if response:
            raise TpmError(f"command 0x{code:x} was answered with 0x{response:x}")
        return rest

    def _receive(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            more = self._stream.recv(size - len(received))
            assert more, "the TPM has hung up"
            received += more
        return received

    def create_primary(self, template: bytes, hierarchy: int = ENDORSEMENT) -> Loaded:
        parameters = sized(struct.pack(">HH", 0, 0)) + sized(template) + sized(b"") + struct.pack(">I", 0)
        answer = self.command(0x131, [hierarchy], parameters, _PASSWORD)
        handle, _, size = struct.unpack(">IIH", answer[:10])
        return Loaded(handle, answer[10 : 10 + size])

    def flush(self, handle: int) -> None:
        self.command(0x165, [], struct.pack(">I", handle))

    def activate(self, attestation: Loaded, endorsement: Loaded, blob: bytes, encrypted: bytes) -> bytes:
        """TPM2_ActivateCredential under the endorsement key's policy. Raises: TpmError if the TPM does not open it."""
        start = sized(bytes(16)) + sized(b"") + struct.pack(">BHH", 1, Algorithm.NULL, Algorithm.SHA256)
        session = struct.unpack(">I", self.command(0x176, [0x40000007, 0x40000007], start)[:4])[0]
        try:
            nothing = sized(b"") * 3 + struct.pack(">i", 0)
            self.command(0x151, [ENDORSEMENT, session], nothing, _PASSWORD)
            policy = struct.pack(">IHBH", session, 0, 0, 0)
            answer = self.command(0x147, [attestation.handle, endorsement.handle], blob + encrypted, _PASSWORD, policy)
        except TpmError:
            self.flush(session)
            raise
        return answer[6 : 6 + struct.unpack(">H", answer[4:6])[0]]

    def extend(self, pcr: int, digest: bytes) -> None:
        self.command(0x182, [pcr], struct.pack(">IH", 1, Algorithm.SHA256) + digest, _PASSWORD)

    def read_pcrs(self, pcrs: Iterable[int]) -> Mapping[int, bytes]:
        values = {}
        for pcr in pcrs:
            answer = self.command(0x17E, [], _selection([pcr]))
            values[pcr] = answer[-32:]
        return values

    def quote(self, key: Loaded, nonce: bytes, pcrs: Iterable[int]) -> tuple[bytes, bytes]:
        """TPMS_ATTEST and TPMT_SIGNATURE."""
        parameters = sized(nonce) + struct.pack(">H", Algorithm.NULL) + _selection(pcrs)
        answer = self.command(0x158, [key.handle], parameters, _PASSWORD)
        parameter_size, size = struct.unpack(">IH", answer[:6])
        return answer[6 : 6 + size], answer[6 + size : 4 + parameter_size]

    def endorsement_certificate(self) -> bytes:
        """That of the RSA endorsement key, from NV memory."""
        public = self.command(0x169, [_RSA_EK_CERTIFICATE], b"")
        left = struct.unpack(">H", public[2 : 2 + struct.unpack(">H", public[:2])[0]][-2:])[0]
        read = b""
        while len(read) < left:
            size = min(512, left - len(read))
            where = struct.pack(">HH", size, len(read))
            answer = self.command(0x14E, [_RSA_EK_CERTIFICATE, _RSA_EK_CERTIFICATE], where, _PASSWORD)
            read += answer[6 : 6 + size]
        return read


def _selection(pcrs: Iterable[int]) -> bytes:
    bits = sum(1 << pcr for pcr in pcrs)
    return struct.pack(">IHB", 1, Algorithm.SHA256, 3) + bits.to_bytes(3, "little")


@contextmanager
def real_tpm(authority: Path | None = None) -> Iterator[RealTpm]:
    """A new TPM that nobody has measured into. authority: folder of a CA that certifies its endorsement keys, made if
    it is not there (`issuercert.pem`, `swtpm-localca-rootca-cert.pem`)."""
    program = installed("swtpm")
    # A path of pytest's is longer than a Unix socket's may be.
    folder = Path(tempfile.mkdtemp(prefix="tpm-"))
    try:
        if authority is not None:
            _certify(folder, authority)
        command = [program, "socket", "--tpm2", "--tpmstate", f"dir={folder}"]
        command += ["--ctrl", f"type=unixio,path={folder}/ctrl", "--server", f"type=unixio,path={folder}/tpm"]
        command += ["--flags", "not-need-init,startup-clear"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield RealTpm(_connected(folder / "tpm"))
            finally:
                process.terminate()
    finally:
        shutil.rmtree(folder)


def _connected(path: Path) -> socket.socket:
    deadline = time.monotonic() + 180
    while True:
        stream = socket.socket(socket.AF_UNIX)
        try:
            stream.connect(str(path))
        except OSError:
            stream.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            stream.settimeout(60)
            return stream


def _certify(folder: Path, authority: Path) -> None:
    """By swtpm's own CA, as a vendor does in its factory."""
    authority.mkdir(exist_ok=True)
    (authority / "localca.conf").write_text(
        f"statedir = {authority}\nsigningkey = {authority}/signkey.pem\n"
        f"issuercert = {authority}/issuercert.pem\ncertserial = {authority}/certserial\n"
    )
    (authority / "localca.options").write_text(
        "".join(f"--platform-{option}\n" for option in ("manufacturer Made-up", "version 1", "model 1"))
    )
    (authority / "setup.conf").write_text(
        f"create_certs_tool = {installed('swtpm_localca')}\ncreate_certs_tool_config = {authority}/localca.conf\n"
        f"create_certs_tool_options = {authority}/localca.options\n"
    )
    command = [installed("swtpm_setup"), "--tpm2", "--tpm-state", str(folder), "--create-ek-cert", "--overwrite"]
    command += ["--config", str(authority / "setup.conf"), "--pcr-banks", "sha256"]
    # swtpm_setup gives its files to this user; it has to be ours.
    command += ["--runas", str(os.geteuid())]
    made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert made.returncode == 0, made.stdout + made.stderr
