"""Whose fault an operation is that was refused: which ports cannot be enforced without it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.agent.model.naming import peer_link_name, vrf_name, vxlan_name
from provisioner.network.agent.model.state import HOME
from provisioner.network.agent.operations import DeleteNamespace, LoadChains, Operation, OperationRefused, device_of
from provisioner.network.agent.result import Problem
from provisioner.network.agent.situation import DpuInputs


class Blame:
    """For one spec in one situation."""

    def __init__(self, spec: DPUNetworkSpec, situation: DpuInputs) -> None:
        self._all = tuple(port.function for port in spec.ports)
        self._of_vni = {
            vpc.vni: tuple(port.function for port in spec.ports if port.vni == vpc.vni) for vpc in spec.vpcs
        }
        self._of_interface = {interface: function for function, interface in situation.interfaces.items()}
        self._vnis_of_place: dict[str, list[int]] = {}
        self._vnis_of_device: dict[str, tuple[int, ...]] = {}
        for vpc in spec.vpcs:
            self._vnis_of_place.setdefault(situation.place_of(vpc.vni), []).append(vpc.vni)
            self._vnis_of_device[vxlan_name(vpc.vni)] = self._vnis_of_device[vrf_name(vpc.vni)] = (vpc.vni,)
            for peer in vpc.peer_vnis:
                self._vnis_of_device[peer_link_name(vpc.vni, peer)] = (vpc.vni, peer)

    def problems(self, refused: Iterable[OperationRefused], rest: Iterable[Operation]) -> list[Problem]:
        """One for each set of ports: the first operation that was refused, or that did not last.

        What cannot be told apart is every port's.
        """
        found: dict[tuple[str, ...], Problem] = {}
        for each in refused:
            functions = self._functions(each.operation)
            message = (
                f"`{each.operation.words()}` was refused: {each.why}; {_those(functions)} isolated until it succeeds"
            )
            found.setdefault(functions, Problem("KernelRefused", message, functions))
        for operation in rest:
            functions = self._functions(operation)
            message = (
                f"`{operation.words()}` was carried out, and a dump of the kernel shows otherwise; {_those(functions)} "
                "isolated: see who else changes it, and whether nft and the kernel are of an age"
            )
            found.setdefault(functions, Problem("KernelDiffers", message, functions))
        return list(found.values())

    def _functions(self, operation: Operation) -> tuple[str, ...]:
        if isinstance(operation, DeleteNamespace):
            return ()
        device = device_of(operation)
        if device in self._of_interface:
            return (self._of_interface[device],)
        vnis = self._vnis_of_device.get(device or "")
        if vnis is None and (operation.place != HOME or not isinstance(operation, LoadChains)):
            vnis = tuple(self._vnis_of_place.get(operation.place, ()))
        if vnis is None:
            return self._all
        return tuple(function for vni in vnis for function in self._of_vni.get(vni, ()))


def _those(functions: tuple[str, ...]) -> str:
    if not functions:
        return "no port is"
    return f"port {functions[0]} is" if len(functions) == 1 else f"ports {', '.join(functions)} are"
