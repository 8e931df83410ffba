"""What a kernel exports to its modules, with checksums, out of the file that boots.

Source: Linux, Documentation/arch/x86/boot.rst (payload), include/linux/export-internal.h (__ksymtab, __kcrctab).
"""

from __future__ import annotations

import gzip
import lzma
import struct
import subprocess
import zlib
from typing import Final

from provisioner.image.tools.elf import ElfSection, read_sections

_MAX_BYTES: Final = 256 << 20
_EXPORT: Final = struct.Struct("<iii")


def read_exports(kernel: bytes) -> dict[str, int | None] | None:
    """Symbol → CRC (None in a kernel without them); None if the kernel is of a kind that does not tell.

    That is every one that is no bzImage with an ELF file in it: arm64's Image has no sections.
    """
    try:
        payload = _payload(kernel)
        return _exports(read_sections(payload)) if payload is not None else None
    except (struct.error, ValueError, IndexError, OverflowError, EOFError):
        return None
    except (lzma.LZMAError, zlib.error, subprocess.CalledProcessError):
        return None


def _payload(kernel: bytes) -> bytes | None:
    if kernel[0x202:0x206] != b"HdrS":
        return None
    start = (kernel[0x1F1] + 1) * 512 + int.from_bytes(kernel[0x248:0x24C], "little")
    packed = kernel[start : start + int.from_bytes(kernel[0x24C:0x250], "little")]
    if packed.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(packed, _MAX_BYTES)
    if packed.startswith(b"\x1f\x8b"):
        return gzip.decompress(packed)
    if packed.startswith(b"\x28\xb5\x2f\xfd"):
        # Behind the frame stands the size of what was packed, which zstd takes for a damaged second frame.
        return subprocess.run(["zstd", "-dcq"], input=packed[:-4], stdout=subprocess.PIPE, check=True).stdout
    return None


def _exports(sections: dict[str, ElfSection]) -> dict[str, int | None] | None:
    if "__ksymtab_strings" not in sections:
        return None
    strings = sections["__ksymtab_strings"]
    found: dict[str, int | None] = {}
    for kind in ("", "_gpl"):
        table, checksums = sections.get(f"__ksymtab{kind}"), sections.get(f"__kcrctab{kind}")
        if table is None:
            continue
        for index, at in enumerate(range(0, len(table.content) - _EXPORT.size + 1, _EXPORT.size)):
            _, name_offset, _ = _EXPORT.unpack_from(table.content, at)
            start = table.address + at + 4 + name_offset - strings.address
            name = strings.content[start : strings.content.index(b"\0", start)].decode(errors="replace")
            crc = None if checksums is None else checksums.content[index * 4 : index * 4 + 4]
            found[name] = None if not crc else int.from_bytes(crc, "little")
    return found or None


def read_release(kernel: bytes) -> str | None:
    """The release that a bzImage says it is; None of another kind of file. Source: boot.rst, kernel_version."""
    if kernel[0x202:0x206] != b"HdrS":
        return None
    start = 0x200 + int.from_bytes(kernel[0x20E:0x210], "little")
    return kernel[start : start + 256].partition(b"\0")[0].decode(errors="replace").partition(" ")[0] or None
