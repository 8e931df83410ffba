"""Kernel modules: which are wanted, what they need, and plain files in place of compressed ones.

They are unpacked because the squashfs and the initramfs compress better than each file by itself, and because a machine
loads an unpacked one faster.
"""

from __future__ import annotations

import gzip
import lzma
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from provisioner.api.machinery.errors import NeedsHuman

_SUFFIXES = (".ko", ".ko.xz", ".ko.zst", ".ko.gz")


@dataclass(frozen=True)
class UnpackedModule:
    """One module, unpacked. `path` is below /usr/lib/modules/<release>, with the suffix .ko."""

    name: str
    path: PurePosixPath
    content: bytes
    depends: tuple[str, ...]
    aliases: tuple[str, ...]


def module_name(path: PurePosixPath) -> str:
    """`drivers/net/8139-too.ko.xz` → `8139_too`, as the kernel names it."""
    return path.name.split(".ko", 1)[0].replace("-", "_")


def read_info(content: bytes) -> dict[str, list[str]]:
    """The `.modinfo` strings of a module, by key. They lie in the file as NUL-terminated `key=value`."""
    info: dict[str, list[str]] = {}
    for key in (b"depends", b"alias", b"softdep"):
        start = 0
        while (at := content.find(b"\0" + key + b"=", start)) >= 0:
            value_at = at + len(key) + 2
            end = content.index(b"\0", value_at)
            info.setdefault(key.decode(), []).append(content[value_at:end].decode(errors="replace"))
            start = end
    return info


def select(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Names that match one of the patterns, sorted. A pattern may match nothing: kernels differ in what is built in."""
    wanted = [pattern.replace("-", "_") for pattern in patterns]
    return sorted(name for name in set(names) if any(fnmatchcase(name, pattern) for pattern in wanted))


def close_over(
    wanted: Iterable[str], load: Callable[[str], UnpackedModule], available: Mapping[str, object]
) -> dict[str, UnpackedModule]:
    """The wanted modules and all that they depend on, each loaded once.

    Raises: NeedsHuman if a module depends on one that the kernel's package does not have.
    """
    closed: dict[str, UnpackedModule] = {}
    queue = deque(wanted)
    while queue:
        name = queue.popleft()
        if name in closed:
            continue
        if name not in available:
            raise NeedsHuman(
                f"kernel module {name!r} is missing", hint="correct the recipe's modules, or its kernel packages"
            )
        closed[name] = load(name)
        queue.extend(closed[name].depends)
    return dict(sorted(closed.items()))


class KernelModules:
    """The modules of one unpacked kernel package tree."""

    def __init__(self, folder: Path) -> None:
        """`folder`: …/usr/lib/modules/<release>."""
        self.folder = folder
        self.paths = {
            module_name(PurePosixPath(file.name)): PurePosixPath(file.relative_to(folder).as_posix())
            for file in sorted(folder.rglob("*.ko*"))
            if file.name.endswith(_SUFFIXES)
        }

    def load(self, name: str) -> UnpackedModule:
        packed = self.paths[name]
        content = _unpack(self.folder / packed)
        info = read_info(content)
        depends = [needed for entry in info.get("depends", []) for needed in entry.split(",") if needed]
        # "pre: a b post: c": a hint to load others along, which matters for what is not built in.
        for entry in info.get("softdep", []):
            depends += [name for word in entry.split() for name in self._named_by(word.replace("-", "_"))]
        path = packed.with_name(packed.name.split(".ko", 1)[0] + ".ko")
        needed = tuple(dict.fromkeys(word.replace("-", "_") for word in depends))
        return UnpackedModule(name, path, content, needed, tuple(info.get("alias", [])))

    def _named_by(self, word: str) -> list[str]:
        """Modules that a soft dependency means: by name, or an algorithm (`crc32c`) in its generic form.

        libcrc32c, and through it nf_tables, asks for `crc32c`, which is an alias that crc32c_generic has, and on a
        processor without SSE 4.2 no other module.
        """
        algorithm = word.removeprefix("crypto_")
        return [name for name in (word, f"{algorithm}_generic") if name in self.paths]

    def choose(self, patterns: Iterable[str]) -> dict[str, UnpackedModule]:
        """The modules that match, with what they depend on."""
        return close_over(select(self.paths, patterns), self.load, self.paths)


def render_dependencies(modules: Mapping[str, UnpackedModule]) -> str:
    """`modules.dep` of exactly these modules: each with all that must be loaded before it, nearest last."""
    lines = []
    for module in modules.values():
        order: list[str] = []
        _visit(module.name, modules, order, set())
        lines.append(f"{module.path}: {' '.join(str(modules[name].path) for name in reversed(order[:-1]))}".rstrip())
    return "\n".join(lines) + "\n"


def _visit(name: str, modules: Mapping[str, UnpackedModule], order: list[str], seen: set[str]) -> None:
    if name in seen:
        return
    seen.add(name)
    for needed in modules[name].depends:
        _visit(needed, modules, order, seen)
    order.append(name)


def render_aliases(modules: Mapping[str, UnpackedModule]) -> str:
    """`modules.alias` of these modules."""
    return "".join(f"alias {alias} {module.name}\n" for module in modules.values() for alias in module.aliases)


def _unpack(file: Path) -> bytes:
    content = file.read_bytes()
    if file.suffix == ".xz":
        return lzma.decompress(content)
    if file.suffix == ".zst":
        return subprocess.run(["zstd", "-dcq"], input=content, stdout=subprocess.PIPE, check=True).stdout
    if file.suffix == ".gz":
        return gzip.decompress(content)
    return content
