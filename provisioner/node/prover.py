"""The evidence of a join request by a TPM, and the opening of what was sealed to it.

First the keys are shown. The service's challenge has a credential that only a TPM with both keys can open, and a nonce:
answered by an HMAC of the credential's secret, a quote over the nonce, and the firmware's event log. The configuration
then comes encrypted by a key that follows from the secret.

A TPM that is absent, hung, locked or broken ends no boot: the request says why nothing is proven, and the service
decides.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Callable

from provisioner.node.join import NoProver, SealError, why_nothing_is_proven
from provisioner.node.tpm.aead import NONCE_BYTES, AeadError, hkdf_sha256, open_sealed
from provisioner.node.tpm.commands import PCRS
from provisioner.node.tpm.device import NoTpmError, TpmDevice, TpmError, open_tpm
from provisioner.node.tpm.identity import TpmIdentity, TpmSecret

# What the firmware says that it measured: the kernel's copy of its log, in the TCG's format.

FOLDER = "/sys/kernel/security"
PATH = f"{FOLDER}/tpm0/binary_bios_measurements"
MAX_BYTES = 128 << 10
_MOUNT_SECONDS = 5.0


def read_event_log(root: str) -> tuple[bytes, str]:
    """The log, and why there is none (`""` where there is one). `root`: "" on a real machine.

    One that is longer than MAX_BYTES is left out: a part of a log explains no PCR. After a kexec there may be none.
    """
    for attempt in ("as it is", "mounted"):
        try:
            with open(root + PATH, "rb") as file:  # noqa: PTH123 (pathlib costs start-up time)
                log = file.read(MAX_BYTES + 1)
            break
        except FileNotFoundError as error:
            if root or attempt == "mounted" or not _mount():
                return b"", f"there is no event log of the firmware ({error.filename} is not there)"
        except OSError as error:
            return b"", f"the event log of the firmware cannot be read ({error})"
    if len(log) > MAX_BYTES:
        return b"", f"the event log of the firmware has more than {MAX_BYTES >> 10} KiB and is left out"
    return log, "" if log else "the event log of the firmware is empty"


def _mount() -> bool:
    """systemd mounts it on most systems."""
    import subprocess  # costs start-up time

    command = ["mount", "-t", "securityfs", "-o", "nosuid,nodev,noexec", "securityfs", FOLDER]
    try:
        return subprocess.run(command, capture_output=True, timeout=_MOUNT_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


ACTIVATION = b"provisioner/join/activation"
CONFIGURATION = b"provisioner/join/configuration"
CHALLENGE_NONCE_BYTES = 32
SECRET_BYTES = 32
MAX_BLOB_BYTES = 512
MAX_STATE_BYTES = 2048
MAX_SEALED_BYTES = 1 << 20
KEYS_SECONDS = 120.0
"""For all commands by which the keys are found or made."""
PROOF_SECONDS = 60.0
"""For all commands of an answer."""


class TpmChallenge:
    """A challenge of type TPM2, read. `state` is the service's own, sent back as it came."""

    def __init__(self, *, blob: bytes, secret: bytes, nonce: bytes, pcrs: list[int], state: str) -> None:
        self.blob = blob
        self.secret = secret
        self.nonce = nonce
        self.pcrs = pcrs
        self.state = state


def read_challenge(challenge: object) -> TpmChallenge:
    """Pure. Raises: ValueError, which names the field."""
    if not isinstance(challenge, dict) or challenge.get("type") != "TPM2":
        raise ValueError("the challenge is not of type TPM2")
    pcrs, state = challenge.get("pcrs"), challenge.get("state")
    nonce = _decode(challenge, "nonce", CHALLENGE_NONCE_BYTES)
    if len(nonce) != CHALLENGE_NONCE_BYTES:
        raise ValueError(f"the challenge's nonce has {len(nonce)} bytes, not {CHALLENGE_NONCE_BYTES}")
    if (
        not isinstance(pcrs, list)
        or not 0 < len(pcrs) <= PCRS
        or not all(type(pcr) is int and 0 <= pcr < PCRS for pcr in pcrs)
        or len(set(pcrs)) != len(pcrs)
    ):
        raise ValueError(f"the challenge's pcrs are not numbers from 0 to {PCRS - 1}, each once")
    _decode(challenge, "state", MAX_STATE_BYTES)
    return TpmChallenge(
        blob=_decode_sized(challenge, "credentialBlob"),
        secret=_decode_sized(challenge, "encryptedSecret"),
        nonce=nonce,
        pcrs=pcrs,
        state=str(state),
    )


