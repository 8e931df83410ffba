"""`kubectl provision why NODE…`: what a node is doing, and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.schema import API_VERSION
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import KubectlCommand, target_options
from provisioner.cli.kubectl.connection import connection_of
from provisioner.cli.kubectl.printing import output_option, print_objects
from provisioner.cli.kubectl.targets import find_targets, selection_of
from provisioner.cli.why.screen import render_why
from provisioner.cli.why.subject import ServerSubject, read_subject
from provisioner.cluster.leadership import read_no_leader


@click.command("why", cls=KubectlCommand, short_help="Say what nodes do, why, and what they wait for.")
@target_options
@output_option("json", "yaml")
def why(**options: Any) -> None:
    """Say what nodes are doing, why and since when, what they wait for, and what comes next.

    \b
    Examples:
      kubectl provision why r01-u07
      kubectl provision why r01-u07 -o json | jq .maintenance.status.timeline
    """
    cluster = connection_of(options).open()
    now = datetime.now(UTC)
    targets = find_targets(cluster, selection_of(options), for_requests=False)
    no_leader = read_no_leader(cluster, now) if targets else None
    subjects = [read_subject(cluster, target.server, target.node, now, no_leader) for target in targets]
    if options["output"]:
        print_objects([_as_json(subject) for subject in subjects], options["output"])
    else:
        printer.show("\n\n".join(render_why(subject).rstrip("\n") for subject in subjects))


def _as_json(subject: ServerSubject) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeReport",
        "metadata": {"name": subject.server.name},
        "server": encode(subject.server),
        "node": subject.node,
        "groupsWithoutLeader": list(subject.no_leader.groups) if subject.no_leader else [],
        "maintenance": encode(subject.current) if subject.current else None,
        "lastMaintenance": encode(subject.last) if subject.last else None,
        "events": list(subject.events.events) if subject.events is not None else None,
        "eventsLeftOut": subject.events.left_out if subject.events is not None else None,
    }
