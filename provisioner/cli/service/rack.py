"""`provisioner rack register FILE`: a rack's servers from a packing list into the cluster."""

from __future__ import annotations

import dataclasses
import json
import sys
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import click
import yaml

from provisioner.api import Rack
from provisioner.api.machinery import documents
from provisioner.api.machinery.wording import quantity
from provisioner.api.servers.server import Acceptance
from provisioner.cli import printer
from provisioner.cli.options import FILE, kubeconfig_option
from provisioner.cli.progress import Progress
from provisioner.cli.service.rack_leaves import export, retire
from provisioner.cluster.client import Cluster
from provisioner.inventory.lists.entries import BadPackingList, ListEntry, Origin, PackingList
from provisioner.inventory.lists.headers import field_of, known_headers
from provisioner.inventory.lists.packing_list import read_packing_list
from provisioner.inventory.register import RegistrationStep
from provisioner.inventory.registrar import RegistrationOutcome, carry_out, plan_registration

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

_MARKS = {"create": "+", "update": "~", "unchanged": "=", "delete": "-"}


def _read_range(context: click.Context, option: click.Parameter, value: str | None) -> tuple[str, str] | None:
    """START-END as two IPv4 addresses. Raises: click.BadParameter."""
    if value is None:
        return None
    start, dash, end = (part.strip() for part in value.partition("-"))
    try:
        if not dash or IPv4Address(start) > IPv4Address(end):
            raise ValueError("its start comes after its end" if dash else "it has no end")
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is no range of addresses ({error}): write START-END, such as 10.80.0.240-10.80.0.250"
        ) from error
    return start, end


@click.group("rack")
def rack() -> None:
    """Register racks and their servers, and let them go."""


rack.add_command(export)
rack.add_command(retire)