class TpmProver(NoProver):
    """Proves by the TPM that `open_device` opens. The keys stay loaded from the evidence to the configuration."""

    def __init__(self, open_device: Callable[[], TpmDevice], root: str, say: Callable[[str], None]) -> None:
        super().__init__()
        self._open_device = open_device
        self._root = root
        self._say = say
        self._identity: TpmIdentity | None = None
        self._proven: tuple[TpmSecret, bytes] | None = None
        self._untold = ""
        self._said: set[str] = set()

    def evidence(self) -> dict[str, object]:
        """The keys; or type None, with why. After a failure the next request says it, the one after it tries again."""
        self._proven = None
        why, self._untold = self._untold, ""
        if not why:
            try:
                return self._keys()
            except TpmError as error:
                why = self._fail(str(error))
        return why_nothing_is_proven(why)

    def answer(self, challenge: object) -> dict[str, object] | None:
        """The proof; or None where the challenge is malformed or the TPM fails: then `evidence` says why."""
        self._proven = None
        try:
            asked = read_challenge(challenge)
        except ValueError as error:
            self._tell(f"the join service's challenge cannot be answered: {error}")
            return None
        try:
            return self._prove(asked)
        except TpmError as error:
            self._untold = self._fail(str(error))
            return None

    def open(self, sealed: object, server: str) -> dict[str, object]:
        """The configuration that was sealed to the last proof. The TPM is given back. Raises: SealError."""
        if self._proven is None:
            raise SealError("nothing was proven with which it could be opened")
        secret, salt = self._proven
        try:
            if not isinstance(sealed, dict) or sealed.get("type") != "A256GCM":
                raise ValueError("it is not of type A256GCM")
            nonce, ciphertext = _decode(sealed, "nonce", NONCE_BYTES), _decode(sealed, "ciphertext", MAX_SEALED_BYTES)
            key = hkdf_sha256(secret.value, salt=salt, info=CONFIGURATION)
            configuration = json.loads(open_sealed(key, nonce, ciphertext, server.encode()))
            if not isinstance(configuration, dict):
                raise ValueError("what is in it is no JSON object")
        except AeadError as error:
            raise SealError(str(error)) from error
        except (ValueError, RecursionError) as error:
            # A JSON error's own words may quote what was sealed.
            words = "what is in it is not JSON" if isinstance(error, json.JSONDecodeError) else str(error)
            raise SealError(words) from None
        self.close()
        return configuration

    def close(self) -> None:
        """Unload the keys and forget the secret."""
        identity, self._identity, self._proven = self._identity, None, None
        if identity is not None:
            identity.close()

    def _keys(self) -> dict[str, object]:
        if self._identity is None:
            device = self._open_device()
            device.limit(KEYS_SECONDS)
            self._identity = TpmIdentity(device)
        return {
            "type": "TPM2",
            "endorsementKey": _encode(self._identity.endorsement_public),
            "endorsementCertificates": [_encode(one) for one in self._identity.certificates],
            "attestationKey": _encode(self._identity.attestation_public),
        }

    def _prove(self, asked: TpmChallenge) -> dict[str, object]:
        shown = self._keys()
        identity = self._identity
        if identity is None:
            raise TpmError("the TPM was given back")
        identity.limit(PROOF_SECONDS)
        secret = identity.activate(asked.blob, asked.secret)
        if len(secret.value) != SECRET_BYTES:
            raise TpmError(f"the credential's secret has {len(secret.value)} bytes, not {SECRET_BYTES}")
        attest, signature, values = identity.quote(asked.nonce, asked.pcrs)
        log, why = read_event_log(self._root)
        if why:
            self._tell(why)
        self._proven = (secret, asked.nonce)
        return {
            **shown,
            "state": asked.state,
            "activation": _encode(hmac.digest(secret.value, ACTIVATION + asked.nonce, "sha256")),
            "quote": _encode(attest),
            "signature": _encode(signature),
            "pcrValues": {str(pcr): values[pcr].hex() for pcr in sorted(values)},
            "eventLog": _encode(log),
        }

    def _fail(self, why: str) -> str:
        self.close()
        self._tell(f"the TPM proves nothing: {why}")
        return why

    def _tell(self, message: str) -> None:
        """Once for each message."""
        if message not in self._said and len(self._said) < 100:
            self._said.add(message)
            self._say(message)


def choose_prover(root: str, say: Callable[[str], None]) -> NoProver:
    """By whether the machine has a TPM. One that does not open may do so later, and is tried at each request."""
    first: list[TpmDevice] = []
    try:
        first.append(open_tpm(root))
    except NoTpmError as error:
        return NoProver(str(error))
    except TpmError:
        pass  # said by the first evidence

    def open_device() -> TpmDevice:
        return first.pop() if first else open_tpm(root)

    return TpmProver(open_device, root, say)


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decode(fields: dict[str, object], name: str, most: int) -> bytes:
    text = fields.get(name)
    if not isinstance(text, str) or len(text) > (most + 2) // 3 * 4:
        raise ValueError(f"{name} is no text of {(most + 2) // 3 * 4} characters at most")
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{name} is not base64") from error
    if len(content) > most:
        raise ValueError(f"{name} has {len(content)} bytes, {most} at most are taken")
    return content


def _decode_sized(fields: dict[str, object], name: str) -> bytes:
    """A TPM2B with its size."""
    content = _decode(fields, name, MAX_BLOB_BYTES)
    if len(content) < 3 or int.from_bytes(content[:2], "big") != len(content) - 2:
        raise ValueError(f"{name} is no TPM2B of {len(content)} bytes")
    return content
