"""The process that a demo consists of: it runs in the lab's network namespace, starts every part, and keeps the two
services running. When it ends, everything that it started ends."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from lab.binaries.obtain import Binaries
from lab.child_process import LabProcess
from lab.control_plane.accounts import write_account_kubeconfig
from lab.control_plane.plane import ControlPlane
from lab.demo.state import ADDRESS, INTERFACE, DemoState, process_start_time
from lab.rack import VirtualRack
from lab.tools import Tools
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.cluster.client import Cluster

log = structlog.get_logger()

API_SERVER_PORT: Final = 6443
DPU_JOIN_PORT: Final = 8444
RESTART_SECONDS: Final = 1.0
CONTROL_PLANE_RESTART_SECONDS: Final = 15.0
"""How long a part of the control plane that ended stays away: long enough that everybody notices."""

SERVICE_ACCOUNTS: Final = ("provisioner-boot", "provisioner-controller")
"""Names of the services' accounts, as the manifests define them."""


@dataclass(frozen=True)
class DemoParts:
    """What must be there before the daemon starts; building it needs the network that the namespace does not have."""

    binaries: Binaries
    tools: Tools
    rack: VirtualRack
    manifests: Sequence[dict[str, Any]]


class DemoDaemon:
    """Starts control plane, services and rack in this order and keeps the services running until told to stop."""

    def __init__(self, state: DemoState, parts: DemoParts) -> None:
        self._state = state
        self._parts = parts
        self._control_plane = ControlPlane(
            state.directory / "control-plane", parts.binaries, address=ADDRESS, port=API_SERVER_PORT, scheduler=True
        )
        self._services = {name: self._service(name) for name in ("boot", "controller")}

    def run(self, stop: threading.Event) -> None:
        """Start everything, say so in the state file, and return when `stop` is set and all of it has ended."""
        self._state.update(pid=os.getpid(), startTime=process_start_time(os.getpid()), phase="control plane")
        try:
            begin = time.monotonic()
            self._control_plane.start()
            self._state.update(controlPlaneSeconds=time.monotonic() - begin, phase="manifests")
            cluster = Cluster.connect(self._control_plane.kubeconfig, user_agent="provisioner-lab")
            apply_manifests(cluster, self._parts.manifests)
            for account in SERVICE_ACCOUNTS:
                write_account_kubeconfig(self._control_plane, account, self._service_kubeconfig(account))
            self._state.update(phase="services")
            for service in self._services.values():
                service.start()
            self._parts.rack.start()
            self._state.update(phase="running", pids=self._pids())
            self._supervise(stop)
        finally:
            self._parts.rack.stop()
            for service in self._services.values():
                service.stop()
            self._control_plane.stop()

    def _supervise(self, stop: threading.Event) -> None:
        parts = set(self._control_plane.pids())
        gone_since: float | None = None
        while not stop.wait(RESTART_SECONDS):
            if set(self._control_plane.pids()) != parts:
                gone_since = gone_since or time.monotonic()
                if time.monotonic() - gone_since > CONTROL_PLANE_RESTART_SECONDS:
                    log.warning("control plane is started again", remained=sorted(self._control_plane.pids()))
                    self._control_plane.start()
                    self._state.update(pids=self._pids())
                    gone_since = None
            for name, service in self._services.items():
                if service.running:
                    continue
                log.warning(
                    "service ended and is started again with an empty disk", service=name, status=service.exit_status()
                )
                shutil.rmtree(self._scratch(name), ignore_errors=True)
                service.start()
                self._state.update(pids=self._pids())

    def _pids(self) -> dict[str, int]:
        services = {name: service.pid for name, service in self._services.items() if service.pid}
        return {**self._control_plane.pids(), **services}

    def _scratch(self, service: str) -> Path:
        return self._state.directory / f"{service}-state"

    def _service_kubeconfig(self, account: str) -> Path:
        return self._state.directory / f"{account}.kubeconfig"

    def _service(self, name: str) -> LabProcess:
        keys = self._state.keys
        arguments = {
            "boot": [
                f"--address={ADDRESS}",
                f"--interface={INTERFACE}",
                f"--image-store={self._state.image_store}",
                f"--state={self._scratch('boot')}",
                f"--tls-certificate={keys / 'join.crt'}",
                f"--tls-key={keys / 'join.key'}",
                f"--api-server=https://{ADDRESS}:{API_SERVER_PORT}",
                f"--tools-root={self._parts.tools.root}",
                f"--dpu-join-port={DPU_JOIN_PORT}",
            ],
            "controller": [f"--boot-url=http://{ADDRESS}"],
        }[name]
        command = (sys.executable, "-m", "provisioner.cli", name)
        kubeconfig = f"--kubeconfig={self._service_kubeconfig(f'provisioner-{name}')}"
        return LabProcess(name, (*command, kubeconfig, *arguments), self._state.directory / "logs" / f"{name}.log")


def apply_manifests(cluster: Cluster, manifests: Sequence[dict[str, Any]], *, timeout_seconds: float = 60.0) -> None:
    """Apply objects in their order; one whose kind the API server does not serve yet is tried again until it does."""
    deadline = time.monotonic() + timeout_seconds
    for manifest in manifests:
        retry_until(deadline, lambda manifest=manifest: cluster.apply(manifest, manager="provisioner-lab"))  # type: ignore[misc]


def retry_until(deadline: float, act: Callable[[], object]) -> None:
    """Call `act` until it succeeds; its last error is raised after the deadline (monotonic seconds)."""
    while True:
        try:
            act()
            return
        except ProvisionerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
