"""The boot controller's decisions, as tables: each row is a sentence. Noon is when the order was given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.codec import decode, encode
from provisioner.api.meta import parse_time
from provisioner.api.node_pool import StageTimeouts
from provisioner.api.server import BootOrder, BootProgress, JoinStatus, PowerStatus, ServerStatus, StageTime
from provisioner.boot.decide import decide
from provisioner.boot.facts import Facts, NodeFacts
from provisioner.boot.verdict import Decision
from tests.boot.objects import DIGEST, NOON, at, condition, image, pool, rack, server

NEW = "new-order"
BOOT = "11111111-1111-4111-8111-111111111111"
OTHER_BOOT = "22222222-2222-4222-8222-222222222222"

ORDER = BootOrder(id="o1", reason="FirstBoot", ordered_time=at(0), attempt=1, image_ref="gpu-node-abababababab")
POWERED = PowerStatus(order_id="o1", order_time=at(1), state="On", observed_time=at(1))
JOINED = JoinStatus(order_id="o1", boot_id=BOOT, fetched_time=at(35))
REFUSED = replace(JOINED, refused_time=at(500), refused_reason="AlreadyFetched")


def heard(stage: Any, seconds: float, message: str | None = None, boot_id: str | None = BOOT) -> BootProgress:
    return BootProgress(
        stage=stage, boot_id=boot_id, message=message, stage_times=(StageTime(stage=stage, time=at(seconds)),)
    )


def node(
    ready: bool | None = True, *, boot_id: str | None = BOOT, lease: float | None = None, message: str = ""
) -> NodeFacts:
    """A Node; `lease`: when it was renewed, in seconds after noon."""
    renewed = None if lease is None else NOON + timedelta(seconds=lease)
    return NodeFacts(name="r01-u01", ready=ready, ready_message=message, boot_id=boot_id, lease_renewed=renewed)


def status(**fields: Any) -> ServerStatus:
    return ServerStatus(**{"address": "10.80.0.21", "subnet_name": "boot", "order": ORDER, **fields})


@dataclass
class Row:
    """At `seconds` after the order: these facts give this Ready condition and, if one is given, this order's reason."""

    sentence: str
    ready: str
    seconds: float = 40
    status: ServerStatus | None = None
    node: NodeFacts | None = None
    orders: str | None = None
    says: str = ""
    spec: dict[str, Any] | None = None
    pool: NodePool | None = None
    no_pool: bool = False
    pool_image: Image | None = None
    rack: Rack | None = None
    stage: str | None = None


def facts_of(row: Row) -> Facts:
    srv = server(status=row.status or status(), **(row.spec or {}))
    np = None if row.no_pool else row.pool or pool()
    order = srv.status.order
    return Facts(
        server=srv,
        rack=row.rack or rack(),
        pool=np,
        pool_image=row.pool_image or (image(np.spec.image_ref) if np else None),
        ordered_image=image(order.image_ref) if order and order.image_ref else None,
        node=row.node,
    )


def run(row: Row) -> Decision:
    return decide(facts_of(row), NOON + timedelta(seconds=row.seconds), NEW)


def ready_of(decision: Decision) -> dict[str, Any]:
    return next(c for c in decision.status["conditions"] if c["type"] == "Ready")


def booted_of(decision: Decision) -> dict[str, Any]:
    return next(c for c in decision.status["conditions"] if c["type"] == "Booted")


NO_BMC: dict[str, Any] = {"bmc": None}
READY_ONCE: dict[str, Any] = {"power": POWERED, "join": JOINED, "ready_time": at(40)}

