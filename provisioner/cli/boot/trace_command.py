"""`provisioner boot trace MAC|SERVER`: what all boot hosts hear of one machine, and what becomes of it, as it happens.

Kubernetes is the only way there: an annotation asks, boot hosts answer by Events, and both are over by themselves.
"""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, Final

import click

from provisioner.api import Rack, Server
from provisioner.api.machinery.errors import Forbidden, NotFound, ProvisionerError, Retryable
from provisioner.api.servers.trace import LONGEST_TRACE, TRACE_ANNOTATION, TRACED_REASON, read_trace, trace_value
from provisioner.cli import printer
from provisioner.cli.boot.reading import find_claimants
from provisioner.cli.boot.trace_screen import SERVER, TraceLine, told_by_change, told_by_event
from provisioner.cli.kubectl.asking import KubectlCommand
from provisioner.cli.kubectl.completion import complete_server
from provisioner.cli.kubectl.connection import connection_of, connection_options
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.kubectl.moments import read_span
from provisioner.cli.kubectl.printing import output_option
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import CLUSTER_SCOPED_NAMESPACE
from provisioner.cluster.informer import Informer
from provisioner.cluster.recent_events import trim_event
from provisioner.cluster.resources import EVENTS, ResourceType, of
from provisioner.cluster.trim import without_managed_fields
from provisioner.rules.identity import find_server

SILENT_SECONDS: Final = 20.0
"""After which it is said that no boot host has answered."""
SYNC_SECONDS: Final = 30.0
MANAGER: Final = "provisioner-trace"
_MOST_WAITING: Final = 10_000


@click.command("trace", cls=KubectlCommand, short_help="Show a machine's packets and requests, from all boot hosts.")
@click.argument("subject", metavar="MAC|SERVER", shell_complete=complete_server)
@click.option(
    "--rack", metavar="RACK", help="For a MAC address that is no Server's: the Rack that it is looked for in."
)
@click.option("--for", "span", default="15m", show_default=True, metavar="SPAN", help="How long, an hour at most.")
@click.option("--no-ask", is_flag=True, help="Ask no boot host: show Events and the Server's status alone.")
@output_option("json")
@connection_options
def trace(**options: Any) -> None:
    """Show what all boot hosts hear of a machine (DHCP, TFTP, HTTP, joins), its Events, and what changes in its Server,
    as it happens, until Control-C or the time is over.

    Lines with ~ are hearsay: somebody sent that, and nobody proved who. Asking takes the role provisioner-tracer, which
    operators have; who has it not sees the rest.

    \b
    Examples:
      provisioner boot trace r01-u07
      provisioner boot trace 52:54:00:12:34:56 --for 30m
      provisioner boot trace 52:54:00:99:99:99 --rack r01      # nobody's yet: is it heard at all?
    """
    span = read_span(options["span"], "--for")
    if not timedelta(0) < span <= LONGEST_TRACE:
        raise BadInput(f"--for is {options['span']}", hint="give at most 1h, and ask again after it")
    cluster = connection_of(options).open()
    type_, name, macs = _find_object(cluster, options["subject"], options["rack"])
    as_json = options["output"] == "json"

    def tell(told: TraceLine) -> None:
        printer.say(json.dumps(told.as_json()) if as_json else told.line())

    until = datetime.now(UTC) + span
    with (
        suppress(KeyboardInterrupt),
        TraceFollower(cluster, type_, name).started() as follower,
        _asked(cluster, type_, name, macs, until, asks=not options["no_ask"]) as asks,
    ):
        follower.tell(tell, seconds=span.total_seconds(), expects_hosts=asks)


def _find_object(cluster: Cluster, subject: str, rack: str | None) -> tuple[ResourceType, str, frozenset[str]]:
    """The object whose annotation asks, and the MAC addresses that it has to name."""
    mac, claimants = find_claimants(cluster, subject)
    server = find_server(mac, claimants)
    if server is not None:
        return of(Server), server.name, frozenset()
    if rack is None:
        raise BadInput(
            f"no Server has the MAC address {mac}",
            hint="name the Rack in which it should be heard: --rack RACK (kubectl get racks)",
        )
    return of(Rack), cluster.read(Rack, rack).name, frozenset({str(mac)})


