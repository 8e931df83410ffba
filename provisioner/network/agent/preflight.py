"""What of a spec cannot be enforced here, told before anything is changed: those ports are isolated, the others not."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from ipaddress import AddressValueError, IPv4Address
from typing import TypeVar

from provisioner.api.network.dpu_network import DPUVPC, DPUNetworkSpec, DPUPort, HostBoot
from provisioner.network.agent.boot.plane import BootingHost, NoPlane, read_host
from provisioner.network.agent.model.ports import Port, Prefix, UnreadableValue, read_port, read_prefix
from provisioner.network.agent.result import Problem
from provisioner.network.agent.situation import VXLAN_OVERHEAD_BYTES, DpuInputs

T = TypeVar("T")


@dataclass(frozen=True)
class Domain:
    """A VPC of the spec, read."""

    vni: int
    mtu_bytes: int
    remotes: tuple[tuple[str, tuple[Prefix, ...]], ...]
    members: tuple[str, ...]
    peers: tuple[int, ...]


@dataclass(frozen=True)
class EnforceableSpec:
    """What of a spec can be enforced: `ports` only those whose packets are to pass."""

    vtep: str
    domains: tuple[Domain, ...]
    ports: tuple[Port, ...]
    problems: tuple[Problem, ...]
    booting: BootingHost | None = None

    @property
    def functions(self) -> frozenset[str]:
        return frozenset(port.function for port in self.ports)

    def without_ports(self, functions: Collection[str]) -> EnforceableSpec:
        """Those are isolated."""
        return replace(self, ports=tuple(port for port in self.ports if port.function not in functions))


def examine(spec: DPUNetworkSpec, situation: DpuInputs) -> EnforceableSpec:
    """Pure. A VPC that cannot be read is left out with all its ports."""
    problems: list[Problem] = []
    if not _is_address(spec.vtep_address):
        functions = tuple(port.function for port in spec.ports)
        words = f"vtepAddress is {spec.vtep_address}, not an IPv4 address: every port is isolated"
        problem = Problem("SpecUnreadable", f"{words}; set the DPU's vtepAddress", functions, is_of_all=True)
        return EnforceableSpec("", (), (), (problem,))
    if situation.backend == "netns" and spec.vpcs and not situation.namespaces_are_shared:
        return EnforceableSpec(spec.vtep_address, (), (), (_hidden(spec),))
    if not situation.underlay.exists:
        problems.append(
            Problem(
                "UnderlayMissing",
                f"the interface {situation.underlay.device} that shall carry the underlay does not exist, so that its "
                "MTU is not known: see `ip link`, and start the agent with the --underlay that there is",
                is_of_all=True,
            )
        )
    if not situation.underlay.has_address:
        problems.append(
            Problem(
                "UnderlayAddressMissing",
                f"no interface has the DPU's address {spec.vtep_address}: nothing reaches another DPU until one has "
                "it; see `ip address` and the DPU's vtepAddress",
                is_of_all=True,
            )
        )
    domains = [each for vpc in spec.vpcs for each in _kept(_domain(vpc, spec, situation), problems)]
    known = {domain.vni: domain for domain in domains}
    wanted = {vpc.vni for vpc in spec.vpcs}
    ports: list[Port] = []
    for port in spec.ports:
        if port.vni not in wanted:
            problems.append(
                Problem(
                    "VPCMissing",
                    f"port {port.function} is in VNI {port.vni}, which is not among the vpcs of the spec: it is "
                    "isolated until the controller compiles both",
                    (port.function,),
                )
            )
        elif (missing := _missing(port, situation)) is not None:
            problems.append(missing)
        elif port.state == "Tenant" and port.vni in known:
            ports += _kept(_port(port, situation), problems)
    booting = [] if spec.host_boot is None else _kept(_booting(spec.host_boot, situation, ports), problems)
    # Both must name each other, and both must be there.
    peered = tuple(
        replace(each, peers=tuple(sorted({vni for vni in each.peers if vni in known and each.vni in known[vni].peers})))
        for each in domains
    )
    return EnforceableSpec(spec.vtep_address, peered, tuple(ports), tuple(problems), next(iter(booting), None))


def _kept(found: T | Problem, problems: list[Problem]) -> list[T]:
    """What was found; a problem goes to the others, and nothing is kept."""
    if isinstance(found, Problem):
        problems.append(found)
        return []
    return [found]


def _booting(said: HostBoot, situation: DpuInputs, ports: Sequence[Port]) -> BootingHost | Problem:
    """The host that boots through the DPU, whose port may or may not be in a VPC."""
    if situation.boot is None:
        return Problem(
            "BootServicesUnknown",
            f"Server {said.server} is to boot through this DPU, whose agent does not know of the boot host: start "
            "it with --boot-host and --api-server (its log says why the DPU's own boot does not tell it), or set "
            "spec.dpu.hostBoot of the DPU to Direct",
        )
    if said.function not in situation.interfaces or said.function not in situation.largest_mtus:
        told = f"Server {said.server} boots by {said.function}, whose interface does not exist"
        return Problem("PortMissing", f"{told}: see --port and `ip link`")
    try:
        found = read_host(said)
    except NoPlane as error:
        return Problem("SpecUnreadable", f"Server {said.server} cannot boot through this DPU: {error}")
    if found.address in (situation.boot.boot_host, situation.boot.api_server):
        return Problem(
            "SpecUnreadable",
            f"Server {said.server} has address {found.address} at boot, which is the boot host's or the API server's: "
            "correct --boot-host and --api-server, or give the server another address",
        )
    other = next((each.mac for each in ports if each.function == found.function and each.mac != found.mac), None)
    if other is not None:
        told = f"port {found.function} has MAC address {other} in its VPC and {found.mac} at boot: give it one"
        return Problem("SpecUnreadable", told)
    return found


def _domain(vpc: DPUVPC, spec: DPUNetworkSpec, situation: DpuInputs) -> Domain | Problem:
    functions = tuple(port.function for port in spec.ports if port.vni == vpc.vni)
    underlay = situation.underlay
    needed = vpc.mtu_bytes + VXLAN_OVERHEAD_BYTES
    if underlay.mtu_bytes is not None and underlay.mtu_bytes < needed:
        return Problem(
            "UnderlayMTU",
            f"VPC {vpc.vpc} has an MTU of {vpc.mtu_bytes} bytes, for which the underlay must carry {needed}; "
            f"{underlay.device} carries {underlay.mtu_bytes}: raise the MTU of {underlay.device} and of the "
            "switches behind it, or lower the VPC's mtuBytes",
            functions,
        )
    try:
        for vtep in (*vpc.members, *(remote.vtep for remote in vpc.remotes)):
            if not _is_address(vtep):
                raise UnreadableValue(f"{vtep} is no IPv4 address of a DPU")
        remotes = tuple((remote.vtep, tuple(read_prefix(each) for each in remote.prefixes)) for remote in vpc.remotes)
    except UnreadableValue as error:
        return _unreadable(f"VPC {vpc.vpc}", error, functions)
    return Domain(vpc.vni, vpc.mtu_bytes, remotes, vpc.members, vpc.peer_vnis)


def _missing(port: DPUPort, situation: DpuInputs) -> Problem | None:
    interface = situation.interfaces.get(port.function)
    if interface is not None and port.function in situation.largest_mtus:
        return None
    told = (
        "has no interface: start the agent with --port " + port.function + "=INTERFACE"
        if interface is None
        else f"has the interface {interface}, which does not exist: see `ip link` and the card's mode and functions"
    )
    return Problem("PortMissing", f"port {port.function} of the spec {told}", (port.function,))


def _port(port: DPUPort, situation: DpuInputs) -> Port | Problem:
    try:
        found = read_port(port)
    except UnreadableValue as error:
        return _unreadable(f"port {port.function}", error, (port.function,))
    if found.is_stateful and not situation.has_conntrack:
        return Problem(
            "NoConntrack",
            f"port {port.function} has stateful rules, and the kernel tracks no connections: it is isolated; load "
            "nf_conntrack, or make its security groups stateless",
            (port.function,),
        )
    return found


def _hidden(spec: DPUNetworkSpec) -> Problem:
    return Problem(
        "NamespacesHidden",
        "the agent's mounts are not the system's, as below `ip netns exec`: the namespaces that it makes would end "
        "with it, and every port is isolated; start it in the system's mount namespace, such as by "
        "nsenter --net=/run/netns/NAME",
        tuple(port.function for port in spec.ports),
        is_of_all=True,
    )


def _unreadable(what: str, error: UnreadableValue, functions: tuple[str, ...]) -> Problem:
    return Problem("SpecUnreadable", f"{what} cannot be enforced: {error}; correct what it is compiled of", functions)


def _is_address(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
