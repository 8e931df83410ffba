"""`kubectl provision attestation`: what a machine showed of its TPM, which a person approves, or has forgotten."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import click

from provisioner.api import FirmwareProfile, NodePool, Server
from provisioner.api.machinery.errors import Refused
from provisioner.cli import printer
from provisioner.cli.kubectl import forgetting
from provisioner.cli.kubectl.completion import complete_server
from provisioner.cli.kubectl.connection import connection_of, connection_options, find_named
from provisioner.cli.kubectl.failing import hinting_at
from provisioner.cli.kubectl.learned_profile import read_profile
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import EVENTS, of
from provisioner.rules.pool_of_server import next_pool_name

MANAGER: Final = "provisioner-accept"
"""As who accepts a server: its endorsement key is a part of what it is registered with."""


@dataclass(frozen=True)
class Approval:
    """What is to be written. key: None if the key is registered already. profile: None if none is to be approved."""

    server: str
    key: str | None
    profile: str | None


def decide_approval(server: Server, key: str | None, *, firmware: str | None) -> Approval:
    """What approving what the server's machine showed comes to. key: the one that the person expects, if any; firmware:
    the FirmwareProfile that the person has looked at, if one is to be approved.

    Raises: Refused where nothing waits, or something else than the person expects.
    """
    attested = server.status.attestation
    seen = attested.pending if attested is not None else None
    if seen is None:
        raise Refused(
            f"nothing of Server {server.name} waits for approval: no machine has shown a TPM that is not known",
            hint="see its conditions Attested and Joined: kubectl describe server " + server.name,
        )
    if key is not None and key != seen.endorsement_key_sha256:
        raise Refused(
            f"the machine at Server {server.name} has endorsement key {seen.endorsement_key_sha256}, expected {key}",
            hint="find out which machine has its address; nothing was approved",
        )
    if firmware is not None and firmware != seen.firmware_profile:
        learned = "no FirmwareProfile" if seen.firmware_profile is None else f"FirmwareProfile {seen.firmware_profile}"
        raise Refused(
            f"{learned} was learned of the machine at Server {server.name}, expected {firmware}",
            hint="what it shows is in status.attestation.pending of the Server: kubectl get server "
            f"{server.name} -o jsonpath='{{.status.attestation.pending}}'; nothing was approved",
        )
    registered = server.spec.endorsement_key_sha256
    if registered not in (None, seen.endorsement_key_sha256) and key is None:
        raise Refused(
            f"Server {server.name} is registered with endorsement key {registered}, and another machine, or a new "
            f"mainboard, has {seen.endorsement_key_sha256}",
            hint=f"if the mainboard was replaced: --key {seen.endorsement_key_sha256}",
        )
    return Approval(
        server=server.name,
        key=None if registered == seen.endorsement_key_sha256 else seen.endorsement_key_sha256,
        profile=firmware,
    )


@click.group("attestation", short_help="Approve TPMs and firmware that were seen, or forget them.")
def attestation() -> None:
    """Who machines are by their TPMs: what waits for a person's approval, and what is to count no more."""


