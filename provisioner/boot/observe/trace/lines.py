"""One line for each thing that was heard of a traced machine. All of it is what somebody sent: shown, not believed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from provisioner.boot.dhcp.responder.verdicts import verdict_words
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.client import DhcpClient, identify
from provisioner.boot.dhcp.wire.describe import describe_message, visible
from provisioner.boot.dhcp.wire.packet import read_options

LONGEST_LINE: Final = 300
SEPARATOR: Final = " | "
"""Between the lines of one Event; no line holds it."""

_CLIENTS: Final = {
    DhcpClient.PLAIN: "an operating system",
    DhcpClient.IPXE: "iPXE",
    DhcpClient.UNSUPPORTED: "firmware of a processor that is not served",
}
_TFTP: Final = re.compile(r"dnsmasq-tftp(?:\[\d+\])?: (.*)$")
_TFTP_PEER: Final = re.compile(r" (?:to|for|from) ([0-9.]{7,15})$")


class HeardLine(NamedTuple):
    """A line, and the address that it is about, if it is not by MAC address."""

    line: str
    address: str | None = None


def line_at(moment: datetime, words: str) -> str:
    """With the time to the millisecond, by the boot host's clock; in one line of characters that show themselves."""
    clock = moment.astimezone(UTC).strftime("%H:%M:%S.%f")[:-3]
    return f"{clock} {visible(words, LONGEST_LINE)}".replace("|", "¦")


def dhcp_words(data: bytes, verdict: str, reply: bytes | None) -> HeardLine:
    """What was asked by DHCP, what the responder decided, and the address that it gave."""
    asked = describe_message(data)
    words = verdict_words(verdict)
    if asked is None:
        return HeardLine(f"DHCP {len(data)} bytes: {verdict}, {words.words}")
    options = read_options(data)
    client = identify(options.get(opt.VENDOR_CLASS), options.get(opt.CLIENT_ARCHITECTURE), options.get(opt.USER_CLASS))
    who = _CLIENTS.get(client, f"firmware {client.name}")
    vendor = asked.option(opt.VENDOR_CLASS)
    parts = [f"DHCP {asked.message_type} by {who}" + (f" ({vendor})" if vendor else "")]
    if asked.relay is not None:
        parts.append(f"by relay {asked.relay}")
    told = describe_message(reply) if reply is not None else None
    wanted = asked.option(opt.REQUESTED_ADDRESS) or asked.client_address
    if wanted is not None:
        parts.append(f"wants {wanted}")
    parts.append(f"-> {verdict}" + (f" {told.your_address}" if told is not None and told.your_address else ""))
    boot = (told.option(opt.BOOT_FILE) or told.boot_file) if told is not None else None
    if boot is not None:
        parts.append(f"boot file {boot}")
    if told is None:
        parts.append(words.words)
    return HeardLine(", ".join(parts), told.your_address if told is not None else None)


def http_words(line: bytes) -> tuple[datetime, HeardLine, str] | None:
    """A line of nginx's access log: when, what was asked with the client's address, and the path; None: none."""
    try:
        # What a client sent as a path or as its name may be no UTF-8, and hides nothing by that.
        read: Any = json.loads(line.decode(errors="replace"))
        moment = datetime.fromisoformat(read["time"])
        client, path, status = str(read["client"]), str(read["path"]), int(read["status"])
        seconds, size = float(read["seconds"]), int(read["bytes"])
        method, agent = str(read["method"]), str(read.get("agent") or "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    words = f"HTTP {method} {visible(path, 140)} from {client} -> {status}, {size} bytes in {seconds:.3f} s"
    what = _HTTP.get((path, status))
    more = f" ({what})" if what else f" ({visible(agent, 40)})" if agent else ""
    return moment, HeardLine(words + more, client), path


_HTTP: Final = {
    ("/v1/join", 200): "the join configuration was handed out",
    ("/v1/join", 403): "the join was refused: see status.join and the Event JoinRefused",
    ("/v1/join", 425): "the join was put off",
    ("/v1/join", 429): "it asks too often",
    ("/v1/progress", 204): "a report of the boot",
}


def tftp_words(line: str) -> HeardLine | None:
    """A line of dnsmasq's about a transfer; None if it is none."""
    said = _TFTP.search(line)
    peer = _TFTP_PEER.search(said[1]) if said is not None else None
    if said is None or peer is None:
        return None
    return HeardLine(f"TFTP {visible(said[1], 200)}", peer[1])
