"""The agent's one loop: what is wanted, what is there, the difference, the kernel; and again, until a dump agrees."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.agent import nft
from provisioner.network.agent.blame import Blame
from provisioner.network.agent.boot.plane import BootServices, ServedBoot, booting_host
from provisioner.network.agent.desired import isolated_state, released_state, wanted_state
from provisioner.network.agent.dhcp.served import ServedPort, served_ports
from provisioner.network.agent.diff import differences
from provisioner.network.agent.kernel import carry_out
from provisioner.network.agent.model import namespaces
from provisioner.network.agent.model.naming import boot_namespace
from provisioner.network.agent.model.state import HOME, KernelState
from provisioner.network.agent.nft import NftRefused
from provisioner.network.agent.observe import Observed, Observer
from provisioner.network.agent.operations import ChangeLink, Operation, OperationRefused
from provisioner.network.agent.preflight import examine
from provisioner.network.agent.probe import find_interfaces, find_underlay, former_macs, has_vrf
from provisioner.network.agent.result import Enforced, Problem, port_statuses, spec_mark
from provisioner.network.agent.rules.tables import FAMILIES, marking, removal
from provisioner.network.agent.situation import Backend, DpuInputs

_PATIENCE_SECONDS: Final = (0.1, 0.3, 0.0)
_ROUNDS: Final = 4
"""What one round leaves, such as a route that another one hid, the next one finds."""


@dataclass(frozen=True)
class _Attempt:
    """Rounds for one wanted state. `first`: what was to be done at their beginning; `rest`: what still is."""

    before: Observed
    after: Observed
    first: tuple[Operation, ...]
    rest: tuple[Operation, ...]
    refused: tuple[OperationRefused, ...]
    changes: int


class Enforcer:
    """Brings the kernel to a DPUNetwork's spec, in the network namespace in which the calling thread is.

    `ports`: of each function of the card the interface by which its host is reached (pf0: pf0hpf). `domains`: how VPCs
    are kept apart; auto is VRFs where the kernel has them. `underlay`: the interface that carries VXLAN; by itself the
    one that has the DPU's address. `boot`: what a host that boots through the DPU asks for.

    What is kept between calls is found again in the kernel by another process.
    """

    def __init__(
        self,
        ports: Mapping[str, str],
        *,
        domains: Literal["vrf", "netns", "auto"] = "auto",
        underlay: str | None = None,
        boot: BootServices | None = None,
    ) -> None:
        self._ports = dict(ports)
        self._underlay = underlay
        self._boot = boot
        self._backend: Backend | None = None if domains == "auto" else domains
        self._has_conntrack: bool | None = None
        self._enforced: str | None = None
        self._observer = Observer()

    def enforce(self, spec: DPUNetworkSpec) -> Enforced:
        """Bring the kernel to `spec`, dump it, and compare.

        Whatever the spec or the kernel is like, nothing is raised for it: a problem isolates its ports and is told, and
        where the kernel cannot even be read, three times, every port is shut down.
        """
        for patience_seconds in _PATIENCE_SECONDS:
            try:
                with namespaces.alone():
                    return self._enforce(spec)
            except (OSError, NftRefused) as error:
                why = str(error)
            time.sleep(patience_seconds)
        return self._blind(spec, why)

    def _blind(self, spec: DPUNetworkSpec, why: str) -> Enforced:
        down = self._shut_down(self._ports)
        message = (
            f"the kernel's tables cannot be read: {why}; every port is shut down until they can: run the agent "
            f"as root, with nft installed ({', '.join(down) or 'there is none'})"
        )
        problem = Problem("KernelUnreadable", message, tuple(self._ports))
        return Enforced(False, (problem,), port_statuses(spec, self._ports, ()), (), len(down), False)

    def isolate_unless_enforced(self) -> bool:
        """At the agent's start, before it has a spec: isolate every port, unless an agent has enforced a spec since the
        system started. What that one left stays as it is.

        Returns: whether every port is isolated now. Raises: OSError, NftRefused if the kernel's tables cannot be read.
        """
        with namespaces.alone():
            owner = namespaces.owner()
            if self._observer.observe(owner, (), {}).places[HOME].marks:
                return False
            found = find_interfaces(owner, self._ports.values())
            attempt = self._attempt(
                isolated_state({each: name for each, name in self._ports.items() if name in found}), owner
            )
        if attempt.rest:
            self._shut_down(self._ports)
        return True

    def release(self) -> Enforced:
        """Take away everything of ours; ports are left at HOME with hardware addresses of their own, shut down, as the
        hosts' packets have nowhere to go.

        Raises: OSError, NftRefused if the kernel's tables cannot be read.
        """
        with namespaces.alone():
            owner = namespaces.owner()
            interfaces = find_interfaces(owner, self._ports.values())
            macs = former_macs(owner, self._ports.values())
            attempt = self._attempt(released_state({name: macs.get(name) for name in interfaces}), owner)
            if attempt.after.places[HOME].marks:
                nft.load(removal(FAMILIES))
        self._enforced = None
        problems = tuple(
            Problem("KernelRefused", f"`{each.operation.words()}` was refused: {each.why}; carry it out by hand")
            for each in attempt.refused
        )
        return Enforced(not attempt.rest, problems, (), attempt.after.vnis, attempt.changes, False)

    def observe(self) -> Observed:
        """What the kernel has of ours. Raises: OSError, NftRefused."""
        return self._observer.observe(namespaces.owner(), self._ports.values(), {})

    def served(self) -> tuple[ServedPort, ...]:
        """The ports whose hosts may ask for their addresses, as the kernel has them. Raises: OSError, NftRefused."""
        return self._served(self.observe())

    def boot(self) -> ServedBoot | None:
        """The host that boots by the DPU, as the kernel has it. Raises: OSError, NftRefused."""
        return self._booting(self.observe())

    def _booting(self, observed: Observed) -> ServedBoot | None:
        host = booting_host(observed.places) if self._boot is not None else None
        if host is None:
            return None
        ports = {each.function: each for each in self._served(observed)}
        return ServedBoot(host, boot_namespace(namespaces.owner()), ports.get(host.function))

    def _served(self, observed: Observed) -> tuple[ServedPort, ...]:
        return served_ports(observed.places, {interface: function for function, interface in self._ports.items()})

    def _enforce(self, spec: DPUNetworkSpec) -> Enforced:
        situation = self._situation(spec)
        readable = examine(spec, situation)
        problems = list(readable.problems)
        blame = Blame(spec, situation)
        attempt = first = self._attempt(wanted_state(readable, situation), situation.owner)
        changes = first.changes
        while True:
            told = [each for each in blame.problems(attempt.refused, attempt.rest) if each not in problems]
            problems += told
            blamed = readable.functions.intersection(function for each in told for function in each.functions)
            if not blamed:
                break
            readable = readable.without_ports(blamed)
            attempt = self._attempt(wanted_state(readable, situation), situation.owner)
            changes += attempt.changes
        if attempt.rest:
            # Rules that isolate may be among what is not in force.
            self._shut_down(set(self._ports) - readable.functions)
        mark = spec_mark(spec, self._ports, situation.backend)
        mended = bool(first.first) and mark in {self._enforced, *first.before.places[HOME].marks}
        agrees = not problems and not attempt.rest
        self._enforced = mark if agrees else None
        if agrees:
            self._leave_mark(mark, attempt.after)
        return Enforced(
            agrees=agrees,
            problems=tuple(problems),
            ports=port_statuses(spec, self._ports, readable.functions),
            vnis=attempt.after.vnis,
            changes=changes,
            mended=mended,
            holds=not attempt.rest and not any(each.is_of_all for each in problems),
            served=tuple(each for each in self._served(attempt.after) if each.function in readable.functions),
            boot=self._booting(attempt.after) if readable.booting is not None else None,
        )

    def _situation(self, spec: DPUNetworkSpec) -> DpuInputs:
        owner = namespaces.owner()
        if self._backend is None:
            self._backend = "vrf" if has_vrf() else "netns"
        if self._has_conntrack is None and any(rule.stateful for port in spec.ports for rule in port.rules):
            self._has_conntrack = nft.has_conntrack()
        found = find_interfaces(owner, self._ports.values())
        return DpuInputs(
            backend=self._backend,
            owner=owner,
            interfaces=self._ports,
            largest_mtus={
                function: found[interface] for function, interface in self._ports.items() if interface in found
            },
            underlay=find_underlay(spec.vtep_address, self._underlay),
            has_conntrack=bool(self._has_conntrack),
            namespaces_are_shared=namespaces.are_seen_by_others(),
            boot=self._boot,
        )

    def _attempt(self, wanted: KernelState, owner: str) -> _Attempt:
        settings = {place: [each.path for each in state.sysctls] for place, state in wanted.items()}
        interfaces = self._ports.values()
        before = after = self._observer.observe(owner, interfaces, settings)
        first = rest = tuple(differences(wanted, before.places))
        refused: tuple[OperationRefused, ...] = ()
        changes = 0
        for _ in range(_ROUNDS):
            if not rest:
                break
            refused = tuple(carry_out(rest))
            changes += len(rest) - len(refused)
            after = self._observer.observe(owner, interfaces, settings)
            last, rest = rest, tuple(differences(wanted, after.places))
            if rest == last:
                break
        return _Attempt(before, after, first, rest, refused if rest else (), changes)

    def _leave_mark(self, mark: str, observed: Observed) -> None:
        others = observed.places[HOME].marks - {mark}
        if others or mark not in observed.places[HOME].marks:
            with contextlib.suppress(NftRefused):  # only `mended` of an agent that comes later depends on it
                nft.load(marking(mark, others))

    def _shut_down(self, functions: Collection[str]) -> list[str]:
        """Their interfaces, wherever they are; the names of those that there are."""
        down = []
        names = {self._ports[function] for function in functions}
        for place in (HOME, *namespaces.domains_of(namespaces.owner())):
            try:
                with namespaces.inside(place):
                    there = sorted(names.intersection(namespaces.interfaces()))
            except OSError:
                continue
            carry_out([ChangeLink(place, name, up=False) for name in there])
            down += there
        return down
