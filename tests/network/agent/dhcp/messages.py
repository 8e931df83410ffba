"""What hosts say, made by scapy, whose idea of DHCP is not ours; and what they are told, read by it."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

from scapy.compat import raw
from scapy.layers.dhcp import BOOTP, DHCP

from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.dhcp.wire import Reply, encode

MAC, OTHER_MAC = "52:54:00:00:01:00", "52:54:00:66:66:66"
ADDRESS, GATEWAY = IPv4Address("10.1.0.3"), IPv4Address("10.1.0.2")
PORT = ServedPort("pf0", "vpc-10001", "pf0hpf", MAC, ADDRESS, GATEWAY, 1450)


def message(kind: str, *options: tuple[str, Any], mac: str = MAC, **fields: Any) -> bytes:
    """Such as message("request", ("requested_addr", "10.1.0.3"), ciaddr="10.1.0.3")."""
    head = BOOTP(op=1, chaddr=bytes.fromhex(mac.replace(":", "")), xid=0x1234ABCD, **fields)
    return bytes(raw(head / DHCP(options=[("message-type", kind), *options, "end"])))


def read(reply: Reply | bytes) -> tuple[BOOTP, dict[str, Any]]:
    """The header, and the options by the names that scapy gives them."""
    packet = BOOTP(reply if isinstance(reply, bytes) else encode(reply))
    options = [each for each in packet[DHCP].options if isinstance(each, tuple)]
    return packet, {name: values[0] if len(values) == 1 else values for name, *values in options}
