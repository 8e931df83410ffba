"""Which keys a TPM is asked to make from its seeds: the same at each boot, so that nothing has to be kept.

An endorsement key by the TCG's default templates L-1 and L-2 is the one that the vendor's certificate is about. The
attestation key is a primary of the endorsement hierarchy: restricted, it signs nothing but what the TPM itself says.
It has no use for a password, and a lockout of the TPM does not concern it.

Source: TCG EK Credential Profile 2.5, B.3.3 and B.3.4.
"""

from __future__ import annotations

ENDORSEMENT_POLICY = bytes.fromhex("837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa")
"""PolicySecret of the endorsement hierarchy."""

_RSA, _ECC, _SHA256 = "0001", "0023", "000b"
_ENDORSEMENT = "000300b2"  # fixedTPM, fixedParent, sensitiveDataOrigin, adminWithPolicy, restricted, decrypt
_ATTESTATION = "00050472"  # fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, noDA, restricted, sign
_AES_128_CFB = "000600800043"
_NULL = "0010"
_P256 = "0003"
_RSASSA, _ECDSA = "0014", "0018"


class KeyTemplate:
    """A TPMT_PUBLIC: what is asked for, and what stands before a key's own part in what comes back."""

    def __init__(self, algorithm: str, head: bytes, unique: bytes) -> None:
        self.algorithm = algorithm
        self.head = head
        self.public = head + unique

    def is_of(self, public: bytes) -> bool:
        """Whether a key was made by this template."""
        return public.startswith(self.head) and len(public) > len(self.head)


ENDORSEMENT_RSA = KeyTemplate(
    "RSA",
    bytes.fromhex(_RSA + _SHA256 + _ENDORSEMENT + "0020")
    + ENDORSEMENT_POLICY
    + bytes.fromhex(_AES_128_CFB + _NULL + "0800" + "00000000"),
    bytes.fromhex("0100") + bytes(256),
)
ENDORSEMENT_ECC = KeyTemplate(
    "ECC",
    bytes.fromhex(_ECC + _SHA256 + _ENDORSEMENT + "0020")
    + ENDORSEMENT_POLICY
    + bytes.fromhex(_AES_128_CFB + _NULL + _P256 + _NULL),
    (bytes.fromhex("0020") + bytes(32)) * 2,
)
ATTESTATION_ECC = KeyTemplate(
    "ECC",
    bytes.fromhex(_ECC + _SHA256 + _ATTESTATION + "0000" + _NULL + _ECDSA + _SHA256 + _P256 + _NULL),
    bytes.fromhex("00000000"),
)
ATTESTATION_RSA = KeyTemplate(
    "RSA",
    bytes.fromhex(_RSA + _SHA256 + _ATTESTATION + "0000" + _NULL + _RSASSA + _SHA256 + "0800" + "00000000"),
    bytes.fromhex("0000"),
)