@rack.command("register")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--rack", "rack_name", metavar="NAME", help="Rack of the servers in a CSV that has no such column.")
@click.option(
    "--subnet", metavar="CIDR", help="Create the Rack given by --rack with this subnet, such as 10.80.0.0/24."
)
@click.option("--subnet-name", metavar="NAME", default="boot", show_default=True, help="Name of that subnet.")
@click.option("--gateway", metavar="ADDRESS", help="Gateway of that subnet.")
@click.option("--dns", metavar="ADDRESS", multiple=True, help="DNS server of that subnet; may be repeated.")
@click.option("--relay", metavar="ADDRESS", multiple=True, help="DHCP relay of that subnet; may be repeated.")
@click.option(
    "--range",
    "server_range",
    metavar="START-END",
    callback=_read_range,
    help="Addresses of that subnet that servers get, such as 10.80.0.10-10.80.0.200 [all but the gateway's]. Leave out "
    "those of boot hosts and caches.",
)
@click.option(
    "--discovery-range",
    metavar="START-END",
    callback=_read_range,
    help="Addresses of that subnet that unknown machines are lent, such as 10.80.0.240-10.80.0.250; "
    "without it they get no answer.",
)
@click.option("--pool", metavar="NAME", help="NodePool of the servers in a CSV that has no such column.")
@click.option(
    "--column",
    "given_columns",
    metavar="FIELD=HEADER",
    multiple=True,
    help="What a CSV's column means, such as mac='Netz (PXE)'; may be repeated.",
)
@click.option("--columns", "columns_file", type=FILE, help="File with such columns, FIELD: HEADER in YAML.")
@click.option("--save-columns", type=FILE, help="Write the columns that were given into FILE, for the next list.")
@click.option("--accept/--pending", default=None, help="Let the servers boot, or not yet [new ones: accept].")
@click.option("--bmc-secrets", is_flag=True, help="Write a CSV's BMC passwords into Secrets of provisioner-bmcs.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@kubeconfig_option
def register(
    file: Path,
    rack_name: str | None,
    subnet: str | None,
    subnet_name: str,
    gateway: str | None,
    dns: tuple[str, ...],
    relay: tuple[str, ...],
    server_range: tuple[str, str] | None,
    discovery_range: tuple[str, str] | None,
    pool: str | None,
    given_columns: tuple[str, ...],
    columns_file: Path | None,
    save_columns: Path | None,
    accept: bool | None,
    bmc_secrets: bool,
    dry_run: bool,
    output: str,
    kubeconfig: Path | None,
) -> None:
    """Register what FILE (YAML or CSV, - for standard input) lists, and show what that changes field by field.

    The whole file is checked before anything is written. Running it again changes nothing, and goes on where a run was
    ended. Exits with 0 if all is registered, 1 if the API server did not take some of it, 2 if the file must be
    corrected first, 130 if interrupted.
    """
    if subnet and not rack_name:
        raise click.UsageError("--subnet describes the Rack that --rack names: give --rack NAME too")
    first, last = server_range or (None, None)
    start, end = discovery_range or (None, None)
    fields = {
        "gateway": gateway,
        "dnsServers": [*dns],
        "relays": [*relay],
        "rangeStart": first,
        "rangeEnd": last,
        "discoveryRangeStart": start,
        "discoveryRangeEnd": end,
    }
    if any(fields.values()) and not subnet:
        raise click.UsageError(
            "--gateway, --dns, --relay, --range and --discovery-range describe a new subnet: give --subnet CIDR too "
            "(of a Rack that exists: kubectl edit rack NAME)"
        )
    most = documents.MOST_BYTES
    data = sys.stdin.buffer.read(most + 1) if str(file) == "-" else documents.read_bytes(file, most)
    name = "standard input" if str(file) == "-" else str(file)
    acceptance: Acceptance | None = None if accept is None else "Accepted" if accept else "Pending"
    columns = _read_columns(given_columns, columns_file)
    try:
        packing_list = read_packing_list(
            data, name, rack=rack_name, pool=pool, take_passwords=bmc_secrets, columns=columns
        )
        if save_columns is not None:
            save_columns.write_text(yaml.safe_dump(columns, allow_unicode=True, sort_keys=False), encoding="utf-8")
        if rack_name and subnet:
            given = {key: value for key, value in fields.items() if value}
            packing_list = _with_rack(packing_list, rack_name, {"name": subnet_name, "cidr": subnet, **given})
        cluster = Cluster.connect(kubeconfig, user_agent="provisioner-register")
        with Progress() as progress:
            progress.begin("reading what is registered")
            plan = plan_registration(cluster, packing_list, acceptance=acceptance)
            work = len(plan.steps) - plan.count("unchanged")
            progress.begin("asking the API server" if dry_run else "registering", work)
            outcome = carry_out(cluster, plan, dry_run=dry_run, advance=progress.advance)
        if dry_run and (mistakes := outcome.mistakes()):
            raise BadPackingList(mistakes, plan.notes)
    except BadPackingList as bad:
        _show_mistakes(bad, output)
        sys.exit(EXIT_BAD_INPUT)
    except KeyboardInterrupt:  # while it was read what is registered, or a second one
        printer.say("interrupted; what is written stays as it is. Run the same command again: it goes on", err=True)
        sys.exit(EXIT_INTERRUPTED)
    (_show_json if output == "json" else _show_text)(outcome, plan.notes, dry_run)
    if outcome.untried or outcome.interrupted:
        printer.say(
            f"{'interrupted' if outcome.interrupted else 'the API server stopped answering'}: "
            f"{len(outcome.untried):,} of {len(plan.steps):,} were not tried; what is written stays as it is. "
            "Run the same command again: it goes on from there",
            err=True,
        )
    if outcome.interrupted:
        sys.exit(EXIT_INTERRUPTED)
    if outcome.failures or outcome.untried:
        sys.exit(EXIT_FAILED)


def _read_columns(given: tuple[str, ...], file: Path | None) -> dict[str, str]:
    """Headers by field: what was given goes before what the file has. Raises: click.UsageError."""
    pairs: list[tuple[Any, Any]] = []
    if file is not None:
        try:
            pairs = list(documents.read_yaml(documents.read_bytes(file).decode()).items())
        except (OSError, ValueError, AttributeError, documents.Unreadable) as error:
            raise click.UsageError(
                f"--columns {file} cannot be read ({error}): write lines FIELD: HEADER, such as mac: Netz (PXE)"
            ) from error
    for text in given:
        field, equals, header = text.partition("=")
        if not equals or not header.strip():
            raise click.UsageError(f"--column {text!r}: write FIELD=HEADER, such as mac='Netz (PXE)'")
        pairs.append((field, header))
    columns = {}
    for name, header in pairs:
        field_meant = field_of(str(name))
        if field_meant is None or not isinstance(header, str):
            raise click.UsageError(f"a column {name}={header!r}: FIELD is one of\n{known_headers()}")
        columns[field_meant] = header
    return columns


def _with_rack(packing_list: PackingList, name: str, subnet: dict[str, Any]) -> PackingList:
    rack = ListEntry(
        kind=Rack.KIND.kind, name=name, spec={"subnets": [subnet]}, origin=Origin("--subnet"), create_only=True
    )
    return dataclasses.replace(packing_list, entries=(rack, *packing_list.entries))


def _show_mistakes(bad: BadPackingList, output: str) -> None:
    if output == "json":
        mistakes = [mistake.fields() for mistake in bad.mistakes]
        printer.show(json.dumps({"mistakes": mistakes, "notes": bad.notes}, indent=2))
        return
    for mistake in bad.mistakes:
        printer.say(f"{mistake.origin}: {mistake.observed}", err=True)
        first, *more = mistake.expected.split("\n")
        printer.say(
            f"  expected: {first}", *(f"    {line}" for line in more), f"  remedy:   {mistake.remedy}", err=True
        )
    for note in bad.notes:
        printer.say(f"note: {note}", err=True)
    printer.say(f"{quantity(len(bad.mistakes), 'mistake')}; nothing was registered", err=True)


def _show_text(outcome: RegistrationOutcome, notes: tuple[str, ...], dry_run: bool) -> None:
    for step in outcome.steps:
        printer.say(*_lines(step))
    for note in notes:
        printer.say(f"note: {note}")
    for failure in outcome.failures:
        printer.say(f"error: {failure.step.origin}: {failure.step.kind} {failure.step.name}: {failure.error}", err=True)
    unchanged = f"{outcome.count('unchanged')} unchanged"
    if dry_run:
        counts = ", ".join(f"{outcome.count(action)} to {action}" for action in ("create", "update", "delete"))
        printer.say(f"dry run: {counts}, {unchanged}; nothing was written")
        return
    written = len(outcome.steps) - outcome.count("unchanged")
    printer.say(f"{written} written, {len(outcome.failures)} failed, {unchanged}")


def _lines(step: RegistrationStep) -> list[str]:
    """A line for the object; below it, for an update, one for each field that changes."""
    head = f"{_MARKS[step.action]} {step.kind} {step.name}"
    if step.action == "create":
        return [" ".join([head, *(f"{change.field}={_shown(change.after)}" for change in step.changes)])]
    if step.action == "delete":
        return [f"{head}: {step.reason}"]
    return [head, *(f"    {each.field}: {_shown(each.before)} -> {_shown(each.after)}" for each in step.changes)]


def _shown(value: Any) -> str:
    if value is None:
        return "(unset)"
    return value if isinstance(value, str) else json.dumps(value)


def _show_json(outcome: RegistrationOutcome, notes: tuple[str, ...], dry_run: bool) -> None:
    told = [*((step, None) for step in outcome.steps), *((f.step, str(f.error)) for f in outcome.failures)]
    steps = [
        {
            "action": step.action,
            "kind": step.kind,
            "name": step.name,
            "origin": str(step.origin) if step.origin else None,
            "changes": [dataclasses.asdict(change) for change in step.changes],
            "error": error,
        }
        for step, error in told
    ]
    untried = [{"kind": step.kind, "name": step.name} for step in outcome.untried]
    printer.show(json.dumps({"dryRun": dry_run, "steps": steps, "untried": untried, "notes": notes}, indent=2))
