"""What a TPM's vendor does once: endorsement keys, their certificates by a vendor's CA, the digest for a packing list.

swtpm_setup makes the keys by the default templates of the TCG's EK credential profile (RSA-2048 at 0x81010001, ECC
P-384 at 0x81010016) and writes the certificates into the TPM's NVRAM; swtpm_localca is the CA, with its files in the
lab. No network. Source: swtpm_setup(8), swtpm_localca(8); TCG EK Credential Profile for TPM Family 2.0.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path
from typing import Final

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from lab.machine.machine import MachineFiles
from lab.tools import Tools
from provisioner.api.machinery.errors import NeedsHuman

log = structlog.get_logger()

_SETUP_SECONDS: Final = 300.0
_RSA_CERTIFICATE: Final = "ek-rsa2048.crt"
_AUTHORITIES: Final = ("swtpm-localca-rootca-cert.pem", "issuercert.pem")


def manufacture_tpm(name: str, files: MachineFiles, authority: Path, tools: Tools) -> None:
    """Make the TPM of the machine `name`, unless it has been made; a making that was cut short is made anew.

    `authority`: folder of the CA, which is made with the first TPM. Safe for several machines at once. Takes about 2 s.
    Raises: NeedsHuman with swtpm_setup's own words.
    """
    if _certificate(files).exists() and files.tpm_state.exists():
        return
    for old in (files.tpm_state, files.tpm_certificates):
        shutil.rmtree(old, ignore_errors=True)
    unfinished = files.directory / ".tpm.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    for folder in (unfinished / "state", unfinished / "certificates", authority):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = _write_settings(unfinished, authority)
    command = tools.command(_setup_command(name, unfinished, settings), [files.directory, authority])
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SETUP_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise NeedsHuman(
            f"the TPM of {name} was not made: swtpm_setup took more than {_SETUP_SECONDS:.0f} s",
            hint="look what keeps this machine busy, and start the lab again",
        ) from error
    if ran.returncode != 0:
        raise NeedsHuman(
            f"the TPM of {name} was not made: swtpm_setup ended with {ran.returncode}: "
            f"{(ran.stdout + ran.stderr).strip()[-800:]}",
            hint=f"remove {authority} and {files.directory}, and start the lab again",
        )
    # The certificates last: they say that the state beside them is whole.
    (unfinished / "state").rename(files.tpm_state)
    (unfinished / "certificates").rename(files.tpm_certificates)
    shutil.rmtree(unfinished)
    log.info("TPM was made", server=name, endorsement_key_sha256=endorsement_key_sha256(files))


def endorsement_key_sha256(files: MachineFiles) -> str:
    """Of a machine's RSA endorsement key: `sha256:` and the digest of its SubjectPublicKeyInfo in DER, for a Server.

    Raises: FileNotFoundError if the TPM was not made.
    """
    key = x509.load_der_x509_certificate(_certificate(files).read_bytes()).public_key()
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


def endorsement_authorities(authority: Path) -> str:
    """PEM of the CA's certificates, root first, to which the TPMs' certificates lead. Raises: FileNotFoundError."""
    return "".join((authority / name).read_text() for name in _AUTHORITIES)


def _certificate(files: MachineFiles) -> Path:
    return files.tpm_certificates / _RSA_CERTIFICATE


def _setup_command(name: str, folder: Path, settings: Path) -> list[str]:
    return [
        *("swtpm_setup", "--tpm2", "--tpmstate", str(folder / "state"), "--config", str(settings)),
        *("--create-ek-cert", "--create-platform-cert", "--lock-nvram", "--vmid", name),
        # One bank, and that one alone: a register that nobody reads need not be extended at every event.
        *("--pcr-banks", "sha256"),
        *("--write-ek-cert-files", str(folder / "certificates")),
    ]


def _write_settings(folder: Path, authority: Path) -> Path:
    """swtpm_setup's and swtpm_localca's settings. Returns the file that names the others."""
    options, localca, setup = folder / "localca.options", folder / "localca.conf", folder / "setup.conf"
    options.write_text("--platform-manufacturer Provisioner\n--platform-model VirtualServer\n--platform-version 1\n")
    localca.write_text(
        f"statedir = {authority}\n"
        f"signingkey = {authority / 'signkey.pem'}\n"
        f"issuercert = {authority / _AUTHORITIES[1]}\n"
        f"certserial = {authority / 'certserial'}\n"
    )
    setup.write_text(
        "create_certs_tool = /usr/bin/swtpm_localca\n"
        f"create_certs_tool_config = {localca}\n"
        f"create_certs_tool_options = {options}\n"
    )
    return setup
