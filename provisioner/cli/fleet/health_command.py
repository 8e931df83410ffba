"""`kubectl provision health`: the faults of servers, a line each, and what to do about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from provisioner.api import Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.meta import parse_time
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.machinery.wording import ago, clip, plain
from provisioner.api.servers.faults import FaultRecord
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import KubectlCommand
from provisioner.cli.kubectl.completion import complete_pool, complete_server
from provisioner.cli.kubectl.connection import connection_of, connection_options
from provisioner.cli.kubectl.printing import output_option, print_in_form, table
from provisioner.cli.kubectl.targets import TargetSelection, find_targets
from provisioner.health.faults.catalogue import meaning_of
from provisioner.health.faults.normalise import rank

HEADER = ("SERVER", "COMPONENT", "DEVICE", "CODE", "SEVERITY", "SINCE", "COUNT", "LAST", "REPORTED", "EVIDENCE")
EVIDENCE_LENGTH = 60


@click.command("health", cls=KubectlCommand, short_help="Show the faults of servers.")
@click.argument("nodes", nargs=-1, metavar="[SERVER...]", shell_complete=complete_server)
@click.option("-l", "--selector", metavar="LABELS", help="Servers whose Nodes have these labels.")
@click.option("--pool", metavar="NAME", help="Servers of that NodePool.", shell_complete=complete_pool)
@click.option("--all", "info", is_flag=True, help="Show faults of severity Info, too.")
@output_option("json", "yaml", "name")
@connection_options
def health(**options: Any) -> None:
    """Show the faults on record of servers, what they mean, and what to do about them.

    SINCE is when a fault was first seen, LAST when it was last seen new or more often, and REPORTED whether the node
    still reports it in the running boot. A fault stays on record when it is no longer reported. Without names all
    servers.

    \b
    Examples:
      kubectl provision health
      kubectl provision health r01-u07 --all
      kubectl provision health --pool gpu -o json
    """
    cluster = connection_of(options).open()
    selected = bool(options["nodes"] or options["selector"] or options["pool"])
    wish = TargetSelection(
        names=options["nodes"], selector=options["selector"], pool=options["pool"], everything=not selected
    )
    servers = [target.server for target in find_targets(cluster, wish, for_requests=False)]
    shown = [(server, faults) for server in servers if (faults := shown_faults(server, info=options["info"]))]
    if print_in_form(
        options["output"],
        lambda: [_as_json(server, faults) for server, faults in shown],
        [f"server/{server.name}" for server, _ in shown],
    ):
        return
    if shown:
        printer.show(render_health(shown, datetime.now(UTC)))
    else:
        printer.say("no faults")


def shown_faults(server: Server, *, info: bool) -> list[FaultRecord]:
    """The worst first; of equally severe ones those that are reported, then in the order in which they were found."""
    shown = [record for record in server.status.faults if info or record.severity != "Info"]
    return sorted(shown, key=lambda record: (-rank(record.severity), not record.reported))


def render_health(shown: Sequence[tuple[Server, Sequence[FaultRecord]]], now: datetime) -> str:
    """The table, and below it each fault that is in it, with its remedy. Pure."""
    rows = [_row(server, record, now) for server, faults in shown for record in faults]
    records = {
        (each.component, each.code, each.source): each for _, faults in reversed(shown) for each in reversed(faults)
    }
    lines = []
    for record in sorted(records.values(), key=lambda each: (-rank(each.severity), each.code)):
        known = meaning_of(record.component, record.code, record.source)
        lines.append(f"{plain(record.code)}: {known.meaning}\n  remedy: {known.remedy}\n")
    return table(HEADER, rows) + "\n" + "".join(lines)


def _row(server: Server, record: FaultRecord, now: datetime) -> tuple[str | None, ...]:
    return (
        server.name,
        record.component,
        record.device,
        record.code,
        record.severity,
        ago(parse_time(record.first_time), now),
        str(record.count),
        ago(parse_time(record.last_time), now),
        "yes" if record.reported else "no",
        clip(record.evidence, EVIDENCE_LENGTH),
    )


def _as_json(server: Server, faults: Sequence[FaultRecord]) -> dict[str, Any]:
    """For programs: the records as they are, each with its remedy."""
    return {
        "apiVersion": API_VERSION,
        "kind": "FaultReport",
        "metadata": {"name": server.name},
        "faults": [{**to_json(record), **to_json(_meaning(record))} for record in faults],
    }


def _meaning(record: FaultRecord) -> Any:
    return meaning_of(record.component, record.code, record.source)
