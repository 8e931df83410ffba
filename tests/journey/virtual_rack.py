"""A lab as an operator sees it: through its commands and kubectl."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from provisioner.api import Server
from provisioner.api.boot_timeline import boot_timeline, format_timeline
from provisioner.api.codec import decode
from provisioner.api.conditions import find_condition
from provisioner.cli.lab.parts import lab_environment
from provisioner.lab.demo.show import is_ready
from provisioner.lab.demo.state import DemoState
from provisioner.lab.network import LabNetwork
from provisioner.lab.rack import Fault, inject_fault


@dataclass(frozen=True)
class VirtualRack:
    """The lab of `state`, running."""

    state: DemoState
    kubectl_program: Path

    def kubectl(self, *arguments: str, patience_seconds: float = 60) -> str:
        """What kubectl printed; asked again while the API server is away."""
        deadline = time.monotonic() + patience_seconds
        while True:
            ran = self.try_kubectl(*arguments)
            if ran.returncode == 0:
                return ran.stdout
            if time.monotonic() > deadline:
                raise AssertionError(f"kubectl {' '.join(arguments)}: {ran.stderr}")
            time.sleep(1)

    def try_kubectl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Ask kubectl once, with the plugin on its PATH, as the lab's shell has it."""
        return subprocess.run(
            LabNetwork(self.state.name).command([self.kubectl_program, *arguments]),
            input=stdin,
            env=lab_environment(self.state),
            capture_output=True,
            text=True,
            check=False,
        )

    def create(self, document: Mapping[str, Any]) -> None:
        """`kubectl create -f -`."""
        ran = self.try_kubectl("create", "-f", "-", stdin=json.dumps(document))
        assert ran.returncode == 0, ran.stderr

    def get(self, *arguments: str) -> dict[str, Any]:
        """`kubectl get … -o json`."""
        return dict(json.loads(self.kubectl("get", *arguments, "-o", "json")))

    def server(self, name: str) -> Server:
        """The Server as it is now."""
        return decode(Server, self.get("server", name))

    def node_boot_id(self, name: str) -> str:
        """Kernel boot id that the Node reports."""
        return str(self.get("node", name)["status"]["nodeInfo"]["bootID"])

    def wait(self, what: str, true: Callable[[], bool], *, seconds: float) -> None:
        """Wait until `true`; a failure shows what the servers say of themselves."""
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"after {seconds:.0f} s still not: {what}\n{self.kubectl('get', 'servers', '-o', 'wide')}"
                )
            time.sleep(0.5)

    def wait_for_boot(self, name: str, boot_id_before: str, *, seconds: float) -> None:
        """Wait until the server is Ready, checked and in use again, and has booted since `boot_id_before`."""

        def is_back() -> bool:
            server = self.server(name)
            return is_ready(server) and server.status.boot_id not in (None, boot_id_before)

        self.wait(f"{name} is in production after another boot", is_back, seconds=seconds)

    def wait_for_stage(self, name: str, stages: Sequence[str], since: datetime, *, seconds: float) -> None:
        """Wait until a boot that was ordered after `since` has reached one of `stages`."""

        def has_come() -> bool:
            server = self.server(name)
            order = server.status.order
            ordered = order is not None and datetime.fromisoformat(order.ordered_time) > since
            return ordered and server.status.boot_stage in stages

        self.wait(f"{name} has reached {' or '.join(stages)}", has_come, seconds=seconds)

    def pid(self, part: str) -> int:
        """Process id of `boot`, `controller`, `kube-apiserver`…"""
        return int(self.state.read()["pids"][part])

    def kill(self, part: str) -> None:
        """End a part as a power failure would; the lab starts it again elsewhere, with an empty disk."""
        pid = self.pid(part)
        os.kill(pid, signal.SIGKILL)
        self.wait(f"{part} was started again", lambda: self.pid(part) != pid, seconds=90)

    def processes(self, words: str) -> list[int]:
        """Ids of the lab's processes whose command line contains `words`."""
        found = []
        for pid in LabNetwork(self.state.name).process_ids():
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if words in command:
                found.append(pid)
        return found

    def inject(self, name: str, fault: Fault) -> None:
        """Cut a server's power or press its reset button, without asking its BMC."""
        inject_fault(self.state.directory / "rack", name, fault)

    def console(self, name: str) -> str:
        """What the machine wrote to its serial console."""
        return (self.state.directory / "rack" / name / "console.log").read_text(errors="replace")

    def timeline(self, name: str) -> str:
        """The phases of its last boot on one line."""
        return format_timeline(boot_timeline(self.server(name).status))

    def ready_reason(self, name: str) -> str:
        """Reason of the condition Ready."""
        condition = find_condition(self.server(name).status.conditions, "Ready")
        return condition.reason if condition else ""


def lab_command(*arguments: str) -> list[str]:
    """`provisioner lab …`."""
    return [sys.executable, "-m", "provisioner.cli", "lab", *arguments]
