from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.machinery.errors import Refused
from provisioner.image.gates.licences import check_licences
from provisioner.image.gates.packages.go_binary import GoBuild, GoModule, read_go_build, versioned
from provisioner.image.gates.packages.installed import InstalledPackage, package_of, read_paragraphs, read_status
from provisioner.image.gates.packages.records import (
    Records,
    decode,
    describe_package,
    encode,
    path_in_root,
    read_installed,
)
from provisioner.image.gates.run import ESSENTIAL, purposes
from tests.image.gates.samples import elf, go_program, go_record, told, tree_of

STATUS = """\
Package: runc
Status: install ok installed
Architecture: amd64
Version: 1.1.15+ds1-2+b4
Source: runc-app (1.1.15+ds1-2)
Pre-Depends: libc6 (>= 2.38)
Depends: libseccomp2 (>= 2.5), debconf (>= 0.5) | debconf-2.0, python3:any
Built-Using: golang-1.24 (= 1.24.4-1), golang-dbus (= 5.1.0-1)
Description: container runtime
 Several lines:
 .
 of it.

Package: perl
Status: deinstall ok config-files
Architecture: amd64
Version: 5.40.1-6

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.41-12
"""


def test_dpkgs_status_is_read() -> None:
    libc, runc = read_status(STATUS)
    assert (libc.name, libc.version, libc.source, libc.source_version) == ("libc6", "2.41-12", "libc6", "2.41-12")
    assert (runc.source, runc.source_version) == ("runc-app", "1.1.15+ds1-2")
    assert runc.depends == ("libc6", "libseccomp2", "debconf", "debconf-2.0", "python3")
    assert runc.built_using == ("golang-1.24 1.24.4-1", "golang-dbus 5.1.0-1")


@pytest.mark.parametrize("text", ["no field\n", " a continuation of nothing\n", "Package: a\n\n: x\n"])
def test_a_damaged_control_file_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="neither a field nor its continuation"):
        read_paragraphs(text)


@pytest.mark.parametrize("missing", ["Package", "Version", "Architecture"])
def test_a_package_without_name_version_or_architecture_is_refused(missing: str) -> None:
    control = {"Package": "a", "Version": "1", "Architecture": "all"}
    assert package_of(control).name == "a"
    with pytest.raises(Refused, match=f"lacks {missing}"):
        package_of(control | {missing: ""})


def installed(root: Path) -> Path:
    tree_of(
        root,
        {
            "var/lib/dpkg/status": STATUS,
            "var/lib/dpkg/info/runc.list": "/.\n/usr\n/usr/sbin/runc\n/usr/share/doc/runc/copyright\n",
            "var/lib/dpkg/info/libc6:amd64.list": "/.\n/lib\n/lib/x86_64-linux-gnu/libc.so.6\n",
            "usr/share/doc/runc/copyright": "Apache-2.0, and so on\n",
            "usr/share/doc/libc6/copyright": "LGPL-2.1\n",
            "usr/share/common-licenses/LGPL-2.1": "the text\n",
        },
    )
    return root


def test_what_packages_say_of_themselves_is_read_before_the_root_is_trimmed(tmp_path: Path) -> None:
    records = read_installed(installed(tmp_path))
    libc, runc = records.packages
    assert libc.files == ("lib", "usr/lib/x86_64-linux-gnu/libc.so.6")
    assert "usr/sbin/runc" in runc.files
    assert [records.texts[digest] for digest in runc.licence_files] == ["Apache-2.0, and so on\n"]
    assert records.texts[records.common["LGPL-2.1"]] == "the text\n"
    assert decode(encode(records)) == records
    assert told(check_licences(records)) == []


def test_a_folder_of_documentation_may_be_another_packages_and_no_link_leads_out(tmp_path: Path) -> None:
    root = installed(tmp_path / "root")
    (tmp_path / "copyright").write_text("of the machine that builds\n")
    (root / "usr/share/doc/libc6/copyright").unlink()
    (root / "usr/share/doc/libc6").rmdir()
    (root / "usr/share/doc/libc6").symlink_to("runc")
    (root / "usr/share/doc/runc/copyright").unlink()
    (root / "usr/share/doc/runc/copyright").symlink_to(tmp_path / "copyright")
    assert told(check_licences(read_installed(root))) == [
        ("libc6", "no licence was recorded"),
        ("runc", "no licence was recorded"),
    ]
    (root / "usr/share/doc/runc/copyright").unlink()
    (root / "usr/share/doc/runc/copyright").write_text("Apache-2.0\n")
    assert told(check_licences(read_installed(root))) == []


