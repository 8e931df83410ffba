"""What is measured before a kexec: PCR 14 of the next boot's quote tells which system this one has started.

A kexec passes by the firmware. PCRs 0 to 9 go on saying what the firmware measured at power-on, whatever runs now. So
the agent extends PCR 14 of the bank sha256, just before it starts the loaded kernel, by the SHA-256 of this text, each
line ended by a line feed:

    provisioner kexec 1
    kernel sha256:<64 hexadecimal digits>
    stage-1 sha256:<…>
    manifest sha256:<…>
    request-key sha256:<…>
    command-line sha256:<…>

Kernel, stage-1 and manifest are the files as they were verified. The manifest's digest is the image's, and it names all
layers: with stage-1 and the request key it says the whole initramfs, but for the manifest's signature, which stage-1
verifies. The request key is hashed as its 64 digits, as the cluster keeps it; the command line as kexec was given it.
The digest is in the boot report (`nextHandOverSHA256`), which the old boot's certificate writes before the act.

The service knows PCR 14 of the proved boot before, and expects SHA-256(PCR 14 || digest) of a system that has the
request key (`attestation/continuation.py`). After a start by the firmware it expects what the event log says, which is
zeros. A hand-over that was measured and did not come stays measured until the firmware starts the machine.

What this stops: nothing but a reset takes an extension back. A system that was started by a measured kexec cannot pass
for one that the firmware started, nor for what another hand-over started, even when its image has a hole and a tenant
has become root in it; nor can it ask by another request key than the one that was handed to it. A kexec into another
kernel, image or command line, or by hand, or by another program, leaves PCR 14 without the digest that was reported:
its proof does not fit.

What this does not stop: root in the old system, where its kernel is not locked down. Software measures here; that root
can extend PCR 14 by the digest that is expected, and then start something of its own. One that measures nothing stays
unmeasured: its PCRs are those of the boot before, and tell nothing of what runs. Against it stand lockdown, under which
the kernel starts signed kernels alone, and a start by the firmware, after which PCRs 0 to 9 and 14 are made anew: a
server on which a tenant may have been root is booted by its firmware, not by kexec.
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
    """Extend PCR 14 by a hand-over's digest; False where the machine has no TPM. Raises: TpmError."""
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
