"""The pause image: what holds a pod's namespaces. Made here, byte by byte, since a node has no registry to ask at boot.

The program is a hundred bytes of machine code: it blocks SIGINT, SIGTERM and SIGCHLD and waits for them in turn; a
child's end is reaped (it is PID 1 of pods that share their process namespace), the other two end it with status 0.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
from dataclasses import dataclass
from typing import Final

from provisioner.api.server import Architecture

REFERENCE: Final = "provisioner.local/pause:1"

_BASE: Final = 0x400000
_HEADERS_BYTES: Final = 64 + 56
_SIGNALS: Final = "02 40 01 00 00 00 00 00"  # bits of SIGINT (2), SIGTERM (15) and SIGCHLD (17)

# Machine code as an assembler gives it, a line an instruction.
_X86_64: Final = (
    "b8 0e 00 00 00",  #               mov eax, 14            rt_sigprocmask
    "31 ff",  #                        xor edi, edi           SIG_BLOCK
    "48 8d 35 52 00 00 00",  #         lea rsi, [rip+signals]
    "31 d2",  #                        xor edx, edx
    "41 ba 08 00 00 00",  #            mov r10d, 8
    "0f 05",  #                        syscall
    "b8 80 00 00 00",  #         wait: mov eax, 128           rt_sigtimedwait
    "48 8d 3d 3c 00 00 00",  #         lea rdi, [rip+signals]
    "31 f6",  #                        xor esi, esi
    "31 d2",  #                        xor edx, edx
    "41 ba 08 00 00 00",  #            mov r10d, 8
    "0f 05",  #                        syscall
    "83 f8 11",  #                     cmp eax, 17            SIGCHLD
    "74 0d",  #                        je reap
    "85 c0",  #                        test eax, eax
    "78 df",  #                        js wait                interrupted
    "b8 e7 00 00 00",  #               mov eax, 231           exit_group
    "31 ff",  #                        xor edi, edi
    "0f 05",  #                        syscall
    "b8 3d 00 00 00",  #         reap: mov eax, 61            wait4
    "48 c7 c7 ff ff ff ff",  #         mov rdi, -1
    "31 f6",  #                        xor esi, esi
    "ba 01 00 00 00",  #               mov edx, 1             WNOHANG
    "45 31 d2",  #                     xor r10d, r10d
    "0f 05",  #                        syscall
    "85 c0",  #                        test eax, eax
    "7f e4",  #                        jg reap
    "eb b8",  #                        jmp wait
    _SIGNALS,  #              signals:
)
_ARM64: Final = (
    "e8 10 80 d2",  #                  mov x8, #135           rt_sigprocmask
    "00 00 80 d2",  #                  mov x0, #0             SIG_BLOCK
    "41 03 00 10",  #                  adr x1, signals
    "02 00 80 d2",  #                  mov x2, #0
    "03 01 80 d2",  #                  mov x3, #8
    "01 00 00 d4",  #                  svc #0
    "28 11 80 d2",  #            wait: mov x8, #137           rt_sigtimedwait
    "a0 02 00 10",  #                  adr x0, signals
    "01 00 80 d2",  #                  mov x1, #0
    "02 00 80 d2",  #                  mov x2, #0
    "03 01 80 d2",  #                  mov x3, #8
    "01 00 00 d4",  #                  svc #0
    "1f 44 00 71",  #                  cmp w0, #17            SIGCHLD
    "c0 00 00 54",  #                  b.eq reap
    "1f 00 00 71",  #                  cmp w0, #0
    "eb fe ff 54",  #                  b.lt wait              interrupted
    "c8 0b 80 d2",  #                  mov x8, #94            exit_group
    "00 00 80 d2",  #                  mov x0, #0
    "01 00 00 d4",  #                  svc #0
    "88 20 80 d2",  #            reap: mov x8, #260           wait4
    "00 00 80 92",  #                  mov x0, #-1
    "01 00 80 d2",  #                  mov x1, #0
    "22 00 80 d2",  #                  mov x2, #1             WNOHANG
    "03 00 80 d2",  #                  mov x3, #0
    "01 00 00 d4",  #                  svc #0
    "1f 00 00 71",  #                  cmp w0, #0
    "2c ff ff 54",  #                  b.gt reap
    "eb ff ff 17",  #                  b wait
    _SIGNALS,  #              signals:
)
_PROGRAMS: Final[dict[Architecture, tuple[str, ...]]] = {"x86_64": _X86_64, "arm64": _ARM64}
_ELF_MACHINES: Final[dict[Architecture, int]] = {"x86_64": 62, "arm64": 183}
_GO_NAMES: Final[dict[Architecture, str]] = {"x86_64": "amd64", "arm64": "arm64"}


def pause_program(architecture: Architecture) -> bytes:
    """A static ELF program of one read-only, executable segment."""
    code = bytes.fromhex("".join(_PROGRAMS[architecture]))
    size = _HEADERS_BYTES + len(code)
    identity = b"\x7fELF" + bytes((2, 1, 1, 0)) + bytes(8)
    header = identity + struct.pack(
        "<HHIQQQIHHHHHH", 2, _ELF_MACHINES[architecture], 1, _BASE + _HEADERS_BYTES, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
    return header + segment + code


@dataclass(frozen=True)
class Blob:
    """One part of a container image."""

    media_type: str
    content: bytes

    @property
    def digest(self) -> str:
        return "sha256:" + hashlib.sha256(self.content).hexdigest()

    def descriptor(self) -> dict[str, object]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.content)}


@dataclass(frozen=True)
class PauseImage:
    """The image as the OCI specification has it: a manifest that names a configuration and one layer."""

    layer: Blob
    config: Blob
    manifest: Blob


def pause_image(architecture: Architecture) -> PauseImage:
    """The same bytes every time."""
    layer = Blob("application/vnd.oci.image.layer.v1.tar", _tar("pause", pause_program(architecture)))
    config = {
        "architecture": _GO_NAMES[architecture],
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
    }
    config_blob = Blob("application/vnd.oci.image.config.v1+json", _json(config))
    media_type = "application/vnd.oci.image.manifest.v1+json"
    manifest = {
        "schemaVersion": 2,
        "mediaType": media_type,
        "config": config_blob.descriptor(),
        "layers": [layer.descriptor()],
    }
    return PauseImage(layer, config_blob, Blob(media_type, _json(manifest)))


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _tar(name: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        member = tarfile.TarInfo(name)
        member.size, member.mode, member.mtime = len(content), 0o755, 0
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