@attestation.command("approve", short_help="Register the endorsement key that a server's machine has shown.")
@click.argument("servers", nargs=-1, required=True, metavar="SERVER...")
@click.option("--key", metavar="DIGEST", help="Approve this key alone, with one server only: from its packing list.")
@click.option("--firmware", metavar="PROFILE", help="Approve this FirmwareProfile, which was learned of it, too.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@connection_options
def approve(servers: tuple[str, ...], key: str | None, firmware: str | None, dry_run: bool, **options: Any) -> None:
    """Let only the machine with this TPM be the server from now on; either for all that are named, or for none.

    The machine has proved that its TPM holds the key; that it is the server whose address it has, a person says:
    compare the key with the vendor's list. With --firmware all machines whose firmware measures the same are let in:
    name the profile that you have looked at. If the machine has shown another since, nothing is approved.
    """
    if key is not None and len(servers) > 1:
        raise click.UsageError("--key is for one server: approve them one by one")
    cluster = connection_of(options).open()
    read = [cluster.read(Server, name) for name in dict.fromkeys(servers)]
    decided = [(server, decide_approval(server, key, firmware=firmware)) for server in read]
    profile = read_profile(cluster, firmware, read[0].name) if firmware is not None else None
    if profile is not None and not dry_run:
        _write(cluster, profile, {"approved": True})
    for server, approval in decided:
        if approval.key is not None and not dry_run:
            _write(cluster, server, {"endorsementKeySHA256": approval.key})
        _show(approval, dry_run=dry_run)


def carry_out(cluster: Cluster, server: Server, approval: Approval) -> None:
    """Write it. Raises: Conflict if an object changed since it was read, Refused for a profile with a false name."""
    if approval.profile is not None:
        _write(cluster, read_profile(cluster, approval.profile, approval.server), {"approved": True})
    if approval.key is not None:
        _write(cluster, server, {"endorsementKeySHA256": approval.key})


def _write(cluster: Cluster, read: Server | FirmwareProfile, spec: dict[str, Any]) -> None:
    """Raises: Conflict if the object changed since it was read: what is approved is what was looked at."""
    patch = {"metadata": {"resourceVersion": read.metadata.resource_version}, "spec": spec}
    cluster.patch(of(type(read)), read.name, patch, manager=MANAGER)


def _show(approval: Approval, *, dry_run: bool) -> None:
    done = "would be approved" if dry_run else "approved"
    if approval.key is not None:
        printer.say(f"Server {approval.server}: endorsement key {approval.key} {done}")
    else:
        printer.say(f"Server {approval.server}: its endorsement key is registered")
    if approval.profile is not None:
        printer.say(f"FirmwareProfile {approval.profile} {done}: for all machines that measure the same")


@attestation.command("forget", short_help="Take back what a server proved, for a new mainboard, TPM or firmware.")
@click.argument("servers", nargs=-1, required=True, metavar="SERVER...", shell_complete=complete_server)
@click.option("-m", "--reason", metavar="WORDS", help="Why, in words. An Event of the Server keeps them.")
@click.option("--key", is_flag=True, help="Forget the endorsement key that is registered in its spec, too.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@connection_options
def forget(servers: tuple[str, ...], reason: str | None, key: bool, dry_run: bool, **options: Any) -> None:
    """Have what servers proved of themselves forgotten, so that their next boot is judged as a new machine's.

    A server that has proved its firmware is refused with any other, as what an implant does looks the same. Forget the
    proof for a firmware update or a cleared TPM; with --key for another mainboard or TPM, or none. What runs goes on
    running. An Event of the Server says who did it, and why. Either all that are named, or none if one is refused.

    \b
    Examples:
      kubectl provision attestation forget r01-u07 -m 'firmware 2.7'
      kubectl provision attestation forget r01-u07 --key -m 'mainboard exchanged'
    """
    cluster = connection_of(options).open()
    read = [cluster.read(Server, name) for name in dict.fromkeys(servers)]
    decided = [
        forgetting.decide_forgetting(server, find_named(cluster, NodePool, next_pool_name(server)), key=key)
        for server in read
    ]
    user = cluster.ask_who_i_am()
    with hinting_at("who may is an administrator: ask for the role provisioner-administrator"):
        for each in decided:
            forgetting.carry_out(cluster, each, dry_run=True)
        for each in decided:
            if each.is_any and not dry_run:
                event = forgetting.forget_event(each, user, reason, datetime.now(UTC), secrets.token_hex(4))
                cluster.create(EVENTS, event)
                forgetting.carry_out(cluster, each)
            _show_forgotten(each, dry_run=dry_run)


def _show_forgotten(each: forgetting.Forgetting, *, dry_run: bool) -> None:
    done = "would be forgotten" if dry_run else "forgotten"
    if not each.is_any:
        printer.say(f"Server {each.server.name}: nothing to forget")
        return
    if each.record:
        printer.say(f"Server {each.server.name}: what it proved and showed {done}")
    if each.key is not None:
        printer.say(f"Server {each.server.name}: endorsement key {each.key} {done}")
    printer.say("  at its next boot:")
    for line in each.next_boot:
        printer.say(f"    {line}")
