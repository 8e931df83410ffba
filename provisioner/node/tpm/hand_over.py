"""What is measured before a kexec: PCR 14 of the next boot's quote tells which system this one has started.

A kexec passes by the firmware. PCRs 0 to 9 go on saying what the firmware measured at power-on, whatever runs now. So the
agent extends PCR 14 of the bank sha256, just before it starts the loaded kernel, by

    SHA-256 of the text

    provisioner kexec 1
    kernel sha256:<64 hexadecimal digits>
    stage-1 sha256:<…>
    manifest sha256:<…>
    request-key sha256:<…>
    command-line sha256:<…>

each line ended by a line feed. Kernel, stage-1 and manifest are the files as they were verified: the manifest's digest is
the image's, and names all layers, so that with it, stage-1 and the request key the whole initramfs is said, but for the
manifest's signature, which stage-1 verifies. The request key is hashed as its 64 digits, as the cluster keeps it; the command line
is what kexec was given. The digest is in the boot report (`nextHandOverSHA256`), which is written by the certificate of
the old boot before the act.

A verifier that knows PCR 14 of the boot before expects SHA-256(PCR 14 || digest). After a start by the firmware PCR 14 is
what the firmware and shim (its MOK lists) made it.

What this stops: nothing takes an extension back but a reset by the firmware. A system that was started by a kexec
cannot pass for one that the firmware started, nor for one that another hand-over started: not when the image has
a hole and its tenant has become root, and not with a key for the next request that the attested agent did not choose. A
kexec that was made by hand, by another program, or into another kernel, command line or key leaves PCR 14 without the
digest that was reported, and its proof is refused.

What it does not stop: who is root in the kernel of the old system, where the kernel is not locked down. The measurement is
made by software; that root can measure what the service expects and start something else, without this agent. Against it
stand lockdown (kexec_file_load then takes signed kernels alone), verified boot, and a start by the firmware, which
makes PCRs 0 to 9 and 14 anew: a server whose tenant may have been root is booted by its firmware, not by kexec.
"""

from __future__ import annotations

import hashlib

from provisioner.node.tpm import commands
from provisioner.node.tpm.device import NoTpmError, TpmDevice, TpmError, open_tpm

PCR = 14
SECONDS = 5.0


def hand_over_digest(
    *, kernel_sha256: str, stage1_sha256: str, image_digest: str, request_key_sha256: str, command_line: str
) -> str:
    """The digest of one hand-over, `sha256:` and 64 digits, as all that are given. Pure."""
    command_line_sha256 = "sha256:" + hashlib.sha256(command_line.encode()).hexdigest()
    text = (
        f"provisioner kexec 1\nkernel {kernel_sha256}\nstage-1 {stage1_sha256}\nmanifest {image_digest}\n"
        f"request-key {request_key_sha256}\ncommand-line {command_line_sha256}\n"
    )
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def measure(root: str, digest: str) -> bool:
    """Extend PCR 14 by a hand-over's digest; False where the machine has no TPM. Raises: TpmError.

    What was measured and then did not happen stays measured until the firmware starts the machine.
    """
    try:
        device = open_tpm(root, appear_seconds=0.0)
    except NoTpmError:
        return False
    try:
        extend(device, digest)
    finally:
        device.close()
    return True


def extend(device: TpmDevice, digest: str) -> None:
    """Extend PCR 14 of the bank sha256. Raises: TpmError."""
    try:
        value = bytes.fromhex(digest.removeprefix("sha256:"))
    except ValueError:
        value = b""
    if len(value) != hashlib.sha256().digest_size:
        raise TpmError(f"hand-over {digest[:80]!r} is no SHA-256 digest")
    device.call("TPM2_PCR_Extend", commands.pcr_extend(PCR, value), SECONDS)