WAITING = [
    Row("an unaccepted server waits for a person", "PendingAcceptance", spec={"acceptance": "Pending"}, status=ServerStatus(),
        says="kubectl provision accept r01-u01"),
    Row("a rejected one is not booted", "Rejected", spec={"acceptance": "Rejected"}, status=ServerStatus()),
    Row("a rejected one is not Ready even if its Node is", "Rejected", spec={"acceptance": "Rejected"},
        status=status(**READY_ONCE), node=node()),
    Row("one that shall be off is not Ready", "PoweredOff", spec={"power_state": "Off"}, status=status(**READY_ONCE)),
    Row("one without a pool is not booted", "NoNodePool", spec={"node_pool_ref": None}, no_pool=True,
        status=status(order=None)),
    Row("one whose pool is gone is not booted", "NodePoolMissing", no_pool=True, status=status(order=None)),
    Row("one without an address is not booted", "NoAddress", status=ServerStatus()),
    Row("one whose pool wants proof is not booted", "AttestationRequired", pool=pool(attestation="Required"),
        status=status(order=None)),
    Row("one whose image has no files is not booted", "ImageUnavailable", pool_image=image(available="False"),
        status=status(order=None)),
    Row("one that hangs is not booted again while its image is gone", "ImageUnavailable", seconds=2000,
        pool_image=image(available="False"), status=status(power=POWERED), says="firmware has lasted", stage="Firmware"),
    Row("an ordered one waits for its BMC", "Ordered", seconds=5, says="waits for the BMC", stage="Ordered"),
    Row("a BMC that does not answer is named, and not ordered again", "StageTimedOut", seconds=200, says="PoweredOn",
        stage="Ordered"),
    Row("one without a BMC waits for a hand, however long", "Ordered", seconds=90_000, spec=NO_BMC, says="power button",
        stage="Ordered"),
    Row("a powered one waits for iPXE", "Firmware", status=status(power=POWERED), says="to start iPXE", stage="Firmware"),
    Row("one in iPXE waits for stage-1", "IPXE", status=status(power=POWERED, progress=heard("IPXE", 10)), stage="IPXE"),
    Row("one in stage-1 says what the machine says", "Root", status=status(power=POWERED,
        progress=heard("Root", 12, "root digest is wrong, trying again")), says="root digest is wrong", stage="Root"),
    Row("progress of the boot before the order is not this boot's", "Firmware",
        status=status(power=POWERED, progress=heard("System", -500)), stage="Firmware"),
    Row("one refused at the token says so", "Token", status=status(power=POWERED, progress=heard("Token", 30),
        join=JoinStatus(refused_time=at(31), refused_reason="NotAccepted")), says="NotAccepted", stage="Token"),
    Row("one that has joined waits for its Node", "Kubelet", status=status(power=POWERED, join=JOINED), stage="Kubelet"),
    Row("a Node that is Ready from an earlier boot is not this boot's", "Kubelet", node=node(boot_id=OTHER_BOOT),
        status=status(power=POWERED, join=JOINED), says=OTHER_BOOT, stage="Kubelet"),
    Row("an earlier order's join is not this order's", "Firmware", node=node(boot_id=BOOT),
        status=status(power=POWERED, join=replace(JOINED, order_id="o0", fetched_time=at(-900))), stage="Firmware"),
]  # fmt: skip

