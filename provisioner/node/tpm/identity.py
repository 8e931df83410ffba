"""A TPM's endorsement key and attestation key, loaded, and what they are asked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from provisioner.node.tpm import commands, return_codes, templates
from provisioner.node.tpm.device import TpmDevice, TpmError
from provisioner.node.tpm.templates import KeyTemplate

CREATE_SECONDS = 60.0
"""Some TPMs search half a minute for the primes of an RSA key."""
MAX_CERTIFICATES = 4
MAX_CERTIFICATE_BYTES = 4096
MAX_CHAIN_INDICES = 4
_PERSISTENT = {"RSA": (0x81010001,), "ECC": (0x81010002, 0x81010016)}
"""Where manufacturers and tools keep endorsement keys."""
_CERTIFICATE = {"RSA": 0x01C00002, "ECC": 0x01C0000A}
_CHAIN = 0x01C00100
_QUOTES = 3


class TpmSecret:
    """What only this TPM could open; shown to nobody."""

    def __init__(self, value: bytes) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "***"


class TpmIdentity:
    """Both keys. `close` unloads them and closes the device, also after errors."""

    def __init__(self, device: TpmDevice, *, prefer: str | None = None) -> None:
        """Load the keys. `prefer`: RSA or ECC, where the TPM has endorsement keys of both. Raises: TpmError."""
        self._device = device
        self._loaded: list[int] = []
        try:
            self.certificates, algorithm = self._find_certificates(prefer)
            self._endorsement_key, self.endorsement_public = self._endorsement(algorithm)
            self._attestation_key, self.attestation_public = self._create_first(
                templates.ATTESTATION_ECC, templates.ATTESTATION_RSA
            )
        except BaseException:
            self.close()
            raise

    def limit(self, seconds: float) -> None:
        """So long may all that is asked from now on take together."""
        self._device.limit(seconds)

    def activate(self, blob: bytes, secret: bytes) -> TpmSecret:
        """The secret of a credential that was made for these two keys. Raises: TpmError."""
        answer = self._device.call("TPM2_StartAuthSession", commands.start_policy_session(os.urandom(16)))
        session = commands.read_session(answer)
        self._loaded.append(session)
        try:
            self._device.call("TPM2_PolicySecret", commands.policy_secret(commands.ENDORSEMENT, session))
            command = commands.activate_credential(self._attestation_key, self._endorsement_key, session, blob, secret)
            activated = commands.read_activated(self._device.call("TPM2_ActivateCredential", command))
        except BaseException:
            self._flush(session)
            raise
        self._loaded.remove(session)  # used up
        return TpmSecret(activated)

    def quote(self, nonce: bytes, pcrs: Sequence[int]) -> tuple[bytes, bytes, dict[int, bytes]]:
        """TPMS_ATTEST, TPMT_SIGNATURE, and the values that it is about. Raises: TpmError.

        Somebody may extend a PCR between the two; then both are asked for anew.
        """
        for _ in range(_QUOTES):
            answer = self._device.call("TPM2_Quote", commands.quote(self._attestation_key, nonce, pcrs))
            attest, signature = commands.read_quote(answer)
            values = self._read_pcrs(pcrs)
            if attest.endswith(hashlib.sha256(b"".join(values[pcr] for pcr in sorted(values))).digest()):
                return attest, signature, values
        raise TpmError(f"the PCRs changed between quote and reading, {_QUOTES} times in a row")

    def close(self) -> None:
        """Unload the keys and close the device; a TPM that does not answer any more is left."""
        for handle in reversed(self._loaded[:]):
            self._flush(handle)
        self._device.close()

    def _find_certificates(self, prefer: str | None) -> tuple[list[bytes], str | None]:
        """Certificates of an endorsement key and their chain, and the key's algorithm if there is one."""
        for algorithm in sorted(_CERTIFICATE, key=lambda known: (known != prefer, known != "RSA")):
            if found := split_certificates(self._read_nv(_CERTIFICATE[algorithm])):
                for index in range(_CHAIN, _CHAIN + MAX_CHAIN_INDICES):
                    more = split_certificates(self._read_nv(index))
                    if not more:
                        break
                    found += more
                return found[:MAX_CERTIFICATES], algorithm
        return [], prefer

    def _read_nv(self, index: int) -> bytes:
        """What the index has, b"" where there is none or it may not be read."""
        try:
            public = self._device.call("TPM2_NV_ReadPublic", commands.nv_read_public(index))
            size = min(commands.read_nv_size(public), MAX_CERTIFICATES * MAX_CERTIFICATE_BYTES)
            content = b""
            while len(content) < size:
                count = min(size - len(content), commands.NV_READ_BYTES)
                answer = self._device.call("TPM2_NV_Read", commands.nv_read(index, len(content), count))
                piece = commands.read_nv(answer)
                if not 0 < len(piece) <= count:
                    raise TpmError(f"TPM2_NV_Read: {len(piece)} bytes of {index:#x} came, {count} were asked for")
                content += piece
        except TpmError as error:
            if error.code is None:
                raise
            return b""
        return content

    def _endorsement(self, algorithm: str | None) -> tuple[int, bytes]:
        """The one that a certificate is about; else one that is kept in the TPM; else one that is soon made."""
        both = (templates.ENDORSEMENT_ECC, templates.ENDORSEMENT_RSA)
        wanted = [template for template in both if algorithm in (None, template.algorithm)]
        for template in wanted:
            for handle in _PERSISTENT[template.algorithm]:
                try:
                    answer = self._device.call("TPM2_ReadPublic", commands.read_public(handle))
                except TpmError as error:
                    if error.code is None:
                        raise
                    continue
                public = commands.read_read_public(answer)
                if template.is_of(public):
                    return handle, public
        return self._create_first(*wanted)

    def _create_first(self, *wanted: KeyTemplate) -> tuple[int, bytes]:
        """By the first template that the TPM has the algorithms for."""
        *first, last = wanted
        for template in first:
            try:
                return self._create(template)
            except TpmError as error:
                # Another key would be refused for the same reason.
                if error.code is None or return_codes.base_code(error.code) not in return_codes.NO_SUCH_ALGORITHM:
                    raise
        return self._create(last)

    def _create(self, template: KeyTemplate) -> tuple[int, bytes]:
        command = commands.create_primary(commands.ENDORSEMENT, template.public)
        handle, public = commands.read_created(self._device.call("TPM2_CreatePrimary", command, CREATE_SECONDS))
        self._loaded.append(handle)
        if not template.is_of(public):
            raise TpmError("TPM2_CreatePrimary: the key is not by the template that was asked for")
        return handle, public

    def _read_pcrs(self, pcrs: Sequence[int]) -> dict[int, bytes]:
        values: dict[int, bytes] = {}
        while missing := sorted(set(pcrs) - set(values)):
            read = commands.read_pcrs(self._device.call("TPM2_PCR_Read", commands.pcr_read(missing)))
            new = {pcr: value for pcr, value in read.items() if pcr in missing}
            if not new:
                raise TpmError(f"TPM2_PCR_Read: PCR {missing[0]} has no value in the bank sha256; enable that bank")
            values |= new
        return values

    def _flush(self, handle: int) -> None:
        if handle in self._loaded:
            self._loaded.remove(handle)
        if self._device.is_open:
            try:
                self._device.call("TPM2_FlushContext", commands.flush_context(handle))
            except TpmError:
                return  # what failed before is what is told


def split_certificates(content: bytes) -> list[bytes]:
    """The DER certificates that stand one behind another; what follows them (0xff, as the memory was) is dropped."""
    found = []
    while len(content) > 4 and content[0] == 0x30 and content[1] == 0x82:
        size = 4 + int.from_bytes(content[2:4], "big")
        if size > min(len(content), MAX_CERTIFICATE_BYTES):
            break
        found.append(content[:size])
        content = content[size:]
    return found
