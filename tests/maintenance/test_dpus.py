"""A DPU is rebooted only while the server in which it sits is out of use: its host's network goes away with it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api import Maintenance, Server
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.maintenance import Requestor
from provisioner.api.servers.dpu import DPU
from provisioner.cluster.own_writes import OwnWrites
from provisioner.jobs.model.work import Work
from provisioner.maintenance.follow import MaintenanceInformers, follow
from provisioner.maintenance.model.budget import Budget
from provisioner.maintenance.model.facts import HostView, MaintenanceFacts
from provisioner.maintenance.model.steps import WriteStatus
from provisioner.maintenance.phases.claiming import decide_draining
from provisioner.maintenance.phases.waiting import decide_waiting
from provisioner.maintenance.reads import IndexedCaches, gather, see
from provisioner.maintenance.requests.intake import FileRequestor, Withdraw
from provisioner.maintenance.requests.of_cards import DpuMaintenances, ask_for_cards, requestor_name
from tests.boot.objects import condition
from tests.maintenance.samples import maintenance, requestor
from tests.maintenance.situations import NODE, blocker, facts, later, node, server
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
    assert "drained first" in blocker.message


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
    [
        (None, True, True),
        ("Draining", True, True),
        ("Drained", True, False),
        ("Rebooting", True, True),
        (None, False, False),
    ],
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
    known = IndexedCaches(MaintenanceInformers(**caches), OwnWrites(lambda: later(0)))  # type: ignore[arg-type]
    seen = see(known, NODE)
    found = gather(known, NothingRuns(), seen, seen.maintenances[0])  # type: ignore[arg-type]
    assert found.host == HostView(name="host", in_use=in_use)


def test_what_becomes_of_its_host_wakes_it(caches: dict[str, FakeCache]) -> None:
    added: list[str] = []
    caches["servers"].put("dpu", {"metadata": {"name": "dpu"}, "spec": {"dpu": {"hostRef": "host"}}})
    follow(MaintenanceInformers(**caches), added.append)  # type: ignore[arg-type]
    caches["maintenances"].put("host-1", {"spec": {"serverRef": "host"}, "status": {"phase": "Drained"}})
    assert added == ["host", "dpu"]


# What the card asks of its host


HOST = "r01-u02"


def card(*requestors: Requestor, ready: str = "True", **status: Any) -> DpuMaintenances:
    body = server()
    body = replace(
        body,
        spec=replace(body.spec, dpu=DPU(host_ref=HOST)),
        status=replace(body.status, conditions=(condition("Ready", ready),)),
    )
    own = (maintenance(1, *requestors, **status),) if requestors else ()
    return DpuMaintenances(server=body, maintenances=own)


def of_host(*requestors: Requestor, **status: Any) -> Maintenance:
    given = maintenance(1, *requestors, **status)
    return replace(given, metadata=replace(given.metadata, name=f"{HOST}-1"), spec=replace(given.spec, server_ref=HOST))


def ask(*of: Maintenance, cards: DpuMaintenances) -> FileRequestor | Withdraw | None:
    return ask_for_cards(HOST, of, [cards], later(60))


WAITS = {"phase": "Waiting", "blockers": (blocker("Server", HOST),)}
REBOOT = requestor(action="Reboot")
ENTRY = Requestor(
    name=f"dpu-{NODE}",
    action="Drain",
    policy="WhenIdle",
    message=f"its DPU '{NODE}' is booted anew by Maintenance {NODE}-1",
    requested_time=rfc3339(later(60)),
)


def test_a_card_that_waits_for_nothing_but_its_host_asks_for_it() -> None:
    assert ask(cards=card(REBOOT, **WAITS)) == FileRequestor(requestor=ENTRY, target=None)


@pytest.mark.parametrize(
    ("requestors", "status"),
    [
        ((), {}),
        ((REBOOT,), {"phase": "Waiting"}),
        ((REBOOT,), {"phase": "Waiting", "blockers": (blocker("Server", HOST), blocker("Image", "new"))}),
        ((REBOOT,), {"phase": "Waiting", "blockers": (blocker("Budget", "dpu"),)}),
        ((requestor(action="Drain"),), WAITS),
        ((replace(REBOOT, turn="Waits"),), WAITS),
        ((REBOOT,), {"phase": "Completed"}),
    ],
    ids=["nothing is asked", "not looked at yet", "no image", "no slot", "a drain of it", "not its turn", "over"],
)
def test_no_host_is_drained_in_vain(requestors: tuple[Requestor, ...], status: dict[str, Any]) -> None:
    assert ask(cards=card(*requestors, **status)) is None


def test_the_host_is_asked_in_the_same_words_as_the_card() -> None:
    urgent = requestor(action="Reboot", policy="Deadline", deadline_time=rfc3339(later(600)))
    found = ask(cards=card(urgent, **WAITS))
    assert isinstance(found, FileRequestor)
    assert (found.requestor.policy, found.requestor.deadline_time) == ("Deadline", rfc3339(later(600)))
    earlier = replace(ENTRY, requested_time=rfc3339(later(1)))
    changed = ask(of_host(earlier), cards=card(urgent, **WAITS))
    assert isinstance(changed, FileRequestor)
    assert changed.requestor.policy == "Deadline"


@pytest.mark.parametrize("phase", ["Waiting", "Claiming", "Drained", "Rebooting", "Verifying"])
def test_it_stays_asked_while_the_card_boots(phase: Any) -> None:
    given = card(REBOOT, ready="False", phase=phase)
    assert ask(of_host(ENTRY, phase="Drained"), cards=given) is None


def test_the_host_comes_back_once_the_card_is_ready_and_not_before() -> None:
    over = {"phase": "Completed", "conditions": (condition("Succeeded", "True", "Booted"),)}
    kept = of_host(ENTRY, phase="Drained")
    assert ask(kept, cards=card(REBOOT, ready="False", **over)) is None
    assert ask(kept, cards=card(REBOOT, **over)) == Withdraw(requestor=ENTRY.name, target=kept)
    failed = {"phase": "Failed", "conditions": (condition("Succeeded", "False", "RebootFailed"),)}
    assert ask(kept, cards=card(REBOOT, ready="False", **failed)) is None, "its host would have no network"


def test_a_card_that_is_gone_asks_for_nothing() -> None:
    kept = of_host(ENTRY, phase="Drained")
    assert ask_for_cards(HOST, [kept], [], later(60)) == Withdraw(requestor=ENTRY.name, target=kept)


def test_others_who_ask_for_the_host_are_left_alone() -> None:
    mine = requestor("user-alice", "Drain")
    assert ask(of_host(mine), cards=card(REBOOT, phase="Completed")) is None
    found = ask(of_host(mine), cards=card(REBOOT, **WAITS))
    assert isinstance(found, FileRequestor)
    assert found.target is not None
    assert found.target.name == f"{HOST}-1"


@given(name=st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True))
def test_a_requestors_name_is_one(name: str) -> None:
    assert re.fullmatch(r"dpu-[a-z0-9]([-a-z0-9]*[a-z0-9])?", requestor_name(name))
    assert len(requestor_name(name)) <= 63


class NothingRuns:
    def look(self, server: Server, pool: Any, *, fresh: bool) -> Work:
        return Work()


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-02T12:00:00Z", "resourceVersion": "1"}
    return {"apiVersion": "provisioner.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
