"""What the boot controller decides; the situations are in decide_rows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from provisioner.api import Server
from provisioner.api.machinery.codec import decode, encode
from provisioner.api.machinery.meta import parse_time
from provisioner.api.servers.server import PowerStatus, ServerStatus
from provisioner.boot.orders import needs
from provisioner.boot.orders.assessment import OrderDecision
from provisioner.boot.orders.decide import decide
from provisioner.boot.orders.facts import OrderFacts
from provisioner.rules.assigned_image import next_image
from provisioner.rules.liveness import Heartbeat, NodeLife
from tests.boot.decide_rows import (
    BOOT,
    JOINED,
    NEVER_ORDERING,
    NEW,
    NO_BMC,
    ORDER,
    ORDERING,
    OTHER_BOOT,
    POWERED,
    READY_ONCE,
    REFUSED,
    WAITING,
    WITHDRAWING,
    Row,
    heard,
    node,
    seen_lease,
    status,
)
from tests.boot.objects import DIGEST, NOON, at, image, pool, rack, server


def facts_of(row: Row) -> OrderFacts:
    srv = server(status=row.status or status(), **(row.spec or {}))
    np = None if row.no_pool else row.pool or pool()
    order = srv.status.order
    return OrderFacts(
        server=srv,
        rack=row.rack or rack(),
        pool=np,
        next_pool=np,
        next_image=row.next_image or (image(wanted) if (wanted := next_image(srv, np, row.maintenance).name) else None),
        ordered_image=image(order.image_ref) if order and order.image_ref else None,
        node=row.node,
        other_node=row.other_node,
        maintenance=row.maintenance,
        awaited=row.awaited,
    )


def run(row: Row) -> OrderDecision:
    return decide(facts_of(row), NOON + timedelta(seconds=row.seconds), NEW)


def ready_of(decision: OrderDecision) -> dict[str, Any]:
    return next(c for c in decision.status["conditions"] if c["type"] == "Ready")


def booted_of(decision: OrderDecision) -> dict[str, Any]:
    return next(c for c in decision.status["conditions"] if c["type"] == "Booted")


@pytest.mark.parametrize("row", WAITING, ids=[row.sentence for row in WAITING])
def test_what_waits_says_for_what(row: Row) -> None:
    decision = run(row)
    found = ready_of(decision)
    assert (found["status"], found["reason"]) == ("False", row.ready)
    assert row.says in found["message"]
    assert decision.status.get("bootStage") == row.stage
    assert not decision.orders
    assert decision.status.get("order", {}).get("id") in (None, "o1")


@pytest.mark.parametrize("row", ORDERING, ids=[row.sentence for row in ORDERING])
def test_a_boot_is_ordered(row: Row) -> None:
    decision = run(row)
    assert decision.orders
    order = decision.status["order"]
    assert (order["id"], order["reason"]) == (NEW, row.orders)
    assert parse_time(order["orderedTime"]) == NOON + timedelta(seconds=row.seconds)
    assert order["imageRef"] == facts_of(row).pool.spec.image_ref  # type: ignore[union-attr]
    assert order["message"]
    assert ready_of(decision)["reason"] == row.ready
    assert row.says in ready_of(decision)["message"]
    assert "readyTime" not in decision.status
    assert [event.reason for event in decision.events] == ["BootOrdered"]


@pytest.mark.parametrize("row", NEVER_ORDERING, ids=[row.sentence for row in NEVER_ORDERING])
def test_no_boot_is_ordered(row: Row) -> None:
    decision = run(row)
    assert not decision.orders
    found = ready_of(decision)
    assert found["reason"] == row.ready
    assert row.says in found["message"]
    if row.stage is not None:
        assert decision.status.get("bootStage") == row.stage


def test_a_refused_join_has_its_node_reset_without_the_look_at_when_that_was_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a pod asks for it, whose node is not heard of later: see tests/boot/test_controller.py."""
    refused = status(**{**READY_ONCE, "join": REFUSED})
    row = Row("", "NodeNotReady", seconds=9000, node=node(None, lease=480), status=refused)
    assert not run(row).orders
    monkeypatch.setattr(needs, "_lived_at", lambda *_: False)
    assert run(row).orders
    assert run(row).status["order"]["reason"] == "Unordered"


def test_a_server_that_waits_for_its_address_is_no_warning_but_one_that_needs_a_person_is() -> None:
    assert run(Row("", "NoAddress", status=ServerStatus())).events == ()
    (event,) = run(Row("", "NodePoolMissing", no_pool=True, status=status(order=None))).events
    assert (event.type, event.reason) == ("Warning", "NodePoolMissing")


