"""Made-up trees, ELF files, kernels and rules that tests of gates share."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from provisioner.image.gates.failure import GateFailure
from provisioner.image.gates.read.tree import Tree, read_tree
from provisioner.image.gates.recipe import GateRules

EPOCH = 1767225600
"""2026-01-01."""
RELEASE = "6.12.0-test"
X86_64, ARM64, RISCV = 62, 183, 243


RULES = GateRules(
    root_budget_bytes=1_000_000,
    stage1_budget_bytes=100_000,
    needed_modules=(),
    needed_files=(),
    forbid=(),
    allow_setuid=(),
    allow_missing_libraries=(),
    agree=(),
    allow_world_writable=(),
    allow_missing_firmware=(),
    allow_missing_symbols=(),
    allow_public_keys=(),
    allow_leftovers=(),
    allow_vulnerabilities=(),
)
"""A recipe's `gates` that demands nothing and allows nothing."""


def tree_of(
    root: Path,
    files: Mapping[str, bytes | str] | None = None,
    links: Mapping[str, str] | None = None,
    modes: Mapping[str, int] | None = None,
) -> Tree:
    """Write the files below `root`, and read them as the gates do."""
    for path, content in (files or {}).items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        file.chmod(0o644)
    for path, target in (links or {}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(target)
    for path, mode in (modes or {}).items():
        (root / path).chmod(mode)
    return read_tree(root)


def told(failures: Iterable[GateFailure]) -> list[tuple[str, str]]:
    """Object and observation of each; all have words for what was expected and for the remedy."""
    found = list(failures)
    assert all(each.expected and each.remedy and each.gate for each in found)
    return sorted((each.object, each.observed) for each in found)


def elf(
    needed: tuple[str, ...] = (),
    *,
    interpreter: str = "",
    runpath: str = "",
    machine: int = X86_64,
    kind: int = 3,
    behind: bytes = b"",
) -> bytes:
    """A 64-bit little-endian program or library: headers, loader, dynamic section and strings; `behind` as they are."""
    strings, offsets = b"\0", []
    for name in needed:
        offsets.append((1, len(strings)))
        strings += name.encode() + b"\0"
    if runpath:
        offsets.append((29, len(strings)))
        strings += runpath.encode() + b"\0"
    count = 3
    loader_at = 64 + 56 * count
    loader = interpreter.encode() + b"\0" if interpreter else b""
    dynamic_at = loader_at + len(loader)
    strings_at = dynamic_at + 16 * (len(offsets) + 2)
    dynamic = b"".join(struct.pack("<QQ", tag, value) for tag, value in [(5, strings_at), *offsets, (0, 0)])
    total = strings_at + len(strings)
    segments = [(1, 0, total), (2, dynamic_at, len(dynamic)), (3 if interpreter else 4, loader_at, len(loader))]
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", kind, machine, 1)
    header += struct.pack("<QQQIHHHHHH", 0, 64, 0, 0, 64, 56, count, 64, 0, 0)
    table = b"".join(struct.pack("<IIQQQQQQ", type_, 4, at, at, at, size, size, 1) for type_, at, size in segments)
    return header + table + loader + dynamic + strings + behind


def _with_sections(sections: Mapping[str, bytes], kind: int, addresses: Mapping[str, int] | None = None) -> bytes:
    named = {"": b"", **sections, ".shstrtab": b""}
    names = b""
    starts = {}
    for name in named:
        starts[name] = len(names)
        names += name.encode() + b"\0"
    named[".shstrtab"] = names
    body, at, headers = b"", 64, b""
    for name, content in named.items():
        address = (addresses or {}).get(name, 0)
        headers += struct.pack("<IIQQQQIIQQ", starts[name], 1, 0, address, at, len(content), 0, 0, 1, 0)
        body += content
        at += len(content)
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHI", kind, X86_64, 1)
    header += struct.pack("<QQQIHHHHHH", 0, 0, at, 0, 64, 56, 0, 64, len(named), len(named) - 1)
    return header + body + headers


def module(
    *,
    release: str = RELEASE,
    version: str = "",
    firmware: tuple[str, ...] = (),
    imports: Mapping[str, int] | None = None,
    exports: tuple[str, ...] = (),
    depends: str = "",
    checksums: bool = True,
) -> bytes:
    """A kernel module, as far as gates read one. It has a symbol of its own, `init_module`, and a weak one."""
    info = [f"vermagic={release} SMP mod_unload modversions ", f"depends={depends}", "license=GPL"]
    info += [f"version={version}"] if version else []
    info += [f"firmware={name}" for name in firmware]
    versions = b"".join(struct.pack("<Q56s", crc, name.encode()) for name, crc in (imports or {}).items())
    strings, symbols = b"\0", bytes(24)
    for name, binding, section in [*((name, 1, 0) for name in imports or {}), ("init_module", 1, 4), ("may_be", 2, 0)]:
        symbols += struct.pack("<IBBHQQ", len(strings), binding << 4, 0, section, 0, 0)
        strings += name.encode() + b"\0"
    return _with_sections(
        {
            ".modinfo": b"".join(text.encode() + b"\0" for text in info),
            **({"__versions": versions} if checksums else {}),
            "__ksymtab_strings": b"".join(name.encode() + b"\0\0" for name in exports),
            ".symtab": symbols,
            ".strtab": strings,
        },
        kind=1,
    )


def kernel(exports: Mapping[str, int], release: str = RELEASE) -> bytes:
    """A bzImage: a header, and packed in it a vmlinux with the tables of what it exports."""
    strings, table_at, strings_at = b"", 0x1000, 0x9000
    table = checksums = b""
    for name, crc in exports.items():
        table += struct.pack("<iii", 0, strings_at + len(strings) - (table_at + len(table) + 4), 0)
        checksums += struct.pack("<I", crc)
        strings += name.encode() + b"\0"
    vmlinux = _with_sections(
        {"__ksymtab": table, "__kcrctab": checksums, "__ksymtab_strings": strings},
        kind=2,
        addresses={"__ksymtab": table_at, "__ksymtab_strings": strings_at},
    )
    payload = gzip.compress(vmlinux, mtime=0)
    head = bytearray(0x600)
    head[0x1F1] = 2
    head[0x202:0x206] = b"HdrS"
    head[0x20E:0x210] = (0x200).to_bytes(2, "little")
    said = f"{release} (somebody@example) #1 SMP".encode() + b"\0"
    head[0x400 : 0x400 + len(said)] = said
    head[0x248:0x24C] = (0).to_bytes(4, "little")
    head[0x24C:0x250] = len(payload).to_bytes(4, "little")
    return bytes(head) + payload


def go_record(lines: Iterable[str], toolchain: str = "go1.26.8") -> bytes:
    """What Go writes into a program that it builds, at an offset that is a multiple of 16."""
    text = b"0" * 16 + "".join(f"{line}\n" for line in lines).encode() + b"1" * 16
    return b"\xff Go buildinf:\x08\x02" + bytes(16) + _varint(toolchain.encode()) + _varint(text)


def _varint(content: bytes) -> bytes:
    length, head = len(content), b""
    while length >= 0x80:
        head += bytes([length & 0x7F | 0x80])
        length >>= 7
    return head + bytes([length]) + content


def go_program(lines: Iterable[str], **more: str) -> bytes:
    """A program that Go built, linked with nothing."""
    program = elf()
    return program + bytes(-len(program) % 16) + go_record(lines, **more)
