"""A UKI as a file: its sections by another reader, its digest by another signer, and what no UKI is made of."""

from __future__ import annotations

import itertools
import shutil
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.api.machinery.errors import NeedsHuman, NotFound, Refused
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.cli.main import provisioner
from provisioner.image.finished.check import check_image
from provisioner.image.finished.sign import SecretKey
from provisioner.image.uki.build import STUBS, build_uki
from provisioner.image.uki.portable_executable import add_sections, read_layout
from provisioner.image.uki.sign import sign_program
from tests.image.made_images import LAYERED, write_layered
from tests.tools import INSTALL, installed, missing

KEY = SecretKey.generate(lambda size: b"k" * size)


def read_sections(program: bytes) -> dict[str, bytes]:
    """Contents by name, without what fills them up."""
    return {
        name: program[raw : raw + min(size, raw_size)] for name, _, size, raw, raw_size in read_layout(program).sections
    }


def small_program(sections: int = 1, room: int = 1024, machine: int = 0x8664) -> bytes:
    """Headers of an EFI program of 64 bits, written after the specification, and a section of 512 bytes each."""
    coff = struct.pack("<HHIIIHH", machine, sections, 0, 0, 0, 240, 0x22)
    optional = bytearray(240)
    struct.pack_into("<H", optional, 0, 0x20B)
    struct.pack_into("<II", optional, 32, 4096, 512)
    struct.pack_into("<III", optional, 56, 4096 * (1 + sections), room, 0x1234)
    struct.pack_into("<I", optional, 108, 16)
    table = b"".join(
        struct.pack("<8sIIIIIIHHI", b".s%d" % n, 512, 4096 * (1 + n), 512, room + 512 * n, 0, 0, 0, 0, 0x60000020)
        for n in range(sections)
    )
    head = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64) + b"PE\0\0" + coff + bytes(optional) + table
    return head.ljust(room, b"\0") + b"".join(bytes([n]) * 512 for n in range(sections))


@pytest.fixture
def stub() -> bytes:
    file = Path(STUBS["x86_64"])
    return file.read_bytes() if file.is_file() else missing(str(file), INSTALL)


