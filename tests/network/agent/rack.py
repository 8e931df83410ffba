"""The lab's DPUs and hosts for one test: their agents as objects in this process; names that bear this process's id."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from lab.virtual_network import rack as lab
from lab.virtual_network.namespace import Namespace
from lab.virtual_network.rack import Host, gateway, mac_of
from provisioner.api.machinery.codec import to_json
from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.agent.enforce import Enforced, Enforcer
from tests.tools import installed, need_root

__all__ = ["DOMAINS", "DPU", "Host", "Namespace", "Rack", "gateway", "mac_of", "rack"]

_serial = itertools.count()
DOMAINS: Final = "vrf" if os.environ.get("VPC_DOMAINS") == "vrf" else "netns"
"""How VPCs are kept apart on the tests' DPUs."""


class DPU(lab.DPU):
    """With an agent that works in the DPU's namespace by a thread of the test."""

    _enforcer: Enforcer | None = None

    @property
    def enforcer(self) -> Enforcer:
        """The agent, which goes on running."""
        if self._enforcer is None:
            self._enforcer = self.another()
        return self._enforcer

    def another(self) -> Enforcer:
        """An agent that was just started."""
        return Enforcer(self.ports, domains=DOMAINS)

    def enforce(self, spec: DPUNetworkSpec) -> Enforced:
        return self.inside(lambda: self.enforcer.enforce(spec))

    def release(self) -> Enforced:
        return self.inside(self.enforcer.release)

    def domain(self, vni: int) -> str:
        return f"vpc-{vni}.{self.name}"

    def in_domain(self, vni: int, *arguments: str, stdin: str | None = None) -> str:
        """Where the VPC's devices are: of VRFs that is the DPU's own namespace, with those of other VPCs."""
        if DOMAINS == "vrf":
            return self.output(*arguments)
        ran = Namespace(self.domain(vni)).run(*arguments, stdin=stdin)
        assert ran.returncode == 0, f"{arguments} in {self.domain(vni)}: {ran.stderr}"
        return ran.stdout

    def agent(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The agent as a program."""
        command = [*self.agent_command(*arguments), "--domains", DOMAINS]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def once(self, spec: DPUNetworkSpec, path: Path) -> dict[str, Any]:
        path.write_text(json.dumps({"kind": "DPUNetwork", "spec": to_json(spec)}))
        ran = self.agent("once", "--spec", str(path))
        assert ran.returncode in (0, 1), ran.stderr
        said: dict[str, Any] = json.loads(ran.stdout)
        return said


class Rack(lab.Rack[DPU]):
    """DPUs on one underlay, of which each test makes its own."""

    def __init__(self, mtu: int = 1550) -> None:
        super().__init__(lambda part: f"prv-{os.getpid()}-{next(_serial)}-{part}", DPU, mtu)


@contextlib.contextmanager
def rack() -> Iterator[Rack]:
    need_root("make network namespaces")
    for program in ("ip", "nft", "nsenter"):
        installed(program)
    made = Rack()
    try:
        yield made
    finally:
        made.delete()
