"""Firmware with a site's own Secure Boot keys, in a machine: what it starts, and what it refuses.

OVMF tries one disk after the other and says on the console what became of each. Kernel and stage-1 are those of the
built image. It takes a minute and a half on a machine with much else to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lab.machine.machine import BOARDS, EMULATED_KERNEL_ARGUMENTS, processors
from lab.machine.secure_boot import enrol_keys
from lab.tools import Tools
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.image.assembly.build import Built
from provisioner.image.finished import store
from provisioner.image.finished.check import check_image
from provisioner.image.request import BuildRequest
from provisioner.image.uki.build import STUBS, build_uki
from provisioner.image.uki.sign import sign_program
from tests.emulator import Heard, emulator
from tests.image.uki.test_uki import own_key  # noqa: F401 (a fixture)
from tests.tools import INSTALL, installed, lab_tools, missing

OVMF = "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd"
CONSOLE = "console=ttyS0,115200"


@pytest.fixture(scope="module")
def tools() -> Tools:
    return lab_tools()


@pytest.fixture(scope="module")
def program(built: Built, request_of_tests: BuildRequest) -> bytes:
    """The UKI of the built image, not signed."""
    stub = Path(STUBS["x86_64"])
    if not stub.is_file():
        missing(str(stub), INSTALL)
    manifest = check_image(built.folder, request_of_tests.public_key, contents=False).manifest
    parts = store.part_files(built.folder)
    kernel, stage1 = parts["kernel"].read_bytes(), parts["stage1"].read_bytes()
    return build_uki(stub.read_bytes(), manifest, kernel, stage1, [CONSOLE, *EMULATED_KERNEL_ARGUMENTS])


def altered(signed: bytes) -> bytes:
    """Somebody has put another word into the command line, of the same length."""
    assert signed.count(CONSOLE.encode()) == 1
    return signed.replace(CONSOLE.encode(), b"rdinit=/bin/busybox".ljust(len(CONSOLE)))


@contextmanager
def machine(
    tools: Tools, folder: Path, disks: Mapping[str, bytes], keys: bytes | None, revoked: str = ""
) -> Iterator[Heard]:
    """A machine with these EFI programs, each on a disk of its name, in that order. keys: certificate (DER) that its
    firmware trusts; None if nobody has enrolled any. revoked: digest in its dbx."""
    variables = tools.path(BOARDS["x86_64"].variables).read_bytes()
    if keys is not None:
        variables = enrol_keys(variables, keys, revoked=[revoked] if revoked else [])
    (folder / "variables.fd").write_bytes(variables)
    drives: list[str] = []
    for number, (name, content) in enumerate(disks.items()):
        place = folder / name / "EFI/BOOT"
        place.mkdir(parents=True)
        (place / "BOOTX64.EFI").write_bytes(content)
        drives += ["-drive", f"file=fat:{folder / name},format=raw,if=none,id={name},readonly=on"]
        drives += ["-device", f"virtio-blk-pci,drive={name},bootindex={number}"]
    qemu = tools.command(
        [
            *("qemu-system-x86_64", "-machine", "q35,smm=on,graphics=off", *processors("tcg", 1)),
            *("-m", "512", "-nodefaults", "-display", "none"),
            # Variables are written in system management mode alone: the system that runs cannot change keys.
            *("-global", "driver=cfi.pflash01,property=secure,value=on"),
            *("-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={OVMF}"),
            *("-drive", f"if=pflash,unit=1,format=raw,file={folder / 'variables.fd'}"),
            *("-nic", "none", "-serial", "stdio", "-no-reboot", *drives),
        ],
        binds=[folder],
    )
    heard = Heard()
    with emulator(qemu, heard):
        yield heard


def outcomes(console: list[str]) -> list[str]:
    """What became of each disk, in the order in which the firmware tried them."""
    tried = [
        re.search(r"BdsDxe: (starting|failed to load) Boot[0-9A-F]{4} .*?(Access Denied)?\s*$", line)
        for line in console
    ]
    return [found[2] or found[1] for found in tried if found is not None]


def test_firmware_refuses_what_is_unsigned_altered_or_revoked_and_starts_what_the_site_signed(
    tools: Tools,
    program: bytes,
    own_key: tuple[Path, Path],  # noqa: F811
    tmp_path: Path,
) -> None:
    installed("sbsign")
    signed = sign_program(program, *own_key)
    old = sign_program(program.replace(CONSOLE.encode(), b"console=ttyS0,9600  "), *own_key)
    certificate = x509.load_pem_x509_certificate(own_key[1].read_bytes()).public_bytes(Encoding.DER)
    disks = {"unsigned": program, "altered": altered(signed), "old": old, "signed": signed}
    with machine(
        tools, tmp_path, disks, certificate, revoked=authenticode_sha256(old).removeprefix("sha256:")
    ) as heard:
        # Its command line names no server: that stage-1 complains of it shows that kernel, stage-1 and line are ours.
        heard.line("kernel argument provisioner.server")
    assert outcomes(heard.console) == ["Access Denied"] * 3 + ["starting"], "\n".join(heard.console)


def test_the_same_firmware_without_keys_starts_the_unsigned_one(tools: Tools, program: bytes, tmp_path: Path) -> None:
    """Else the test above would say nothing of keys."""
    with machine(tools, tmp_path, {"unsigned": program}, None) as heard:
        heard.line("BdsDxe: starting Boot")
    assert outcomes(heard.console) == ["starting"]
