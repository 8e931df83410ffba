from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

from provisioner.image.tools import cpio
from tests.tools import lab_tools, need_root

ENTRIES = [
    cpio.file("bin/busybox", b"\x7fELF", 0o755),
    cpio.link("bin/sh", "busybox"),
    cpio.character_device("dev/console", 5, 1),
    cpio.file("etc/a/b", b"text\n"),
]


def test_entries_in_any_order_give_the_same_bytes() -> None:
    assert cpio.archive(ENTRIES) == cpio.archive(list(reversed(ENTRIES)))
    assert len(cpio.archive(ENTRIES)) % 4 == 0


def test_cpio_itself_unpacks_it(tmp_path: Path) -> None:
    need_root("make a device")
    program = ["cpio"] if shutil.which("cpio") else lab_tools().command(["cpio"])
    subprocess.run([*program, "-i", "-D", tmp_path], input=cpio.archive(ENTRIES), check=True, capture_output=True)
    assert (tmp_path / "bin/busybox").read_bytes() == b"\x7fELF"
    assert stat.S_IMODE((tmp_path / "bin/busybox").stat().st_mode) == 0o755
    assert (tmp_path / "bin/sh").readlink() == Path("busybox")
    assert (tmp_path / "etc/a/b").read_text() == "text\n"
    console = (tmp_path / "dev/console").stat()
    assert (os.major(console.st_rdev), os.minor(console.st_rdev)) == (5, 1)
