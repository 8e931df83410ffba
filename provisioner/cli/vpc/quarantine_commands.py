"""`kubectl provision vpc quarantine|release ATTACHMENT…`: nothing passes for now, and passes again."""

from __future__ import annotations

import sys
from typing import Any

import click

from provisioner.api import VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import KubectlCommand, dry_run_note, dry_run_option, read_wait, wait_options
from provisioner.cli.kubectl.connection import MANAGER
from provisioner.cli.kubectl.printing import output_option, print_in_form
from provisioner.cli.vpc.references import attachments_argument, find_each
from provisioner.cli.vpc.tenancy import EDIT, Tenancy, needing_in, tenancy_of, tenancy_options
from provisioner.cli.vpc.waiting import Enforcing, wait_for
from provisioner.cluster.resources import of


@click.command("quarantine", cls=KubectlCommand, short_help="Let nothing pass, and keep the addresses.")
@attachments_argument
@wait_options("Wait until the DPUs have confirmed that nothing passes.", "2m")
@output_option("json", "yaml", "name")
@dry_run_option
@tenancy_options
def quarantine(**options: Any) -> None:
    """Cut attachments off: nothing passes until they are released. They keep their addresses.

    ATTACHMENT is a name, a server with one attachment, or SERVER/FUNCTION. It is the tenant's own: who may write
    attachments in the namespace may release them.

    \b
    Examples:
      kubectl provision vpc quarantine r01-u01 -n blue --wait
    """
    _carry_out(options, quarantined=True)


@click.command("release", cls=KubectlCommand, short_help="Let packets pass again.")
@attachments_argument
@wait_options("Wait until the DPUs have confirmed it.", "2m")
@output_option("json", "yaml", "name")
@dry_run_option
@tenancy_options
def release(**options: Any) -> None:
    """Let attachments in again that are quarantined.

    \b
    Examples:
      kubectl provision vpc release r01-u01 -n blue --wait
    """
    _carry_out(options, quarantined=False)


def describe_change(attachment: VPCAttachment, *, quarantined: bool) -> str:
    """What comes of it, in words. Pure."""
    already = attachment.spec.quarantined == quarantined
    if quarantined:
        return "is quarantined already" if already else "is quarantined: nothing passes once its DPU has taken it up"
    return "is not quarantined" if already else "is released: packets pass again once its DPU has taken it up"


def _carry_out(options: dict[str, Any], *, quarantined: bool) -> None:
    wait, seconds = read_wait(options)
    texts, form, dry_run = options.pop("attachments"), options.pop("output"), options.pop("dry_run")
    tenancy = tenancy_of(options)
    found = find_each(tenancy, texts)
    bodies = [_write(tenancy, each, quarantined=quarantined, dry_run=True) for each in found]
    if dry_run == "none":
        bodies = [_write(tenancy, each, quarantined=quarantined) for each in found]
    if not print_in_form(form, lambda: bodies, [f"vpcattachment.provisioner.dev/{each.name}" for each in found]):
        for each in found:
            words = describe_change(each, quarantined=quarantined)
            printer.say(f"vpcattachment/{each.name} {words}{dry_run_note(dry_run)}")
    if wait:
        watched = [Enforcing.of(decode(VPCAttachment, body)) for body in bodies]
        sys.exit(wait_for(tenancy.cluster, watched, timeout_seconds=seconds))


def _write(tenancy: Tenancy, attachment: VPCAttachment, *, quarantined: bool, dry_run: bool = False) -> dict[str, Any]:
    """Of the one that was read; what else changed meanwhile does not matter. Raises: Conflict if it is another now."""
    namespace = str(attachment.metadata.namespace)
    patch = {"metadata": {"uid": attachment.metadata.uid}, "spec": {"quarantined": quarantined}}
    with needing_in(namespace, EDIT):
        return tenancy.cluster.patch(
            of(VPCAttachment), attachment.name, patch, namespace=namespace, manager=MANAGER, dry_run=dry_run
        )
