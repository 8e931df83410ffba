"""Which attachment is meant: by its own name, or by a server and a function of its card."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import click

from provisioner.api import VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import NotFound
from provisioner.api.network.ip_rules import FUNCTION_PATTERN
from provisioner.cli.kubectl.completion import complete_attachment
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.vpc.tenancy import VIEW, Tenancy, needing_in
from provisioner.cluster.resources import of

FIRST_FUNCTION: Final = "pf0"
_KINDS: Final = ("vpca", "vpcattachment", "vpcattachments")
_FUNCTION: Final = re.compile(FUNCTION_PATTERN)

attachments_argument: Final = click.argument(
    "attachments", nargs=-1, required=True, metavar="ATTACHMENT...", shell_complete=complete_attachment
)


@dataclass(frozen=True, kw_only=True)
class PortReference:
    """A function of a server's card."""

    server: str
    function: str

    @property
    def attachment_name(self) -> str:
        """That of the attachment which `attach` makes."""
        return self.server if self.function == FIRST_FUNCTION else f"{self.server}-{self.function}"

    def __str__(self) -> str:
        return f"{self.server}/{self.function}"


@dataclass(frozen=True, kw_only=True)
class AttachmentReference:
    """What was written. namespace: None for the command's own. function: None if none was named."""

    text: str
    namespace: str | None
    name: str
    function: str | None


def read_port(text: str) -> PortReference:
    """`r01-u01`, `r01-u01/pf0vf3`. Raises: BadInput."""
    server, slash, function = text.partition("/")
    if not server or (slash and not _FUNCTION.match(function)):
        raise BadInput(
            f"{text!r} is no server, nor a function of one", hint="write r01-u01, or r01-u01/pf0vf3 for its fourth VF"
        )
    return PortReference(server=server, function=function or FIRST_FUNCTION)


def read_reference(text: str) -> AttachmentReference:
    """`r01-u01`, `r01-u01/pf0vf3`, `vpca/NAME`, `NAMESPACE/NAME`. Raises: BadInput."""
    head, slash, rest = text.partition("/")
    if not head or (slash and not rest) or "/" in rest:
        raise BadInput(
            f"{text!r} names no attachment", hint="write its name, SERVER, SERVER/FUNCTION, or NAMESPACE/NAME"
        )
    if not slash:
        return AttachmentReference(text=text, namespace=None, name=head, function=None)
    if head in _KINDS:
        return AttachmentReference(text=text, namespace=None, name=rest, function=None)
    if _FUNCTION.match(rest):
        return AttachmentReference(text=text, namespace=None, name=head, function=rest)
    return AttachmentReference(text=text, namespace=head, name=rest, function=None)


def choose(reference: AttachmentReference, of_server: Iterable[VPCAttachment]) -> list[VPCAttachment]:
    """Those of a server's attachments that are meant: the function that is named, or all of them. Pure."""
    found = [each for each in of_server if reference.function in (None, each.spec.function)]
    return sorted(found, key=lambda each: each.spec.function)


def look_for(tenancy: Tenancy, reference: AttachmentReference) -> list[VPCAttachment]:
    """The attachments that are meant; none if there is none. Raises: Refused where they may not be read."""
    namespace = reference.namespace or tenancy.namespace
    with needing_in(namespace, VIEW):
        if reference.function is None:
            try:
                return [tenancy.cluster.read(VPCAttachment, reference.name, namespace=namespace)]
            except (NotFound, ValueError):
                pass
        return choose(reference, attachments_of(tenancy, "spec.serverRef", reference.name, namespace=namespace))


def find_one(tenancy: Tenancy, text: str) -> VPCAttachment:
    """Raises: BadInput if none is meant, or several."""
    found = look_for(tenancy, reference := read_reference(text))
    if not found:
        where = reference.namespace or tenancy.namespace
        raise BadInput(
            f"there is no attachment {text} in namespace {where}", hint=f"kubectl provision vpc status -n {where}"
        )
    if len(found) > 1:
        raise BadInput(
            f"{text} has several attachments: {', '.join(each.name for each in found)}", hint="name one of them"
        )
    return found[0]


def find_each(tenancy: Tenancy, texts: Sequence[str]) -> list[VPCAttachment]:
    """Each once. Raises: BadInput with every one that is not there."""
    found: dict[str | None, VPCAttachment] = {}
    wrong, hint = [], ""
    for text in texts:
        try:
            attachment = find_one(tenancy, text)
            found[attachment.metadata.uid] = attachment
        except BadInput as error:
            wrong.append(Exception.__str__(error))
            hint = hint or error.hint
    if wrong:
        raise BadInput("; ".join(wrong), hint=hint)
    return list(found.values())


def attachments_of(tenancy: Tenancy, field: str, value: str, *, namespace: str | None = None) -> list[VPCAttachment]:
    """Those of a server (spec.serverRef) or of a VPC (spec.vpcRef), by name."""
    selected = tenancy.cluster.list(
        of(VPCAttachment), namespace=namespace or tenancy.namespace, field_selector=f"{field}={value}"
    )
    return [decode(VPCAttachment, body) for body in selected.items]
