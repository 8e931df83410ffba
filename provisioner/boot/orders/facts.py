"""What the boot controller decides on: a server, what it refers to, and what its Node says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api import Image, Maintenance, NodePool, Rack, Server
from provisioner.api.meta import parse_time
from provisioner.api.node_contract import read_boot_id

LEASE_FRESH: Final = timedelta(seconds=25)
"""A kubelet renews its Lease every 10 seconds; one renewed within this time is alive, whatever else is said.

A renewTime is by the node's clock, which may be wrong in both directions. So it counts only within this time around
now, and beside it counts when the controller itself saw the Lease change.
"""


@dataclass(frozen=True, kw_only=True)
class NodeLife:
    """A Node and its Lease. `ready` is None while no kubelet has reported; `boot_id` is lower case.

    lease_renewed: what the Lease says, by the node's clock. lease_seen: since when the controller has seen the Lease as
    it is now, by its own. lease_moved: whether it saw the Lease change then, or only began to look.
    """

    name: str
    ready: bool | None
    ready_message: str
    boot_id: str | None
    lease_renewed: datetime | None
    lease_seen: datetime | None = None
    lease_moved: bool = False

    def is_alive(self, now: datetime) -> bool:
        """Whether something may run there: Ready, or its kubelet was heard of lately. Such a server is never reset.

        Ready alone counts, too: it turns Unknown 50 s after the last sign of life, by the clock of the node controller,
        which also knows how to wait after the API server itself was away. A Lease that the controller has only begun to
        look at counts as fresh, for it cannot tell yet.
        """
        seen = self.lease_seen is not None and now - self.lease_seen <= LEASE_FRESH
        return self.ready is True or seen or self._renewed_lately(now)

    def was_heard(self, now: datetime) -> bool:
        """Whether there is a sign of life, not just no time yet to see that there is none."""
        return self.is_alive(now) and (self.ready is True or self.lease_moved or self._renewed_lately(now))

    def last_heard(self, now: datetime) -> datetime | None:
        """When the kubelet can have renewed its Lease last; None if it has none."""
        if self.lease_renewed is not None and self.lease_renewed > now + LEASE_FRESH:
            return self.lease_seen  # a clock that is wrong says nothing
        return max((time for time in (self.lease_renewed, self.lease_seen) if time is not None), default=None)

    def _renewed_lately(self, now: datetime) -> bool:
        return self.lease_renewed is not None and abs(now - self.lease_renewed) <= LEASE_FRESH


@dataclass(frozen=True, kw_only=True)
class OrderFacts:
    """Everything a decision depends on but the time. Objects that do not exist are None.

    ordered_image: the Image of the current order. next_image: the one that an order given now would boot. other_node:
    the name of a living Node that is this machine under another name. maintenance: the one that holds the server.
    """

    server: Server
    rack: Rack | None
    pool: NodePool | None
    next_image: Image | None
    ordered_image: Image | None
    node: NodeLife | None
    other_node: str | None = None
    maintenance: Maintenance | None = None

    @property
    def has_lost_its_power(self) -> bool:
        """Whether the BMC says that the server is off and its kubelet has not been heard of since.

        It is enough to stop calling the Node Ready, which its own condition says for 50 s more. It is not enough to
        reset the server: a BMC may be wrong, and the Lease's time is by the node's clock.
        """
        power = self.server.status.power
        if power is None or power.state != "Off" or power.observed_time is None:
            return False
        renewed = self.node.lease_renewed if self.node is not None else None
        return renewed is None or renewed < parse_time(power.observed_time)

    def node_is_alive(self, now: datetime) -> bool:
        return self.node is not None and self.node.is_alive(now)


def read_node(
    node: Mapping[str, Any] | None,
    lease: Mapping[str, Any] | None,
    *,
    lease_seen: datetime | None = None,
    lease_moved: bool = False,
) -> NodeLife | None:
    """A Node and its Lease as the API server gives them. Of duplicate conditions the most alive one counts."""
    if node is None:
        return None
    status = node.get("status") or {}
    found = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    ready = any(c.get("status") == "True" for c in found) if found else None
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    return NodeLife(
        name=node["metadata"]["name"],
        ready=ready,
        ready_message=next((str(c.get("message") or "") for c in reversed(found)), ""),
        boot_id=read_boot_id(node),
        lease_renewed=parse_time(renewed) if renewed else None,
        lease_seen=lease_seen,
        lease_moved=lease_moved,
    )
