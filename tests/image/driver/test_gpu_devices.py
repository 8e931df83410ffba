"""What a node does at its boot about GPUs: it says what it found, and no boot waits for a GPU that is not there."""

from __future__ import annotations

import configparser
import os
import subprocess
from pathlib import Path

import pytest

from provisioner.image.driver.layer import render_modprobe
from provisioner.image.recipe import read_recipe
from tests.image.samples import RECIPE

pytestmark = pytest.mark.programs

LAYER = RECIPE / "driver"
UNITS = LAYER / "usr/lib/systemd/system"
SCRIPT = LAYER / "usr/lib/provisioner/gpu-devices"


class Machine:
    """/sys, /proc and /dev of a machine, and fakes of the two programs that the script runs."""

    def __init__(self, folder: Path) -> None:
        self.root, self.programs = folder / "root", folder / "programs"
        for made in ("sys/bus/pci/devices", "dev", "proc"):
            (self.root / made).mkdir(parents=True)
        self.programs.mkdir()
        self.modprobe("mkdir -p $ROOT/sys/module/nvidia; echo 550.163.01 >$ROOT/sys/module/nvidia/version")
        self.program(
            "nvidia-modprobe",
            'case "$1 $2" in "-c 255") n=ctl ;; "-u -c") n=-uvm ;; *) n=$2 ;; esac; : >$ROOT/dev/nvidia$n',
        )

    def device(self, address: str, vendor: str, kind: str, minor: int | None = None) -> None:
        folder = self.root / "sys/bus/pci/devices" / address
        folder.mkdir()
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
        if minor is not None:
            information = self.root / "proc/driver/nvidia/gpus" / address / "information"
            information.parent.mkdir(parents=True)
            information.write_text(f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\n")

    def program(self, name: str, text: str) -> None:
        (self.programs / name).write_text(f"#!/bin/sh\necho {name} $* >>$ROOT/said\n{text}\n")
        (self.programs / name).chmod(0o755)

    def modprobe(self, text: str) -> None:
        self.program("modprobe", text)

    def run(self) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{self.programs}:{os.environ['PATH']}", "ROOT": str(self.root)}
        return subprocess.run(
            ["sh", str(SCRIPT), str(self.root)], env=environment, capture_output=True, text=True, check=False
        )

    @property
    def said(self) -> list[str]:
        file = self.root / "said"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_without_a_gpu_loads_nothing_and_has_succeeded(machine: Machine) -> None:
    machine.device("0000:00:01.0", "0x1af4", "0x020000")
    machine.device("0000:00:02.0", "0x1a03", "0x030000")
    machine.device("0000:81:00.1", "0x10de", "0x040300")
    ran = machine.run()
    assert (ran.returncode, ran.stderr, machine.said) == (0, "", [])
    assert ran.stdout == "gpu-devices: no NVIDIA GPU on the PCI bus: the driver is not loaded\n"


def test_a_gpu_that_is_given_to_a_virtual_machine_is_left_alone(machine: Machine) -> None:
    machine.device("0000:81:00.0", "0x10de", "0x030200")
    (machine.root / "sys/bus/pci/devices/0000:81:00.0/driver").symlink_to("../../../bus/pci/drivers/vfio-pci")
    assert (machine.run().returncode, machine.said) == (0, [])
    machine.device("0000:01:00.0", "0x10de", "0x030000", minor=0)
    (machine.root / "sys/bus/pci/devices/0000:01:00.0/driver").symlink_to("../../../bus/pci/drivers/nvidia")
    assert "device nodes of 1 GPUs" in machine.run().stdout


def test_every_gpu_gets_its_node_by_the_number_that_the_driver_gives(machine: Machine) -> None:
    machine.device("0000:81:00.0", "0x10de", "0x030200", minor=1)
    machine.device("0000:01:00.0", "0x10de", "0x030200", minor=0)
    ran = machine.run()
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "gpu-devices: driver 550.163.01 is loaded, with device nodes of 2 GPUs\n"
    assert machine.said == [
        "modprobe --all nvidia nvidia-uvm",
        "nvidia-modprobe -c 255",
        "nvidia-modprobe -c 0",
        "nvidia-modprobe -c 1",
        "nvidia-modprobe -u -c 0",
    ]


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service", "module-signing.der"),
        ("modprobe: ERROR: could not insert 'nvidia': No such device", "knows none of the machine's GPUs"),
        ("modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.12", "kernel and root of one image"),
        ("modprobe: ERROR: could not insert 'nvidia': Exec format error", "look at dmesg"),
    ],
)
def test_a_driver_that_does_not_load_is_told_with_its_remedy(machine: Machine, words: str, remedy: str) -> None:
    machine.device("0000:81:00.0", "0x10de", "0x030200")
    machine.modprobe(f'echo "{words}" >&2; exit 1')
    ran = machine.run()
    assert ran.returncode == 1
    assert f"observed  modprobe says: {words}" in ran.stderr
    assert "for 1 GPUs" in ran.stderr
    assert remedy in ran.stderr.split("remedy")[1]


def test_a_gpu_that_the_driver_does_not_have_is_told(machine: Machine) -> None:
    machine.device("0000:81:00.0", "0x10de", "0x030200", minor=0)
    machine.device("0000:82:00.0", "0x10de", "0x030200")
    ran = machine.run()
    assert ran.returncode == 1
    assert "observed  1 of 2 GPUs have a device node" in ran.stderr


def test_a_device_node_that_is_not_made_is_told(machine: Machine) -> None:
    machine.device("0000:81:00.0", "0x10de", "0x030200", minor=0)
    machine.program("nvidia-modprobe", "true")
    assert "observed  there is no /dev/nvidiactl" in machine.run().stderr
    machine.program("nvidia-modprobe", "exit 1")
    assert "observed  nvidia-modprobe -c 255 failed" in machine.run().stderr


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNITS / name)
    return parser


def test_no_unit_of_the_driver_can_keep_a_node_from_starting() -> None:
    gpu, persistenced = unit("provisioner-gpu.service"), unit("nvidia-persistenced.service")
    driver = read_recipe(RECIPE).driver
    assert driver is not None
    assert {target for target, _ in driver.enable} == {"multi-user.target"}, "wanted, not required"
    assert "kubelet.service" not in gpu["Unit"].get("Before", "")
    assert all(int(each["Service"]["TimeoutStartSec"]) <= 180 for each in (gpu, persistenced))
    assert persistenced["Unit"]["ConditionPathExists"] == "/dev/nvidiactl"
    assert gpu["Service"]["ExecStart"] == "/usr/lib/provisioner/gpu-devices"
    assert os.access(SCRIPT, os.X_OK)


def test_the_persistence_daemon_is_nobody() -> None:
    service = unit("nvidia-persistenced.service")["Service"]
    assert service["DynamicUser"] == "yes"
    assert "--user" not in service["ExecStart"]
    assert service["PIDFile"].startswith(f"/run/{service['RuntimeDirectory']}/")


def test_modprobe_is_told_options_and_what_may_not_be_loaded_with_reasons() -> None:
    driver = read_recipe(RECIPE).driver
    assert driver is not None
    lines = render_modprobe(driver).splitlines()
    assert "blacklist nouveau" in lines
    assert "options nvidia NVreg_RestrictProfilingToAdminUsers=1" in lines
    assert all(line.startswith(("# ", "options nvidia NVreg_", "blacklist ")) for line in lines)
