"""What udev is asked at the start of a system."""

from __future__ import annotations

from tests.image.test_join_cleanup import UNITS

NEEDED = {"acpi", "block", "cpu", "infiniband", "mem", "misc", "net", "nvme", "pci", "platform", "tpm", "usb", "virtio"}
"""Subsystems whose devices get a driver, a name or permissions from udev's rules."""


def drop_in(name: str) -> list[str]:
    text = (UNITS / f"{name}.d/10-provisioner.conf").read_text().replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_coldplug_replaces_the_packages_own_and_asks_every_device_that_can_have_a_driver() -> None:
    section, cleared, command = drop_in("systemd-udev-trigger.service")
    assert section == "[Service]"
    assert cleared == "ExecStart="  # without this both would run
    words = command.removeprefix("ExecStart=").split()
    assert words[:4] == ["-udevadm", "trigger", "--type=devices", "--action=add"]
    left_out = {word.partition("--subsystem-nomatch=")[2] for word in words[5:]}
    assert "" not in left_out
    assert not left_out & NEEDED
    assert not any("match" in word for word in words[:5])
