"""Client packets, made by hand or read from the captured ones, and a small inventory to answer them from."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.servers.rack import Rack, RackSpec, Subnet
from provisioner.api.servers.server import Acceptance, Interface, Server, ServerSpec, ServerStatus
from provisioner.boot.dhcp import DhcpConfig
from provisioner.boot.dhcp.responder.discovery import LentAddresses
from provisioner.boot.dhcp.responder.inventory import Inventory
from provisioner.boot.dhcp.responder.respond import PacketOutcome, respond
from provisioner.boot.dhcp.responder.table import ReplyTable
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.packet import Malformed, Packet, decode
from provisioner.boot.dhcp.wire.reply import Arrival

GOLDEN = Path(__file__).parents[2] / "golden" / "dhcp"
CAPTURED = sorted(path.stem for path in GOLDEN.glob("*.hex"))

SERVER = "10.80.0.1"
KNOWN_MAC = "52:54:00:00:00:21"
KNOWN_ADDRESS = "10.80.0.21"
UNKNOWN_MAC = "52:54:00:99:00:01"
CONFIG = DhcpConfig(server_address=SERVER, interfaces=("eth0",))


def captured(name: str) -> bytes:
    """A packet as a real client sent it; see the comment in its file for which."""
    lines = (GOLDEN / f"{name}.hex").read_text().splitlines()
    return bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def address(text: str) -> bytes:
    return IPv4Address(text).packed


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def message(
    message_type: int,
    mac: str = KNOWN_MAC,
    *,
    ciaddr: str = "0.0.0.0",  # noqa: S104 - no address, not a bind
    giaddr: str = "0.0.0.0",  # noqa: S104
    xid: int = 0x12345678,
    options: dict[int, bytes] | None = None,
    end: bytes = b"\xff",
) -> bytes:
    """A client's message; `options` go behind option 53, in order."""
    header = b"\x01\x01\x06\x00" + xid.to_bytes(4, "big") + bytes(4) + address(ciaddr) + bytes(8) + address(giaddr)
    written = opt.encode_option(opt.MESSAGE_TYPE, bytes((message_type,)))
    for code, value in (options or {}).items():
        written += opt.encode_option(code, value)
    return header + mac_bytes(mac).ljust(16, b"\0") + bytes(192) + opt.MAGIC_COOKIE + written + end


def request_of(requested: str, mac: str = KNOWN_MAC, *, server: str | None = SERVER, **more: str) -> bytes:
    """A REQUEST after an offer (with `server`), or of a client that remembers its address (without)."""
    options = {opt.REQUESTED_ADDRESS: address(requested)}
    if server is not None:
        options[opt.SERVER_IDENTIFIER] = address(server)
    return message(opt.REQUEST, mac, options=options, **more)  # type: ignore[arg-type]


def rack(name: str = "r01", *subnets: Subnet) -> Rack:
    return Rack(metadata=ObjectMeta(name=name), spec=RackSpec(subnets=subnets or (subnet(),)))


def subnet(
    name: str = "boot", cidr: str = "10.80.0.0/24", *, discovery: tuple[str, str] | None = None, **more: object
) -> Subnet:
    settings: dict[str, object] = {
        "gateway": SERVER if cidr.startswith("10.80.0.") else None,
        "dns_servers": ("10.80.0.2", "10.80.0.3"),
        "ntp_servers": ("10.80.0.4",),
        "mtu": 9000,
    }
    if discovery:
        settings |= {"discovery_range_start": discovery[0], "discovery_range_end": discovery[1]}
    return Subnet(name=name, cidr=cidr, **(settings | more))  # type: ignore[arg-type]


def server(
    name: str = "r01-u01",
    mac: str = KNOWN_MAC,
    status_address: str | None = KNOWN_ADDRESS,
    *,
    rack_name: str = "r01",
    subnet_name: str | None = "boot",
    acceptance: Acceptance = "Accepted",
    others: tuple[str, ...] = (),
) -> Server:
    return Server(
        metadata=ObjectMeta(name=name),
        spec=ServerSpec(
            rack_ref=rack_name,
            boot_mac_address=mac,
            acceptance=acceptance,
            interfaces=tuple(Interface(name=f"nic{i}", mac_address=other) for i, other in enumerate(others)),
        ),
        status=ServerStatus(address=status_address, subnet_name=subnet_name if status_address else None),
    )


DISCOVERY = ("10.80.0.200", "10.80.0.203")
DIRECT = Arrival(interface_index=7, addresses=(address(SERVER),))
UNICAST = Arrival()


class Responder:
    """The pure part of a worker: a table, the discovery ranges and a clock that is set by hand."""

    def __init__(self, *objects: Rack | Server, config: DhcpConfig = CONFIG) -> None:
        racks = [item for item in objects if isinstance(item, Rack)] or [rack("r01", subnet(discovery=DISCOVERY))]
        servers = [item for item in objects if isinstance(item, Server)] or [server()]
        self.inventory = Inventory.of(racks, servers)
        self.table = ReplyTable(config)
        self.table.apply(self.inventory.snapshot())
        self.discovery: LentAddresses | None = LentAddresses(self.table.is_taken)
        self.now = 1000.0

    def answer(self, data: bytes, arrival: Arrival = DIRECT) -> PacketOutcome:
        return respond(data, arrival, self.table, self.discovery, self.now)

    def reply(self, data: bytes, arrival: Arrival = DIRECT) -> Packet:
        """The reply, which must be one."""
        outcome = self.answer(data, arrival)
        assert outcome.reply is not None, outcome.verdict
        return read_reply(outcome.reply)


def read_reply(data: bytes) -> Packet:
    """A server's message, read with the decoder for client messages."""
    assert data[0] == 2
    packet = decode(b"\x01" + data[1:])
    assert not isinstance(packet, Malformed), packet
    return packet._replace(data=data)


def yiaddr(reply: Packet) -> str:
    return str(IPv4Address(reply.data[16:20]))


_FIELDS = (("ciaddr", 12), ("yiaddr", 16), ("siaddr", 20), ("giaddr", 24))


def describe(data: bytes) -> str:
    """A reply as text for golden files: every field and every option, in the order of the packet."""
    flags, xid = data[10:12].hex(), data[4:8].hex()
    lines = [
        f"bytes   {len(data)}",
        f"op {data[0]}  htype {data[1]}  hlen {data[2]}  hops {data[3]}  xid {xid}  flags {flags}",
        *(f"{name}  {IPv4Address(data[at : at + 4])}" for name, at in _FIELDS),
        f"chaddr  {data[28:34].hex(':')}",
        f"sname   {data[44:108].rstrip(bytes(1)).decode()}",
        f"file    {data[108:236].rstrip(bytes(1)).decode()}",
    ]
    at = 240
    while data[at] != opt.END:
        if data[at : at + 1] == opt.PAD:
            lines.append("pad")
            at += 1
            continue
        code, length = data[at], data[at + 1]
        value = data[at + 2 : at + 2 + length]
        text = f"  {value.decode()}" if length > 6 and value.isascii() and value.decode().isprintable() else ""
        lines.append(f"option {code:3} {value.hex()}{text}")
        at += 2 + length
    assert not data[at + 1 :].strip(b"\0")
    return "\n".join(line.rstrip() for line in lines) + "\n"
