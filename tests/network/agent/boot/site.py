"""A DPU whose host boots through it, and the namespace of the boot host on the underlay."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

from provisioner.api.network.dpu_network import DPUNetworkSpec, HostBoot
from provisioner.network.agent.boot.plane import BootServices
from provisioner.network.agent.enforce import Enforced, Enforcer
from tests.network.agent.rack import DPU, Host, Namespace, Rack, mac_of
from tests.network.agent.specs import ONE

BOOT_HOST, HOST_ADDRESS = "192.0.2.10", "192.0.2.21"
SERVICES = BootServices(IPv4Address(BOOT_HOST), IPv4Address(BOOT_HOST))
PLANE_MAC = "02:00:5e:00:01:01"


def boots(function: str = "pf0", vtep: str = ONE, address: str = HOST_ADDRESS) -> HostBoot:
    return HostBoot(server="r01-u01", function=function, mac_address=mac_of(vtep, function), address=address)


class Site:
    """One DPU with ports pf0, by which its host boots, and pf1; the boot host is `far`, on the underlay."""

    def __init__(self, network: Rack, services: BootServices = SERVICES) -> None:
        self.rack = network
        self.dpu: DPU = network.dpu(ONE, ("pf0", "pf1"))
        self.far: Namespace = network.namespace("boot")
        network.on_underlay(self.far, "eth0", BOOT_HOST)
        self.services = services
        self.in_vpc = False
        self.enforcer = Enforcer(self.dpu.ports, domains="netns", boot=services)

    @property
    def host(self) -> Host:
        return self.dpu.hosts["pf0"]

    def plane(self) -> str:
        return f"vpc-boot.{self.dpu.name}"

    def enforce(self, spec: DPUNetworkSpec) -> Enforced:
        return self.dpu.inside(lambda: self.enforcer.enforce(spec))

    def take_boot_address(self, prefix_length: int = 24) -> None:
        """As stage-1 does."""
        self.host.ip("addr", "replace", f"{HOST_ADDRESS}/{prefix_length}", "dev", "eth0")


def told(*, vpcs: tuple[Any, ...] = (), ports: tuple[Any, ...] = (), host_boot: HostBoot | None) -> DPUNetworkSpec:
    return DPUNetworkSpec(vtep_address=ONE, vpcs=vpcs, ports=ports, host_boot=host_boot)
