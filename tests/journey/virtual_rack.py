"""A lab as an operator sees it: through its commands and kubectl."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

from lab.cli.parts import lab_environment
from lab.demo.show import is_ready
from lab.demo.state import ADDRESS, DemoState, process_start_time
from lab.machine.qemu import LOST_TIMER
from lab.network import LabNetwork
from lab.rack import Fault, inject_fault
from provisioner.api import Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.api.machinery.meta import parse_time
from provisioner.api.servers.boot_stage import BootStage, stage_order
from provisioner.api.servers.boot_timeline import boot_timeline, format_timeline, stage_moments
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, ResourceType, of
from provisioner.image.finished.manifest import MANIFEST
from provisioner.image.finished.manifest import decode as decode_manifest
from tests.journey.api_server import ApiServer
from tests.journey.cable import Cable

T = TypeVar("T")

PATIENCE_SECONDS: Final = 900.0
"""How long anything may take: twice what a boot takes on a machine that is busy with six other things."""


@dataclass(frozen=True)
class VirtualRack:
    """The lab of `state`, running."""

    state: DemoState
    kubectl_program: Path

    def kubectl(self, *arguments: str, patience_seconds: float = 180) -> str:
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

    def shell(self, command: str, *, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a command line as typed in the lab's shell (`make demo-shell`), in `folder`; errors among its output."""
        return subprocess.run(
            LabNetwork(self.state.name).command(["bash", "-c", command]),
            cwd=folder,
            env=lab_environment(self.state),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
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

    @cached_property
    def _api_server(self) -> ApiServer:
        return ApiServer(LabNetwork(self.state.name), self.state.kubeconfig)

    def ask(self, question: Callable[[Cluster], T], *, patience_seconds: float = 180) -> T:
        """What the API server answers; asked again while it is away, or has no such object."""
        deadline = time.monotonic() + patience_seconds
        while True:
            try:
                return self._api_server.ask(question)
            except ProvisionerError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1)

    def look(self, type_: ResourceType, name: str, *, namespace: str | None = None) -> dict[str, Any]:
        """The object as it is now. As `get`, at a hundredth of its cost."""
        return self.ask(lambda cluster: cluster.get(type_, name, namespace=namespace))

    def server(self, name: str) -> Server:
        """The Server as it is now."""
        return decode(Server, self.look(of(Server), name))

    def node_boot_id(self, name: str) -> str:
        """Kernel boot id that the Node reports."""
        return str(self.look(NODES, name)["status"]["nodeInfo"]["bootID"])

    def wait(
        self, what: str, true: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS, every_seconds: float = 0.5
    ) -> None:
        """Wait until `true`; a failure shows what the servers say of themselves."""
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"after {seconds:.0f} s still not: {what}\n{self.kubectl('get', 'servers', '-o', 'wide')}"
                )
            time.sleep(every_seconds)

    def wait_for_boot(self, name: str, boot_id_before: str) -> None:
        """Wait until the server is Ready, checked and in use again, and has booted since `boot_id_before`."""

        def is_back() -> bool:
            server = self.server(name)
            return is_ready(server) and server.status.boot_id not in (None, boot_id_before)

        self.wait(f"{name} is in production after another boot", is_back)

    def stage(self, name: str, since: datetime) -> BootStage | None:
        """The stage that the boot ordered after `since` has reached, as the API tells it; None before that order."""
        status = self.server(name).status
        if status.order is None or parse_time(status.order.ordered_time) < since:
            return None
        return stage_moments(status)[-1][0]

    def wait_for_stage(self, name: str, stage: BootStage, since: datetime, *, every_seconds: float = 0.5) -> None:
        """Wait until a boot that was ordered after `since` is in `stage`; that it has passed it is an error."""

        def has_come() -> bool:
            reached = self.stage(name, since)
            assert reached is None or stage_order(reached) <= stage_order(stage), (
                f"{name} has passed {stage}: {reached}"
            )
            return reached == stage

        self.wait(f"{name} is in stage {stage}", has_come, every_seconds=every_seconds)

    def switch_off(self, name: str) -> None:
        """Until its BMC says so."""
        self.kubectl("patch", "server", name, "--type=merge", "-p", '{"spec":{"powerState":"Off"}}')

        def is_off() -> bool:
            power = self.server(name).status.power
            return power is not None and power.state == "Off"

        self.wait(f"{name} is off", is_off)

    def switch_on(self, name: str) -> None:
        """Ask for it."""
        self.kubectl("patch", "server", name, "--type=merge", "-p", '{"spec":{"powerState":"On"}}')

    def pid(self, part: str) -> int:
        """Process id of `boot`, `controller`, `kube-apiserver`…"""
        return int(self.state.read()["pids"][part])

    def kill(self, *parts: str) -> dict[str, int]:
        """End parts as a power failure would; the lab starts them again, services with an empty disk.

        Returns: the ids of the processes, all of which have ended.
        """
        killed = {part: self.pid(part) for part in parts}
        for pid in killed.values():
            os.kill(pid, signal.SIGKILL)
        self.wait(f"{parts} have ended", lambda: not any(map(process_start_time, killed.values())))
        return killed

    def wait_for_restart(self, killed: Mapping[str, int]) -> None:
        """Wait until what `kill` has ended runs as another process."""
        self.wait(f"{[*killed]} run again", lambda: all(self.pid(part) != killed[part] for part in killed))

    def cable(self, name: str) -> Cable:
        """What the server hangs on."""
        image = Path(self.state.image_record("gpu").read_text())
        return Cable(LabNetwork(self.state.name), name, decode_manifest((image / MANIFEST).read_bytes()))

    @contextmanager
    def stopped(self, words: str) -> Iterator[None]:
        """The processes whose command lines contain `words` stand still while the block runs; nobody starts others."""
        found = self.processes(words)
        assert found, words
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

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

    def count(self, log: str, *words: str) -> int:
        """Lines with all these words in a log of the lab, all processes that wrote it taken together."""
        lines = (self.state.directory / log).read_text(errors="replace").splitlines()
        return sum(all(word in line for word in words) for line in lines)

    def console(self, name: str) -> str:
        """What the machine wrote to its serial console; nothing before it was ever on."""
        log = self.state.directory / "rack" / name / "console.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def wait_for_console(self, name: str, words: str, *, after: int) -> None:
        """Wait until the machine has written `words` behind the first `after` characters of its console."""
        self.wait(f"{name} says {words!r}", lambda: words in self.console(name)[after:])

    def is_served(self) -> bool:
        """Whether the boot service answers at the lab's address."""
        asked = LabNetwork(self.state.name).command(
            ["curl", "-fsS", "-m5", "-o/dev/null", f"http://{ADDRESS}/boot.ipxe"]
        )
        return subprocess.run(asked, capture_output=True, check=False).returncode == 0

    def timeline(self, name: str) -> str:
        """The phases of its last boot on one line."""
        return format_timeline(boot_timeline(self.server(name).status))


def lab_command(*arguments: str) -> list[str]:
    """`bin/lab …`."""
    return [sys.executable, "-m", "lab.cli", *arguments]


def keep_logs(state: DemoState, folder: Path) -> None:
    """Copy what the lab's services and machines have logged."""
    for log in state.directory.rglob("*.log*"):
        kept = folder / log.relative_to(state.directory)
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, kept)


def lost_timers(state: DemoState) -> list[str]:
    """Lines of the logs: each tells of a machine that was reset, as its emulator failed."""
    logs = state.directory.rglob("*.log")
    return [line for log in logs for line in log.read_text(errors="replace").splitlines() if LOST_TIMER in line]
