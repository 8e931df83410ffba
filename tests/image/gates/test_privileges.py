from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from provisioner.image.gates.privileges import check_privileges
from provisioner.image.gates.read.tree import read_tree
from tests.image.gates.samples import told, tree_of
from tests.tools import need_root

SET_UID = {"usr/bin/mount": "util-linux has it so", "usr/lib/*/helper": "for the daemon"}
WRITABLE = {"tmp": "everybody's"}


def test_what_the_recipe_names_may_be_set_uid_and_world_writable(tmp_path: Path) -> None:
    files = {"usr/bin/mount": "", "usr/lib/daemon/helper": "", "usr/bin/ls": "", "tmp/x": ""}
    modes = {"usr/bin/mount": 0o4755, "usr/lib/daemon/helper": 0o2755, "tmp": 0o1777}
    assert told(check_privileges(tree_of(tmp_path, files, modes=modes), SET_UID, WRITABLE)) == []


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6711])
def test_a_set_uid_program_that_nobody_named_fails(tmp_path: Path, mode: int) -> None:
    tree = tree_of(tmp_path, {"usr/bin/su": "", "usr/lib/a/b/helper": ""}, modes={"usr/bin/su": mode})
    assert told(check_privileges(tree, SET_UID, WRITABLE)) == [("/usr/bin/su", f"mode {mode:04o}")]


def test_a_pattern_does_not_reach_into_folders_below(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, {"usr/lib/a/b/helper": ""}, modes={"usr/lib/a/b/helper": 0o4755})
    assert told(check_privileges(tree, SET_UID, WRITABLE)) == [("/usr/lib/a/b/helper", "mode 4755")]


def test_what_everybody_may_write_fails(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, {"etc/passwd": "", "srv/x": ""}, modes={"etc/passwd": 0o666, "srv": 0o1777})
    assert told(check_privileges(tree, SET_UID, WRITABLE)) == [
        ("/etc/passwd", "file of mode 0666"),
        ("/srv", "folder of mode 1777"),
    ]


def test_an_allowed_folder_needs_its_sticky_bit(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, {"tmp/x": ""}, modes={"tmp": 0o777})
    assert told(check_privileges(tree, SET_UID, WRITABLE)) == [("/tmp", "folder of mode 0777")]


def test_a_socket_or_pipe_fails_wherever_it_lies_but_in_dev(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "etc/pipe", 0o600)
    os.mkfifo(tmp_path / "dev/pipe", 0o666)
    (failure,) = check_privileges(read_tree(tmp_path, {}), SET_UID, WRITABLE)
    assert failure.object == "/etc/pipe"


def test_a_file_capability_fails_even_of_an_allowed_program(tmp_path: Path) -> None:
    """The squashfs has no extended attributes: the program would be there, without what it was given."""
    need_root("give a file a capability")
    tree_of(tmp_path, {"usr/bin/ping": "", "usr/bin/mount": ""}, modes={"usr/bin/mount": 0o4755})
    raw_socket = bytes.fromhex("0100000200200000000000000000000000000000")
    for name in ("ping", "mount"):
        os.setxattr(tmp_path / "usr/bin" / name, "security.capability", raw_socket)
    (tmp_path / "usr/bin/mount").chmod(stat.S_IMODE(0o4755))
    found = told(check_privileges(read_tree(tmp_path, {}), SET_UID, WRITABLE))
    assert [path for path, _ in found] == ["/usr/bin/mount", "/usr/bin/ping"]
    assert raw_socket.hex() in found[1][1]
