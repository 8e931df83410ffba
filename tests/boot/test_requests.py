"""Boots that a Maintenance asks for. Noon is when the order of the running boot was given, one o'clock the request."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.api import Maintenance
from provisioner.api.nodes.maintenance import (
    DISTURBING_PHASES,
    FINAL_PHASES,
    MaintenancePolicy,
    RebootMethod,
    Requestor,
    holding_maintenance,
)
from provisioner.api.servers.server import BootOrder, JoinStatus, PowerStatus
from provisioner.boot.orders.assessment import OrderDecision
from provisioner.boot.orders.decide import decide
from tests.boot.decide_rows import (
    BOOT,
    JOINED,
    NEW,
    NO_BMC,
    ORDER,
    OTHER_BOOT,
    POWERED,
    READY_ONCE,
    REFUSED,
    Row,
    heard,
    node,
    status,
)
from tests.boot.objects import NOON, at, attempt, condition, image, maintenance, pool
from tests.boot.test_decide import booted_of, facts_of, ready_of, run, written

METHODS: tuple[RebootMethod, ...] = ("Kexec", "Reboot", "Reset", "PowerCycle")
ASKED = 3601.0
OLD = "gpu-node-abababababab"
RUNNING: dict[str, Any] = {**READY_ONCE, "image_ref": OLD}


def asking(method: RebootMethod = "Kexec", **changes: Any) -> Maintenance:
    return maintenance(reboot=attempt(method, **changes))


def request(**changes: Any) -> Row:
    """The Node is Ready, its server drained, and a Maintenance asks for a boot."""
    given: dict[str, Any] = {"seconds": ASKED, "status": status(**RUNNING), "node": node(lease=ASKED - 5)}
    return Row("", "", **{"maintenance": asking(), **given, **changes})


def requested(method: RebootMethod = "Kexec", **changes: Any) -> BootOrder:
    """The order that answers it."""
    given: dict[str, Any] = {
        "id": "o2", "reason": "Requested", "ordered_time": at(ASKED), "attempt": 1, "image_ref": OLD,
        "boot_id_before": BOOT, "method": method, "maintenance_ref": "r01-u01-1", "attempt_id": "try-1",
    }  # fmt: skip
    return BootOrder(**{**given, **changes})


def ordered(method: RebootMethod = "Kexec", *, order: dict[str, Any] | None = None, **changes: Any) -> Row:
    """The order was given; the status is as the old boot left it."""
    fields = {**RUNNING, "ready_time": None, "order": requested(method, **(order or {})), **changes.pop("fields", {})}
    return request(**{"status": status(**fields), "maintenance": asking(method), **changes})


@pytest.mark.parametrize("method", METHODS)
def test_a_request_is_answered_while_the_node_lives(method: RebootMethod) -> None:
    decision = run(request(maintenance=asking(method)))
    assert decision.orders
    assert decision.status["order"] == {
        "id": NEW,
        "reason": "Requested",
        "orderedTime": at(ASKED),
        "attempt": 1,
        "imageRef": OLD,
        "nodePoolRef": "gpu",
        "bootIDBefore": BOOT,
        "message": f"requested by Maintenance 'r01-u01-1' (method {method})",
        "method": method,
        "maintenanceRef": "r01-u01-1",
        "attemptID": "try-1",
    }
    assert ready_of(decision)["status"] == "False"
    assert f"requested by Maintenance 'r01-u01-1' (method {method})" in ready_of(decision)["message"]
    (event,) = decision.events
    assert (event.type, event.reason) == ("Normal", "BootOrdered")


@pytest.mark.parametrize(
    "alive",
    [node(False, lease=ASKED - 5), node(None, lease=100), None],
    ids=["not Ready", "dead", "gone"],
)
def test_it_is_answered_whatever_became_of_the_node(alive: Any) -> None:
    assert run(request(node=alive)).status["order"]["reason"] == "Requested"


@pytest.mark.parametrize(
    ("why", "given"),
    [
        ("it was answered", ordered().maintenance),
        ("the try is over", asking(ended_time=at(3600.5), outcome="TimedOut")),
        ("no try was begun", maintenance()),
        ("nothing is under way", None),
    ],
)
def test_nothing_is_ordered_where(why: str, given: Maintenance | None) -> None:
    row = ordered() if why == "it was answered" else request(maintenance=given)
    assert not run(row).orders, why


@pytest.mark.parametrize("phase", [None, "Waiting", "Claiming", "Draining", "Drained", "Verifying", *FINAL_PHASES])
def test_nothing_is_ordered_before_the_drain_is_over_or_after_the_boot(phase: Any) -> None:
    """And so no Node is prepared for a boot before: what is prepared is what was ordered."""
    assert not run(request(maintenance=maintenance(phase=phase, reboot=attempt()))).orders


def test_a_node_that_was_never_booted_by_the_provisioner_is_left_alone() -> None:
    decision = run(request(status=status(order=None)))
    assert not decision.orders
    assert ready_of(decision)["reason"] == "Adopted"


def test_a_server_that_shall_be_off_is_not_booted() -> None:
    assert not run(request(spec={"power_state": "Off"})).orders


def test_a_request_that_cannot_be_answered_says_so_and_leaves_the_rest_alone() -> None:
    decision = run(request(maintenance=asking(image_ref="newer"), next_image=image("newer", available="False")))
    assert not decision.orders
    assert (ready_of(decision)["status"], booted_of(decision)["status"]) == ("True", "True")
    assert "requested by Maintenance 'r01-u01-1'" in ready_of(decision)["message"]
    assert "no boot host has the files of Image 'newer'" in ready_of(decision)["message"]


def test_the_next_path_supersedes_the_one_before() -> None:
    decision = run(ordered("Kexec", maintenance=asking("Reset", id="try-2")))
    order = decision.status["order"]
    assert (order["method"], order["attemptID"]) == ("Reset", "try-2")
    assert not decision.revokes


def test_the_kernel_before_is_the_one_that_the_kubelet_reports() -> None:
    """Anybody on the network may have reported another one, with which the old boot could join."""
    forged = status(**{**RUNNING, "progress": heard("Token", 3500, boot_id=OTHER_BOOT)})
    for spec in ({}, NO_BMC):
        assert run(request(status=forged, spec=spec)).status["order"]["bootIDBefore"] == BOOT


# --- What is waited for


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("Kexec", "the agent on it to start the new image by kexec"),
        ("Reboot", "the agent on it to reboot it"),
        ("Reset", "the BMC to accept the power-on"),
        ("PowerCycle", "the BMC to accept the power-on"),
    ],
)
def test_it_says_who_carries_the_order_out(method: RebootMethod, words: str) -> None:
    decision = run(ordered(method))
    assert words in ready_of(decision)["message"]
    assert decision.status["bootStage"] == "Ordered"


@pytest.mark.parametrize("method", ["Kexec", "Reboot"])
@pytest.mark.parametrize("later", [200, 20_000])
def test_the_executor_not_the_boot_controller_waits_for_the_agent(method: RebootMethod, later: float) -> None:
    decision = run(ordered(method, seconds=ASKED + later, node=node(None, lease=ASKED)))
    assert not decision.orders
    assert ready_of(decision)["reason"] == "Ordered"
    assert decision.requeue_after_seconds is None


def test_a_machine_that_is_dead_after_its_maintenance_failed_waits_for_a_person() -> None:
    row = ordered(seconds=9000, node=node(None, lease=ASKED), maintenance=None, pool=pool(image_ref="newer"))
    decision = run(row)
    assert not decision.orders
    assert "kubectl provision power-cycle r01-u01" in ready_of(decision)["message"]


# --- A boot by kexec


STARTED = heard("Stage1", ASKED + 9, boot_id=OTHER_BOOT)
KEXEC_JOIN = JoinStatus(order_id="o2", boot_id=OTHER_BOOT, fetched_time=at(ASKED + 20))


def test_a_boot_by_kexec_passes_its_stages_to_ready() -> None:
    dead = node(False, lease=ASKED)
    stage_1 = run(ordered(seconds=ASKED + 10, node=dead, fields={"progress": STARTED}))
    assert stage_1.status["bootStage"] == "Stage1"
    assert stage_1.requeue_after_seconds == pytest.approx(119), "then it is called late"
    kubelet = run(ordered(seconds=ASKED + 21, node=dead, fields={"progress": STARTED, "join": KEXEC_JOIN}))
    assert kubelet.status["bootStage"] == "Kubelet"
    assert kubelet.status["imageRef"] == OLD
    alive = node(boot_id=OTHER_BOOT, lease=ASKED + 25)
    ready = run(ordered(seconds=ASKED + 26, node=alive, fields={"progress": STARTED, "join": KEXEC_JOIN}))
    assert (ready.status["bootStage"], ready_of(ready)["status"]) == ("Ready", "True")
    assert ready.status["readyTime"] == at(ASKED + 26)
    assert "ordered 9 s · stage-1 11 s · kubelet 6 s   Ready 26 s" in ready.events[0].message


def test_the_old_boot_is_not_ready_once_the_order_was_given() -> None:
    assert ready_of(run(ordered(node=node(lease=ASKED - 1))))["status"] == "False"


def test_a_boot_of_it_that_joined_and_hangs_is_reset_by_the_bmc_on_the_maintenances_image_in_its_name() -> None:
    row = ordered(
        seconds=ASKED + 400,
        node=node(None, lease=ASKED),
        order={"image_ref": "special"},
        fields={"progress": STARTED, "join": KEXEC_JOIN},
        maintenance=asking(image_ref="special"),
        pool=pool(image_ref="newer"),
    )
    order = run(row).status["order"]
    assert (order["reason"], order["imageRef"]) == ("TimedOut", "special")
    assert (order["maintenanceRef"], order["attemptID"]) == ("r01-u01-1", "try-1")
    assert "method" not in order, "the BMC's"
    after = replace(row, status=status(**{**RUNNING, "ready_time": None, "order": BootOrder(**snake(order))}))
    assert not run(after).orders, "the try was answered"


def snake(order: dict[str, Any]) -> dict[str, Any]:
    names = {"orderedTime": "ordered_time", "imageRef": "image_ref", "nodePoolRef": "node_pool_ref",
             "bootIDBefore": "boot_id_before", "maintenanceRef": "maintenance_ref",
             "attemptID": "attempt_id"}  # fmt: skip
    return {names.get(key, key): value for key, value in order.items()}


@pytest.mark.parametrize("stage", ["Firmware", "IPXE", "Stage1", "Root", "System", "Token"])
@pytest.mark.parametrize("given", [asking(), None], ids=["awaited", "over"])
def test_before_it_has_joined_no_report_takes_it_from_the_executor(stage: Any, given: Maintenance | None) -> None:
    """It may be the old system that says so, whose kubelet alone is dead. The executor tries its next method."""
    for since, boot_id in ((5, OTHER_BOOT), (5, BOOT), (19_990, OTHER_BOOT)):
        said = {"progress": heard(stage, ASKED + since, boot_id=boot_id)}
        decision = run(ordered(seconds=ASKED + 20_000, node=node(None, lease=ASKED), maintenance=given, fields=said))
        assert not decision.orders
        assert ("kubectl provision power-cycle" in ready_of(decision)["message"]) is (given is None)


def test_no_stage_that_strangers_report_resets_the_node_that_waits_for_its_agent() -> None:
    for stage in ("Firmware", "IPXE", "Stage1", "Root", "System", "Token"):
        row = ordered(seconds=9000, node=node(lease=8995), fields={"progress": heard(stage, ASKED + 5)})
        assert not run(row).orders


# --- Images


def test_an_explicit_image_is_for_that_boot_only() -> None:
    special = asking("Reset", image_ref="special")
    row = ordered("Reset", order={"image_ref": "special"}, fields={"power": replace(POWERED, order_id="o2")},
                  node=node(None, lease=100), maintenance=special)  # fmt: skip
    assert run(request(maintenance=special)).status["order"]["imageRef"] == "special"
    assert not run(row).orders, "the pool's image does not fight it"
    assert run(replace(row, maintenance=None)).status["order"]["reason"] == "ImageChanged"
    panicked = {**RUNNING, "image_ref": "special", "order": replace(ORDER, image_ref="special"), "join": REFUSED}
    later = run(Row("", "", seconds=560, node=node(False, lease=440), status=status(**panicked)))
    assert (later.status["order"]["reason"], later.status["order"]["imageRef"]) == ("Unordered", OLD)


OFF = replace(POWERED, state="Off", observed_time=at(8000))
SWITCHED_OFF = {**READY_ONCE, "power": OFF, "conditions": (condition("Ready", "False", "PoweredOff"),)}


@pytest.mark.parametrize(
    ("reason", "row"),
    [
        (
            "Unordered",
            Row("", "", seconds=560, node=node(False, lease=440), status=status(**{**READY_ONCE, "join": REFUSED})),
        ),
        ("TimedOut", Row("", "", seconds=400, status=status(power=POWERED, join=JOINED))),
        ("PowerState", Row("", "", seconds=9000, status=status(**SWITCHED_OFF))),
        ("PowerLost", Row("", "", seconds=9000, status=status(**{**READY_ONCE, "power": OFF}))),
        ("Requested", request(maintenance=asking(image_ref="newer"))),
    ],
)
def test_a_reboot_for_whatever_reason_lands_on_the_newest_image_of_the_pool(reason: str, row: Row) -> None:
    order = run(replace(row, pool=pool(image_ref="newer"))).status["order"]
    assert (order["reason"], order["imageRef"]) == (reason, "newer")


# --- What becomes of an order that nobody carried out


def test_an_order_is_not_withdrawn_while_its_maintenance_is_under_way() -> None:
    for phase in DISTURBING_PHASES:
        under_way = maintenance(phase=phase, reboot=attempt("Kexec"))
        decision = run(ordered(seconds=9000, node=node(lease=8995), maintenance=under_way))
        assert not decision.revokes
        assert decision.status["order"]["id"] == "o2"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("other", [None, maintenance("r01-u01-2", phase="Waiting")], ids=["none", "another waits"])
def test_it_is_withdrawn_once_its_maintenance_is_over_and_the_old_boot_lives_on(
    method: RebootMethod, other: Maintenance | None
) -> None:
    decision = run(ordered(method, seconds=9000, node=node(lease=8995), maintenance=other))
    assert decision.revokes
    assert decision.status["order"]["id"] == "o1"
    assert {"method", "maintenanceRef", "attemptID"}.isdisjoint(decision.status["order"])
    assert (ready_of(decision)["status"], decision.status["bootStage"]) == ("True", "Ready")


@pytest.mark.parametrize("method", METHODS)
def test_it_is_withdrawn_when_its_maintenance_waits_again_and_the_old_boot_lives_on(method: RebootMethod) -> None:
    """A job was there that may not be interrupted: the executor went back before the machine was told."""
    waits = maintenance(phase="Waiting")
    decision = run(ordered(method, seconds=9000, node=node(lease=8995), maintenance=waits))
    assert decision.revokes
    assert decision.status["order"]["id"] == "o1"
    again = maintenance(reboot=attempt(method, id="try-2"))
    assert run(ordered(method, seconds=9000, node=node(lease=8995), maintenance=again)).orders


def test_it_is_not_withdrawn_while_the_node_is_dead() -> None:
    assert not run(ordered(seconds=9000, node=node(None, lease=ASKED), maintenance=None)).revokes


def test_the_next_request_takes_the_place_of_one_that_nobody_carried_out() -> None:
    again = maintenance("r01-u01-2", reboot=attempt("Reset", id="try-9"))
    decision = run(ordered(seconds=9000, node=node(lease=8995), maintenance=again))
    assert (decision.orders, decision.revokes) == (True, False)
    assert (decision.status["order"]["maintenanceRef"], decision.status["order"]["attemptID"]) == ("r01-u01-2", "try-9")


def test_an_order_of_later_days_belongs_to_no_maintenance() -> None:
    over = {**READY_ONCE, "order": replace(requested(), id="o1", ordered_time=at(0)), "join": REFUSED}
    order = run(Row("", "", seconds=560, node=node(False, lease=440), status=status(**over))).status["order"]
    assert order["reason"] == "Unordered"
    assert "maintenanceRef" not in order


@pytest.mark.parametrize("row", [request(), ordered(), ordered("Reset"), ordered(seconds=9000, maintenance=None)])
def test_deciding_again_on_what_was_written_changes_nothing(row: Row) -> None:
    facts, now = facts_of(row), NOON + timedelta(seconds=row.seconds)
    first: OrderDecision = decide(facts, now, NEW)
    again = decide(replace(facts, server=written(facts.server, first)), now, "another")
    assert not again.orders
    assert not again.revokes
    assert again.status.get("order") == first.status.get("order")
    assert not again.events


# --- Which Maintenance holds the server


def test_the_one_that_has_begun_holds_else_the_oldest() -> None:
    ninth, tenth = maintenance("r01-u01-9", phase="Waiting"), maintenance("r01-u01-10", phase=None)
    done = maintenance("r01-u01-1", phase="Completed")
    foreign = maintenance("r01-u02-1", server="r01-u02")
    assert holding_maintenance([done, tenth, ninth, foreign], "r01-u01") == ninth
    begun = maintenance("r01-u01-10", phase="Draining")
    assert holding_maintenance([done, begun, ninth], "r01-u01") == begun
    assert holding_maintenance([done, foreign], "r01-u01") is None


def test_an_urgent_request_holds_before_a_patient_one_that_has_not_begun() -> None:
    patient = asked_for(maintenance("r01-u01-1", phase="Waiting"), "WhenIdle")
    urgent = asked_for(maintenance("r01-u01-2", phase="Waiting"), "Now")
    begun = asked_for(maintenance("r01-u01-3", phase="Draining"), "WhenIdle")
    assert holding_maintenance([patient, urgent], "r01-u01") == urgent
    assert holding_maintenance([patient, urgent, begun], "r01-u01") == begun


def asked_for(maintenance: Maintenance, policy: MaintenancePolicy) -> Maintenance:
    requestor = Requestor(name="user-alice", action="Reboot", policy=policy)
    return replace(maintenance, spec=replace(maintenance.spec, requestors=(requestor,)))


@pytest.mark.parametrize("alive", [node(lease=ASKED - 5), node(None, lease=100)], ids=["heard lately", "silent"])
def test_a_server_between_the_cut_and_the_power_of_its_cycle_has_not_lost_its_power(alive: Any) -> None:
    cut = PowerStatus(order_id="o1", order_time=at(2), state="Off", observed_time=at(ASKED + 3), cut_order_id="o2")
    decision = run(ordered("PowerCycle", seconds=ASKED + 8, node=alive, fields={"power": cut}))
    assert not decision.orders
    assert decision.status["order"]["id"] == "o2"
    on = replace(cut, order_id="o2", order_time=at(ASKED + 9), state="On", observed_time=at(ASKED + 9))
    assert not run(ordered("PowerCycle", seconds=ASKED + 20, node=alive, fields={"power": on})).orders


def test_a_bmc_that_carries_a_request_out_is_as_any_other_order() -> None:
    carried = {"power": PowerStatus(order_id="o2", order_time=at(ASKED + 2), state="On")}
    decision = run(ordered("Reset", node=node(None, lease=100), fields=carried))
    assert decision.status["bootStage"] == "Firmware"
