"""A route reflector on a rack's underlay, the shipped service with its rights, and bgpds of DPUs; for one test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provisioner.api import DPUNetwork, NetworkPool
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import of
from provisioner.network.reflector.service import ReflectorHost, run
from tests.network.agent.rack import DPU, Rack
from tests.network.control.site import Site
from tests.network.evpn.fabric import FABRIC, REFLECTOR, Daemon
from tests.network.evpn.start import PROGRAM
from tests.people import bind
from tests.tools import installed

if TYPE_CHECKING:
    from lab.control_plane.plane import ControlPlane

BY_EVPN = {"type": "EVPN", "asn": FABRIC.asn, "reflectors": [REFLECTOR]}


class Reflection:
    def __init__(self, site: Site, cluster: Cluster, network: Rack, folder: Path) -> None:
        self._site = site
        self.place = network.namespace("rr")
        network.on_underlay(self.place, "uplink", REFLECTOR)
        self.reflector = Daemon(self.place, folder / "reflector", listens=True)
        self.daemons: dict[Path, Daemon] = {}
        self._stop = threading.Event()
        pools, networks = Informer(cluster, of(NetworkPool)), Informer(cluster, of(DPUNetwork))
        for informer in (pools, networks):
            informer.start(self._stop)
        host = ReflectorHost(REFLECTOR, self.reflector.bgpd)
        self._thread = threading.Thread(
            target=run,
            args=(cluster, pools, networks, host, self._stop),
            kwargs={"clock": lambda: datetime.now(UTC), "look_seconds": 2.0},
            daemon=True,
        )
        self._thread.start()

    def daemon(self, dpu: DPU, directory: Path) -> None:
        """bgpd of a DPU, which goes on running without its agent."""
        if directory not in self.daemons:
            self.daemons[directory] = Daemon(dpu, directory)

    def choose(self, type_: str) -> None:
        """How routes are distributed from now on."""
        chosen: dict[str, Any] = BY_EVPN if type_ == "EVPN" else {"type": type_}
        self._site.cluster.patch(of(NetworkPool), "default", {"spec": {"routeDistribution": chosen}})

    def stop(self) -> None:
        self._site.cluster.patch(of(NetworkPool), "default", {"spec": {"routeDistribution": None}})
        self._stop.set()
        self._thread.join(180)
        for daemon in (self.reflector, *self.daemons.values()):
            daemon.stop()


@contextmanager
def reflection(site: Site, plane: ControlPlane, network: Rack, folder: Path) -> Iterator[Reflection]:
    installed(PROGRAM)
    user = f"{site.name}-reflector"
    bind(site.cluster, "provisioner-reflector", user)
    made = Reflection(site, Cluster.connect(plane.kubeconfig, as_user=user, patient=True), network, folder)
    try:
        yield made
    finally:
        made.stop()
