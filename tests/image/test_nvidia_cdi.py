"""The unit that writes the CDI specification: its script, run with a fake nvidia-ctk and machines that are folders."""

from __future__ import annotations

import configparser
import os
import subprocess
from pathlib import Path

import pytest

from tests.image.samples import RECIPE

pytestmark = pytest.mark.programs

SCRIPT = RECIPE / "tree/usr/lib/provisioner/nvidia-cdi"
GPU, AUDIO, NIC = ("0x10de", "0x030200"), ("0x10de", "0x040300"), ("0x15b3", "0x020700")

FAKE_CTK = """#!/bin/sh
echo "$@" >>"$SAID"
[ -z "${FAILS-}" ] || case $* in *generate*) exit 1 ;; esac
for word; do case $word in --output=*) echo 'cdiVersion: "0.5.0"' >"${word#--output=}" ;; esac; done
"""


class Machine:
    """A machine's PCI functions, and what came of its boot."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.devices = folder / "sys/bus/pci/devices"
        self.devices.mkdir(parents=True)
        self.target = folder / "nvidia.yaml"
        self.said = folder / "said"
        (folder / "bin").mkdir()
        (folder / "bin/nvidia-ctk").write_text(FAKE_CTK)
        (folder / "bin/nvidia-ctk").chmod(0o755)

    def has(self, address: str, kind: tuple[str, str], driver: str | None) -> Machine:
        device = self.devices / address
        device.mkdir()
        for name, content in zip(("vendor", "class"), kind, strict=True):
            (device / name).write_text(content + "\n")
        if driver is not None:
            (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
        return self

    def boots(self, **environment: str) -> subprocess.CompletedProcess[str]:
        own = {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "SYSFS": str(self.folder / "sys"),
            "TARGET": str(self.target),
            "SAID": str(self.said),
        }
        return subprocess.run(
            ["sh", SCRIPT], env=own | environment, capture_output=True, text=True, check=False, timeout=300
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_without_a_gpu_says_so_and_goes_on(machine: Machine) -> None:
    machine.has("0000:01:00.0", NIC, "mlx5_core").has("0000:02:00.1", AUDIO, None)
    done = machine.boots()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "this machine has no NVIDIA GPU: no CDI specification is needed\n"
    assert not machine.target.exists()
    assert not machine.said.exists(), "the toolkit is not even asked"


def test_a_machine_without_a_pci_bus_goes_on_too(machine: Machine) -> None:
    machine.devices.rmdir()
    assert machine.boots().returncode == 0


def test_the_specification_is_written_for_gpus_that_have_their_driver(machine: Machine) -> None:
    machine.has("0000:1b:00.0", GPU, "nvidia").has("0000:43:00.0", GPU, "nvidia")
    done = machine.boots()
    assert (done.returncode, done.stdout) == (0, "CDI specification written for GPUs 0000:1b:00.0 0000:43:00.0\n")
    assert machine.target.read_text() == 'cdiVersion: "0.5.0"\n'
    (said,) = machine.said.read_text().splitlines()
    assert said.startswith("cdi generate --mode=nvml ")
    assert "--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook" in said
    assert f"--output={machine.target}.new" in said, "containerd never reads half of one"
    assert [path.name for path in machine.folder.glob("*.new")] == []


def test_a_gpu_whose_driver_did_not_load_fails_the_unit_with_words(machine: Machine) -> None:
    done = machine.has("0000:1b:00.0", GPU, None).boots()
    assert done.returncode == 1
    assert (
        "observed: no driver for 0000:1b:00.0; expected: nvidia; remedy: journalctl -u provisioner-gpu" in done.stderr
    )
    assert not machine.target.exists()


def test_one_gpu_that_failed_does_not_take_the_others_away(machine: Machine) -> None:
    machine.has("0000:1b:00.0", GPU, None).has("0000:43:00.0", GPU, "nvidia")
    done = machine.boots()
    assert (done.returncode, done.stdout) == (0, "CDI specification written for GPUs 0000:43:00.0\n")
    assert "no driver for 0000:1b:00.0" in done.stderr


def test_gpus_of_virtual_machines_are_left_alone(machine: Machine) -> None:
    done = machine.has("0000:1b:00.0", GPU, "vfio-pci").boots()
    assert done.returncode == 0
    assert not machine.target.exists()


def test_a_toolkit_that_fails_leaves_no_specification(machine: Machine) -> None:
    done = machine.has("0000:1b:00.0", GPU, "nvidia").boots(FAILS="yes")
    assert done.returncode != 0
    assert not machine.target.exists()


def test_nothing_of_the_boot_waits_for_the_unit() -> None:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(RECIPE / "tree/etc/systemd/system/nvidia-cdi.service")
    assert "Before" not in parser["Unit"]
    assert parser["Unit"]["After"].split() == ["provisioner-gpu.service", "nvidia-persistenced.service"]
    assert (RECIPE / "driver/usr/lib/systemd/system/provisioner-gpu.service").exists(), "which the driver's layer has"
    assert int(parser["Service"]["TimeoutStartSec"]) <= 300, "what hangs is ended"
    for each in (RECIPE.parent / "node/tree/etc/systemd/system").glob("*.service"):
        assert "nvidia-cdi" not in each.read_text(), each.name
    assert SCRIPT.stat().st_mode & 0o100
