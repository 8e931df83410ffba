"""A neighbour on the boot network says whatever it likes. None of it boots, resets or unmasks anybody's server."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.api.machinery.values import MacAddress
from provisioner.api.servers.server import BootProgress
from provisioner.boot.observe.progress import ProgressReport, record_report
from provisioner.boot.orders.decide import decide
from provisioner.boot.orders.facts import OrderFacts
from provisioner.boot.orders.stages import current_stage
from provisioner.boot.script.choose import KeepWaiting
from provisioner.boot.script.render import render_script
from provisioner.rules.liveness import Heartbeat
from tests.boot.decide_rows import BOOT, JOINED, NEW, ORDER, OTHER_BOOT, POWERED, READY_ONCE, REFUSED, node, status
from tests.boot.objects import NOON, attempt, image, maintenance, pool, rack, server

STAGES: tuple[Any, ...] = ("Firmware", "IPXE", "Stage1", "Root", "System", "Token")
VICTIM = MacAddress("52:54:00:12:34:56")


def forged() -> list[ProgressReport]:
    """Everything that can be said about a victim: every stage, by its own kernel and another."""
    said = itertools.product(STAGES, (BOOT, OTHER_BOOT), (None, "all is lost"))
    return [
        ProgressReport(
            mac=VICTIM, stage=stage, boot_id=None if stage in ("Firmware", "IPXE") else boot_id, message=message
        )
        for stage, boot_id, message in said
    ]


def facts(**fields: Any) -> OrderFacts:
    wanted = {"ordered_image": image(), "next_image": image(), "rack": rack(), "pool": pool(), "node": node(), **fields}
    return OrderFacts(**{"next_pool": wanted["pool"], **wanted})


@pytest.mark.parametrize("seconds", [60, 600, 6_000, 600_000])
@pytest.mark.parametrize("alive", [node(), node(False, lease=0)], ids=["Ready", "Lease"])
def test_no_report_resets_a_server_whose_node_is_alive(seconds: float, alive: Any) -> None:
    now = NOON + timedelta(seconds=seconds)
    if alive.heartbeat.renewed is not None:
        alive = replace(alive, heartbeat=Heartbeat(renewed=now - timedelta(seconds=10)))
    for first, second in itertools.product(forged(), repeat=2):
        progress: BootProgress | None = None
        for report in (first, second):
            progress = record_report(progress, report, ORDER, now) or progress
        victim = server(status=status(**{**READY_ONCE, "join": REFUSED, "progress": progress}))
        assert not decide(facts(server=victim, node=alive), now, NEW).orders


def test_no_report_makes_a_server_ready_joined_or_booted() -> None:
    for report in forged():
        progress = record_report(None, report, ORDER, NOON + timedelta(seconds=5))
        victim = server(status=status(power=POWERED, progress=progress))
        decision = decide(facts(server=victim, node=None), NOON + timedelta(seconds=6), NEW)
        assert {c["status"] for c in decision.status["conditions"]} == {"False"}
        assert not {"imageRef", "bootID", "nodeRef", "readyTime"} & set(decision.status)


@pytest.mark.parametrize("phase", [None, "Waiting", "Claiming", "Draining", "Drained", "Verifying"])
def test_no_report_brings_a_requested_boot_forward(phase: Any) -> None:
    """A Maintenance is under way, and even names a try: only the executor's word says that the Node is drained."""
    waiting = maintenance(phase=phase, reboot=attempt("Reset"))
    for now in (NOON + timedelta(seconds=seconds) for seconds in (60, 600, 6_000)):
        alive = node(lease=(now - NOON).total_seconds() - 5)
        for first, second in itertools.product(forged(), repeat=2):
            progress: BootProgress | None = None
            for report in (first, second):
                progress = record_report(progress, report, ORDER, now) or progress
            victim = server(status=status(**{**READY_ONCE, "join": REFUSED, "progress": progress}))
            assert not decide(facts(server=victim, node=alive, maintenance=waiting), now, NEW).orders


@pytest.mark.parametrize("method", ["Kexec", "Reboot", "Reset", "PowerCycle"])
def test_no_report_changes_what_a_requested_boot_is(method: Any) -> None:
    """Its image, the kernel before it (that could join otherwise), the try that it answers."""
    asking = maintenance(reboot=attempt(method))
    orders = set()
    for report in (None, *forged()):
        progress = record_report(None, report, ORDER, NOON + timedelta(seconds=3500)) if report else None
        victim = server(status=status(**{**READY_ONCE, "progress": progress}))
        decision = decide(facts(server=victim, maintenance=asking), NOON + timedelta(seconds=3601), NEW)
        orders.add(json.dumps(decision.status["order"], sort_keys=True))
    assert len(orders) == 1


