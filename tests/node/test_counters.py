"""Faults by counters of network and InfiniBand ports, over a made-up sysfs."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.node.machine.counters import (
    CARRIER_CHANGES,
    LINK_DOWNED,
    MOST_DEVICES,
    SYMBOL_ERROR,
    WINDOW_SECONDS,
    PortCounters,
)
from tests.node.made_machine import add_infiniband_port, add_nic, add_pci, make_machine, write

NOW = 1767225600.0
PORT = "sys/class/infiniband/mlx5_0/ports/1/counters"


class Ports:
    """A machine with one interface and one InfiniBand port, and the agent that looks at them."""

    def __init__(self, root: Path) -> None:
        self.root = make_machine(root)
        card = add_pci(root, "0000:18:00.0", "0x020000", ("0x15b3", "0x1021"), "mlx5_core")
        add_nic(root, "eth0", "52:54:00:00:00:01", card)
        add_nic(root, "veth1", "52:54:00:00:00:02", None)
        add_infiniband_port(root, "mlx5_0", 1, "4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand")
        self.counters = PortCounters(str(root))
        self.now = NOW

    def look(self, **values: int) -> list[tuple[str, str, int]]:
        for name, value in values.items():
            path = f"sys/class/net/{name}/carrier_changes" if name in ("eth0", "veth1") else f"{PORT}/{name}"
            write(self.root, path, f"{value}\n")
        self.counters.look(self.now)
        return [(each["device"], each["code"], each["count"]) for each in self.counters.faults]


@pytest.fixture
def ports(tmp_path: Path) -> Ports:
    return Ports(tmp_path)


def test_what_was_counted_before_the_agent_looked_is_no_fault(ports: Ports) -> None:
    assert ports.look(eth0=900, link_downed=80, symbol_error=65535, link_error_recovery=255) == []
    assert ports.look() == []


def test_a_link_that_comes_and_goes_is_a_fault_from_the_third_loss_on(ports: Ports) -> None:
    ports.look(eth0=2)
    assert ports.look(eth0=2 + CARRIER_CHANGES.least - 1) == [], "a switch was restarted"
    assert ports.look(eth0=2 + CARRIER_CHANGES.least) == [("eth0", "LinkFlapping", CARRIER_CHANGES.least)]
    assert ports.look(eth0=102) == [("eth0", "LinkFlapping", 100)]
    (fault,) = ports.counters.faults
    assert (fault["source"], fault["component"], fault["severity"]) == ("Counters", "NIC", "Degraded")
    assert fault["time"] == "2026-01-01T00:00:00Z"


def test_an_interface_of_software_has_no_faults(ports: Ports) -> None:
    ports.look(veth1=0)
    assert ports.look(veth1=1000) == []


def test_a_bad_infiniband_port_is_a_fault_and_one_restart_of_its_switch_is_none(ports: Ports) -> None:
    ports.look(link_downed=0, symbol_error=0, link_error_recovery=0)
    assert ports.look(link_downed=1, symbol_error=SYMBOL_ERROR.least - 1, link_error_recovery=1) == []
    assert ports.look(link_downed=LINK_DOWNED.least, symbol_error=200, link_error_recovery=6) == [
        ("mlx5_0/1", "LinkDowned", 2),
        ("mlx5_0/1", "SymbolErrors", 200),
        ("mlx5_0/1", "LinkErrorRecovery", 6),
    ]


def test_a_counter_that_is_reset_keeps_what_was_told_and_counts_on(ports: Ports) -> None:
    ports.look(symbol_error=50)
    assert ports.look(symbol_error=250) == [("mlx5_0/1", "SymbolErrors", 200)]
    assert ports.look(symbol_error=0) == [("mlx5_0/1", "SymbolErrors", 200)]
    assert ports.look(symbol_error=30) == [("mlx5_0/1", "SymbolErrors", 230)]


def test_a_counter_that_cannot_be_read_is_left_out(ports: Ports) -> None:
    ports.look(symbol_error=0)
    write(ports.root, f"{PORT}/symbol_error", "N/A (no PMA)\n")
    assert ports.look() == []


def test_thousands_of_interfaces_are_not_all_remembered(ports: Ports) -> None:
    for number in range(300):
        card = add_pci(ports.root, f"0001:{number // 32:02x}:{number % 32:02x}.0", "0x020000", ("0x8086", "1"), "ice")
        add_nic(ports.root, f"p{number}", "52:54:00:00:00:03", card)
        write(ports.root, f"sys/class/net/p{number}/carrier_changes", "0\n")
    ports.look(eth0=0, symbol_error=0)
    assert len(ports.counters._base) == MOST_DEVICES + 1, "interfaces take no room from InfiniBand ports"
    assert ports.look(symbol_error=SYMBOL_ERROR.least)


def test_what_comes_seldom_is_no_fault_however_long_the_agent_runs(ports: Ports) -> None:
    ports.look(link_downed=0)
    for restarts in range(1, 5):
        ports.now += WINDOW_SECONDS + 60
        assert ports.look(link_downed=restarts) == []
    assert ports.look(link_downed=4 + LINK_DOWNED.least) == [("mlx5_0/1", "LinkDowned", LINK_DOWNED.least)]
    ports.now += 10 * WINDOW_SECONDS
    assert ports.look(), "a fault stays one"
