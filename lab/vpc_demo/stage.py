"""What the demo's acts are played on: kubectl, the cluster, the hosts' packets, and the screen."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.demo.state import DemoState
from lab.virtual_network.rack import DPU, Host
from lab.vpc_demo import site
from lab.vpc_demo.network import dpu_of, host_of
from lab.vpc_demo.packets import connect, ping, send_as
from lab.vpc_demo.trial import CHANGE_SECONDS, HEARD, NOT_HEARD, Result, Trial, carry_out
from provisioner.api import VPC, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of

READY_SECONDS: Final = 60.0
_INTERVAL_SECONDS: Final = 0.1


@dataclass
class Stage:
    """`kubectl`: runs it as the lab's administrator, and lets it print. `say`: a line for the screen."""

    state: DemoState
    cluster: Cluster
    kubectl: Callable[[Sequence[str]], None]
    say: Callable[[str], None]
    results: list[Result] = field(default_factory=list)

    def act(self, title: str) -> None:
        self.say(f"\n{title}")

    def command(self, *words: str) -> None:
        """Show a kubectl command, and run it."""
        self.say(f"$ kubectl {shlex.join(words)}")
        self.kubectl(words)

    def tenant(self, tenant: str, *words: str) -> None:
        """The same, as the tenant's own person, in the tenant's namespace."""
        self.command(f"--as={site.PEOPLE[tenant]}", "-n", tenant, *words)

    def change(self, tenant: str, kind: str, name: str, **spec: object) -> None:
        """A merge patch of the spec, by the tenant."""
        self.tenant(
            tenant, "patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}, separators=(",", ":"))
        )

    def document(self, name: str, documents: Sequence[site.Object]) -> Path:
        """Objects in a file, for `kubectl apply -f` (JSON is YAML)."""
        path = self.state.directory / name
        path.write_text("---\n".join(json.dumps(each, indent=1) + "\n" for each in documents))
        return path

    def pings(self, who: str, address: str, must: str, *, soon: bool = False) -> None:
        machine = self.machine(who)
        self._try(Trial(who, f"ping {address}", must, lambda: ping(machine, address), _patience(soon)))

    def connects(self, who: str, address: str, port: int, must: str, *, soon: bool = False) -> None:
        machine = self.machine(who)
        where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        self._try(Trial(who, f"connect {where}", must, lambda: connect(machine, address, port), _patience(soon)))

    def lies(self, who: str, what: str, target: str, to: str, **how: str) -> None:
        """An echo request to another host; with an address or a MAC that is another's it must not be heard there."""
        liar, ear = self.host(who), self.host(target)
        must = NOT_HEARD if how else HEARD
        self._try(Trial(who, what, must, lambda: send_as(liar, ear, to, **how)))

    def checks(self, who: str, what: str, must: str, look: Callable[[], str], *, soon: bool = False) -> None:
        self._try(Trial(who, what, must, look, _patience(soon)))

    def _try(self, trial: Trial) -> None:
        result = carry_out(trial)
        self.results.append(result)
        self.say(line(result))

    def machine(self, who: str) -> Host | DPU:
        card = next((card for card in site.CARDS if card.name == who), None)
        return self.host(who) if card is None else dpu_of(self.state, card)

    def host(self, who: str) -> Host:
        return host_of(self.state, next(host for host in site.HOSTS if host.name == who))

    def wait_until_attached(self, tenant: str) -> None:
        """Wait for all of the tenant's attachments; each host takes what it was given. Raises: NeedsHuman."""
        begin = time.monotonic()
        for host in (host for host in site.HOSTS if host.tenant == tenant):
            self.wait(
                lambda host=host: self._ready(VPCAttachment, host.tenant, host.server) == ("True", "Enforced"),  # type: ignore[misc]
                f"VPCAttachment {host.server} of {tenant} is Ready",
                f"kubectl -n {tenant} describe vpca {host.server}",
            )
            body = self.cluster.get(of(VPCAttachment), host.server, namespace=tenant)
            status = decode(VPCAttachment, body).status
            host_of(self.state, host).become(str(status.mac_address), *status.addresses)
            given = f"{' '.join(status.addresses)}, {status.mac_address}"
            self.say(f"    {host.name:<14} Ready: {given:<58} {time.monotonic() - begin:5.1f} s")

    def wait_for_reason(self, tenant: str, vpc: str, reason: str) -> None:
        """Wait until the VPC's condition Ready has that reason. Raises: NeedsHuman."""
        self.wait(
            lambda: self._ready(VPC, tenant, vpc)[1] == reason,
            f"VPC {vpc} of {tenant} says {reason}",
            f"kubectl -n {tenant} describe vpc {vpc}",
        )

    def wait(self, holds: Callable[[], bool], what: str, hint: str) -> None:
        """Raises: NeedsHuman if it does not hold within a minute."""
        deadline = time.monotonic() + READY_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise NeedsHuman(f"not within {READY_SECONDS:.0f} s: {what}", hint=hint)
            time.sleep(_INTERVAL_SECONDS)

    def _ready(self, kind: type[VPC] | type[VPCAttachment], namespace: str, name: str) -> tuple[str, str]:
        found = decode(kind, self.cluster.get(of(kind), name, namespace=namespace))
        condition = find_condition(found.status.conditions, "Ready")
        return (condition.status, condition.reason) if condition else ("", "")


def line(result: Result) -> str:
    """What was tried, what must come of it, what did, and after how long where a change was waited for."""
    trial = result.trial
    verdict = "ok" if result.is_right else "WRONG"
    after = f"{result.seconds:5.1f} s" if trial.within_seconds else ""
    came = f"must: {trial.must:<18} did: {result.did:<18}"
    return f"  {verdict:<6}{trial.who:<14} {trial.what:<38} {came} {after}".rstrip()


def summary(results: Sequence[Result]) -> str:
    """The last line; what was wrong is named once more."""
    wrong = [line(result) for result in results if not result.is_right]
    count = f"{len(results) - len(wrong)} of {len(results)} are as they must be"
    return "\n".join([count, *wrong])


def exit_status(results: Sequence[Result]) -> int:
    """0 if everything was as it must be; 1 if anything was not, or nothing was tried."""
    return 0 if results and all(each.is_right for each in results) else 1


def _patience(soon: bool) -> float:
    return CHANGE_SECONDS if soon else 0.0