ORDERING = [
    Row("a new server is booted", "Ordered", status=status(order=None), orders="FirstBoot", stage="Ordered"),
    Row("a Node that was made for it and never ran does not hinder that", "Ordered", status=status(order=None),
        node=node(None, boot_id=None), orders="FirstBoot", stage="Ordered"),
    Row("a firmware that hangs is reset", "Ordered", seconds=1000, status=status(power=POWERED), orders="TimedOut"),
    Row("a pool's shorter time-out counts", "Ordered", seconds=62, status=status(power=POWERED), orders="TimedOut",
        pool=pool(stage_timeout_seconds=StageTimeouts(firmware=60))),
    Row("a stage-1 that hangs is reset", "Ordered", seconds=200, orders="TimedOut",
        status=status(power=POWERED, progress=heard("Stage1", 10, "no carrier"))),
    Row("a kubelet that never reports is reset", "Ordered", seconds=400, orders="TimedOut",
        status=status(power=POWERED, join=JOINED)),
    Row("a boot that is told to begin anew for ever is given up", "Ordered", seconds=5000, orders="TimedOut",
        status=status(power=POWERED, progress=heard("IPXE", 4990))),
    Row("without a BMC a hanging boot is armed once more", "Ordered", seconds=300, orders="TimedOut", spec=NO_BMC,
        status=status(progress=heard("Stage1", 10)), says="power button"),
    Row("power lost while it boots", "Ordered", seconds=60, orders="PowerLost",
        status=status(power=replace(POWERED, state="Off", observed_time=at(20)), progress=heard("Root", 12))),
    Row("power lost while it was Ready", "Ordered", seconds=7200, orders="PowerLost", node=node(None, lease=7100),
        status=status(**{**READY_ONCE, "power": replace(POWERED, state="Off", observed_time=at(7150))})),
    Row("a panic: it asks to join again and its Node is dead", "Ordered", seconds=560, orders="Unordered",
        status=status(**{**READY_ONCE, "join": REFUSED}), node=node(False, lease=440)),
    Row("without a BMC an order that expired is armed again", "Ordered", seconds=9000, orders="Unordered", spec=NO_BMC,
        status=status(join=JoinStatus(refused_time=at(8990), refused_reason="OrderExpired"), progress=heard("Token", 8980))),
    Row("the pool's image changed before anything was fetched", "Ordered", seconds=5, orders="ImageChanged",
        pool=pool(image_ref="newer"), status=status(power=POWERED, progress=heard("IPXE", 4))),
    Row("it was off on purpose and shall be on", "Ordered", seconds=9000, orders="PowerState",
        status=status(**{**READY_ONCE, "power": replace(POWERED, state="Off", observed_time=at(8000)),
                         "conditions": (condition("Ready", "False", "PoweredOff"),)})),
]  # fmt: skip

NEVER_ORDERING = [
    Row("a Ready Node is left alone", "Ready", status=status(power=POWERED, join=JOINED), node=node(), stage="Ready"),
    Row("a Node that was Ready before any order is adopted", "Adopted", status=status(order=None), node=node()),
    Row("an adopted Node that fails is not rebooted", "NodeNotReady", status=status(order=None), node=node(False),
        says="kubectl delete node"),
    Row("an adopted Node without power is not booted over the network", "NodeNotReady", node=node(False),
        status=status(order=None, power=PowerStatus(state="Off", observed_time=at(1)))),
    Row("a Node that fails after it was Ready is not rebooted", "NodeNotReady", seconds=9000, node=node(False, lease=40),
        status=status(**READY_ONCE), says="power-cycle", stage="Ready"),
    Row("a deleted Node is not a request to boot", "NodeNotReady", seconds=9000, status=status(**READY_ONCE), says="is gone",
        stage="Ready"),
    Row("a forged refused join does nothing to a Ready Node", "Ready", seconds=9000, node=node(lease=8995),
        status=status(**{**READY_ONCE, "join": REFUSED}), stage="Ready"),
    Row("nor to a NotReady Node whose Lease is fresh", "NodeNotReady", seconds=510, node=node(False, lease=500),
        status=status(**{**READY_ONCE, "join": REFUSED}), says="is alive", stage="Ready"),
    Row("nor to a Node that is Ready by another boot's word", "NodeNotReady", seconds=9000, node=node(boot_id=OTHER_BOOT),
        status=status(**{**READY_ONCE, "join": REFUSED}), says="is alive"),
    Row("a refused join does not stop a boot that is nearly done", "Kubelet", seconds=60,
        status=status(power=POWERED, join=replace(JOINED, refused_time=at(50), refused_reason="AlreadyFetched"))),
    Row("a BMC that says Off does nothing to a Ready Node", "Ready", seconds=9000, node=node(),
        status=status(**{**READY_ONCE, "power": replace(POWERED, state="Off", observed_time=at(8999))})),
    Row("a kubelet that lives but is not Ready is not reset by the time-out", "NodeNotReady", seconds=400,
        node=node(False, lease=395, message="cni plugin not initialized"),
        status=status(power=POWERED, join=JOINED), says="kubectl describe node"),
    Row("a refusal that a person must settle orders nothing", "Token", seconds=60,
        status=status(power=POWERED, progress=heard("Token", 30),
                      join=JoinStatus(refused_time=at(50), refused_reason="SystemUUIDMismatch"))),
    Row("an Off from before the order was carried out is not a loss", "Firmware",
        status=status(power=replace(POWERED, state="Off", observed_time=at(-100)))),
    Row("a new image of the pool does not reset a boot that has begun to fetch", "Root", pool=pool(image_ref="newer"),
        status=status(power=POWERED, progress=heard("Root", 12))),
    Row("nor a Ready Node", "Ready", pool=pool(image_ref="newer"), status=status(power=POWERED, join=JOINED), node=node()),
]  # fmt: skip


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


