"""TPMT_SIGNATURE: RSASSA and ECDSA, both with SHA-256; no other is believed."""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from provisioner.attestation.tpm.algorithms import Algorithm, name_of
from provisioner.attestation.tpm.public import PublicArea
from provisioner.attestation.tpm.wire import MalformedTpmData, StructureReader

LARGEST_SIGNATURE_BYTES: Final = 600
_MOST_RSA_BYTES: Final = 512
_MOST_COORDINATE_BYTES: Final = 66


def verify_signature(public: PublicArea, signed: bytes, signature: bytes) -> bool:
    """Whether `signature`, a whole TPMT_SIGNATURE, is the key's over the SHA-256 of `signed`.

    Raises: MalformedTpmData if it is no such structure, of another algorithm, or the public area holds no key.
    """
    if len(signature) > LARGEST_SIGNATURE_BYTES:
        raise MalformedTpmData(
            f"the signature has {len(signature)} bytes, at most {LARGEST_SIGNATURE_BYTES} are expected"
        )
    reader = StructureReader(signature, "the signature")
    algorithm, digest = reader.uint16(), reader.uint16()
    if algorithm not in (Algorithm.RSASSA, Algorithm.ECDSA) or digest != Algorithm.SHA256:
        raise MalformedTpmData(
            f"the signature is {name_of(algorithm)} with {name_of(digest)}, expected RSASSA or ECDSA with SHA256"
        )
    key = public.public_key()
    try:
        if algorithm == Algorithm.RSASSA:
            value = reader.sized(_MOST_RSA_BYTES)
            reader.end()
            if not isinstance(key, rsa.RSAPublicKey):
                return False
            key.verify(value, signed, padding.PKCS1v15(), hashes.SHA256())
            return True
        r, s = reader.sized(_MOST_COORDINATE_BYTES), reader.sized(_MOST_COORDINATE_BYTES)
        reader.end()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        encoded = encode_dss_signature(int.from_bytes(r, "big"), int.from_bytes(s, "big"))
        key.verify(encoded, signed, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True
