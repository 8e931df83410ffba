"""Programs of another architecture: how they are found to run, and that they do without this machine knowing."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from lab.tools import ARM64_PACKAGES
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.assembly.build import BuildRequest, build_image
from provisioner.image.finished.sign import SecretKey
from provisioner.image.plan import Choices
from provisioner.image.recipe import read_recipe
from provisioner.image.root import Ingredients
from provisioner.image.tools.foreign import BINFMT, ForeignPrograms, find_foreign, registration
from tests.image.samples import DPU
from tests.journey.small_dpu_image import unpacked_base
from tests.tools import CACHE, lab_tools, need_root

LIBRARY_INTERPRETER = b"/lib64/ld-linux-x86-64.so.2\0"


def program(folder: Path, name: str, *, dynamic: bool = False) -> Path:
    """The head of an ELF program, linked statically or not."""
    file = folder / name
    header = bytearray(b"\x7fELF\x02\x01\x01".ljust(64, b"\0"))
    header[32:40] = (64).to_bytes(8, "little")
    header[54:58] = (56).to_bytes(2, "little") + int(dynamic).to_bytes(2, "little")
    segment = bytearray(56)
    segment[0] = 3  # PT_INTERP
    segment[8:16] = (120).to_bytes(8, "little")
    segment[32:40] = len(LIBRARY_INTERPRETER).to_bytes(8, "little")
    file.write_bytes(bytes(header) + (bytes(segment) + LIBRARY_INTERPRETER if dynamic else b""))
    file.chmod(0o755)
    return file


def test_programs_of_this_machines_own_architecture_are_run_as_they_are(tmp_path: Path) -> None:
    for machine, architecture in (("x86_64", "x86_64"), ("aarch64", "arm64")):
        foreign = find_foreign(architecture, machine=machine, binfmt=tmp_path, path="")  # type: ignore[arg-type]
        assert foreign.command(["depmod", "6.12"]) == ["depmod", "6.12"]


@pytest.mark.parametrize(
    ("said", "is_enough"),
    [
        ("enabled\ninterpreter /usr/bin/qemu-aarch64-static\nflags: PF\noffset 0\n", True),
        ("enabled\ninterpreter /usr/bin/qemu-aarch64-static\nflags: OC\noffset 0\n", False),
        ("disabled\ninterpreter /usr/bin/qemu-aarch64-static\nflags: F\noffset 0\n", False),
        ("", False),
    ],
)
def test_what_the_machine_has_registered_is_used_if_it_reaches_into_a_chroot(
    tmp_path: Path, said: str, is_enough: bool
) -> None:
    (tmp_path / "qemu-aarch64").write_text(said)
    if is_enough:
        assert find_foreign("arm64", machine="x86_64", binfmt=tmp_path, path="").interpreter is None
    else:
        with pytest.raises(NeedsHuman, match="apt-get install qemu-user-static"):
            find_foreign("arm64", machine="x86_64", binfmt=tmp_path, path="")


def test_the_static_one_on_the_path_is_taken_and_a_dynamic_one_refused(tmp_path: Path) -> None:
    nothing = tmp_path / "binfmt"
    program(tmp_path, "qemu-aarch64", dynamic=True)
    with pytest.raises(NeedsHuman, match="not linked statically"):
        find_foreign("arm64", machine="x86_64", binfmt=nothing, path=str(tmp_path))
    static = program(tmp_path, "qemu-aarch64-static")
    assert find_foreign("arm64", machine="x86_64", binfmt=nothing, path=str(tmp_path)).interpreter == static
    with pytest.raises(NeedsHuman, match="nowhere is not there"):
        find_foreign("arm64", machine="x86_64", binfmt=nothing, interpreter=tmp_path / "nowhere")


def test_a_path_with_a_colon_ends_no_field_of_the_registration() -> None:
    fields = registration("arm64", Path("/a:b/qemu")).split(":")
    assert len(fields) == 8
    assert fields[6] == r"/a\x3ab/qemu"


def test_an_arm64_program_runs_and_this_machine_does_not_know_how() -> None:
    need_root("make user namespaces that have all users")
    if platform.machine() != "x86_64":
        pytest.skip("this machine runs arm64 by itself")
    base = unpacked_base(read_recipe(DPU), CACHE / "image-tests")
    before = sorted(BINFMT.iterdir())
    foreign = ForeignPrograms("arm64", lab_tools(ARM64_PACKAGES).path("/usr/bin/qemu-aarch64"))
    ran = subprocess.run(
        foreign.command(
            ["chroot", str(base.root), "/usr/bin/busybox", "sh", "-c", "uname -m; stat -c %u /usr; exit 3"]
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.stdout.split(), ran.returncode) == (["aarch64", "0"], 3), ran.stderr
    assert sorted(BINFMT.iterdir()) == before


def test_a_kubelet_of_another_architecture_than_the_images_is_refused(tmp_path: Path) -> None:
    recipe = read_recipe(DPU)
    (tmp_path / "kubelet").write_bytes(b"\x7fELF\x02\x01".ljust(18, b"\0") + (62).to_bytes(2, "little"))
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    request = BuildRequest(
        recipe=recipe,
        choices=Choices(architecture="arm64", distribution=recipe.distribution("debian", "arm64"), archives=()),
        ingredients=Ingredients(
            architecture="arm64", kubelet=tmp_path / "kubelet", join_ca=tmp_path / "ca.pem", agent=tmp_path
        ),
        key=SecretKey.generate(lambda size: b"t" * size),
        output=tmp_path,
        cache=tmp_path,
    )
    with pytest.raises(NeedsHuman, match="kubelet is for x86_64, the image for arm64"):
        build_image(request, lambda *_: None)
