"""A stateless DHCPv4 responder: every reply follows from the inventory, and nothing is kept on disk.

A packet's way: the kernel gives it to a worker by its MAC address (steer) → packet → client (what asks?) → respond
(whose is it, what may it have?) → template and reply → out again. The parent (server, supervisor, inventory) keeps the
workers alive and tells them what changed.
"""

from provisioner.boot.dhcp.model.config import DhcpConfig
from provisioner.boot.dhcp.model.sighting import Observation, SightingKind
from provisioner.boot.dhcp.server import DhcpServer

__all__ = ["DhcpConfig", "DhcpServer", "Observation", "SightingKind"]
