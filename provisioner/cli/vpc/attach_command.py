"""`kubectl provision vpc attach VPC SERVER[/FUNCTION]…`: makes attachments."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from provisioner.api import VPC, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import Conflict
from provisioner.api.machinery.schema import API_VERSION
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import KubectlCommand, dry_run_note, dry_run_option, read_wait, wait_options
from provisioner.cli.kubectl.completion import complete_attached_server, complete_security_group, complete_vpc
from provisioner.cli.kubectl.connection import MANAGER, find_named
from provisioner.cli.kubectl.failing import DONE, BadInput
from provisioner.cli.kubectl.printing import output_option, print_in_form
from provisioner.cli.vpc.references import PortReference, attachments_of, read_port
from provisioner.cli.vpc.standing import waits_for
from provisioner.cli.vpc.tenancy import EDIT, VIEW, Tenancy, needing_in, tenancy_of, tenancy_options
from provisioner.cli.vpc.waiting import Enforcing, wait_for
from provisioner.cluster.resources import of


@dataclass(frozen=True, kw_only=True)
class AttachmentOptions:
    """What each of the attachments shall have beside its VPC and its function."""

    vpc: str
    dpu: str | None = None
    addresses: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@click.command("attach", cls=KubectlCommand, short_help="Attach servers to a VPC.")
@click.argument("vpc", metavar="VPC", shell_complete=complete_vpc)
@click.argument(
    "servers", nargs=-1, required=True, metavar="SERVER[/FUNCTION]...", shell_complete=complete_attached_server
)
@click.option(
    "--address", "addresses", multiple=True, metavar="ADDRESS", help="Address to have, one of a family [chosen for it]."
)
@click.option(
    "--security-group",
    "groups",
    multiple=True,
    metavar="NAME",
    help="SecurityGroup that holds for it, beside the VPC's; may be given again.",
    shell_complete=complete_security_group,
)
@click.option("--dpu", metavar="NAME", help="DPU of the server; needed where it has several.")
@wait_options("Wait until the DPUs have confirmed that they enforce it, and tell what is waited for.", "2m")
@output_option("json", "yaml", "name")
@dry_run_option
@tenancy_options
def attach(**options: Any) -> None:
    """Attach servers to a VPC of the namespace: a VPCAttachment is made for each, named as the server.

    FUNCTION is that of the card which the host sees: pf0 if none is named, pf0vf3 for its fourth virtual one. The
    server must be assigned to the namespace by its administrators. All are checked before anything is written.

    \b
    Examples:
      kubectl provision vpc attach main r01-u01 r01-u02 -n blue --wait
      kubectl provision vpc attach main r01-u03/pf0vf0 -n blue --address 10.1.0.11
    """
    wait, seconds = read_wait(options)
    ports = list(dict.fromkeys(read_port(text) for text in options.pop("servers")))
    wish = AttachmentOptions(
        vpc=options.pop("vpc"),
        dpu=options.pop("dpu"),
        addresses=options.pop("addresses"),
        groups=options.pop("groups"),
    )
    if len(ports) > 1 and (wish.addresses or wish.dpu):
        raise click.UsageError("--address and --dpu are for one server: attach them one by one")
    form, dry_run = options.pop("output"), options.pop("dry_run")
    tenancy = tenancy_of(options)
    _check_vpc(tenancy, wish.vpc)
    there, missing = _sort(tenancy, wish, ports)
    made = _make(tenancy, wish, missing, dry_run=dry_run != "none")
    found = {**there, **{port: decode(VPCAttachment, body) for port, body in made.items()}}
    names = [f"vpcattachment.provisioner.dev/{found[port].name}" for port in ports]
    if not print_in_form(
        form, lambda: [made.get(port) or _read_body(tenancy, found[port].name) for port in ports], names
    ):
        for port in ports:
            words = _words(port, wish, there.get(port))
            printer.say(f"vpcattachment/{found[port].name} {words}{dry_run_note(dry_run)}")
    if wait:
        watched = [Enforcing.of(each) for each in found.values()]
        code = wait_for(tenancy.cluster, watched, timeout_seconds=seconds)
        if code != DONE:
            printer.say(f"  see: kubectl provision vpc status {wish.vpc} -n {tenancy.namespace}", err=True)
            sys.exit(code)
    elif form is None and dry_run == "none":
        printer.say(f"  see: kubectl provision vpc status {wish.vpc} -n {tenancy.namespace}")


def what_stands_in_the_way(
    port: PortReference, wish: AttachmentOptions, existing: Iterable[VPCAttachment]
) -> VPCAttachment | None:
    """The attachment that is what is wished already; None if it is to be made. `existing`: those of the server in the
    namespace. Raises: BadInput if one of them is in the way. Pure."""
    for each in existing:
        spec = each.spec
        if spec.function != port.function or (wish.dpu and spec.dpu_ref and wish.dpu != spec.dpu_ref):
            continue
        if spec.vpc_ref != wish.vpc:
            raise BadInput(
                f"{port} is attached to VPC {spec.vpc_ref} already, by VPCAttachment {each.name}",
                hint=f"kubectl provision vpc detach {each.name}, and attach it then",
            )
        if set(wish.addresses) - set(spec.addresses) or set(wish.groups) - set(spec.security_group_refs):
            raise BadInput(
                f"{port} is attached already, by VPCAttachment {each.name}, with other addresses or SecurityGroups",
                hint=f"kubectl edit vpcattachment {each.name}",
            )
        return each
    return None


def body_of(namespace: str, port: PortReference, wish: AttachmentOptions) -> dict[str, Any]:
    """The attachment to be made. Pure."""
    spec: dict[str, Any] = {"vpcRef": wish.vpc, "serverRef": port.server, "function": port.function}
    if wish.dpu is not None:
        spec["dpuRef"] = wish.dpu
    if wish.addresses:
        spec["addresses"] = list(wish.addresses)
    if wish.groups:
        spec["securityGroupRefs"] = list(dict.fromkeys(wish.groups))
    metadata = {"name": port.attachment_name, "namespace": namespace}
    return {"apiVersion": API_VERSION, "kind": VPCAttachment.KIND.kind, "metadata": metadata, "spec": spec}


def _check_vpc(tenancy: Tenancy, name: str) -> None:
    with needing_in(tenancy.namespace, VIEW):
        vpc = find_named(tenancy.cluster, VPC, name, namespace=tenancy.namespace)
    if vpc is None:
        raise BadInput(
            f"there is no VPC {name} in namespace {tenancy.namespace}",
            hint=f"kubectl get vpc -n {tenancy.namespace}, or name another namespace with -n",
        )


def _sort(
    tenancy: Tenancy, wish: AttachmentOptions, ports: list[PortReference]
) -> tuple[dict[PortReference, VPCAttachment], list[PortReference]]:
    """Those that are attached so already, and those that are not. Raises: BadInput with all that are in the way."""
    there: dict[PortReference, VPCAttachment] = {}
    wrong: list[BadInput] = []
    existing: dict[str, list[VPCAttachment]] = {}
    for port in ports:
        if port.server not in existing:
            with needing_in(tenancy.namespace, VIEW):
                existing[port.server] = attachments_of(tenancy, "spec.serverRef", port.server)
        try:
            found = what_stands_in_the_way(port, wish, existing[port.server])
        except BadInput as error:
            wrong.append(error)
            continue
        if found is not None:
            there[port] = found
    if wrong:
        raise BadInput("; ".join(Exception.__str__(each) for each in wrong), hint=wrong[0].hint)
    return there, [port for port in ports if port not in there]


def _make(
    tenancy: Tenancy, wish: AttachmentOptions, ports: list[PortReference], *, dry_run: bool
) -> dict[PortReference, Mapping[str, Any]]:
    """First a dry run of all, so that a refusal of one comes before any is written."""
    bodies = {port: body_of(tenancy.namespace, port, wish) for port in ports}

    def create(body: Mapping[str, Any], *, dry_run: bool) -> Mapping[str, Any]:
        try:
            return tenancy.cluster.create(of(VPCAttachment), body, manager=MANAGER, dry_run=dry_run)
        except Conflict as error:
            name = body["metadata"]["name"]
            raise BadInput(
                f"there is a VPCAttachment {name} in namespace {tenancy.namespace} already, of another function",
                hint=f"kubectl provision vpc why vpca/{name} -n {tenancy.namespace}",
            ) from error

    with needing_in(tenancy.namespace, EDIT):
        answers = {port: create(body, dry_run=True) for port, body in bodies.items()}
        return answers if dry_run else {port: create(body, dry_run=False) for port, body in bodies.items()}


def _read_body(tenancy: Tenancy, name: str) -> Mapping[str, Any]:
    with needing_in(tenancy.namespace, VIEW):
        return tenancy.cluster.get(of(VPCAttachment), name, namespace=tenancy.namespace)


def _words(port: PortReference, wish: AttachmentOptions, there: VPCAttachment | None) -> str:
    if there is None:
        return f"attaches {port} to VPC {wish.vpc}"
    waits = waits_for(there)
    return f"attaches {port} to VPC {wish.vpc} already" + (f", and waits: {waits}" if waits else "")
