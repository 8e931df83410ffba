"""Which keys may endorse and attest: a key that has other attributes could be made to sign or decrypt a lie."""

from __future__ import annotations

from typing import Final

from provisioner.attestation.tpm.algorithms import Algorithm, Attribute, Curve, name_of
from provisioner.attestation.tpm.public import EccPart, PublicArea, RsaPart, Symmetric
from provisioner.attestation.tpm.wire import MalformedTpmData

_ATTESTS: Final = (
    Attribute.FIXED_TPM
    | Attribute.FIXED_PARENT
    | Attribute.SENSITIVE_DATA_ORIGIN
    | Attribute.USER_WITH_AUTH
    | Attribute.RESTRICTED
    | Attribute.SIGN_ENCRYPT
)
_ENDORSES: Final = (
    Attribute.FIXED_TPM
    | Attribute.FIXED_PARENT
    | Attribute.SENSITIVE_DATA_ORIGIN
    | Attribute.ADMIN_WITH_POLICY
    | Attribute.RESTRICTED
    | Attribute.DECRYPT
)
_POLICY_A: Final = bytes.fromhex("837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa")
"""TPM2_PolicySecret(TPM_RH_ENDORSEMENT): the EK Credential Profile's policy of templates L-1 and L-2."""
_POLICY_B: Final = bytes.fromhex("ca3d0a99a2b93906f7a3342414efcfb3a385d44cd1fd459089d19b5071c0b7a0")
"""PolicyB of the same, SHA-256: templates H-2 and H-3."""
_STORAGE: Final = Symmetric(Algorithm.AES, 128, Algorithm.CFB)


def check_attestation_key(public: PublicArea) -> str | None:
    """Why this key may not attest; nothing if it may.

    It must be a restricted signing key that its TPM made and that never leaves it, ECDSA on P-256 or RSASSA of 2048
    bits, with SHA-256: such a key signs what the TPM says of itself, and nothing that merely looks like it.
    """
    if why := (
        _wrong_name_algorithm(public)
        or _missing(public, _ATTESTS)
        or _forbidden(public, Attribute.DECRYPT | Attribute.X509_SIGN | Attribute.ENCRYPTED_DUPLICATION)
    ):
        return f"the attestation key {why}"
    part = public.part
    wanted = Algorithm.RSASSA if isinstance(part, RsaPart) else Algorithm.ECDSA
    if part.scheme.algorithm != wanted or part.scheme.hash != Algorithm.SHA256:
        found = f"{name_of(part.scheme.algorithm)} with {name_of(part.scheme.hash)}"
        return f"the attestation key signs by {found}, expected {wanted.name} with SHA256"
    if why := _wrong_size(part) or _no_key(public):
        return f"the attestation key {why}"
    return None


def check_endorsement_key(public: PublicArea) -> str | None:
    """Why this is no endorsement key; nothing if it is one.

    It must be a restricted decryption key of its TPM alone, RSA of 2048 bits or ECC P-256, with a policy of the TCG's
    EK Credential Profile: such a key opens a credential only for a key of the same TPM.
    """
    if why := (
        _wrong_name_algorithm(public)
        or _missing(public, _ENDORSES)
        or _forbidden(public, Attribute.SIGN_ENCRYPT | Attribute.ENCRYPTED_DUPLICATION)
    ):
        return f"the endorsement key {why}"
    if public.auth_policy not in (_POLICY_A, _POLICY_B):
        return "the endorsement key's policy is none of the TCG's EK Credential Profile"
    part = public.part
    if part.symmetric != _STORAGE:
        return "the endorsement key protects its children by other than AES-128 in CFB mode"
    if part.scheme.algorithm != Algorithm.NULL:
        return f"the endorsement key's scheme is {name_of(part.scheme.algorithm)}, expected NULL"
    if why := _wrong_size(part) or _no_key(public):
        return f"the endorsement key {why}"
    return None


def _wrong_name_algorithm(public: PublicArea) -> str | None:
    if public.name_algorithm == Algorithm.SHA256:
        return None
    return f"is named by {name_of(public.name_algorithm)}, expected SHA256"


def _missing(public: PublicArea, wanted: Attribute) -> str | None:
    lacking = wanted & ~public.attributes
    return f"lacks {_words(lacking)}" if lacking else None


def _forbidden(public: PublicArea, unwanted: Attribute) -> str | None:
    present = public.attributes & unwanted
    return f"has {_words(present)}, which it may not" if present else None


def _words(attributes: Attribute) -> str:
    return ", ".join(one.name or "" for one in Attribute if one in attributes)


def _wrong_size(part: RsaPart | EccPart) -> str | None:
    if isinstance(part, RsaPart):
        return None if part.key_bits == 2048 else f"has {part.key_bits} bits, expected 2048"
    return None if part.curve == Curve.NIST_P256 else f"is on the curve 0x{part.curve:04x}, expected P-256"


def _no_key(public: PublicArea) -> str | None:
    try:
        _ = public.public_key
    except MalformedTpmData as error:
        return f"is no key: {error}"
    return None
