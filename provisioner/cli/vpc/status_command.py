"""`kubectl provision vpc status [VPC]`: what a tenant's networks have, and what they wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from provisioner.api import VPC, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import NotFound
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.machinery.wording import clip, quantity
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import KubectlCommand
from provisioner.cli.kubectl.completion import complete_vpc
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.kubectl.printing import Cell, output_option, print_in_form, screen, table
from provisioner.cli.vpc.references import attachments_of
from provisioner.cli.vpc.standing import addresses_of, standing_of, waits_for
from provisioner.cli.vpc.tenancy import VIEW, Tenancy, needing_in, tenancy_of, tenancy_options
from provisioner.cluster.resources import of

HEADER: Final = ("VPC", "CIDRS", "VNI", "ATTACHMENTS", "ENFORCED", "WAITS-FOR")
ATTACHMENTS_HEADER: Final = ("ATTACHMENT", "SERVER", "FUNCTION", "ADDRESSES", "DPU", "STATE", "WAITS-FOR")
WIDE_HEADER: Final = (
    "ATTACHMENT", "SERVER", "FUNCTION", "ADDRESSES", "GATEWAYS", "MAC", "DPU", "STATE", "GENERATION", "WAITS-FOR",
)  # fmt: skip
WAITS_LENGTH: Final = 70


@click.command("status", cls=KubectlCommand, short_help="Show VPCs, or one with its attachments.")
@click.argument("vpc", required=False, metavar="[VPC]", shell_complete=complete_vpc)
@output_option("json", "yaml", "wide", "name")
@tenancy_options
def status(**options: Any) -> None:
    """Show the VPCs of a namespace; or one of them with its attachments: what each was given, which DPU enforces it,
    and what it waits for.

    \b
    Examples:
      kubectl provision vpc status -n blue
      kubectl provision vpc status main -n blue -o wide
      kubectl provision vpc status main -n blue -o json
    """
    name, form = options.pop("vpc"), options.pop("output")
    tenancy = tenancy_of(options)
    if name is None:
        _show_all(tenancy, form)
    else:
        _show_one(tenancy, name, form)


def _show_all(tenancy: Tenancy, form: str | None) -> None:
    with needing_in(tenancy.namespace, VIEW):
        bodies = tenancy.cluster.list(of(VPC), namespace=tenancy.namespace).items
    if print_in_form(form, lambda: bodies, [f"vpc.provisioner.dev/{body['metadata']['name']}" for body in bodies]):
        return
    if not bodies:
        printer.say(f"no VPCs in namespace {tenancy.namespace}", err=True)
    else:
        printer.show(render_vpcs([decode(VPC, body) for body in bodies], wide=form == "wide"))


def _show_one(tenancy: Tenancy, name: str, form: str | None) -> None:
    try:
        with needing_in(tenancy.namespace, VIEW):
            body = tenancy.cluster.get(of(VPC), name, namespace=tenancy.namespace)
            attachments = attachments_of(tenancy, "spec.vpcRef", name)
    except (NotFound, ValueError) as error:
        raise BadInput(
            f"there is no VPC {name} in namespace {tenancy.namespace}", hint=f"kubectl get vpc -n {tenancy.namespace}"
        ) from error
    names = [f"vpcattachment.provisioner.dev/{each.name}" for each in attachments]
    if not print_in_form(form, lambda: [report(body, attachments)], names):
        printer.show(render_vpc(decode(VPC, body), attachments, wide=form == "wide"))


def vpc_waits_for(vpc: VPC) -> str:
    """What keeps a VPC from being as it was asked for; empty if nothing does. Pure."""
    ready = find_condition(vpc.status.conditions, "Ready")
    if ready is None:
        return "Unobserved: the controllers have not looked at it yet (group network)"
    return "" if ready.status == "True" else f"{ready.reason}: {ready.message}"


def render_vpcs(vpcs: Sequence[VPC], *, wide: bool = False) -> str:
    """A line for each. Pure."""
    rows = []
    for each in sorted(vpcs, key=lambda vpc: vpc.name):
        found, waits = each.status, vpc_waits_for(each)
        waits = waits if wide else clip(waits, WAITS_LENGTH)
        cidrs = ",".join(each.spec.cidrs)
        rows.append((each.name, cidrs, found.vni, found.attachments, found.enforced_attachments, waits))
    return table(HEADER, rows)


def render_vpc(vpc: VPC, attachments: Sequence[VPCAttachment], *, wide: bool = False) -> str:
    """What the VPC has, and a line for each of its attachments. Pure."""
    enforced = sum(1 for each in attachments if standing_of(each) == "Enforced")
    vni = f"VNI {vpc.status.vni}" if vpc.status.vni is not None else "without a VNI"
    count = quantity(len(attachments), "attachment")
    headline = f"{vpc.metadata.namespace}/{vpc.name} {vni}, {count}, {enforced} enforced"
    waits, spec = vpc_waits_for(vpc), vpc.spec
    told = screen(
        headline,
        (
            ("waits for", [waits] if waits else []),
            ("cidrs", [", ".join(spec.cidrs)]),
            ("mtu", [f"{spec.mtu_bytes} bytes"]),
            ("p_key", [vpc.status.pkey] if vpc.status.pkey else []),
            ("peers", [", ".join(f"{each.namespace}/{each.name}" for each in spec.peers)] if spec.peers else []),
            ("routes", [f"{each.destination} by {each.next_hop}" for each in spec.routes]),
            ("groups", [", ".join(spec.security_group_refs)] if spec.security_group_refs else []),
        ),
    )
    if not attachments:
        namespace = vpc.metadata.namespace
        return f"{told}\nno attachments: kubectl provision vpc attach {vpc.name} SERVER -n {namespace}\n"
    ordered = sorted(attachments, key=lambda each: (each.spec.server_ref, each.spec.function))
    header = WIDE_HEADER if wide else ATTACHMENTS_HEADER
    rows = [[cells[column] for column in header] for cells in (_cells(each, wide=wide) for each in ordered)]
    return f"{told}\n{table(header, rows)}"


def _cells(each: VPCAttachment, *, wide: bool) -> dict[str, Cell]:
    found, waits = each.status, waits_for(each)
    return {
        "ATTACHMENT": each.name,
        "SERVER": each.spec.server_ref,
        "FUNCTION": each.spec.function,
        "ADDRESSES": addresses_of(each),
        "GATEWAYS": ", ".join(found.gateways),
        "MAC": found.mac_address,
        "DPU": found.dpu_ref,
        "STATE": state_word(each),
        "GENERATION": found.network_generation,
        "WAITS-FOR": waits if wide else clip(waits, WAITS_LENGTH),
    }


def state_word(attachment: VPCAttachment) -> str:
    """Enforced, Quarantined, or that it is not enforced as asked for. Pure."""
    if standing_of(attachment) != "Enforced":
        return "NotEnforced"
    return "Quarantined" if attachment.spec.quarantined else "Enforced"


def report(body: Mapping[str, Any], attachments: Sequence[VPCAttachment]) -> dict[str, Any]:
    """For programs: the VPC as it is, and where each attachment stands. Pure."""
    metadata = body["metadata"]
    return {
        "apiVersion": API_VERSION,
        "kind": "VPCReport",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "vni": (body.get("status") or {}).get("vni"),
        "waitsFor": vpc_waits_for(decode(VPC, body)) or None,
        "vpc": dict(body),
        "attachments": [
            {
                "name": each.name,
                "server": each.spec.server_ref,
                "function": each.spec.function,
                "dpu": each.status.dpu_ref,
                "addresses": list(each.status.addresses),
                "gateways": list(each.status.gateways),
                "macAddress": each.status.mac_address,
                "state": state_word(each),
                "waitsFor": waits_for(each) or None,
            }
            for each in sorted(attachments, key=lambda each: each.name)
        ],
    }
