from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provisioner.api.machinery.errors import Refused
from provisioner.image.gates.libraries import check_libraries
from provisioner.image.tools.elf import read_linkage
from tests.image.gates.samples import ARM64, RISCV, elf, told, tree_of

LOADER = "/lib64/ld-linux-x86-64.so.2"
WHOLE = {
    "usr/bin/tool": elf(("libone.so.1",), interpreter=LOADER),
    "usr/lib/x86_64-linux-gnu/libone.so.1": elf(("libtwo.so.2",)),
    "usr/lib/x86_64-linux-gnu/libtwo.so.2": elf(),
    "usr/lib64/ld-linux-x86-64.so.2": elf(),
    "usr/lib/firmware/gsp.bin": elf(("libnowhere.so",), machine=RISCV),
    "usr/lib/modules/6.12/a.ko": elf(kind=1),
    "etc/text": "no program",
}
LINKS = {"lib64": "usr/lib64", "lib": "usr/lib"}


def test_a_root_in_which_all_is_found_passes(tmp_path: Path) -> None:
    assert told(check_libraries(tree_of(tmp_path, WHOLE, LINKS), "x86_64", {})) == []


@pytest.mark.parametrize(
    ("removed", "of", "needs"),
    [
        ("usr/lib/x86_64-linux-gnu/libone.so.1", "/usr/bin/tool", "libone.so.1"),
        ("usr/lib/x86_64-linux-gnu/libtwo.so.2", "/usr/lib/x86_64-linux-gnu/libone.so.1", "libtwo.so.2"),
        ("usr/lib64/ld-linux-x86-64.so.2", "/usr/bin/tool", LOADER),
    ],
)
def test_a_library_or_loader_that_is_gone_is_named_with_who_needs_it(
    tmp_path: Path, removed: str, of: str, needs: str
) -> None:
    files = {path: content for path, content in WHOLE.items() if path != removed}
    tree = tree_of(tmp_path, files, LINKS)
    assert told(check_libraries(tree, "x86_64", {})) == [(of, f"needs {needs}, which is not in the root")]
    assert told(check_libraries(tree, "x86_64", {needs: "never called"})) == []
    assert told(check_libraries(tree, "x86_64", {f"{of[1:]}: {needs}": "never called"})) == []
    assert len(told(check_libraries(tree, "x86_64", {f"usr/bin/other: {needs}": "of another"}))) == 1


def test_a_library_of_another_architecture_is_none(tmp_path: Path) -> None:
    files = WHOLE | {"usr/lib/x86_64-linux-gnu/libtwo.so.2": elf(machine=ARM64)}
    assert told(check_libraries(tree_of(tmp_path, files, LINKS), "x86_64", {})) == [
        ("/usr/lib/x86_64-linux-gnu/libone.so.1", "needs libtwo.so.2, which is not in the root"),
        ("/usr/lib/x86_64-linux-gnu/libtwo.so.2", "made for arm64"),
    ]


def test_a_link_is_followed_within_the_root_and_no_further(tmp_path: Path) -> None:
    (tmp_path / "outside.so").write_bytes(elf())
    files = {path: content for path, content in WHOLE.items() if "libtwo" not in path}
    place = "usr/lib/x86_64-linux-gnu/libtwo.so.2"
    absolute = tree_of(tmp_path / "a", files | {"opt/libtwo.so.2.1": elf()}, LINKS | {place: "/opt/libtwo.so.2.1"})
    assert told(check_libraries(absolute, "x86_64", {})) == []
    leading_out = tree_of(tmp_path / "b", files, LINKS | {place: str(tmp_path / "outside.so")})
    assert len(told(check_libraries(leading_out, "x86_64", {}))) == 1
    circle = tree_of(tmp_path / "c", files, LINKS | {place: "libtwo.so.3", place[:-1] + "3": "libtwo.so.2"})
    assert len(told(check_libraries(circle, "x86_64", {}))) == 1


@pytest.mark.parametrize("runpath", ["/opt/own", "$ORIGIN/../../opt/own", "/nowhere:${ORIGIN}/../../opt/own"])
def test_a_program_names_folders_of_its_own(tmp_path: Path, runpath: str) -> None:
    files = {"usr/bin/tool": elf(("libown.so",), runpath=runpath), "opt/own/libown.so": elf()}
    assert told(check_libraries(tree_of(tmp_path / "with", files), "x86_64", {})) == []
    files["usr/bin/tool"] = elf(("libown.so",))
    assert len(told(check_libraries(tree_of(tmp_path / "without", files), "x86_64", {}))) == 1


def test_folders_of_ld_so_conf_and_of_what_it_includes_are_searched(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {
        "usr/bin/tool": elf(("libown.so",)),
        "opt/own/libown.so": elf(),
        "etc/ld.so.conf": "# all\ninclude /etc/ld.so.conf.d/*.conf\ninclude ld.so.conf\n",
        "etc/ld.so.conf.d/own.conf": "/opt/own # of the vendor\n",
    }
    assert told(check_libraries(tree_of(tmp_path / "with", files), "x86_64", {})) == []
    files["etc/ld.so.conf.d/own.conf"] = "# /opt/own\n"
    assert len(told(check_libraries(tree_of(tmp_path / "without", files), "x86_64", {}))) == 1


def test_a_private_library_may_take_what_its_program_has_loaded(tmp_path: Path) -> None:
    """As systemd's libsystemd-core does: it has no folder of its own, each of its programs has."""
    files = {
        "usr/bin/daemon": elf(("libcore.so", "libshared.so"), runpath="/usr/lib/daemon"),
        "usr/lib/daemon/libcore.so": elf(("libshared.so",)),
        "usr/lib/daemon/libshared.so": elf(),
    }
    assert told(check_libraries(tree_of(tmp_path / "all", files), "x86_64", {})) == []
    files["usr/bin/other"] = elf(("libcore.so",), runpath="$ORIGIN/../lib/daemon:/usr/lib/x")
    assert told(check_libraries(tree_of(tmp_path / "one", files), "x86_64", {})) == [
        ("/usr/lib/daemon/libcore.so", "needs libshared.so, which is not in the root")
    ]


@pytest.mark.parametrize("cut", [20, 60, 70, 200])
def test_a_damaged_program_is_told_and_does_not_end_the_build_by_itself(tmp_path: Path, cut: int) -> None:
    program = elf(("libone.so.1", "libtwo.so.2"), interpreter=LOADER)
    tree = tree_of(tmp_path, {"usr/bin/tool": program[:cut]})
    ((path, observed),) = told(check_libraries(tree, "x86_64", {}))
    assert path == "/usr/bin/tool"
    assert "ELF" in observed


@given(st.integers(0, 600), st.integers(0, 255))
@example(39, 255)
def test_a_program_with_a_wrong_byte_is_read_or_refused(at: int, value: int) -> None:
    content = bytearray(elf(("libone.so.1",), interpreter=LOADER, runpath="/opt/own"))
    content[at % len(content)] = value
    try:
        read_linkage(bytes(content))
    except Refused as error:
        assert error.hint  # noqa: PT017 - either is right; no other exception is