@pytest.mark.parametrize("row", ORDERING, ids=[row.sentence for row in ORDERING])
@pytest.mark.parametrize(
    "alive", [node(boot_id=OTHER_BOOT), node(False, boot_id=OTHER_BOOT, lease=0)], ids=["Ready", "Lease"]
)
def test_whatever_asks_for_a_boot_a_living_node_forbids_it(row: Row, alive: NodeLife) -> None:
    if alive.heartbeat.renewed is not None:
        alive = replace(alive, heartbeat=Heartbeat(renewed=NOON + timedelta(seconds=row.seconds - 24)))
    decision = run(replace(row, node=alive))
    assert not decision.orders


@pytest.mark.parametrize("row", WITHDRAWING, ids=[row.sentence for row in WITHDRAWING])
def test_an_order_that_was_not_carried_out_does_not_outlive_its_reason(row: Row) -> None:
    decision = run(row)
    assert decision.revokes
    assert not decision.orders
    assert decision.status["order"]["id"] == "o1", "the order whose boot runs"
    assert decision.status["order"]["imageRef"] == decision.status["imageRef"] == "gpu-node-abababababab"
    assert decision.status["imageDigest"] == DIGEST
    assert ready_of(decision)["reason"] == row.ready
    assert ready_of(decision)["status"] == ("True" if row.ready == "Ready" else "False")
    assert decision.status["bootStage"] == "Ready"
    (event,) = decision.events
    assert event.reason == "OrderRevoked"
    assert "o2" in event.message


@pytest.mark.parametrize("later", [60, 6_000, 600_000])
def test_a_server_whose_order_was_withdrawn_is_not_reset_when_its_node_fails_again(later: float) -> None:
    for row in WITHDRAWING:
        seen = replace(facts_of(row), ordered_image=image())
        first = decide(seen, NOON + timedelta(seconds=row.seconds), NEW)
        failed = node(None, lease=row.seconds)
        seen = replace(seen, server=written(seen.server, first), node=failed)
        assert not decide(seen, NOON + timedelta(seconds=row.seconds + later), "another").orders


@pytest.mark.parametrize(
    ("what", "changes"),
    [
        ("it was carried out", {"status": {"power": replace(POWERED, order_id="o2")}}),
        ("its boot has joined", {"status": {"join": replace(JOINED, order_id="o2")}}),
        ("the Node reports another boot", {"node": node(boot_id=OTHER_BOOT)}),
        ("the Node is dead", {"node": node(None, lease=9000)}),
        ("the Lease was only just looked at", {"node": seen_lease(9099, moved=False, renewed=9000)}),
    ],
)
def test_an_order_stands_where(what: str, changes: dict[str, Any]) -> None:
    row = WITHDRAWING[0]
    assert row.status is not None
    changed = replace(row.status, **changes.get("status", {}))
    decision = run(replace(row, status=changed, node=changes.get("node", row.node), pool=pool(image_ref="newer")))
    assert not decision.revokes, what
    assert decision.status["order"]["id"] == "o2"


@pytest.mark.parametrize("row", [*WAITING, *ORDERING, *NEVER_ORDERING, *WITHDRAWING], ids=lambda row: row.sentence)
def test_deciding_again_on_what_was_written_changes_nothing(row: Row) -> None:
    """A decision is a fixed point: a controller that runs twice writes once."""
    facts, now = facts_of(row), NOON + timedelta(seconds=row.seconds)
    first = decide(facts, now, NEW)
    seen = replace(facts, server=written(facts.server, first))
    if first.orders:
        seen = replace(seen, ordered_image=facts.next_image)
    again = decide(seen, now, "another")
    if not first.orders:
        assert again.status == first.status
    assert not again.orders
    assert again.status.get("order") == first.status.get("order")
    assert not again.events


def written(server_: Server, decision: OrderDecision) -> Server:
    """The server with the decision in its status, as the API server would give it back."""
    body = encode(server_)
    kept = {
        k: v for k, v in body.get("status", {}).items() if k in ("address", "subnetName", "power", "progress", "join")
    }
    others = [c for c in body.get("status", {}).get("conditions", ()) if c["type"] not in ("Booted", "Ready")]
    body["status"] = {**kept, **decision.status, "conditions": [*others, *decision.status["conditions"]]}
    return decode(Server, body)


def test_ready_tells_what_runs_and_since_when() -> None:
    row = Row("", "Ready", status=status(power=POWERED, join=JOINED, progress=heard("IPXE", 8)), node=node())
    decision = run(row)
    assert decision.status["imageRef"] == "gpu-node-abababababab"
    assert decision.status["imageDigest"] == DIGEST
    assert decision.status["bootID"] == BOOT
    assert decision.status["nodeRef"] == "r01-u01"
    assert decision.status["readyTime"] == at(40)
    assert booted_of(decision)["status"] == "True"
    (event,) = decision.events
    assert (event.type, event.reason) == ("Normal", "Ready")
    assert "Ready 39 s" in event.message


