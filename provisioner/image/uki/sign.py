"""Signing an EFI program by a site's own key, with sbsign; and proof that it was."""

from __future__ import annotations

import tempfile
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman, NotFound, Refused
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.image.tools.command import run
from provisioner.image.tools.private_files import must_be_private
from provisioner.image.uki.portable_executable import read_layout


def sign_program(program: bytes, key: Path, certificate: Path) -> bytes:
    """The program with its signature, which sbverify has checked by the certificate (both PEM).

    Raises: NotFound without a file; NeedsHuman if others may read the key, or without sbsign; Refused if it is signed.
    """
    for file in (key, certificate):
        if not file.is_file():
            raise NotFound(f"{file} does not exist", hint="docs/secure-boot.md tells how key and certificate are made")
    must_be_private("key", key, key.stat().st_mode)
    if read_layout(program).certificates[1]:
        raise Refused("the EFI program is signed already", hint="sign what provisioner image uki made without a key")
    before = authenticode_sha256(program)
    with tempfile.TemporaryDirectory(prefix="uki-") as name:
        unsigned, signed = Path(name) / "unsigned.efi", Path(name) / "signed.efi"
        unsigned.write_bytes(program)
        hint = f"is {certificate} the certificate of {key}, both PEM, RSA of 2048 bits, without a passphrase?"
        run(
            ["sbsign", "--key", str(key), "--cert", str(certificate), "--output", str(signed), str(unsigned)], hint=hint
        )
        run(["sbverify", "--cert", str(certificate), str(signed)], hint=hint)
        result = signed.read_bytes()
    if authenticode_sha256(result) != before:
        raise NeedsHuman("sbsign changed the program that it signed", hint="use another release of sbsigntool")
    return result
