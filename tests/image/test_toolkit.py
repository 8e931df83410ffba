"""NVIDIA's container toolkit, built from its module."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
from pathlib import Path

import pytest

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.servers.server import Architecture
from provisioner.image.containerd.compile import compiler
from provisioner.image.toolkit import build as toolkit
from provisioner.image.toolkit.build import LICENCE, PROGRAMS, build_command, fingerprint, obtain_toolkit
from provisioner.image.tools.elf import read_linkage
from tests.tools import CACHE, installed


@pytest.fixture(scope="session")
def tree() -> Path:
    """Built once; the same as an image on this machine would take."""
    installed("go")
    installed(compiler("x86_64"))
    return obtain_toolkit("x86_64", CACHE / "image-build", print)


def test_the_tree_has_the_two_programs_that_cdi_needs_and_their_licence(tree: Path) -> None:
    files = sorted(str(file.relative_to(tree)) for file in tree.rglob("*") if file.is_file())
    assert files == [*sorted(f"usr/bin/{name}" for name in PROGRAMS), str(LICENCE)]
    assert "Apache License" in (tree / LICENCE).read_text()
    for name in PROGRAMS:
        said = subprocess.run([tree / "usr/bin" / name, "--version"], capture_output=True, text=True, check=True).stdout
        assert "1.20.1" in said
    assert sum((tree / "usr/bin" / name).stat().st_size for name in PROGRAMS) < 25_000_000, "the budget counts on it"


def test_they_need_no_library_but_the_c_library(tree: Path) -> None:
    for name in PROGRAMS:
        needed = read_linkage((tree / "usr/bin" / name).read_bytes()).needed
        assert set(needed) <= {"libc.so.6", "libpthread.so.0", "libdl.so.2", "libresolv.so.2"}, name


def test_they_are_the_same_from_another_folder_and_name_none(tree: Path, tmp_path: Path) -> None:
    again = obtain_toolkit("x86_64", tmp_path / "a/cache", print)
    assert again != tree
    asked = subprocess.run(["go", "env", "GOMODCACHE", "GOROOT", "GOCACHE"], capture_output=True, text=True, check=True)
    for name in PROGRAMS:
        content = (tree / "usr/bin" / name).read_bytes()
        assert (again / "usr/bin" / name).read_bytes() == content
        for folder in asked.stdout.split():
            assert folder.encode() not in content, "a path of the machine that built it"


FAKE_GO = """#!/bin/sh
case "$1 $2" in
"mod download") echo '{{"Sum": "{checksum}", "Dir": "{folder}", "GoMod": "{folder}/go.mod"}}' ;;
"env GOVERSION" | "version "*) echo go1.99.0 ;;
"build "*) (echo "$TMPDIR"; stat -c %a "$TMPDIR"; ls "$TMPDIR") >{folder}/seen
  while [ "$1" != -o ]; do shift; done
  for name in nvidia-ctk nvidia-cdi-hook; do touch "$2$name"; done ;;
esac
"""


def test_the_compiler_finds_nobodys_headers_where_temporary_files_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cgo has its compiler look for nvml.h first where temporary files lie, and /tmp is anybody's."""
    shared, folder = tmp_path / "tmp", tmp_path / "module"
    for each in (shared, folder, tmp_path / "bin"):
        each.mkdir()
    (shared / "nvml.h").write_text("somebody else's")
    (folder / "go.mod").write_text("go 1.26.0\n")
    (folder / "LICENSE").touch()
    for name, content in (
        ("go", FAKE_GO.format(checksum=toolkit.MODULE.checksum, folder=folder)),
        (compiler("x86_64"), "#!/bin/sh\necho 99.1.0\n"),
    ):
        (tmp_path / "bin" / name).write_text(content)
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("TMPDIR", str(shared))
    obtain_toolkit("x86_64", tmp_path / "cache")
    where, mode, *files = (folder / "seen").read_text().split()
    assert (where != str(shared), mode, files) == (True, "700", [])


def test_without_a_driver_no_specification_is_made_up(tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "nvidia.yaml"
    command = [tree / "usr/bin/nvidia-ctk", "cdi", "generate", "--mode=nvml", f"--output={target}"]
    command += [f"--driver-root={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode != 0
    assert "failed to initialize NVML" in done.stderr
    assert not target.exists()


@pytest.mark.parametrize(("architecture", "called"), [("x86_64", "amd64"), ("arm64", "arm64")])
def test_nothing_of_the_callers_settings_reaches_the_build(architecture: Architecture, called: str) -> None:
    command = build_command(architecture, Path("out"))
    assert {f"GOARCH={called}", "GOFLAGS=", "CGO_LDFLAGS=", "CGO_ENABLED=1", f"CC={compiler(architecture)}"} <= set(
        command
    )
    assert {"-trimpath", "-mod=readonly", "-buildvcs=false"} <= set(command)
    assert "-s -w" in command[command.index("-ldflags") + 1]
    assert command[-2:] == ("./cmd/nvidia-ctk", "./cmd/nvidia-cdi-hook"), "and no runtime between containerd and runc"


def test_another_compiler_or_module_has_another_place_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("go")
    installed(compiler("x86_64"))
    before = fingerprint("x86_64")
    fake_compiler = tmp_path / compiler("x86_64")
    fake_compiler.write_text("#!/bin/sh\necho 99.1.0\n")
    fake_compiler.chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        assert fingerprint("x86_64") != before
    monkeypatch.setattr(toolkit, "MODULE", dataclasses.replace(toolkit.MODULE, checksum="h1:another"))
    assert fingerprint("x86_64") != before


def test_a_module_with_another_content_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed("go")
    installed(compiler("x86_64"))
    known = toolkit.MODULE.checksum
    monkeypatch.setattr(toolkit, "MODULE", dataclasses.replace(toolkit.MODULE, checksum="h1:" + "0" * 43 + "="))
    with pytest.raises(NeedsHuman, match=rf"has checksum {re.escape(known)}, known is h1:0+=; do not use it"):
        obtain_toolkit("x86_64", tmp_path)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_without_a_compiler_its_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NeedsHuman, match=r"aarch64-linux-gnu-gcc is not on this machine; .*libc6-dev-arm64-cross"):
        obtain_toolkit("arm64", tmp_path)
