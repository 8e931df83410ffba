"""The tools' chroot: from which mirror, under which name, and what a program in it sees."""

from __future__ import annotations

import subprocess
import tempfile
import threading
from pathlib import Path

import pytest

from lab import tools as tools_module
from lab.tools import Tools, build_command, choose_mirror, content_key, obtain_tools
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.mirror import AptSource


def test_the_machines_own_mirror_is_used_and_never_its_security_archive() -> None:
    sources = [
        AptSource("https://vendor.example/apt", "vendor-bookworm", ("main",)),
        AptSource("http://mirror.example/debian-security", "bookworm", ("main",)),
        AptSource("http://mirror.example/debian/", "bookworm", ("main", "contrib")),
    ]
    assert choose_mirror(sources) == "http://mirror.example/debian"
    with pytest.raises(NeedsHuman, match="names no archive of Debian"):
        choose_mirror(sources[:2])


def test_another_content_has_another_name() -> None:
    keys = {content_key(), content_key(["etcd-server"]), content_key(suite="forky")}
    assert len(keys) == 3
    assert content_key(["a", "b"]) == content_key(["b", "a"])


def test_the_bootstrap_takes_neither_documents_nor_recommended_packages() -> None:
    command = build_command(Path("/x/tools"), ["ovmf", "etcd-server"], "trixie", "http://mirror.example/debian")
    assert "--include=ovmf,etcd-server" in command
    assert "--aptopt=APT::Install-Recommends false" in command
    assert "--dpkgopt=path-exclude=/usr/share/doc/*" in command
    assert command[-3:] == ["trixie", "/x/tools", "http://mirror.example/debian"]


def test_two_who_need_the_tools_at_once_build_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[Path] = []
    both_wait = threading.Barrier(2)

    def build(root: Path, packages: object, suite: object) -> None:
        builds.append(root)
        root.mkdir()

    def obtain() -> None:
        both_wait.wait(180)
        obtain_tools(tmp_path)

    monkeypatch.setattr(tools_module, "_build", build)
    threads = [threading.Thread(target=obtain) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert builds == [tmp_path / f"tools-{content_key()}"]


def test_a_program_sees_its_binds_at_their_place_and_leaves_no_mount(tools: Tools) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="provisioner-test-") as name:  # of /tmp it sees everything
        folder = Path(name)
        (folder / "given").mkdir()
        (folder / "file").write_text("from outside\n")
        (folder / "hidden").write_text("not given")
        script = f"cat {folder}/file; echo from inside > {folder}/given/new; ls {folder}; cat /etc/debian_version"
        ran = subprocess.run(
            tools.command(["sh", "-c", script], [folder / "given", folder / "file"]),
            capture_output=True,
            text=True,
            check=True,
        )
        words = ran.stdout.split()
        assert words[:2] == ["from", "outside"]
        assert "hidden" not in words
        assert words[-1].startswith("13."), "Debian trixie's own /etc"
        assert (folder / "given" / "new").read_text() == "from inside\n"
        places = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
        assert not [place for place in places if place.startswith((str(tools.root), str(folder)))]


def test_the_chroot_itself_cannot_be_written_to(tools: Tools) -> None:
    ran = subprocess.run(
        tools.command(["sh", "-c", "touch /usr/bin/new; echo x > /etc/new && cat /etc/new"]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Read-only file system" in ran.stderr
    assert ran.stdout == "x\n", "/etc is a copy of its own"
    assert not (tools.root / "etc" / "new").exists()


def test_the_program_keeps_the_process_id_of_the_command(tools: Tools) -> None:
    process = subprocess.Popen(tools.command(["sh", "-c", "echo $$"]), stdout=subprocess.PIPE, text=True)
    out, _ = process.communicate(timeout=180)
    assert int(out) == process.pid


@pytest.mark.parametrize(
    "program",
    [
        ["qemu-system-x86_64", "--version"],
        ["dnsmasq", "--version"],
        ["nginx", "-v"],
        ["etcd", "--version"],
        ["signify-openbsd", "-h"],
    ],
)
def test_the_programs_start(tools: Tools, program: list[str]) -> None:
    ran = subprocess.run(tools.command(program), capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 1), ran.stderr
    assert "not found" not in ran.stderr
