"""What the boot controller decides on: a server, what it refers to, and its Node. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from provisioner.api import Image, Maintenance, NodePool, Rack, Server
from provisioner.api.machinery.meta import parse_time
from provisioner.rules.liveness import NodeLife


@dataclass(frozen=True, kw_only=True)
class OrderFacts:
    """Everything a decision depends on but the time. Objects that do not exist are None.

    pool, ordered_image: NodePool and Image of the current order. next_pool, next_image: those of an order that were
    given now. other_node: the name of a living Node that is this machine under another name. maintenance: the one that
    holds the server. awaited: names of the DPUs in it that its boot waits for.
    """

    server: Server
    rack: Rack | None
    pool: NodePool | None
    next_pool: NodePool | None
    next_image: Image | None
    ordered_image: Image | None
    node: NodeLife | None
    other_node: str | None = None
    maintenance: Maintenance | None = None
    awaited: tuple[str, ...] = ()

    @property
    def has_lost_its_power(self) -> bool:
        """Whether the BMC says that the server is off and its kubelet has not been heard of since.

        It is enough to stop calling the Node Ready, which its own condition says for 50 s more. It is not enough to
        reset the server: a BMC may be wrong, and so may the clock that dates the Lease.
        """
        power = self.server.status.power
        if power is None or power.state != "Off" or power.observed_time is None:
            return False
        heard = self.node.heartbeat.changed if self.node is not None else None
        return heard is None or heard < parse_time(power.observed_time)

    def node_is_alive(self, now: datetime) -> bool:
        return self.node is not None and self.node.is_alive(now)
