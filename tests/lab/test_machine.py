"""QEMU's command line, whole: each of its words is there because something failed without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.api.server import Architecture
from provisioner.api.values import parse_mac
from provisioner.lab.machine.machine import (
    NETWORK_BOOT,
    Accelerator,
    BootPlan,
    Firmware,
    MachineFiles,
    MachineSpec,
    efi_variables,
    qemu_command,
)
from tests.golden_files import assert_golden
from tests.lab.test_nvram import empty_store, read_variables

FILES = MachineFiles(directory=Path("/lab/r01-u01"))


def spec(firmware: Firmware, architecture: Architecture = "x86_64") -> MachineSpec:
    return MachineSpec(
        name="r01-u01",
        architecture=architecture,
        firmware=firmware,
        mac=parse_mac("52:54:00:a2:65:01"),
        uuid="49ec4c21-3ae1-4901-866a-115bcf0fdb27",
        serial="LAB,1",
    )


@pytest.mark.parametrize(
    ("name", "firmware", "plan", "accelerator"),
    [
        ("bios-pxe-tcg", "BIOS", NETWORK_BOOT, "tcg"),
        ("bios-hdd-tcg", "BIOS", BootPlan(source="Hdd"), "tcg"),
        ("uefi-pxe-tcg", "UEFI", NETWORK_BOOT, "tcg"),
        ("uefi-hdd-tcg", "UEFI", BootPlan(source="Hdd"), "tcg"),
        ("uefi-pxe-kvm", "UEFI", NETWORK_BOOT, "kvm"),
    ],
)
def test_the_whole_command_line(name: str, firmware: Firmware, plan: BootPlan, accelerator: Accelerator) -> None:
    argv = qemu_command(spec(firmware), plan, FILES, tap="tap-r01-u01", accelerator=accelerator)
    lines = [f"\n{word}" if word.startswith("-") else f" {word}" for word in argv]
    assert_golden(f"lab/{name}.txt", "".join(lines).strip() + "\n")


@pytest.mark.parametrize("accelerator", ["tcg", "kvm"])
def test_an_arm64_machine_is_another_board_and_never_under_the_kvm_of_this_one(accelerator: Accelerator) -> None:
    argv = qemu_command(spec("UEFI", "arm64"), NETWORK_BOOT, FILES, tap="tap-r01-u01", accelerator=accelerator)
    lines = [f"\n{word}" if word.startswith("-") else f" {word}" for word in argv]
    assert_golden("lab/arm64-pxe-tcg.txt", "".join(lines).strip() + "\n")


def test_http_boot_differs_from_pxe_by_the_variables_alone() -> None:
    http = BootPlan(source="UefiHttp", http_boot_uri="http://10.80.0.1/snponly.efi")
    commands = [qemu_command(spec("UEFI"), plan, FILES, tap="t", accelerator="tcg") for plan in (http, NETWORK_BOOT)]
    assert commands[0] == commands[1]
    template = empty_store()
    by_http = read_variables(efi_variables(spec("UEFI"), http, template))["Boot0000"]
    by_pxe = read_variables(efi_variables(spec("UEFI"), NETWORK_BOOT, template))["Boot0000"]
    assert b"http://10.80.0.1/snponly.efi" in by_http
    assert b"http" not in by_pxe.lower()


def test_a_server_that_shall_boot_from_its_disk_gets_no_boot_option_of_ours() -> None:
    template = empty_store()
    assert efi_variables(spec("UEFI"), BootPlan(source="Hdd"), template) == template
