"""`provisioner boot replay FILE`: what our responder would answer to captured DHCP packets, and why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from provisioner.api import Rack
from provisioner.api.machinery.schema import API_VERSION
from provisioner.boot.capture.read import MOST_MESSAGES, read_capture
from provisioner.boot.explain.replay import Replayed, macs_of_clients, replay
from provisioner.cli import printer
from provisioner.cli.boot.explain_screen import message_lines
from provisioner.cli.boot.explain_words import lease_json, message_json, way_words
from provisioner.cli.boot.options import boot_host_of, boot_host_options
from provisioner.cli.boot.reading import read_servers_having
from provisioner.cli.kubectl.asking import KubectlCommand
from provisioner.cli.kubectl.connection import connection_of, connection_options
from provisioner.cli.kubectl.printing import output_option, print_objects, screen
from provisioner.cli.options import FILE


@click.command("replay", cls=KubectlCommand, short_help="Say what captured DHCP packets would be answered.")
@click.argument("file", metavar="FILE", type=FILE)
@click.option(
    "--via", metavar="ADDRESS", help="Relay, or an address in the subnet, of broadcasts [each machine's own]."
)
@boot_host_options
@output_option("json", "yaml")
@connection_options
def replay_(**options: Any) -> None:
    """Read captured DHCP packets (pcap, pcapng, or the hexadecimal digits of one), and say of each what our responder
    would answer now, and why; both are decoded. Answers of other DHCP servers in the capture are shown as well.

    Nothing is sent.

    \b
    Examples:
      tcpdump -i eth0 -w dhcp.pcap 'udp port 67 or udp port 68'
      provisioner boot replay dhcp.pcap --address 10.80.0.1
      provisioner boot replay packet.hex --via 10.90.0.1
    """
    host, is_known = boot_host_of(options)
    messages, has_more = read_capture(options["file"])
    cluster = connection_of(options).open()
    racks, servers = cluster.read_all(Rack), read_servers_having(cluster, macs_of_clients(messages))
    replayed = list(replay(messages, racks, servers, host, options["via"]))
    if options["output"]:
        print_objects([_as_json(each) for each in replayed], options["output"])
    else:
        printer.show("\n".join(render_replayed(number, each) for number, each in enumerate(replayed, 1)))
    if not replayed:
        printer.say("no DHCP message is in the file", err=True)
    if has_more:
        printer.say(f"only the first {MOST_MESSAGES} messages were read", err=True)
    if not is_known:
        printer.say("192.0.2.1 stands for the boot host's address: give --address", err=True)


replay_.name = "replay"


def render_replayed(number: int, each: Replayed) -> str:
    """One message as a person reads it; ends with a newline. Pure."""
    message, lease = each.described, each.lease
    if message is None:
        headline = f"{number}  {len(each.captured.data)} bytes that are no DHCP message"
    else:
        who = f" of Server {each.server}" if each.server is not None else ""
        headline = f"{number}  {_moment(each)}{message.message_type} {message.transaction} {message.mac_address}{who}"
    sections: list[tuple[str, list[str]]] = []
    if message is not None:
        sections.append(("said" if lease is not None else "answered", list(_said(each))))
    if each.way is not None:
        sections.append(("came", [way_words(each.way)]))
    if lease is not None:
        sections.append(("verdict", [f"{lease.verdict}: {lease.words}"]))
        sections.append(("remedy", [lease.remedy] if lease.remedy else []))
        if lease.reply is not None:
            sections.append(("we answer", [f"{lease.reply.message_type} {lease.reply.your_address or ''}".strip()]))
            sections.append(("", list(message_lines(lease.reply))))
    return screen(headline, sections)


def _moment(each: Replayed) -> str:
    return f"{datetime.fromtimestamp(each.captured.time, UTC):%H:%M:%S.%f}"[:-3] + " " if each.captured.time else ""


def _said(each: Replayed) -> Iterator[str]:
    message, datagram = each.described, each.captured.datagram
    if message is None:
        return
    travelled = f"from {datagram.source} to {datagram.destination}" if datagram is not None else None
    fields = (
        ("has", message.client_address),
        ("gives", message.your_address),
        ("by relay", message.relay),
    )
    parts = [travelled, *(f"{name} {value}" for name, value in fields if value is not None)]
    if any(parts):
        yield ", ".join(filter(None, parts))
    if message.is_request is False:
        yield "by another DHCP server, or ours at that time (see server identifier)"
    yield from message_lines(message)


def _as_json(each: Replayed) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "ReplayedMessage",
        "metadata": {"name": each.server or (each.described.mac_address if each.described else "unreadable")},
        "time": each.captured.time or None,
        "server": each.server,
        "message": message_json(each.described) if each.described is not None else None,
        "answer": lease_json(each.lease),
    }
