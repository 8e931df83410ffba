"""What goes into an image, decided on made-up packages; and what a wheel may not bring."""

from __future__ import annotations

import io
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from artefacts.layer import pack
from artefacts.recipe import ContainerRecipe, read_recipe
from artefacts.staging import add_libraries, stage_debian
from artefacts.wheels import SITE, unpack_wheel, wheel_of
from provisioner.api.machinery.errors import NeedsHuman, Refused
from tests.packaging.made import CHECKOUT

RECIPES = CHECKOUT / "packaging/containers"
LIBRARIES = "usr/lib/x86_64-linux-gnu"


def recipe(**changes: object) -> ContainerRecipe:
    values: dict[str, object] = {
        "name": "small",
        "description": "",
        "user": "65532:65532",
        "suite": "trixie",
        "python": "3.13",
        "packages": (),
        "take": ("usr/bin/program",),
        "leave": (),
        "without": (),
        "leave_of_wheels": (),
        "environment": {},
        "folders": {"tmp": 0o1777},
        "files": {"etc/passwd": "root:x:0:0::/:/\n"},
    }
    return ContainerRecipe(**{**values, **changes})  # type: ignore[arg-type]


def elf(*needed: str, search: str = "") -> bytes:
    """A library that names others, and nothing else."""
    names = [*needed, *([search] if search else [])]
    strings = b"\0" + b"".join(name.encode() + b"\0" for name in names)
    at = {name: strings.index(name.encode() + b"\0") for name in names}
    entries = [(1, at[name]) for name in needed] + ([(29, at[search])] if search else [])
    header, segments = 64, 2 * 56
    start = header + segments
    dynamic = b"".join(struct.pack("<QQ", *entry) for entry in [*entries, (5, start), (0, 0)])
    whole = start + len(strings) + len(dynamic)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, whole, whole, 4096)
    table = struct.pack("<IIQQQQQQ", 2, 6, start + len(strings), start + len(strings), 0, len(dynamic), len(dynamic), 8)
    return head + load + table + strings + dynamic


def lay(root: Path, **files: bytes | str) -> Path:
    """A str is where a link leads."""
    for name, content in files.items():
        file = root / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            file.symlink_to(content)
        else:
            file.write_bytes(content)
    return root


def put(root: Path, path: str, content: bytes | str) -> None:
    lay(root, **{path.replace("/", "__"): content})


@pytest.fixture
def debian(tmp_path: Path) -> Path:
    root = tmp_path / "debian"
    put(root, "usr/bin/program", elf("liba.so.1"))
    put(root, f"{LIBRARIES}/liba.so.1", "liba.so.1.2")
    put(root, f"{LIBRARIES}/liba.so.1.2", elf("libb.so.1"))
    put(root, f"{LIBRARIES}/libb.so.1", elf())
    put(root, f"{LIBRARIES}/libunused.so.1", elf())
    put(root, "usr/share/ca-certificates/mozilla/b.crt", b"B\n")
    put(root, "usr/share/ca-certificates/mozilla/a.crt", b"A\n")
    return root


def test_what_is_linked_comes_along_with_what_that_is_linked_with_and_nothing_else(
    debian: Path, tmp_path: Path
) -> None:
    target = tmp_path / "image"
    stage_debian(recipe(), debian, target)
    add_libraries((target,), debian, "amd64")
    assert sorted(file.name for file in (target / LIBRARIES).iterdir()) == ["liba.so.1", "liba.so.1.2", "libb.so.1"]
    assert (target / "lib").readlink() == Path("usr/lib")
    assert (target / "etc/ssl/certs/ca-certificates.crt").read_text() == "A\nB\n"


def test_a_library_of_a_wheel_is_found_beside_it_and_not_taken_from_debian(debian: Path, tmp_path: Path) -> None:
    target, site = tmp_path / "image", tmp_path / "site"
    stage_debian(recipe(), debian, target)
    put(site, f"{SITE}/module/native.so", elf("libbundled.so", "libb.so.1", search="$ORIGIN/../module.libs"))
    put(site, f"{SITE}/module.libs/libbundled.so", elf())
    add_libraries((target, site), debian, "amd64")
    assert (target / LIBRARIES / "libb.so.1").is_file()
    assert not list(target.rglob("libbundled*"))


