"""`kubectl provision vpc detach ATTACHMENT…`: takes attachments away."""

from __future__ import annotations

import sys
from typing import Any

import click

from provisioner.api import NetworkClaim, VPCAttachment
from provisioner.api.machinery.errors import Forbidden, NotFound
from provisioner.api.network.network_claim import port_claim
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import KubectlCommand, dry_run_note, dry_run_option, read_wait, wait_options
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.vpc.references import attachments_argument, find_each
from provisioner.cli.vpc.tenancy import EDIT, Tenancy, needing_in, tenancy_of, tenancy_options
from provisioner.cli.vpc.waiting import Releasing, wait_for
from provisioner.cluster.resources import of


@click.command("detach", cls=KubectlCommand, short_help="Take servers out of their VPC.")
@attachments_argument
@wait_options(
    "Wait until the DPUs have confirmed that nothing of it is left; it takes the right to read NetworkClaims.", "2m"
)
@dry_run_option
@tenancy_options
def detach(**options: Any) -> None:
    """Take servers out of their VPC: the attachments are deleted, and nothing passes any more.

    ATTACHMENT is a name, a server with one attachment, or SERVER/FUNCTION. Addresses go back to the VPC once every DPU
    that knows them has confirmed that it does not any more.

    \b
    Examples:
      kubectl provision vpc detach r01-u01 -n blue
      kubectl provision vpc detach r01-u03/pf0vf0 -n blue
    """
    wait, seconds = read_wait(options)
    texts, dry_run = options.pop("attachments"), options.pop("dry_run")
    tenancy = tenancy_of(options)
    found = find_each(tenancy, texts)
    watched = _watch(tenancy, found) if wait else []
    for each in found:
        _delete(tenancy, each, dry_run=True)
    for each in found:
        if dry_run == "none":
            _delete(tenancy, each)
        port, note = f"{each.spec.server_ref}/{each.spec.function}", dry_run_note(dry_run)
        printer.say(f"vpcattachment/{each.name} deleted: {port} leaves VPC {each.spec.vpc_ref}{note}")
    if watched:
        sys.exit(wait_for(tenancy.cluster, watched, timeout_seconds=seconds))


def _watch(tenancy: Tenancy, attachments: list[VPCAttachment]) -> list[Releasing]:
    """What tells that the DPUs have let go. Raises: BadInput, before anything is deleted, for who may not see that."""
    found = []
    for each in attachments:
        if each.status.dpu_ref is None:
            continue  # no DPU knows of it
        claim = port_claim(each.status.dpu_ref, each.spec.function)
        try:
            tenancy.cluster.get(of(NetworkClaim), claim)
        except NotFound:
            continue
        except Forbidden as error:
            raise BadInput(
                "whether a DPU has let go of an attachment is told by its NetworkClaims, which you may not read",
                hint="leave --wait out: the DPU lets go by itself",
            ) from error
        found.append(Releasing(name=each.name, claim=claim, holder_uid=each.metadata.uid))
    return found


def _delete(tenancy: Tenancy, attachment: VPCAttachment, *, dry_run: bool = False) -> None:
    """The one that was read. Raises: Conflict if another has its name by now."""
    namespace = str(attachment.metadata.namespace)
    with needing_in(namespace, EDIT):
        tenancy.cluster.delete(
            of(VPCAttachment), attachment.name, namespace=namespace, uid=attachment.metadata.uid, dry_run=dry_run
        )
