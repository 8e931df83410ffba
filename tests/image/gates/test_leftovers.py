from __future__ import annotations

import _imp
import gzip
import importlib.util
import py_compile
from pathlib import Path

import pytest

from provisioner.image.gates.leftovers import check_leftovers, check_packed_times, check_python, check_times
from provisioner.image.gates.read.squashfs import PackedFile, Squashfs
from provisioner.image.gates.read.tree import read_tree
from tests.image.gates.samples import EPOCH, told, tree_of

CLEAN = {
    "etc/passwd": "x",
    "usr/lib/python3/core.py": "x",
    "usr/share/cache/x": "x",
    "var/lib/dpkg/status": "x",
    "usr/lib/original": "x",
}


def test_a_root_without_leftovers_passes(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, CLEAN)
    for empty in ("var/cache", "var/log", "tmp", "run", "boot"):
        (tmp_path / empty).mkdir(parents=True)
    assert told(check_leftovers(tree, {})) == []


@pytest.mark.parametrize(
    "path",
    [
        "var/cache/apt/pkgcache.bin",
        "var/lib/apt/lists/deb.example_dists_trixie_InRelease",
        "var/lib/dpkg/info/bash.list",
        "var/lib/dpkg/status-old",
        "var/log/apt/history.log",
        "tmp/x",
        "run/x",
        "root/.bashrc",
        "etc/passwd.dpkg-old",
        "opt/driver/patch.orig",
        "usr/share/a/b/c.deb",
        "home/ann/notes",
        "usr/src/.git/config",
        "boot/vmlinuz",
        "opt/core",
        "etc/hosts~",
    ],
)
def test_what_a_build_leaves_fails_unless_the_recipe_keeps_it(tmp_path: Path, path: str) -> None:
    tree = tree_of(tmp_path, CLEAN | {path: "xx"})
    ((found, observed),) = told(check_leftovers(tree, {}))
    assert found == f"/{path}"
    assert observed.endswith(", 2 bytes")
    assert told(check_leftovers(tree, {path: "it is needed"})) == []


def test_an_account_that_was_changed_after_the_epoch_fails(tmp_path: Path) -> None:
    day = EPOCH // 86400
    tree = tree_of(tmp_path, {"etc/shadow": f"root:*:{day}::::::\nann:*:{day + 1}::::::\nbob:*:::::::\n"})
    assert told(check_times(tree, EPOCH)) == [("/etc/shadow", f"account 'ann' was changed on day {day + 1}")]


def test_what_gzip_packed_after_the_epoch_fails(tmp_path: Path) -> None:
    files = {
        "a.gz": gzip.compress(b"x", mtime=EPOCH),
        "b.gz": gzip.compress(b"x", mtime=EPOCH + 1),
        "c.gz": gzip.compress(b"x", mtime=0),
    }
    assert told(check_times(tree_of(tmp_path, files), EPOCH)) == [("/b.gz", f"packed at {EPOCH + 1}")]


def test_a_layer_that_is_newer_than_the_epoch_or_holds_what_is_fails() -> None:
    old, new = PackedFile("etc/a", 0o644, EPOCH, 1, 1), PackedFile("etc/b", 0o644, EPOCH + 5, 1, 1)
    assert told(check_packed_times({"base": Squashfs(EPOCH, (old,))}, EPOCH)) == []
    assert told(check_packed_times({"base": Squashfs(EPOCH + 1, (old,))}, EPOCH)) == [
        ("layer base", f"made at {EPOCH + 1}")
    ]
    assert told(check_packed_times({"base": Squashfs(EPOCH, (old, new, new))}, EPOCH)) == [
        ("layer base", f"2 files changed after it, /etc/b at {EPOCH + 5}")
    ]


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A root with a module and its byte-code, as a build compiles it."""
    source = tmp_path / "usr/lib/python3/agent.py"
    source.parent.mkdir(parents=True)
    source.write_text("print('hello')\n")
    compiled(source, py_compile.PycInvalidationMode.UNCHECKED_HASH)
    return source


def compiled(source: Path, mode: py_compile.PycInvalidationMode) -> Path:
    return Path(str(py_compile.compile(str(source), invalidation_mode=mode, doraise=True)))


def test_byte_code_of_the_source_beside_it_passes(tmp_path: Path, python: Path) -> None:
    assert told(check_python(read_tree(tmp_path, {}))) == []


def test_byte_code_of_another_source_fails(tmp_path: Path, python: Path) -> None:
    """A server takes it unchecked: it would run what the source does not say."""
    python.write_text("print('goodbye')\n")
    ((path, observed),) = told(check_python(read_tree(tmp_path, {})))
    assert path.startswith("/usr/lib/python3/__pycache__/agent.")
    assert observed == "compiled from another source"


def test_byte_code_of_another_python_goes_by_that_pythons_key(tmp_path: Path, python: Path) -> None:
    pyc = compiled(python, py_compile.PycInvalidationMode.UNCHECKED_HASH)
    content = pyc.read_bytes()
    assert content[8:16] == importlib.util.source_hash(python.read_bytes())
    other = b"\xf3\x0d\x0d\x0a"
    pyc.write_bytes(other + content[4:])
    assert [observed for _, observed in told(check_python(read_tree(tmp_path, {})))] == ["compiled from another source"]
    theirs = _imp.source_hash(int.from_bytes(other, "little"), python.read_bytes())
    pyc.write_bytes(other + content[4:8] + theirs + content[16:])
    assert told(check_python(read_tree(tmp_path, {}))) == []


@pytest.mark.parametrize(
    "mode", [py_compile.PycInvalidationMode.TIMESTAMP, py_compile.PycInvalidationMode.CHECKED_HASH]
)
def test_byte_code_that_is_checked_at_each_start_fails(
    tmp_path: Path, python: Path, mode: py_compile.PycInvalidationMode
) -> None:
    compiled(python, mode)
    ((_, observed),) = told(check_python(read_tree(tmp_path, {})))
    assert "checked at each start" in observed


def test_byte_code_without_a_source_fails(tmp_path: Path, python: Path) -> None:
    python.unlink()
    assert [observed for _, observed in told(check_python(read_tree(tmp_path, {})))] == ["no source beside it"]
