"""A DPU's part in the exchange of routes: what it hears becomes its spec's remotes, what it enforces is announced."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from provisioner.api.machinery.wording import quantity
from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.evpn.bgpd import Bgpd
from provisioner.network.evpn.learn import (
    NOTHING_HEARD,
    EvpnRoute,
    HeardRoutes,
    Learned,
    learn,
    read_announced,
    read_heard,
)
from provisioner.network.evpn.speaker import Fabric, OwnRoute, own_routes, speaker
from provisioner.network.evpn.vty import BgpdFailed

_PATIENCE_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)


class Exchange:
    """Of one DPU. `held`, `awaited`: as another one had them; without them the first that is heard is believed."""

    def __init__(
        self, bgpd: Bgpd, fabric: Fabric, held: Iterable[EvpnRoute] = (), awaited: Iterable[EvpnRoute] = ()
    ) -> None:
        self._bgpd = bgpd
        self.fabric = fabric
        self.held = frozenset(held)
        self.awaited = frozenset(awaited)
        self.heard = NOTHING_HEARD
        self._told: list[OwnRoute] | None = None

    def ask(self) -> HeardRoutes:
        """What is announced now; nothing comes of it yet. Raises: BgpdFailed."""
        return read_heard(self._bgpd.routes(), self._bgpd.sessions(), self.fabric.asn)

    def hear(self, spec: DPUNetworkSpec) -> Learned:
        """`spec`: with members and without remotes; as it comes back, it is to be enforced. Raises: BgpdFailed."""
        self.heard = self.ask()
        return self._learn(spec, self.heard)

    def hold(self, spec: DPUNetworkSpec) -> Learned:
        """As `hear`, while bgpd says nothing: what was held stays."""
        return self._learn(spec, NOTHING_HEARD)

    def _learn(self, spec: DPUNetworkSpec, heard: HeardRoutes) -> Learned:
        learned = learn(spec, heard, self.held, self.awaited)
        self.held, self.awaited = learned.held, learned.awaited
        return learned

    def tell(self, spec: DPUNetworkSpec, passing: Iterable[str]) -> None:
        """As `announce`, but once only of the same, and what comes of it is not read: for a bgpd of which too much is
        asked already. Raises: BgpdFailed, ValueError."""
        routes = own_routes(spec, passing)
        if routes != self._told:
            self._apply(spec, routes)

    def _apply(self, spec: DPUNetworkSpec, routes: list[OwnRoute]) -> int:
        self._told = routes
        return self._bgpd.apply(speaker(spec.vtep_address, self.fabric, routes))

    def announce(self, spec: DPUNetworkSpec, passing: Iterable[str]) -> int:
        """After `spec` was enforced: what lies behind `passing`, the functions whose packets pass, and nothing else.

        Returns: how many lines bgpd was told; with 0 it ran with them already. Raises: BgpdFailed if it does not run
        with, or announces something else than, what it was told; ValueError for a VNI that BGP here cannot say.
        """
        routes = own_routes(spec, passing)
        told = self._apply(spec, routes)
        wanted = {(each.vni, str(each.network)) for each in routes}
        announced = read_announced(self._bgpd.routes())
        for seconds in _PATIENCE_SECONDS if told else ():
            if announced == wanted:
                break
            time.sleep(seconds)  # bgpd chooses its routes after it has taken its configuration
            announced = read_announced(self._bgpd.routes())
        if announced != wanted:
            vni, prefix = min(wanted ^ announced)
            raise BgpdFailed(
                f"bgpd announces {quantity(len(announced), 'route')}, of which it was told {len(wanted & announced)} "
                f"of {len(wanted)}; {prefix} in VNI {vni} is the first that differs: see which DPU announces by this "
                "one's route distinguisher (`show bgp l2vpn evpn`), take that one's port away, and restart bgpd here"
            )
        return told
