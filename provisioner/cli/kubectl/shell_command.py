"""`kubectl provision shell NODE -m REASON`: break-glass, a shell on a node that leaves a record."""

from __future__ import annotations

import secrets
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any, Final

import click

from provisioner.api.machinery.errors import NotFound
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import KubectlCommand, dry_run_option
from provisioner.cli.kubectl.completion import complete_server
from provisioner.cli.kubectl.connection import Connection, connection_of, connection_options
from provisioner.cli.kubectl.failing import BadInput, hinting_at
from provisioner.cli.kubectl.printing import print_objects
from provisioner.cli.kubectl.shell_pod import CONTAINER, NAMESPACE, shell_event, shell_pod
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import EVENTS, NODES, PODS

START_SECONDS: Final = 120.0
"""How long the node may take to start the pod: its kubelet is asked for nothing but a program that it has."""

_RIGHTS: Final = (
    f"kubectl -n {NAMESPACE} create rolebinding NAME --role=provisioner-break-glass --user=USER, and "
    "kubectl -n default create rolebinding NAME --role=provisioner-break-glass-events --user=USER"
)


@click.command("shell", cls=KubectlCommand, short_help="Break-glass: a shell on a node, on record.")
@click.argument("node", shell_complete=complete_server)
@click.option("-m", "--reason", required=True, metavar="WORDS", help="Why: 8 to 512 characters. They are kept.")
@click.option(
    "--minutes",
    type=click.IntRange(1, 240),
    default=30,
    show_default=True,
    help="The shell ends by itself after these.",
)
@dry_run_option
@connection_options
def shell(node: str, reason: str, minutes: int, dry_run: str, **options: Any) -> None:
    """Open a root shell on a node, in a privileged pod that ends with it.

    Who, where, why and how long is in the API server's audit log before it opens, and in an Event of the Node. What is
    changed on the node is gone with its next boot: kubectl provision reimage NODE afterwards brings back what is known.

    \b
    Example:
      kubectl provision shell r01-u01 -m "GPU 3 fell off the bus, looking for XIDs"
    """
    connection = connection_of(options)
    cluster = connection.open()
    name = node.removeprefix("node/").removeprefix("nodes/")
    found = _read_node(cluster, name)
    user, suffix = cluster.ask_who_i_am(), secrets.token_hex(4)
    pod = shell_pod(name, user=user, reason=reason, minutes=minutes, suffix=suffix)
    with hinting_at(_RIGHTS):
        cluster.create(PODS, pod, dry_run=True)
        if dry_run == "server":
            print_objects([pod], "yaml")
            return
        program = _kubectl()
        opened = f"{user} opens a shell for {minutes} min at the most: {reason}"
        cluster.create(EVENTS, shell_event(found, "BreakGlassOpened", opened, datetime.now(UTC), suffix))
        cluster.create(PODS, pod)
    started = time.monotonic()
    try:
        _wait_until_it_runs(cluster, pod["metadata"]["name"])
        printer.say(f"node/{name} shell of {user}, {minutes} min at the most; on record: {reason}", err=True)
        ended = subprocess.run([program, *attach_arguments(connection, pod["metadata"]["name"])], check=False)
    finally:
        cluster.delete(PODS, pod["metadata"]["name"], namespace=NAMESPACE)
        closed = f"{user} closes the shell after {time.monotonic() - started:.0f} s: {reason}"
        cluster.create(EVENTS, shell_event(found, "BreakGlassClosed", closed, datetime.now(UTC), suffix))
    sys.exit(ended.returncode)


def attach_arguments(connection: Connection, pod: str) -> list[str]:
    """What kubectl is called with, as the same user of the same cluster."""
    said = {"--kubeconfig": connection.kubeconfig, "--context": connection.context, "--as": connection.as_user}
    flags = [f"{flag}={value}" for flag, value in said.items() if value is not None]
    flags += [f"--as-group={group}" for group in connection.as_groups]
    return [*flags, f"--namespace={NAMESPACE}", "attach", pod, f"--container={CONTAINER}", "--stdin", "--tty"]


def _read_node(cluster: Cluster, name: str) -> dict[str, Any]:
    try:
        return dict(cluster.get(NODES, name))
    except (NotFound, ValueError) as error:
        raise BadInput(
            f"there is no Node {name}",
            hint="kubectl get nodes; a server that has not joined is looked at by its BMC's console",
        ) from error


def _kubectl() -> str:
    found = shutil.which("kubectl")
    if found is None:
        raise BadInput("kubectl is not on the PATH, and attaches to the shell", hint="install kubectl")
    return found


def _wait_until_it_runs(cluster: Cluster, pod: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        status = cluster.get(PODS, pod, namespace=NAMESPACE).get("status") or {}
        if status.get("phase") == "Running":
            return
        waiting = [(each.get("state") or {}).get("waiting") or {} for each in status.get("containerStatuses") or ()]
        said = " ".join(str(each.get("message") or each.get("reason")) for each in waiting if each) or str(
            status.get("message") or status.get("reason") or "its kubelet has not taken it up"
        )
        if status.get("phase") in ("Failed", "Succeeded") or time.monotonic() > deadline:
            raise BadInput(
                f"the shell did not start on the node: {said[:512]}",
                hint="is its kubelet alive (kubectl get node)? Without one, the BMC's console and kubectl provision "
                "power-cycle are what is left",
            )
        time.sleep(0.2)
