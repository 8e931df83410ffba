"""A DPU is rebooted only while the server in which it sits is out of use: its host's network goes away with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api.dpu import DPU
from provisioner.jobs.work import Work
from provisioner.maintenance.facts import HostView, MaintenanceFacts
from provisioner.maintenance.phases.budget import Budget
from provisioner.maintenance.phases.claiming import decide_draining
from provisioner.maintenance.phases.waiting import decide_waiting
from provisioner.maintenance.reads import Caches, gather, see
from provisioner.maintenance.follow import MaintenanceInformers, follow
from provisioner.maintenance.steps import WriteStatus
from provisioner.api import Server
from provisioner.cluster.own_writes import OwnWrites
from tests.maintenance.samples import requestor
from tests.maintenance.situations import NODE, facts, later, node, server
from tests.maintenance.test_follow import FakeCache, caches

__all__ = ["caches"]

FREE = Budget(allowed=1, taken=(), fresh=True)
BUSY, OUT = HostView(name="r01-u02", in_use=True), HostView(name="r01-u02", in_use=False)


def a_dpu(host: HostView | None, *, action: Any = "Reboot", **changes: Any) -> MaintenanceFacts:
    body = server()
    body = replace(body, spec=replace(body.spec, dpu=DPU(host_ref="r01-u02")))
    given: dict[str, Any] = {"server": body, "node": node(kexec=False), "budget": FREE, "host": host, **changes}
    return facts(requestor(action=action), **given)


def test_while_its_host_is_in_use_it_waits_and_says_what_to_do() -> None:
    step = decide_waiting(a_dpu(BUSY), later(60))
    assert isinstance(step, WriteStatus)
    (blocker,) = step.status.blockers
    assert (step.status.phase, blocker.kind, blocker.name) == ("Waiting", "Server", "r01-u02")
    assert "kubectl provision drain r01-u02" in blocker.message


@pytest.mark.parametrize("host", [OUT, None])
def test_it_is_claimed_once_its_host_is_out_of_use(host: HostView | None) -> None:
    step = decide_waiting(a_dpu(host), later(60))
    assert isinstance(step, WriteStatus)
    assert step.status.phase == "Claiming"


def test_a_drain_of_it_alone_takes_no_network_away() -> None:
    step = decide_waiting(a_dpu(BUSY, action="Drain"), later(60))
    assert isinstance(step, WriteStatus)
    assert step.status.phase == "Claiming"


def test_a_host_that_comes_into_use_meanwhile_has_it_go_back() -> None:
    """Nothing was rebooted yet."""
    claimed = {"phase": "Draining", "claimed_time": "2026-01-02T12:00:01.000000Z", "node_uid": "uid"}
    given = a_dpu(OUT, status=claimed, work=Work())
    assert "HostInUse" not in str(decide_draining(given, later(2)))
    step = decide_draining(replace(given, host=BUSY), later(2))
    assert isinstance(step, WriteStatus)
    assert [c.reason for c in step.status.conditions if c.type == "Succeeded"] == ["HostInUse"]


@pytest.mark.parametrize(
    ("phase", "has_node", "in_use"),
    [(None, True, True), ("Draining", True, True), ("Drained", True, False), ("Rebooting", True, True), (None, False, False)],
)
def test_whether_its_host_is_in_use_is_told_by_the_hosts_own_maintenance(
    caches: dict[str, FakeCache], phase: str | None, has_node: bool, in_use: bool
) -> None:
    spec = {"architecture": "arm64", "bootMACAddress": "52:54:00:00:00:01"}
    caches["servers"].put(NODE, _object("Server", NODE, {**spec, "dpu": {"hostRef": "host"}}))
    caches["maintenances"].put(f"{NODE}-1", _object("Maintenance", f"{NODE}-1", {"serverRef": NODE}))
    if has_node:
        caches["nodes"].put("host", {"metadata": {"name": "host", "uid": "1"}})
    if phase is not None:
        kept = _object("Maintenance", "host-1", {"serverRef": "host"}) | {"status": {"phase": phase}}
        caches["maintenances"].put("host-1", kept)
    known = Caches(MaintenanceInformers(**caches), OwnWrites(lambda: later(0)))  # type: ignore[arg-type]
    seen = see(known, NODE)
    found = gather(known, NothingRuns(), seen, seen.maintenances[0])  # type: ignore[arg-type]
    assert found.host == HostView(name="host", in_use=in_use)


def test_what_becomes_of_its_host_wakes_it(caches: dict[str, FakeCache]) -> None:
    added: list[str] = []
    caches["servers"].put("dpu", {"metadata": {"name": "dpu"}, "spec": {"dpu": {"hostRef": "host"}}})
    follow(MaintenanceInformers(**caches), added.append)  # type: ignore[arg-type]
    caches["maintenances"].put("host-1", {"spec": {"serverRef": "host"}, "status": {"phase": "Drained"}})
    assert added == ["host", "dpu"]


class NothingRuns:
    def look(self, server: Server, pool: Any, *, fresh: bool) -> Work:
        return Work()


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-02T12:00:00Z", "resourceVersion": "1"}
    return {"apiVersion": "provisioner.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
