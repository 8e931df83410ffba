"""Layers that were made before: kept by the content of the folder that they were made of."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Final

from artefacts import bytecode, layer
from artefacts.bytecode import compile_modules
from artefacts.layer import Layer, pack
from provisioner.image.inputs import Fingerprint

_CODE: Final = (bytecode.__file__, layer.__file__)


def compile_and_pack(folder: Path, called: str, python_root: Path, python: str, cache: Path | None) -> Layer:
    """The layer of `folder`, with byte-code of its modules. `python`: version of that Python. `cache`: None to make it
    in any case. Raises: NeedsHuman if a module cannot be compiled.
    """
    if cache is None:
        return _make(folder, called, python_root)
    cache.mkdir(parents=True, exist_ok=True)
    kept = cache / f"packages-layer-{_key(folder, python)}"
    try:
        told, _, content = kept.read_bytes().partition(b"\n")
        facts = json.loads(told)
        if hashlib.sha256(content).hexdigest() == facts["sha256"]:
            return Layer(called, content, facts["diffID"], facts["unpackedBytes"])
    except (OSError, ValueError, KeyError):
        pass  # not there, or cut off while it was written
    made = _make(folder, called, python_root)
    facts = {"sha256": made.digest[7:], "diffID": made.diff_id, "unpackedBytes": made.unpacked_bytes}
    partial = kept.with_name(f".{kept.name}.{os.getpid()}")
    partial.write_bytes(json.dumps(facts).encode() + b"\n" + made.content)
    partial.rename(kept)
    return made


def _make(folder: Path, called: str, python_root: Path) -> Layer:
    compile_modules(folder, python_root)
    return pack(folder, called)


def _key(folder: Path, python: str) -> str:
    fingerprint = Fingerprint("container layer")
    fingerprint.add("python", python.encode())
    for file in _CODE:
        fingerprint.add_file(Path(file).name, Path(file))
    paths = sorted(folder.rglob("*"))
    fingerprint.add_files(folder, paths)
    folders = [(str(path.relative_to(folder)), path.stat().st_mode) for path in paths if path.is_dir()]
    fingerprint.add("folders", json.dumps(folders).encode())
    return fingerprint.hexdigest()[:24]
