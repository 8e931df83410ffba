"""Faults in the agent's facts: when they are news, in which order, and what is cut where there is no room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.nodes.facts import NodeFacts
from provisioner.node.daemon import Daemon
from provisioner.node.intent import FACTS_ANNOTATION
from provisioner.node.machine.facts import MAX_BYTES, REPEAT_SECONDS, is_news, render
from provisioner.node.machine.faults import LOOK_SECONDS, MachineFaults
from provisioner.node.machine.kernel_log.records import KernelRecords
from tests.node.kernel_log.corpus import FAULTS
from tests.node.made_machine import make_machine, write
from tests.node.test_daemon import FakeMachine, FakeNode
from tests.node.test_facts import boot

CORRECTED = "pcieport 0000:80:01.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)"


def say(root: Path, *lines: str) -> None:
    (root / "dev").mkdir(exist_ok=True)
    with (root / "dev/kmsg").open("a") as file:
        file.writelines(f"4,1,1,-;{line}\n" for line in lines)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    say(tmp_path)
    return make_machine(tmp_path)


def machine_faults(root: Path) -> MachineFaults:
    return MachineFaults(str(root), KernelRecords(f"{root}/dev/kmsg"))


def test_a_machine_that_is_well_has_none(root: Path) -> None:
    faults = machine_faults(root)
    assert not faults.look(0.0)
    assert faults.facts == {}


def test_a_new_fault_is_news_and_more_of_it_is_not(root: Path) -> None:
    faults = machine_faults(root)
    say(root, CORRECTED)
    assert faults.look(0.0)
    first: dict[str, Any] = {"time": "a", **faults.facts}
    say(root, CORRECTED, CORRECTED)
    assert not faults.look(LOOK_SECONDS)
    more = {"time": "b", **faults.facts}
    assert more["faults"][0]["count"] == 3
    assert not is_news(more, first, 60.0)
    assert is_news(more, first, REPEAT_SECONDS)
    say(root, "kernel BUG at mm/slub.c:305!")
    assert faults.look(2 * LOOK_SECONDS)
    assert is_news({"time": "c", **faults.facts}, first, 1.0)
    assert [each["severity"] for each in faults.facts["faults"]] == ["Critical", "Info"], "the worst first"


def test_it_looks_again_after_a_while_also_when_the_clock_was_set_back(root: Path) -> None:
    faults = machine_faults(root)
    faults.look(1000.0)
    say(root, CORRECTED)
    assert not faults.look(1000.0 + LOOK_SECONDS / 2)
    assert faults.look(500.0)


def test_where_the_annotation_is_too_long_the_mildest_faults_are_left_out() -> None:
    fault = {"source": "KernelLog", "component": "PCIe", "device": "0000:80:01.0", "code": "AERFatal", "count": 1}
    faults = [
        {**fault, "severity": severity, "evidence": f"{number} " + "x" * 160}
        for number, severity in enumerate(["Critical"] * 8 + ["Info"] * 200)
    ]
    text = render({"format": 1, "bootID": "b", "faults": faults})
    assert len(text) <= MAX_BYTES
    written = json.loads(text)
    assert [each["severity"] for each in written["faults"][:9]] == ["Critical"] * 8 + ["Info"]
    assert written["faultsLeftOut"] is True


@pytest.mark.programs
def test_the_daemon_writes_a_new_fault_within_a_look_and_its_count_with_the_next_facts(root: Path) -> None:
    write(root, "run/systemd/timesync/synchronized", "")
    now, node = [1000.0], FakeNode()
    daemon = Daemon(boot(), str(root), node, FakeMachine(root, []), str, lambda: now[0])

    def facts() -> NodeFacts:
        daemon.look()
        assert node.annotations is not None
        text = node.annotations[FACTS_ANNOTATION]
        read = from_json(NodeFacts, json.loads(text))
        assert to_json(read) == json.loads(text)
        return read

    assert facts().faults == ()
    say(root, FAULTS[0][0])
    now[0] += LOOK_SECONDS
    assert [(each.code, each.count) for each in facts().faults] == [("CorrectedMachineCheck", 1)]
    say(root, FAULTS[0][0])
    now[0] += REPEAT_SECONDS / 2
    assert [each.count for each in facts().faults] == [1]
    now[0] += REPEAT_SECONDS
    assert [each.count for each in facts().faults] == [2]
