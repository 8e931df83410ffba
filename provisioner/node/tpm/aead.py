"""AES-256-GCM by the libcrypto that Python's `ssl` is linked with, and HKDF-SHA256.

Python has no cipher of its own. The handle of `_ssl` finds the symbols of what it depends on, so that no path and no
version is guessed; that it is the library which `ssl` talks of is checked.

Sources: NIST SP 800-38D; RFC 5869.
"""

from __future__ import annotations

import _ssl
import ctypes
import hashlib
import hmac
import ssl

KEY_BYTES, NONCE_BYTES, TAG_BYTES = 32, 12, 16
MAX_BYTES = 1 << 20
"""Of a ciphertext."""
_SET_TAG = 0x11


class AeadError(Exception):
    """What was sealed cannot be opened; the message says why, and nothing of what is in it."""


def open_sealed(key: bytes, nonce: bytes, ciphertext: bytes, additional: bytes) -> bytes:
    """The plaintext. `ciphertext` ends with the tag.

    Raises: AeadError if it was sealed by another key, nonce or additional data, or altered; or without libcrypto.
    """
    if len(key) != KEY_BYTES or len(nonce) != NONCE_BYTES:
        raise AeadError(f"a key of {len(key)} bytes and a nonce of {len(nonce)}: {KEY_BYTES} and {NONCE_BYTES} are due")
    if not TAG_BYTES <= len(ciphertext) <= MAX_BYTES:
        raise AeadError(f"a ciphertext of {len(ciphertext)} bytes: {TAG_BYTES} to {MAX_BYTES} are taken")
    library = _libcrypto()
    body, tag = ciphertext[:-TAG_BYTES], ciphertext[-TAG_BYTES:]
    plaintext, count = ctypes.create_string_buffer(len(body) + 1), ctypes.c_int(0)
    context = library.EVP_CIPHER_CTX_new()
    if not context:
        raise AeadError("libcrypto has no memory")
    try:
        ready = (
            library.EVP_DecryptInit_ex(context, library.EVP_aes_256_gcm(), None, key, nonce) == 1
            and (
                not additional
                or library.EVP_DecryptUpdate(context, None, ctypes.byref(count), additional, len(additional)) == 1
            )
            and library.EVP_DecryptUpdate(context, plaintext, ctypes.byref(count), body, len(body)) == 1
            and library.EVP_CIPHER_CTX_ctrl(context, _SET_TAG, TAG_BYTES, tag) == 1
        )
        if not ready:
            raise AeadError("libcrypto refused to decrypt; does it allow AES-256-GCM?")
        if library.EVP_DecryptFinal_ex(context, ctypes.create_string_buffer(TAG_BYTES), ctypes.byref(count)) != 1:
            raise AeadError("it was sealed for another machine, request or server, or altered on the way")
    finally:
        library.EVP_CIPHER_CTX_free(context)
    return plaintext.raw[: len(body)]


def hkdf_sha256(secret: bytes, *, salt: bytes, info: bytes, size: int = KEY_BYTES) -> bytes:
    """A key of `size` bytes (at most 8160) that follows from `secret` for one purpose."""
    extracted = hmac.digest(salt or bytes(hashlib.sha256().digest_size), secret, "sha256")
    derived, block = b"", b""
    for number in range(1, -(-size // 32) + 1):
        block = hmac.digest(extracted, block + info + bytes([number]), "sha256")
        derived += block
    return derived[:size]


def _libcrypto() -> ctypes.CDLL:
    path = getattr(_ssl, "__file__", None)  # none where it is part of the interpreter
    try:
        library = ctypes.CDLL(path)
        pointer, number = ctypes.c_void_p, ctypes.c_int
        text, out = ctypes.c_char_p, ctypes.POINTER(ctypes.c_int)
        for name, result, arguments in (
            ("OpenSSL_version_num", ctypes.c_ulong, []),
            ("EVP_CIPHER_CTX_new", pointer, []),
            ("EVP_CIPHER_CTX_free", None, [pointer]),
            ("EVP_CIPHER_CTX_ctrl", number, [pointer, number, number, text]),
            ("EVP_aes_256_gcm", pointer, []),
            ("EVP_DecryptInit_ex", number, [pointer, pointer, pointer, text, text]),
            ("EVP_DecryptUpdate", number, [pointer, pointer, out, text, number]),
            ("EVP_DecryptFinal_ex", number, [pointer, pointer, out]),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise AeadError(f"Python's ssl ({path or 'built in'}) gives no libcrypto: {error}") from error
    if library.OpenSSL_version_num() != ssl.OPENSSL_VERSION_NUMBER:
        raise AeadError(
            f"libcrypto is {library.OpenSSL_version_num():#x}, Python's ssl has {ssl.OPENSSL_VERSION_NUMBER:#x}"
        )
    return library
