"""Which PCI devices are BlueField cards. Ids: mlx5_core_pci_table of Linux, and pci.ids."""

from __future__ import annotations

from pathlib import Path

from provisioner.network.agent.card.configure import MOST_CARDS, BlueField, find_bluefields


def plug(bus: Path, address: str, vendor: str, device: str) -> None:
    (bus / address).mkdir()
    (bus / address / "vendor").write_text(f"{vendor}\n")
    (bus / address / "device").write_text(f"{device}\n")


def test_each_card_is_known_by_the_first_of_its_network_functions(tmp_path: Path) -> None:
    for address, device in (
        ("0000:03:00.0", "0xa2d6"),
        ("0000:03:00.1", "0xa2d6"),
        ("0000:03:00.2", "0xc2d3"),  # its DMA controller
        ("0001:04:00.1", "0xa2dc"),
        ("0002:05:00.0", "0x1021"),  # ConnectX-7, which is no BlueField
    ):
        plug(tmp_path, address, "0x15b3", device)
    plug(tmp_path, "0003:06:00.0", "0x8086", "0xa2d6")
    assert find_bluefields(tmp_path) == (
        BlueField("0000:03:00.0", "BlueField-2"),
        BlueField("0001:04:00.1", "BlueField-3"),
    )


def test_a_machine_without_a_pci_bus_has_none(tmp_path: Path) -> None:
    assert find_bluefields(tmp_path / "devices") == ()


def test_a_device_that_has_just_gone_and_what_is_no_device_are_passed_by(tmp_path: Path) -> None:
    (tmp_path / "0000:03:00.0").mkdir()
    plug(tmp_path, "0000:03:00.0;reboot", "0x15b3", "0xa2dc")
    plug(tmp_path, "0000:04:00.0", "0x15b3", "0xa2dc")
    assert [each.address for each in find_bluefields(tmp_path)] == ["0000:04:00.0"]


def test_of_a_bus_full_of_cards_so_many_are_looked_at(tmp_path: Path) -> None:
    for number in range(MOST_CARDS + 2):
        plug(tmp_path, f"0000:{number:02x}:00.0", "0x15b3", "0xa2dc")
    assert len(find_bluefields(tmp_path)) == MOST_CARDS
