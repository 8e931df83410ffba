"""What is written of a server's faults, and which Events tell of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api import Server
from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.nodes.facts import GpuXidFacts
from provisioner.api.servers.faults import FaultRecord
from provisioner.health.faults.decision import MOST_EVENTS, decide
from provisioner.health.faults.sources import PATIENT_SOURCES, observe
from provisioner.rules.nodes import NodeView
from tests.health.faults.records import GPU, observed, record
from tests.health.objects import NOON, OTHER_BOOT, after, booted, good_facts, node, node_condition

LOST = GpuXidFacts(address=GPU, xid=79)


def in_use(*faults: FaultRecord, **status: Any) -> Server:
    return booted(faults=faults, **{"lifecycle": "InProduction", **status})


def carried_on(server: Server, status: Any) -> Server:
    """The server after `status` was written."""
    body = to_json(server) | {"status": to_json(server.status) | status}
    return from_json(Server, body)


def not_ready(status: str = "Unknown") -> NodeView:
    view = node()
    conditions = [node_condition("Ready", status)]
    return NodeView({**view.body, "status": {**view.body["status"], "conditions": conditions}})


def test_a_server_that_is_well_has_nothing_to_be_written() -> None:
    said = decide(in_use(), node(), NOON)
    assert (said.status, said.events, said.new) == ({}, (), ())


def test_a_new_fault_is_written_and_told_with_what_it_means_and_what_to_do() -> None:
    said = decide(in_use(), node(good_facts(gpu_xids=(LOST,))), NOON)
    (found,) = said.status["faults"] if said.status else ()
    assert (found["code"], found["firstTime"], found["reported"]) == ("XID79", "2026-01-02T12:00:00Z", True)
    (event,) = said.events
    assert (event.type, event.reason) == ("Warning", "FaultFound")
    assert event.message.startswith(
        "Critical GPU 0000:1b:00.0 XID79: the GPU fell off the bus; remedy: power-cycle the server"
    )


def test_the_same_again_is_neither_new_nor_told() -> None:
    server, view = in_use(), node(good_facts(gpu_xids=(LOST,)))
    server = carried_on(server, decide(server, view, NOON).status)
    said = decide(server, view, after(600))
    assert (said.new, said.events) == ((), ())
    assert said.status == {"faults": to_json(server.status.faults)}


def test_what_needs_no_action_is_on_record_without_an_event() -> None:
    said = decide(in_use(), node(good_facts(gpu_xids=(replace(LOST, xid=31),))), NOON)
    assert [each.code for each in said.new] == ["XID31"]
    assert said.events == ()


def test_a_flood_of_new_faults_is_told_in_a_few_events() -> None:
    many = tuple(observed(f"XID{at}", device=f"0000:{at:02x}:00.0") for at in range(100))
    said = decide(in_use(), node(good_facts(faults=many)), NOON)
    assert len(said.events) == MOST_EVENTS + 1
    assert said.events[-1].message == f"{32 - MOST_EVENTS} more faults: kubectl provision health r01-u01"


@pytest.mark.parametrize("view", [None, node(boot_id="")])
def test_without_a_node_that_a_kubelet_reported_the_records_stay_as_they_are(view: NodeView | None) -> None:
    said = decide(in_use(record()), view, after(600))
    assert (said.status, said.events) == (None, ())


def test_a_kubelet_that_is_silent_is_a_fault_only_once_that_has_lasted() -> None:
    silent = not_ready()
    assert decide(in_use(), silent, NOON).new == ()
    (found,) = decide(in_use(), silent, NOON, observe(silent, PATIENT_SOURCES)).new
    assert (found.code, found.component) == ("NodeUnreachable", "Kubelet")


def test_a_reboot_and_a_node_that_says_nothing_any_more_take_no_record_away() -> None:
    quiet = decide(in_use(record()), node("", boot_id=OTHER_BOOT), after(600))
    assert quiet.status == {"faults": [to_json(record(reported=False))]}
    lying = decide(in_use(record()), node(good_facts()), after(600))
    assert lying.status == quiet.status
    assert (quiet.new, lying.events) == ((), ())


def test_facts_of_an_earlier_boot_do_not_count_as_reported() -> None:
    stale = node(good_facts(gpu_xids=(LOST,)), boot_id=OTHER_BOOT)
    assert decide(in_use(), stale, NOON).new == ()
    kept = record(source="KernelLog", evidence="Xid 79")
    assert decide(in_use(kept), stale, NOON).status == {"faults": [to_json(replace(kept, reported=False))]}