@pytest.fixture(scope="module")
def own_key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A site's Secure Boot key and certificate, by the commands of docs/secure-boot.md."""
    folder = tmp_path_factory.mktemp("secure-boot")
    key, certificate = folder / "db.key", folder / "db.pem"
    subprocess.run(
        [
            *("openssl", "req", "-new", "-x509", "-newkey", "rsa:2048", "-nodes", "-sha256", "-days", "3650"),
            *("-subj", "/CN=site Secure Boot", "-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    key.chmod(0o600)
    return key, certificate


def test_kernel_stage_1_and_command_line_are_sections_of_the_stub(tmp_path: Path, stub: bytes) -> None:
    manifest = check_image(write_layered(tmp_path / "store", KEY), KEY.public).manifest
    kernel, stage1 = LAYERED["kernel"], LAYERED["stage1"]
    program = build_uki(stub, manifest, kernel, stage1, ["console=ttyS0,115200"])
    assert program == build_uki(stub, manifest, kernel, stage1, ["console=ttyS0,115200"])
    found = read_sections(program)
    assert (found[".linux"], found[".initrd"]) == (kernel, stage1)
    digest = (tmp_path / "store").glob("sha256-*").__next__().name
    assert found[".cmdline"].decode() == f"quiet provisioner.image={digest} console=ttyS0,115200"
    (tmp_path / "uki.efi").write_bytes(program)
    dumped = subprocess.run(["objdump", "-h", tmp_path / "uki.efi"], capture_output=True, text=True, check=True).stdout
    rows = {
        row[1]: [int(part, 16) for part in row[2:6]] for line in dumped.splitlines() if len(row := line.split()) == 7
    }
    for name, content in ((".linux", kernel), (".initrd", stage1)):
        size, address, _, place = rows[name]
        assert program[place : place + size][: len(content)] == content
        assert address % 4096 == 0
    ends = sorted((address, address + size) for _, address, size, _, _ in read_layout(program).sections)
    assert len(ends) > 2
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(ends)), "no two overlap"


def test_what_is_signed_is_the_digest_that_dbx_would_name(
    tmp_path: Path, stub: bytes, own_key: tuple[Path, Path]
) -> None:
    installed("sbsign")
    program = add_sections(stub, [(".linux", b"kernel" * 1000)])
    signed = sign_program(program, *own_key)
    digest = authenticode_sha256(program)
    assert authenticode_sha256(signed) == digest
    at, size = read_layout(signed).certificates
    assert bytes.fromhex(digest.removeprefix("sha256:")) in signed[at : at + size], "as sbsign has computed it"
    with pytest.raises(Refused, match="signed already"):
        sign_program(signed, *own_key)
    with pytest.raises(Refused, match="it is signed"):
        add_sections(signed, [(".more", b"x")])


def test_a_key_that_others_can_read_or_that_is_not_the_certificates_signs_nothing(
    tmp_path: Path, stub: bytes, own_key: tuple[Path, Path]
) -> None:
    installed("sbsign")
    key, certificate = own_key
    readable = Path(shutil.copy(key, tmp_path / "readable.key"))
    readable.chmod(0o644)
    with pytest.raises(NeedsHuman, match="can be read by others"):
        sign_program(stub, readable, certificate)
    other = tmp_path / "other.key"
    subprocess.run(["openssl", "genrsa", "-out", other, "2048"], check=True, capture_output=True)
    other.chmod(0o600)
    with pytest.raises(NeedsHuman):
        sign_program(stub, other, certificate)
    with pytest.raises(NotFound, match="does not exist"):
        sign_program(stub, key, tmp_path / "none.pem")


@pytest.mark.parametrize("word", ["two words", "", "provisioner.image=sha256-00", "x" * 256, "line\nbreak"])
def test_a_word_that_is_none_or_names_another_image_is_refused(tmp_path: Path, word: str) -> None:
    manifest = check_image(write_layered(tmp_path / "store", KEY), KEY.public).manifest
    with pytest.raises(Refused, match="is not one word, or names an image"):
        build_uki(small_program(), manifest, b"kernel", b"stage1", [word])


def test_a_command_line_that_no_kernel_takes_whole_is_refused(tmp_path: Path) -> None:
    manifest = check_image(write_layered(tmp_path / "store", KEY), KEY.public).manifest
    with pytest.raises(Refused, match="more than 2047"):
        build_uki(small_program(), manifest, b"kernel", b"stage1", ["x" * 250] * 9)


def test_a_stub_of_another_architecture_is_refused(tmp_path: Path) -> None:
    manifest = check_image(write_layered(tmp_path / "store", KEY), KEY.public).manifest
    arm64 = small_program(machine=0xAA64)
    with pytest.raises(Refused, match="the stub is for arm64, the image for x86_64"):
        build_uki(arm64, manifest, b"kernel", b"stage1")
    assert read_sections(build_uki(arm64, replace(manifest, architecture="arm64"), b"k", b"s"))[".linux"] == b"k"


def test_a_program_without_room_for_headers_or_with_such_a_section_is_refused() -> None:
    with pytest.raises(Refused, match="no room for the headers"):
        add_sections(small_program(room=512), [(f".n{n}", b"x") for n in range(5)])
    with pytest.raises(Refused, match=r"it has a section \.s0 already"):
        add_sections(small_program(), [(".s0", b"x")])


@settings(max_examples=300)
@given(place=st.integers(0, 1535), value=st.binary(min_size=1, max_size=8), end=st.integers(0, 1536))
def test_a_damaged_program_is_read_or_refused_and_nothing_else(place: int, value: bytes, end: int) -> None:
    damaged = bytearray(small_program())
    damaged[place : place + len(value)] = value
    for act in (read_sections, authenticode_sha256, lambda data: add_sections(data, [(".linux", b"kernel")])):
        try:
            act(bytes(damaged[: 1536 - end] if end % 3 == 0 else damaged))
        except Refused:
            continue


def test_the_command_makes_it_of_a_checked_image_alone(tmp_path: Path, stub: bytes, own_key: tuple[Path, Path]) -> None:
    installed("sbsign")
    image = write_layered(tmp_path / "store", KEY)
    (tmp_path / "image.pub").write_text(KEY.public.encode())
    (tmp_path / "other.pub").write_text(SecretKey.generate().public.encode())
    output = tmp_path / "gpu-node.efi"

    def run(key: str, *more: object) -> object:
        words = ["image", "uki", image, "--key", tmp_path / key, "--output", output, *more]
        return CliRunner().invoke(provisioner, [str(word) for word in words])

    refused = run("other.pub")
    assert isinstance(getattr(refused, "exception", None), Refused)
    assert not output.exists()
    signing = ["--secure-boot-key", own_key[0], "--secure-boot-certificate", own_key[1]]
    done = run("image.pub", *signing)
    assert getattr(done, "exit_code", None) == 0, done
    assert authenticode_sha256(output.read_bytes()).removeprefix("sha256:") in getattr(done, "output", "")
    subprocess.run(["sbverify", "--cert", own_key[1], output], check=True, capture_output=True)