def test_a_library_that_nobody_brings_is_told_with_who_needs_it(debian: Path, tmp_path: Path) -> None:
    put(debian, f"{LIBRARIES}/libb.so.1.new", elf("libgone.so.9"))
    (debian / LIBRARIES / "libb.so.1.new").replace(debian / LIBRARIES / "libb.so.1")
    target = tmp_path / "image"
    stage_debian(recipe(), debian, target)
    with pytest.raises(NeedsHuman, match=r"libb\.so\.1 needs libgone\.so\.9"):
        add_libraries((target,), debian, "amd64")


@pytest.mark.parametrize("changes", [{"take": ("usr/bin/absent",)}, {"leave": ("usr/bin/absent",)}])
def test_a_pattern_that_matches_nothing_is_a_mistake(debian: Path, tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(NeedsHuman, match="usr/bin/absent"):
        stage_debian(recipe(**changes), debian, tmp_path / "image")


def test_what_is_left_is_not_taken(debian: Path, tmp_path: Path) -> None:
    stage_debian(recipe(take=("usr/**",), leave=("usr/bin/*",)), debian, tmp_path / "image")
    assert not (tmp_path / "image/usr/bin/program").exists()
    assert (tmp_path / "image" / LIBRARIES / "libunused.so.1").exists()


def wheel(folder: Path, **files: bytes) -> Path:
    file = folder / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "/"), content)
    return file


def test_a_wheel_is_laid_out_without_its_commands(tmp_path: Path) -> None:
    file = wheel(tmp_path, thing__a=b"a", thing__tests__b=b"b", **{"thing-1.0.data__scripts__run": b"x"})
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("thing-1.0.data/purelib/other.py", b"o")
    unpack_wheel(wheel_of(file), tmp_path / "root", ("**/tests/**",))
    found = {
        str(path.relative_to(tmp_path / "root" / SITE)) for path in (tmp_path / "root").rglob("*") if path.is_file()
    }
    assert found == {"thing/a", "other.py"}


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "thing/../../x"])
def test_a_wheel_that_reaches_out_of_its_folder_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), b"x")
    with pytest.raises(Refused, match="has a file"):
        unpack_wheel(wheel_of(file), tmp_path / "root")
    assert not (tmp_path / "root").exists()


def test_a_layer_does_not_know_times_owners_or_odd_modes(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for root, mode in ((one, 0o4755), (two, 0o700)):
        put(root, "usr/bin/b", b"b")
        put(root, "usr/bin/a", b"a")
        put(root, "usr/bin/link", "a")
        (root / "usr/bin/a").chmod(mode)
        os.utime(root / "usr/bin/a", (mode, mode))
    first, second = pack(one, ""), pack(two, "")
    assert first.content == second.content
    with tarfile.open(fileobj=io.BytesIO(first.content), mode="r:gz") as tar:
        assert [(member.name, oct(member.mode)) for member in tar if not member.isdir()] == [
            ("usr/bin/a", "0o755"),
            ("usr/bin/b", "0o644"),
            ("usr/bin/link", "0o777"),
        ]
    put(two, "usr/bin/c", b"")
    assert pack(two, "").digest != first.digest


def test_the_boot_images_recipe_has_all_of_the_other_one() -> None:
    small, large = (read_recipe(RECIPES / name) for name in ("provisioner.toml", "provisioner-boot.toml"))
    assert set(small.packages) < set(large.packages)
    assert set(small.take) < set(large.take)
    assert (small.user, large.user) == ("65532:65532", "0:0")
    assert large.environment == small.environment


def test_a_misspelt_recipe_is_refused(tmp_path: Path) -> None:
    text = (RECIPES / "provisioner.toml").read_text()
    for changed in (
        text.replace("[wheels]", "[wheals]"),
        text.replace('user = "65532:65532"', ""),
        text.replace("leave = [", "leaf = [", 1),
    ):
        (tmp_path / "recipe.toml").write_text(changed)
        with pytest.raises(Refused):
            read_recipe(tmp_path / "recipe.toml")
