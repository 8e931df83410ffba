"""`kubectl provision vpc why ATTACHMENT [TO]`: why an attachment is not enforced, and what passes to another one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click

from provisioner.api import Server, VPCAttachment
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.network.vpc_attachment import VPCAttachmentSpec
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import KubectlCommand
from provisioner.cli.kubectl.completion import complete_attachment
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.kubectl.printing import output_option, print_objects
from provisioner.cli.vpc.attachment_screen import render_attachment
from provisioner.cli.vpc.reasons import agent_trouble, present_trouble
from provisioner.cli.vpc.references import FIRST_FUNCTION, AttachmentReference, look_for, read_reference
from provisioner.cli.vpc.standing import standing_of, waits_for
from provisioner.cli.vpc.subject import AttachmentSubject, Hidden, find, read_subject, unless_hidden
from provisioner.cli.vpc.tenancy import VIEW, Tenancy, needing_in, tenancy_of, tenancy_options
from provisioner.cli.vpc.traffic import ForeignNamespace, Traffic, read_traffic
from provisioner.cli.vpc.traffic_screen import render_foreign, render_traffic, shares_words, verdict
from provisioner.network.control.compile.passage import AddressPair, Packets
from provisioner.network.control.compile.place import place
from provisioner.network.control.compile.trouble import Trouble

PROTOCOLS = ("TCP", "UDP", "ICMP")


@click.command("why", cls=KubectlCommand, short_help="Say why an attachment is not enforced, or what may pass.")
@click.argument("attachment", metavar="ATTACHMENT", shell_complete=complete_attachment)
@click.argument("to", required=False, metavar="[TO]", shell_complete=complete_attachment)
@click.option("--protocol", type=click.Choice(PROTOCOLS, case_sensitive=False), help="With TO: of these packets [all].")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="NUMBER",
    help="With TO: to that port, of TCP unless --protocol is UDP.",
)
@output_option("json", "yaml")
@tenancy_options
def why(**options: Any) -> None:
    """Say why an attachment is not enforced yet; or, with a second one, what passes from the first to it, and by which
    rule. It changes nothing.

    Each is a name, a server, SERVER/FUNCTION, or NAMESPACE/NAME. A tenant is told what its namespace shows;
    administrators also what is known of the server, its DPU and the DPU's agent.

    \b
    Examples:
      kubectl provision vpc why r01-u01 -n blue
      kubectl provision vpc why r01-u01 r01-u02 -n blue --port 443
      kubectl provision vpc why r01-u01 green/r02-u01 -n blue
    """
    text, to, form = options.pop("attachment"), options.pop("to"), options.pop("output")
    asked = read_packets(options.pop("protocol"), options.pop("port"))
    if to is None and asked != Packets():
        raise click.UsageError("--protocol and --port are of packets to another attachment: name it, too")
    tenancy = tenancy_of(options)
    if to is not None:
        _show_traffic(tenancy, text, to, asked, form)
    else:
        _show_attachments(tenancy, text, form)


def read_packets(protocol: str | None, port: int | None) -> Packets:
    """Raises: click.UsageError."""
    if port is not None and protocol == "ICMP":
        raise click.UsageError("ICMP has no ports: leave --port out")
    chosen = protocol or ("TCP" if port is not None else "Any")
    return Packets(protocol=chosen, port=port)  # type: ignore[arg-type]


def _show_attachments(tenancy: Tenancy, text: str, form: str | None) -> None:
    now, reference = datetime.now(UTC), read_reference(text)
    found = look_for(tenancy, reference)
    if not found:
        raise _not_attached(tenancy, reference)
    with needing_in(str(found[0].metadata.namespace), VIEW):
        subjects = [read_subject(tenancy.cluster, each, now) for each in found]
    if form is not None:
        print_objects([report(subject) for subject in subjects], form)
    else:
        printer.show("\n\n".join(render_attachment(subject).rstrip("\n") for subject in subjects))


def _not_attached(tenancy: Tenancy, reference: AttachmentReference) -> BadInput:
    """With what would keep the server from being attached, for who may see that."""
    namespace = reference.namespace or tenancy.namespace
    server = unless_hidden("Servers", lambda: find(tenancy.cluster, Server, reference.name))
    hint = f"kubectl provision vpc attach VPC {reference.name} -n {namespace}"
    words = f"there is no attachment {reference.text} in namespace {namespace}"
    if isinstance(server, Hidden):
        return BadInput(words, hint=f"if it is a server of yours: {hint}")
    if server is None:
        return BadInput(f"{words}, nor a Server of that name", hint=f"kubectl provision vpc status -n {namespace}")
    spec = VPCAttachmentSpec(vpc_ref="-", server_ref=server.name, function=reference.function or FIRST_FUNCTION)
    wish = VPCAttachment(metadata=ObjectMeta(name=server.name, namespace=namespace), spec=spec)
    subject = read_subject(tenancy.cluster, wish, datetime.now(UTC))
    at = place(wish, server, subject.dpus) if not isinstance(subject.dpus, Hidden) else None
    trouble = f"; if it were attached it would not be enforced: {at.message}" if isinstance(at, Trouble) else ""
    return BadInput(f"{words}{trouble}", hint=hint)


def report(subject: AttachmentSubject) -> dict[str, Any]:
    """For programs. Pure."""
    present, agent = present_trouble(subject), agent_trouble(subject)
    metadata = subject.attachment.metadata
    return {
        "apiVersion": API_VERSION,
        "kind": "VPCAttachmentReport",
        "metadata": {"name": metadata.name, "namespace": metadata.namespace},
        "standing": standing_of(subject.attachment),
        "waitsFor": waits_for(subject.attachment) or None,
        "presentTrouble": _trouble(present),
        "agentTrouble": _trouble(agent),
        "attachment": encode(subject.attachment),
        "vpc": encode(subject.vpc) if subject.vpc is not None else None,
        "hidden": subject.hidden,
    }


def _trouble(trouble: Trouble | None) -> Mapping[str, str] | None:
    return {"reason": trouble.reason, "message": trouble.message} if trouble is not None else None


def _show_traffic(tenancy: Tenancy, text: str, to: str, asked: Packets, form: str | None) -> None:
    traffic = read_traffic(tenancy, text, to, asked)
    if isinstance(traffic, ForeignNamespace):
        if form is not None:
            raise BadInput(
                f"namespace {traffic.namespace} may not be read by you, so that there is no report",
                hint="leave -o out to be told what your own namespace shows",
            )
        printer.show(render_foreign(traffic))
    elif form is not None:
        print_objects([traffic_report(traffic)], form)
    else:
        printer.show(render_traffic(traffic))


def traffic_report(traffic: Traffic) -> dict[str, Any]:
    """For programs. Pure."""
    return {
        "apiVersion": API_VERSION,
        "kind": "VPCTrafficReport",
        "from": traffic.sender.key,
        "to": traffic.receiver.key,
        "protocol": traffic.asked.protocol,
        "port": traffic.asked.port,
        "passes": traffic.passage.extent,
        "verdict": verdict(traffic),
        "troubles": [_trouble(each) for each in traffic.passage.troubles],
        "ways": [_way(traffic, each) for each in traffic.passage.ways],
        "unread": list(traffic.unread),
    }


def _way(traffic: Traffic, way: AddressPair) -> dict[str, Any]:
    return {
        "from": way.sender,
        "to": way.receiver,
        "passes": way.extent,
        "sends": list(shares_words(way.sends, traffic.sender, way.receiver, sends=True)),
        "gets": list(shares_words(way.gets, traffic.receiver, way.sender, sends=False)),
        "answersLeave": way.answers_leave,
        "answersArrive": way.answers_arrive,
    }