def test_what_ran_before_is_shown_until_the_ordered_boot_has_joined() -> None:
    before = status(power=POWERED, image_ref="old", image_digest="sha256:" + "00" * 32)
    decision = run(Row("", "", status=before))
    assert (decision.status["imageRef"], decision.status["imageDigest"]) == ("old", "sha256:" + "00" * 32)


def test_the_kernel_before_the_order_is_what_its_kubelet_says_or_what_joined_and_not_what_was_reported() -> None:
    late = status(power=POWERED, progress=heard("Stage1", 10, boot_id=OTHER_BOOT))
    assert "bootIDBefore" not in run(Row("", "", seconds=3000, status=late)).status["order"]
    joined = replace(late, join=JOINED)
    for kubelet, spec in ((node(None), {}), (None, {}), (node(None), NO_BMC)):
        assert (
            run(Row("", "", seconds=3000, status=joined, node=kubelet, spec=spec)).status["order"]["bootIDBefore"]
            == BOOT
        )
    without = run(Row("", "", seconds=3000, status=joined, spec=NO_BMC))
    assert "bootIDBefore" not in without.status["order"], "the boot that waits there is the one the order is for"


def attempts_of(order: dict[str, Any]) -> tuple[int, datetime]:
    return order["attempt"], parse_time(order["orderedTime"])


def test_attempts_come_slower_and_slower_up_to_half_an_hour() -> None:
    """Replays a server whose BMC loses power a second after every boot."""
    current, now, gaps = status(order=None), NOON, []
    for _ in range(12):
        row = Row("", "", status=current)
        decision = decide(facts_of(row), now, f"o-{now.timestamp()}")
        last = now
        while not decision.orders:
            assert decision.requeue_after_seconds is not None
            now += timedelta(seconds=decision.requeue_after_seconds)
            decision = decide(facts_of(row), now, f"o-{now.timestamp()}")
        gaps.append((now - last).total_seconds())
        order = decode(Server, encode(server(status=current)) | {"status": decision.status}).status.order
        assert order is not None
        now += timedelta(seconds=2)
        off = PowerStatus(order_id=order.id, order_time=at((now - NOON).total_seconds() - 1), state="Off",
                          observed_time=at((now - NOON).total_seconds()))  # fmt: skip
        current = status(order=order, power=off)
    assert gaps[0] == 0
    assert 25 <= gaps[1] <= 36
    assert all(later > earlier for earlier, later in itertools.pairwise(gaps[1:8]))
    assert all(1790 <= gap <= 2160 for gap in gaps[8:])


def test_a_server_that_was_ready_for_long_starts_counting_anew() -> None:
    seventh = replace(ORDER, attempt=7)
    lost = {**READY_ONCE, "order": seventh, "power": replace(POWERED, state="Off", observed_time=at(7150))}
    assert run(Row("", "", seconds=7200, status=status(**lost))).status["order"]["attempt"] == 1
    soon = {**lost, "power": replace(POWERED, state="Off", observed_time=at(60))}
    held = run(Row("", "", seconds=100, status=status(**soon)))
    assert not held.orders
    assert ready_of(held)["reason"] == "PowerLost"


def test_the_next_look_is_when_the_stage_times_out() -> None:
    decision = run(Row("", "", seconds=40, status=status(power=POWERED)))
    assert decision.requeue_after_seconds == pytest.approx(1 + 900 - 40)


def test_a_living_node_in_the_way_is_looked_at_often() -> None:
    row = next(row for row in NEVER_ORDERING if "says Off resets no Node" in row.sentence)
    assert 0 < (run(row).requeue_after_seconds or 0) <= 10


def test_conditions_keep_their_transition_time() -> None:
    first = run(Row("", "", seconds=5, status=status(power=POWERED)))
    before = facts_of(Row("", "", status=status(power=POWERED)))
    later = decide(replace(before, server=written(before.server, first)), NOON + timedelta(seconds=50), "x")
    assert ready_of(later)["lastTransitionTime"] == ready_of(first)["lastTransitionTime"]


def test_without_a_bmc_an_order_never_times_out() -> None:
    decision = run(Row("", "", seconds=1000, spec=NO_BMC))
    assert ready_of(decision)["reason"] == "Ordered"
    assert decision.requeue_after_seconds is None


def test_a_cause_that_another_condition_names_is_told_once_and_booted_keeps_that_the_boot_is_late() -> None:
    row = next(row for row in WAITING if row.sentence.startswith("a BMC whose credentials are missing"))
    decision = run(row)
    assert booted_of(decision)["reason"] == "StageTimedOut"
    assert decision.events == (), "the power controller has told it"