@pytest.mark.parametrize("row", ORDERING, ids=[row.sentence for row in ORDERING])
@pytest.mark.parametrize(
    "alive", [node(boot_id=OTHER_BOOT), node(False, boot_id=OTHER_BOOT, lease=0)], ids=["Ready", "Lease"]
)
def test_whatever_asks_for_a_boot_a_living_node_forbids_it(row: Row, alive: NodeFacts) -> None:
    if alive.lease_renewed is not None:
        alive = replace(alive, lease_renewed=NOON + timedelta(seconds=row.seconds - 24))
    decision = run(replace(row, node=alive))
    assert not decision.orders


@pytest.mark.parametrize("row", [*WAITING, *ORDERING, *NEVER_ORDERING], ids=lambda row: row.sentence)
def test_deciding_again_on_what_was_written_changes_nothing(row: Row) -> None:
    """A decision is a fixed point: a controller that runs twice writes once."""
    facts, now = facts_of(row), NOON + timedelta(seconds=row.seconds)
    first = decide(facts, now, NEW)
    seen = replace(facts, server=written(facts.server, first))
    if first.orders:
        seen = replace(seen, ordered_image=facts.pool_image)
    again = decide(seen, now, "another")
    if not first.orders:
        assert again.status == first.status
    assert not again.orders
    assert again.status.get("order") == first.status.get("order")
    assert not again.events


def written(server_: Server, decision: Decision) -> Server:
    """The server with the decision in its status, as the API server would give it back."""
    body = encode(server_)
    kept = {
        k: v for k, v in body.get("status", {}).items() if k in ("address", "subnetName", "power", "progress", "join")
    }
    body["status"] = {**kept, **decision.status}
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


def test_the_kernel_before_the_order_is_remembered_where_a_bmc_resets_it() -> None:
    late = status(power=POWERED, progress=heard("Stage1", 10, boot_id=OTHER_BOOT))
    with_bmc = run(Row("", "", seconds=1000, status=late))
    assert with_bmc.status["order"]["bootIDBefore"] == OTHER_BOOT
    without = run(Row("", "", seconds=1000, status=replace(late, power=None), spec=NO_BMC))
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
            assert decision.look_again_seconds is not None
            now += timedelta(seconds=decision.look_again_seconds)
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
    assert all(later > earlier for earlier, later in zip(gaps[1:7], gaps[2:8], strict=True))
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
    assert decision.look_again_seconds == pytest.approx(1 + 900 - 40)


def test_a_living_node_in_the_way_is_looked_at_often() -> None:
    row = next(row for row in NEVER_ORDERING if "Lease is fresh" in row.sentence)
    assert (run(row).look_again_seconds or 0) <= 10


def test_conditions_keep_their_transition_time() -> None:
    first = run(Row("", "", seconds=5, status=status(power=POWERED)))
    later = decide(
        replace(facts_of(Row("", "", status=status(power=POWERED))), server=written(server(status=status(power=POWERED)), first)),
        NOON + timedelta(seconds=50), "x",
    )  # fmt: skip
    assert ready_of(later)["lastTransitionTime"] == ready_of(first)["lastTransitionTime"]


def test_without_a_bmc_an_order_never_times_out() -> None:
    decision = run(Row("", "", seconds=1000, spec=NO_BMC))
    assert ready_of(decision)["reason"] == "Ordered"
    assert decision.look_again_seconds is None
