"""What is in the machine against what its pool and its registration expect. Pure.

What the pool does not expect is not looked at; the registered network interfaces always are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.facts import InfinibandPortFacts, NodeFacts, PciFacts
from provisioner.api.pools.pool_settings import ExpectedGpus, ExpectedInfiniband, ExpectedInventory
from provisioner.api.servers.server import Server
from provisioner.health.checks.finding import Finding, fine, wrong

_MIB = 1024 * 1024


def check_hardware(server: Server, expected: ExpectedInventory, facts: NodeFacts) -> Iterator[Finding]:
    """One finding for each part that is expected."""
    if expected.cpus is not None:
        yield _processors(expected.cpus, facts)
    if expected.memory_mib is not None:
        yield _memory(expected.memory_mib, facts)
    yield _interfaces(server, expected.nics, facts)
    if expected.disks is not None:
        yield _disks(expected.disks, facts)
    if expected.gpus is not None:
        yield _gpus(expected.gpus, facts)
    if expected.infiniband is not None:
        yield _infiniband(expected.infiniband, facts)


def _processors(expected: int, facts: NodeFacts) -> Finding:
    if facts.cpus == expected:
        return fine("Processors", f"{expected} logical processors")
    return wrong(
        "Processors",
        "WrongCount",
        observed=f"{facts.cpus} logical processors",
        expected=f"{expected}",
        remedy="look for a dead socket or changed firmware settings (SMT, core disable) in the BMC's log, or correct "
        "the pool's spec.verification.expected.cpus",
        patience_seconds=0.0,
    )


def _memory(expected_mib: int, facts: NodeFacts) -> Finding:
    found = facts.memory_bytes // _MIB
    if found >= expected_mib:
        return fine("Memory", f"{found} MiB of memory")
    return wrong(
        "Memory",
        "TooLittle",
        observed=f"{found} MiB of memory",
        expected=f"at least {expected_mib} MiB",
        remedy="look for a failed or mapped-out module in the BMC's log and replace it, or correct the pool's "
        "spec.verification.expected.memoryMib",
        patience_seconds=0.0,
    )


def _interfaces(server: Server, expected: int | None, facts: NodeFacts) -> Finding:
    """The registered MAC addresses are there, and as many interfaces with a PCI device as the pool expects."""
    registered = {server.spec.boot_mac_address: "the boot interface"}
    registered |= {each.mac_address: f"interface {each.name}" for each in server.spec.interfaces}
    present = {nic.mac_address.lower() for nic in facts.nics}
    missing = [f"{mac} ({what})" for mac, what in registered.items() if mac not in present]
    if missing:
        return wrong(
            "Interfaces",
            "Missing",
            observed=f"no interface has {', '.join(missing)}; there are {', '.join(sorted(present)) or 'none'}",
            expected="every registered interface",
            remedy="reseat or replace the card, or register the address of the new one in the server's spec",
        )
    count = sum(1 for nic in facts.nics if nic.pci_address is not None)
    if expected is not None and count < expected:
        return wrong(
            "Interfaces",
            "TooFew",
            observed=f"{quantity(count, 'network interface')} with a PCI device",
            expected=f"at least {expected}",
            remedy="look for a card that is missing on PCI or has no driver (on the node: lspci -k), or correct the "
            "pool's spec.verification.expected.nics",
        )
    return fine("Interfaces", f"{quantity(len(registered), 'registered interface')} found, {count} with a PCI device")


def _disks(expected: int, facts: NodeFacts) -> Finding:
    names = ", ".join(disk.name for disk in facts.disks) or "none"
    if len(facts.disks) >= expected:
        return fine("Disks", f"{quantity(len(facts.disks), 'disk')} ({names})")
    return wrong(
        "Disks",
        "TooFew",
        observed=f"{quantity(len(facts.disks), 'disk')} ({names})",
        expected=f"at least {expected}",
        remedy="reseat or replace the missing disk, or correct the pool's spec.verification.expected.disks",
    )


def expected_gpus(expected: ExpectedGpus, facts: NodeFacts) -> tuple[list[PciFacts], list[PciFacts]]:
    """All GPUs of that vendor that are on PCI, and those that are expected."""
    of_vendor = [each for each in facts.pci if each.class_id.startswith("03") and each.vendor_id == expected.vendor_id]
    return of_vendor, [each for each in of_vendor if expected.device_id in (None, each.device_id)]


def _gpus(expected: ExpectedGpus, facts: NodeFacts) -> Finding:
    wanted = f"{expected.vendor_id}:{expected.device_id or '*'}"
    of_vendor, gpus = expected_gpus(expected, facts)
    if len(gpus) != expected.count:
        return wrong(
            "GPUs",
            "WrongCount",
            observed=f"{quantity(len(gpus), 'GPU')} {wanted} on PCI (of this vendor: {_by_device(of_vendor)})",
            expected=f"{expected.count} of {wanted}",
            remedy="look for a GPU that fell off the bus (on the node: dmesg | grep -i xid; lspci -nn), power-cycle "
            "the server, replace the GPU, or correct the pool's spec.verification.expected.gpus",
        )
    bare = [each.address for each in gpus if each.driver is None]
    if bare:
        return wrong(
            "GPUs",
            "NoDriver",
            observed=f"no driver is bound to {', '.join(bare)}",
            expected=f"a driver on each of {quantity(len(gpus), 'GPU')}",
            remedy="see why the driver did not load (on the node: dmesg; lsmod), or publish an image that has it",
        )
    return fine("GPUs", f"{quantity(len(gpus), 'GPU')} {wanted}" + (f", driver {_drivers(gpus)}" if gpus else ""))


def _by_device(functions: list[PciFacts]) -> str:
    counts = Counter(f"{each.vendor_id}:{each.device_id}" for each in functions)
    return ", ".join(f"{count} × {device}" for device, count in sorted(counts.items())) or "none"


def _drivers(functions: list[PciFacts]) -> str:
    return ", ".join(sorted({each.driver for each in functions if each.driver is not None}))


def _infiniband(expected: ExpectedInfiniband, facts: NodeFacts) -> Finding:
    # RoCE ports are in the same place of sysfs, with Ethernet as their link layer.
    ports = [port for port in facts.infiniband_ports if port.link_layer in (None, "InfiniBand")]
    if len(ports) != expected.ports:
        return wrong(
            "InfiniBand",
            "WrongCount",
            observed=f"{quantity(len(ports), 'port')} ({', '.join(_port(port) for port in ports) or 'none'})",
            expected=f"{expected.ports}",
            remedy="look for an adapter that is missing on PCI (on the node: lspci | grep -i mellanox), or correct the "
            "pool's spec.verification.expected.infiniband",
        )
    down = [port for port in ports if expected.state not in ("Any", port.state)]
    if down:
        return wrong(
            "InfiniBand",
            "WrongState",
            observed=", ".join(f"{_port(port)} is {port.state}" for port in down),
            expected=f"every port {expected.state}",
            remedy="check cable, transceiver and switch port; INIT on every port means that no subnet manager runs",
        )
    slow = [port for port in ports if expected.rate_gbps is not None and (port.rate_gbps or 0) < expected.rate_gbps]
    if slow:
        return wrong(
            "InfiniBand",
            "TooSlow",
            observed=", ".join(f"{_port(port)} runs at {port.rate_gbps or 'no'} Gb/s" for port in slow),
            expected=f"at least {expected.rate_gbps} Gb/s on every port",
            remedy="clean or replace cable and transceiver (on the node: ibstat, mlxlink)",
        )
    return fine("InfiniBand", f"{quantity(len(ports), 'port')} as expected")


def _port(port: InfinibandPortFacts) -> str:
    return f"{port.device}/{port.port}"
