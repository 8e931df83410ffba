"""The process that the demo of tenant networks consists of: it runs in the lab's network namespace, starts control
plane, controller and the DPUs' agents, and starts the last two again if they end. What it started ends with it."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import structlog

from lab.binaries.obtain import Binaries
from lab.child_process import LabProcess
from lab.control_plane.accounts import write_account_kubeconfig
from lab.control_plane.kubelet_files import join_as
from lab.control_plane.plane import ControlPlane
from lab.demo.daemon import API_SERVER_PORT, RESTART_SECONDS, apply_manifests, retry_until
from lab.demo.state import ADDRESS, DemoState, process_start_time
from lab.vpc_demo import site
from lab.vpc_demo.greeter import greet, listen
from lab.vpc_demo.network import dpu_of, host_of
from provisioner.api import VPC, DPUNetwork
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of

log = structlog.get_logger()

ACCOUNT: Final = "provisioner-network"
"""The account of the controllers' group `network`, as the manifests define it."""
_IN_FORCE_SECONDS: Final = 120.0


class VPCDaemon:
    """`binaries`: the control plane's. `manifests`: what `provisioner manifests` prints."""

    def __init__(self, state: DemoState, binaries: Binaries, manifests: Sequence[dict[str, Any]]) -> None:
        self._state = state
        self._manifests = manifests
        self._control_plane = ControlPlane(
            state.directory / "control-plane", binaries, address=ADDRESS, port=API_SERVER_PORT
        )
        agents = [self._agent(card) for card in site.CARDS]
        self._services = [self._controller(), *agents]

    def run(self, stop: threading.Event) -> None:
        """Start everything, say so in the state file, and return when `stop` is set and all of it has ended."""
        self._state.update(pid=os.getpid(), startTime=process_start_time(os.getpid()), phase="hosts")
        greeter = threading.Thread(
            target=greet, args=(listen({host.name: host_of(self._state, host) for host in site.HOSTS}), stop)
        )
        greeter.start()
        try:
            self._state.update(phase="control plane")
            begin = time.monotonic()
            self._control_plane.start()
            self._state.update(controlPlaneSeconds=time.monotonic() - begin, phase="manifests")
            cluster = Cluster.connect(self._control_plane.kubeconfig, user_agent="provisioner-lab")
            apply_manifests(cluster, self._manifests)
            self._state.update(phase="registration")
            apply_manifests(cluster, site.registration())
            write_account_kubeconfig(self._control_plane, ACCOUNT, self._state.directory / f"{ACCOUNT}.kubeconfig")
            for card in site.CARDS:
                join_as(self._state.directory / card.name, self._control_plane, card.name, card.name)
            self._state.update(phase="services")
            for service in self._services:
                service.start()
            self._wait_until_usable(cluster)
            self._state.update(phase="running")
            self._supervise(stop)
        finally:
            stop.set()
            for service in self._services:
                service.stop()
            self._control_plane.stop()
            greeter.join()

    def _wait_until_usable(self, cluster: Cluster) -> None:
        """Until tenants may make what is theirs, and every agent has confirmed that nothing is attached.

        Raises: ProvisionerError after two minutes.
        """
        deadline = time.monotonic() + _IN_FORCE_SECONDS
        for tenant, person in site.PEOPLE.items():
            # Deleting what is not there needs the same right as making it.
            retry_until(deadline, lambda t=tenant, p=person: cluster.acting_as(p).delete(of(VPC), "none", namespace=t))  # type: ignore[misc]
        retry_until(deadline, lambda: _require_confirmed(cluster.read_all(DPUNetwork)))

    def _supervise(self, stop: threading.Event) -> None:
        while not stop.wait(RESTART_SECONDS):
            for service in self._services:
                if not service.running:
                    log.warning("service ended and is started again", service=service.name)
                    service.start()

    def _controller(self) -> LabProcess:
        arguments = (
            "--controllers=network",
            f"--boot-url=http://{ADDRESS}",
            f"--kubeconfig={self._state.directory / f'{ACCOUNT}.kubeconfig'}",
        )
        command = (sys.executable, "-m", "provisioner.cli", "controller", *arguments)
        return LabProcess("controller", command, self._state.directory / "logs" / "controller.log")

    def _agent(self, card: site.Card) -> LabProcess:
        root = self._state.directory / card.name
        command = dpu_of(self._state, card).agent_command("run", "--root", str(root))
        return LabProcess(card.name, command, self._state.directory / "logs" / f"{card.name}.log")


def _require_confirmed(networks: Sequence[DPUNetwork]) -> None:
    confirmed = {each.name for each in networks if each.status.observed_generation == each.metadata.generation}
    if missing := sorted({card.name for card in site.CARDS} - confirmed):
        raise NeedsHuman(f"{', '.join(missing)} has not confirmed its DPUNetwork", hint="read its agent's log")