def test_a_package_that_was_unpacked_beside_joins_the_others(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree_of(tree, {"usr/share/doc/linux-image/copyright": "GPL-2\n"})
    control = "Package: linux-image\nVersion: 6.12-1\nArchitecture: amd64\n"
    names = ["./", "./boot/", "./boot/vmlinuz-6.12", "./lib/modules/6.12/kernel/a.ko.xz"]
    joined = read_installed(installed(tmp_path / "root")).joined(describe_package(control, tree, names, "kernel"))
    libc, linux, runc = joined.packages
    assert (libc.name, runc.name, linux.unpacked_for) == ("libc6", "runc", "kernel")
    assert linux.files == ("boot", "boot/vmlinuz-6.12", "usr/lib/modules/6.12/kernel/a.ko")
    assert joined.texts[linux.licence_files[0]] == "GPL-2\n"
    assert decode(encode(joined)) == joined


def test_licences_that_are_lost_or_empty_fail() -> None:
    package = InstalledPackage(name="a", version="1", architecture="all", source="a", source_version="1")
    assert told(check_licences(Records())) == [("packages", "none is known")]
    assert told(check_licences(Records((package,)))) == [("a", "no licence was recorded")]
    named = InstalledPackage(
        name="a", version="1", architecture="all", source="a", source_version="1", licence_files=("ab" * 32,)
    )
    assert told(check_licences(Records((named,), {"ab" * 32: " \n"}))) == [("a", f"its licence {'ab' * 6} is empty")]
    assert told(check_licences(Records((named,), {"ab" * 32: "text"}))) == []


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/.", ""),
        ("./usr/bin/x", "usr/bin/x"),
        ("/bin/x", "usr/bin/x"),
        ("/lib64/ld.so", "usr/lib64/ld.so"),
        ("/lib", "lib"),
        ("/library/x", "library/x"),
        ("/lib/modules/6/a.ko.zst", "usr/lib/modules/6/a.ko"),
        ("/usr/share/a.ko.txt", "usr/share/a.ko.txt"),
    ],
)
def test_a_path_of_a_package_is_where_it_lies_in_the_root(name: str, path: str) -> None:
    assert path_in_root(name) == path


def test_a_package_is_there_for_what_the_recipe_named_first() -> None:
    def package(name: str, *depends: str) -> InstalledPackage:
        return InstalledPackage(
            name=name, version="1", architecture="all", source=name, source_version="1", depends=depends
        )

    packages = [
        package("containerd", "runc", "virtual"), package("runc", "libc"), package("libc"), package("dash"),
        package("python", "libc", "containerd"),
    ]  # fmt: skip
    named = {"python": "the agent", "containerd": "the node", "absent": "never"}
    assert purposes(packages, named) == {
        "python": "the agent",
        "containerd": "the node",
        "libc": "the agent",
        "runc": "the node",
        "dash": ESSENTIAL,
    }


LINES = [
    "path\tk8s.io/kubernetes/cmd/kubelet",
    "mod\tk8s.io/kubernetes\tv1.36.3\th1:abc=",
    "dep\tgithub.com/a/b\tv1.0.0\th1:def=",
    "dep\tk8s.io/api\tv0.0.0",
    "=>\tk8s.io/kubernetes/staging/api\tv0.36.3\th1:ghi=",
    "build\t-ldflags=-X main.version=1",
]


def test_a_program_that_go_built_says_what_is_linked_into_it() -> None:
    assert read_go_build(go_program(LINES)) == GoBuild(
        "go1.26.8",
        "k8s.io/kubernetes/cmd/kubelet",
        GoModule("k8s.io/kubernetes", "v1.36.3", "h1:abc="),
        (
            GoModule("github.com/a/b", "v1.0.0", "h1:def="),
            GoModule("k8s.io/kubernetes/staging/api", "v0.36.3", "h1:ghi="),
        ),
    )


def test_a_program_that_only_mentions_the_record_has_none() -> None:
    assert read_go_build(elf()) is None
    assert read_go_build(b"x\xff Go buildinf:" + bytes(100)) is None
    mentioned = elf(behind=b"\xff Go buildinf:")
    with_record = mentioned + bytes(-len(mentioned) % 16) + go_record(LINES)
    assert read_go_build(with_record) == read_go_build(go_program(LINES))


@given(st.integers(0, 400), st.binary(max_size=8))
def test_a_damaged_record_is_read_or_is_none(at: int, noise: bytes) -> None:
    record = go_record(LINES)
    damaged = record[: at % len(record)] + noise + record[at % len(record) + len(noise) :]
    found = read_go_build(damaged)
    assert found is None or len(found.modules) <= 8192


def test_a_record_that_claims_more_than_there_is_is_none() -> None:
    head = b"\xff Go buildinf:\x08\x02" + bytes(16)
    assert read_go_build(head + b"\x08go1.26.8" + b"\xff\xff\xff\x7f" + b"x" * 100) is None
    assert read_go_build(head + b"\xff" * 10) is None


def test_a_program_that_was_built_in_its_modules_own_folder_has_the_version_that_the_build_knows() -> None:
    built_here = GoBuild("go1.26", "example.com/tool/cmd/tool", GoModule("example.com/tool", "(devel)"), ())
    told = versioned(built_here, {"example.com/tool": "v1.2.3"})
    assert told.main == GoModule("example.com/tool", "v1.2.3")
    assert versioned(built_here, {"example.com/other": "v1.2.3"}) == built_here
    released = GoBuild("go1.26", "example.com/tool/cmd/tool", GoModule("example.com/tool", "v1.0.0"), ())
    assert versioned(released, {"example.com/tool": "v1.2.3"}) == released, "what Go itself knows counts"