@pytest.mark.parametrize("method", ["Kexec", "Reboot"])
def test_no_report_resets_a_node_that_waits_for_its_own_agent(method: Any) -> None:
    """Whoever says that its boot began, or hangs, does not have it reset before the agent acts."""
    told = replace(ORDER, reason="Requested", method=method, maintenance_ref="r01-u01-1", attempt_id="try-1")
    asking = maintenance(reboot=attempt(method))
    for seconds, report in itertools.product((60, 6_000, 600_000), forged()):
        now = NOON + timedelta(seconds=seconds)
        progress = record_report(None, report, told, NOON + timedelta(seconds=5))
        victim = server(status=status(order=told, power=None, join=replace(JOINED, order_id="o0"), progress=progress))
        alive = node(boot_id=BOOT, lease=seconds - 5)
        for held in (asking, None):
            assert not decide(facts(server=victim, node=alive, maintenance=held), now, NEW).orders


def test_a_kernel_id_that_somebody_guessed_is_not_readiness() -> None:
    """The Node must report the kernel that got the join configuration; what progress says is nothing to it."""
    progress = record_report(
        None, ProgressReport(mac=VICTIM, stage="Token", boot_id=OTHER_BOOT), ORDER, NOON + timedelta(seconds=5)
    )
    victim = server(status=status(power=POWERED, join=JOINED, progress=progress))
    decision = decide(facts(server=victim, node=node(boot_id=OTHER_BOOT)), NOON + timedelta(seconds=40), NEW)
    assert "readyTime" not in decision.status


@pytest.mark.parametrize("seconds", [30, 2280, 2282])
@pytest.mark.parametrize("wanted", ["gpu-node-abababababab", "newer"])
@pytest.mark.parametrize(
    "where",
    [
        {"power": None},
        {"power": POWERED},
        {"power": POWERED, "join": JOINED},
        {"power": POWERED, "join": REFUSED},
        {"power": None, "order": replace(ORDER, reason="Requested", method="Kexec")},
    ],
    ids=["told nobody", "boots", "joined", "refused", "left to the agent"],
)
def test_no_report_gives_brings_forward_or_puts_off_an_order(
    where: dict[str, Any], wanted: str, seconds: float
) -> None:
    """As if nobody had said anything: neither the first word nor the last one, early or late, true or forged."""
    now, orders = NOON + timedelta(seconds=seconds), set()
    said: list[BootProgress | None] = [None]
    for report, since in itertools.product(forged()[::2], (2, seconds - 1)):
        said.append(record_report(None, report, ORDER, NOON + timedelta(seconds=since)))
        said.append(record_report(said[-2], report, ORDER, now) or said[-2])
    for progress, spec in itertools.product(said, ({}, {"bmc": None})):
        victim = server(status=status(**{**where, "progress": progress}), **spec)
        seen = facts(server=victim, node=None, pool=pool(image_ref=wanted), next_image=image(wanted))
        decision = decide(seen, now, NEW)
        stage = current_stage(victim, seen.pool)
        if not decision.orders and stage is not None and stage.deadline is not None:
            left = max(0.5, (stage.deadline - now).total_seconds())
            assert decision.requeue_after_seconds is not None
            assert decision.requeue_after_seconds <= left, "looked at again once its time is over, whoever says what"
        order = {key: value for key, value in decision.status["order"].items() if key != "message"}
        orders.add((bool(spec), decision.orders, decision.revokes, json.dumps(order, sort_keys=True)))
    assert len(orders) == 2, "one with a BMC and one without"


@pytest.mark.parametrize(
    "words",
    [
        "\n#!ipxe\nshell", "x || shell", "x && sanboot http://evil/", "x ; reboot", "${nextserver}", "x \\", "# x",
        "\x00\x1b[2J", "$${net0/mac}{x}", "a\r\nchain http://evil/",
    ],
)  # fmt: skip
def test_no_word_of_a_machine_becomes_a_command_on_another_ones_console(words: str) -> None:
    script = render_script(KeepWaiting(reason="Unknown", message=words, remedy=words))
    commands = [line.split()[0] for line in script.splitlines()[2:]]
    assert set(commands) <= {"echo", "sleep", "exit"}
    assert "${" not in script
    assert not any(
        word in (";", "&&", "||") for line in script.splitlines() if line.startswith("echo") for word in line.split()
    )