@contextmanager
def _asked(
    cluster: Cluster, type_: ResourceType, name: str, macs: frozenset[str], until: datetime, *, asks: bool
) -> Iterator[bool]:
    """Ask the boot hosts, and take the request back in the end. Gives whether they are asked."""
    if not asks:
        yield False
        return
    asked = read_trace(cluster.get(type_, name), datetime.now(UTC))
    if asked is not None and asked.until >= until and macs <= asked.macs:
        yield True  # somebody else's lasts longer, and is not ours to take back
        return
    value = trace_value(until, macs if asked is None else macs | asked.macs)
    try:
        _annotate(cluster, type_, name, value)
    except Forbidden as error:
        printer.say(
            f"boot hosts are not asked: {Exception.__str__(error)}",
            "  try: ask for the role provisioner-tracer, which "
            "operators have; Events and the status are shown all the same",
            err=True,
        )
        yield False
        return
    try:
        yield True
    finally:
        with suppress(ProvisionerError):  # it is over by itself
            annotations = cluster.get(type_, name)["metadata"].get("annotations") or {}
            if annotations.get(TRACE_ANNOTATION) == value:
                goes_on = asked is not None and asked.until > datetime.now(UTC)
                former = trace_value(asked.until, asked.macs) if asked is not None and goes_on else None
                _annotate(cluster, type_, name, former)


def _annotate(cluster: Cluster, type_: ResourceType, name: str, value: str | None) -> None:
    cluster.patch(type_, name, {"metadata": {"annotations": {TRACE_ANNOTATION: value}}}, manager=MANAGER)


class TraceFollower:
    """Caches of one object and of its Events, and what changed in them since they were first complete."""

    def __init__(self, cluster: Cluster, type_: ResourceType, name: str) -> None:
        self._type, self._name = type_, name
        self._news: queue.Queue[list[TraceLine]] = queue.Queue(_MOST_WAITING)
        selector = f"involvedObject.name={name},involvedObject.kind={type_.kind}"
        self._events = Informer(
            cluster, EVENTS, namespace=CLUSTER_SCOPED_NAMESPACE, field_selector=selector, trim=trim_event
        )
        one = f"metadata.name={name}"
        self._objects = Informer(cluster, type_, field_selector=one, trim=without_managed_fields)
        self._events.subscribe(self._event_changed)
        if type_.kind == "Server":
            self._objects.subscribe(self._object_changed)

    @contextmanager
    def started(self) -> Iterator[TraceFollower]:
        """Follow while the block lasts; it begins once what is there already is known.

        Raises: Retryable if the API server does not answer.
        """
        stop = Event()
        try:
            for informer in (self._objects, self._events):
                informer.start(stop)
            if not all(informer.wait_for_sync(SYNC_SECONDS) for informer in (self._objects, self._events)):
                raise Retryable(f"{self._type.kind} {self._name} and its Events were not told in {SYNC_SECONDS:.0f} s")
            yield self
        finally:
            stop.set()

    def tell(self, tell: Callable[[TraceLine], None], *, seconds: float, expects_hosts: bool) -> None:
        """Tell what happens for so long. Raises: NotFound once the object is gone."""
        heard_host, said, began = False, False, time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            with suppress(queue.Empty):
                for told in self._news.get(timeout=min(1.0, seconds - passed)):
                    heard_host = heard_host or (told.heard and told.source != SERVER)
                    tell(told)
            if expects_hosts and not heard_host and not said and passed > SILENT_SECONDS:
                said = True
                printer.say(
                    f"no boot host has answered in {SILENT_SECONDS:.0f} s (an Event {TRACED_REASON} of "
                    f"{self._type.kind} {self._name})",
                    "  try: does `provisioner boot` run, and reach the API server? see its log",
                    err=True,
                )
            if self._objects.get(self._name) is None:
                raise NotFound(f"{self._type.kind} {self._name} is gone", hint=f"kubectl get {self._type.plural}")

    def _event_changed(self, _key: str, _old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        if self._events.has_synced and new is not None:
            self._put(list(told_by_event(new)))

    def _object_changed(self, _key: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        self._put(list(told_by_change(old, new, datetime.now(UTC).strftime("%H:%M:%S"))))

    def _put(self, told: list[TraceLine]) -> None:
        with suppress(queue.Full):
            self._news.put_nowait(told)
