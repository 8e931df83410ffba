"""The bytes of the commands that are needed, and what is read from their answers. Pure.

Source: TPM 2.0 Library, part 3. Answers are what follows the header; whatever is wrong with one raises TpmError.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from provisioner.node.tpm.device import TpmError

ENDORSEMENT = 0x4000000B
_NULL_HANDLE = 0x40000007
_PASSWORD = 0x40000009
_NO_SESSIONS, _SESSIONS = 0x8001, 0x8002
_SHA256, _NULL = 0x000B, 0x0010
_POLICY_SESSION = 0x01
PCRS = 24
NV_READ_BYTES = 512
"""What every TPM gives in one answer."""
MAX_DIGESTS = 8
"""How many PCRs a TPM gives in one answer."""


def create_primary(hierarchy: int, public: bytes) -> bytes:
    """A key that follows from the hierarchy's seed and this TPMT_PUBLIC, without a password."""
    sensitive = sized(sized(b"") + sized(b""))
    return _command(0x131, [hierarchy], sensitive + sized(public) + sized(b"") + bytes(4), [_password()])


def read_created(answer: bytes) -> tuple[int, bytes]:
    """The loaded key's handle, and its TPMT_PUBLIC."""
    reader = ResponseReader("TPM2_CreatePrimary", answer)
    return reader.number(4), reader.parameters().sized()


def read_public(handle: int) -> bytes:
    return _command(0x173, [handle])


def read_read_public(answer: bytes) -> bytes:
    """The key's TPMT_PUBLIC."""
    return ResponseReader("TPM2_ReadPublic", answer).sized()


def nv_read_public(index: int) -> bytes:
    return _command(0x169, [index])


def read_nv_size(answer: bytes) -> int:
    """How many bytes the index has."""
    public = ResponseReader("TPM2_NV_ReadPublic", ResponseReader("TPM2_NV_ReadPublic", answer).sized())
    public.take(10)  # index, hash algorithm, attributes
    public.sized()  # policy
    return public.number(2)


def nv_read(index: int, offset: int, size: int) -> bytes:
    """`size` bytes of an index that its own empty password opens."""
    return _command(0x14E, [index, index], struct.pack(">HH", size, offset), [_password()])


def read_nv(answer: bytes) -> bytes:
    return ResponseReader("TPM2_NV_Read", answer).parameters().sized()


def start_policy_session(nonce: bytes) -> bytes:
    """`nonce`: 16 random bytes."""
    parameters = sized(nonce) + sized(b"") + struct.pack(">BHH", _POLICY_SESSION, _NULL, _SHA256)
    return _command(0x176, [_NULL_HANDLE, _NULL_HANDLE], parameters)


def read_session(answer: bytes) -> int:
    return ResponseReader("TPM2_StartAuthSession", answer).number(4)


def policy_secret(hierarchy: int, session: int) -> bytes:
    """Who knows the hierarchy's password, which is empty, is who the session's policy asks for."""
    return _command(0x151, [hierarchy, session], sized(b"") * 3 + bytes(4), [_password()])


def activate_credential(key: int, endorsement_key: int, session: int, blob: bytes, secret: bytes) -> bytes:
    """`blob`, `secret`: TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET, each with its size. Uses up `session`."""
    return _command(0x147, [key, endorsement_key], blob + secret, [_password(), _authorization(session)])


def read_activated(answer: bytes) -> bytes:
    return ResponseReader("TPM2_ActivateCredential", answer).parameters().sized()


def quote(key: int, nonce: bytes, pcrs: Sequence[int]) -> bytes:
    """Of the SHA-256 bank, by the key's own scheme."""
    return _command(0x158, [key], sized(nonce) + struct.pack(">H", _NULL) + selection(pcrs), [_password()])


def read_quote(answer: bytes) -> tuple[bytes, bytes]:
    """TPMS_ATTEST and TPMT_SIGNATURE."""
    parameters = ResponseReader("TPM2_Quote", answer).parameters()
    return parameters.sized(), parameters.rest()


def pcr_read(pcrs: Sequence[int]) -> bytes:
    """Of the SHA-256 bank; the TPM may give fewer than it was asked for."""
    return _command(0x17E, [], selection(pcrs))


def read_pcrs(answer: bytes) -> dict[int, bytes]:
    reader = ResponseReader("TPM2_PCR_Read", answer)
    reader.take(4)  # how often any PCR has changed
    chosen: list[int] = []
    for _ in range(reader.count(16)):
        algorithm, bits = reader.number(2), reader.take(reader.number(1))
        if algorithm == _SHA256:
            chosen += [pcr for pcr in range(min(len(bits) * 8, PCRS)) if bits[pcr >> 3] >> (pcr & 7) & 1]
    values = [reader.sized() for _ in range(reader.count(MAX_DIGESTS))]
    if len(values) != len(chosen) or any(len(value) != 32 for value in values):
        raise TpmError(f"TPM2_PCR_Read: {len(values)} values came for {len(chosen)} PCRs of the bank sha256")
    return dict(zip(chosen, values, strict=True))


def pcr_extend(pcr: int, digest: bytes) -> bytes:
    """`digest`: SHA-256, for that bank alone."""
    return _command(0x182, [pcr], struct.pack(">IH", 1, _SHA256) + digest, [_password()])


def flush_context(handle: int) -> bytes:
    return _command(0x165, [], struct.pack(">I", handle))


def selection(pcrs: Sequence[int]) -> bytes:
    """A TPML_PCR_SELECTION of the SHA-256 bank. `pcrs`: 0 to 23."""
    bits = sum(1 << pcr for pcr in set(pcrs))
    return struct.pack(">IHB", 1, _SHA256, 3) + bits.to_bytes(3, "little")


def sized(content: bytes) -> bytes:
    """A TPM2B."""
    return struct.pack(">H", len(content)) + content


class ResponseReader:
    """Reads an answer from its beginning. `of`: what answered, for errors."""

    def __init__(self, of: str, content: bytes) -> None:
        self._of = of
        self._content = content
        self._at = 0

    def take(self, count: int) -> bytes:
        taken = self._content[self._at : self._at + count]
        if len(taken) != count:
            raise TpmError(
                f"{self._of}: the answer is cut: {count} bytes are due at {self._at}, {len(taken)} are there"
            )
        self._at += count
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")

    def count(self, most: int) -> int:
        """Of a list. Raises: TpmError where it says more than `most`."""
        found = self.number(4)
        if found > most:
            raise TpmError(f"{self._of}: a list says that it has {found} entries; it may have {most}")
        return found

    def sized(self) -> bytes:
        return self.take(self.number(2))

    def parameters(self) -> ResponseReader:
        """The parameters of an answer that ends with sessions."""
        return ResponseReader(self._of, self.take(self.number(4)))

    def rest(self) -> bytes:
        return self.take(len(self._content) - self._at)


def _command(
    code: int, handles: Sequence[int], parameters: bytes = b"", authorizations: Sequence[bytes] | None = None
) -> bytes:
    body = b"".join(struct.pack(">I", handle) for handle in handles)
    if authorizations is not None:
        area = b"".join(authorizations)
        body += struct.pack(">I", len(area)) + area
    body += parameters
    return struct.pack(">HII", _NO_SESSIONS if authorizations is None else _SESSIONS, 10 + len(body), code) + body


def _password() -> bytes:
    """The empty one."""
    return _authorization(_PASSWORD)


def _authorization(session: int) -> bytes:
    """Without a nonce, an HMAC, or the wish that the session goes on."""
    return struct.pack(">I", session) + sized(b"") + b"\0" + sized(b"")
