"""QEMU's command line, whole: each of its words is there because something failed without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.machine.machine import (
    NETWORK_BOOT,
    Accelerator,
    BootPlan,
    Firmware,
    MachineFiles,
    MachineSpec,
    efi_variables,
    qemu_command,
)
from provisioner.api.machinery.values import parse_mac
from provisioner.api.servers.server import Architecture
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


@pytest.mark.parametrize(("architecture", "device"), [("x86_64", "tpm-crb"), ("arm64", "tpm-tis-device")])
def test_the_tpm_is_the_boards_kind_and_can_be_left_out(architecture: Architecture, device: str) -> None:
    having = spec("UEFI", architecture)
    with_tpm, without = (
        qemu_command(each, NETWORK_BOOT, FILES, tap="t", accelerator="tcg")
        for each in (having, replace(having, has_tpm=False))
    )
    assert [word for word in with_tpm if word not in without] == [
        "socket,id=tpm,path=/lab/r01-u01/tpm.sock",
        "-tpmdev",
        "emulator,id=tpm0,chardev=tpm",
        f"{device},tpmdev=tpm0",
    ]
    assert not [word for word in without if "tpm" in word]


def test_a_dpu_has_a_second_card_that_leads_to_its_host_and_is_not_booted_from() -> None:
    dpu = replace(spec("UEFI", "arm64"), host_port_mac=parse_mac("52:54:01:a2:65:01"))
    plain, argv = (
        qemu_command(each, NETWORK_BOOT, FILES, tap="t", accelerator="tcg", host_port_tap="port")
        for each in (spec("UEFI", "arm64"), dpu)
    )
    added = [word for word in argv if word not in plain]
    assert added == [
        "tap,id=net1,ifname=port,script=no,downscript=no",
        "virtio-net-pci,netdev=net1,mac=52:54:01:a2:65:01,addr=4,disable-legacy=on,romfile=,ctrl_rx=off",
    ]
    assert (Path(__file__).parents[2] / "images/dpu/tree/etc/systemd/network/10-host-port.link").read_text().count(
        ":00:04.0\n"
    ) == 1


def test_a_server_that_waits_for_another_tries_the_network_again_and_again() -> None:
    patient = replace(spec("UEFI"), boot_attempts=3)
    variables = read_variables(efi_variables(patient, NETWORK_BOOT, empty_store()))
    assert variables["BootOrder"] == bytes([0, 0, 1, 0, 2, 0])
    assert variables["Boot0000"] == variables["Boot0002"]


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
