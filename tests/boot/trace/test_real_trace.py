"""A trace of one machine, from the annotation to the Events: the real boot service by its own account, real packets."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from provisioner.api import Server
from provisioner.api.servers.trace import TRACE_ANNOTATION, TRACED_REASON, trace_value
from provisioner.boot.dhcp.wire import options as opt
from provisioner.cli.boot.trace_screen import TraceLine, told_by_event
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import EVENTS, of
from tests.boot.conftest import Programs
from tests.boot.trace.traced_host import TracedHost, running_host, wait_until


def random_mac() -> str:
    return "02:" + ":".join(f"{byte:02x}" for byte in random.SystemRandom().randbytes(5))


def told(cluster: Cluster, name: str) -> list[TraceLine]:
    events = cluster.list(EVENTS, namespace="default", field_selector=f"involvedObject.name={name}").items
    traced = [event for event in events if event["reason"] == TRACED_REASON]
    return [line for event in traced for line in told_by_event(event)]


def ask(cluster: Cluster, name: str, until: datetime | None) -> None:
    value = trace_value(until) if until is not None else None
    cluster.patch(of(Server), name, {"metadata": {"annotations": {TRACE_ANNOTATION: value}}})


def words(cluster: Cluster, name: str) -> str:
    return "\n".join(line.words for line in told(cluster, name))


@pytest.fixture
def boot_account(account: Callable[[str], Cluster]) -> Cluster:
    return account("boot")


def test_a_traced_machine_is_told_whole_a_flood_is_counted_and_it_ends_by_itself(
    cluster: Cluster, boot_account: Cluster, programs: Programs, unique: str
) -> None:
    mac, other = random_mac(), random_mac()
    with running_host(cluster, boot_account, programs) as host:
        host.register(unique, mac)
        host.register(f"{unique}b", other)
        host.discover(mac)
        ask(cluster, unique, datetime.now(UTC) + timedelta(minutes=10))
        wait_until(lambda: f"follows {mac}" in words(cluster, unique), "the boot host follows")
        _boot(host, mac, other)
        for expected in (
            f"DHCP DISCOVER by firmware X64_PXE (PXEClient:Arch:00007:UNDI:003016), by relay {host.at(2)}, "
            f"-> offered {host.at(11)}, boot file snponly.efi",
            f"TFTP sent {host.settings.state}/tftp/snponly.efi to {host.at(11)}",
            f"HTTP GET /ipxe/{mac.replace(':', '-')}.ipxe from {host.at(11)} -> 200",
        ):
            wait_until(lambda expected=expected: expected in words(cluster, unique), expected)  # type: ignore[misc]
        assert all(line.source == "boot1" and line.heard for line in told(cluster, unique))
        assert "\x1b" not in words(cluster, unique), "what a machine sent reaches nobody's terminal as it is"
        assert "autoexec" not in words(cluster, unique), "another machine's request"
        assert told(cluster, f"{unique}b") == []

        host.discover(mac, count=3000)
        wait_until(lambda: "more were not told: too many at a time" in words(cluster, unique), "the flood is counted")
        events = cluster.list(EVENTS, namespace="default", field_selector=f"involvedObject.name={unique}").items
        assert len([event for event in events if event["reason"] == TRACED_REASON]) < 60

        ask(cluster, unique, None)
        tracer = host.service._tracer
        wait_until(lambda: not tracer._followed, "it is off")
        host.discover(mac, options={opt.VENDOR_CLASS: b"after"})
        ask(cluster, f"{unique}b", datetime.now(UTC) + timedelta(minutes=10))
        host.discover(other)
        wait_until(lambda: f"follows {other}" in words(cluster, f"{unique}b"), "the other one is followed")
        wait_until(lambda: host.discover(other) or "DISCOVER" in words(cluster, f"{unique}b"), "and heard")  # type: ignore[func-returns-value]
        assert "after" not in words(cluster, unique)


def _boot(host: TracedHost, mac: str, other: str) -> None:
    """What a machine does, and beside it another one."""
    host.discover(mac)
    host.discover(other)
    host.fetch_by_tftp("snponly.efi")
    host.fetch_by_tftp("autoexec.ipxe", from_host=12)
    host.get(f"/ipxe/{mac.replace(':', '-')}.ipxe")
    host.get("/boot.ipxe", from_host=12)
