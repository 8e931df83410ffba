"""What each source finds in a Node: faults of a bad one, nothing in its honest twin; and what a lying one can do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from provisioner.api.machinery.codec import to_json
from provisioner.api.nodes.facts import GpuDriverFacts, GpuXidFacts, ObservedFault
from provisioner.api.servers.faults import (
    MAX_COUNT,
    MAX_EVIDENCE,
    SEVERITIES,
    FaultComponent,
    FaultSeverity,
    FaultSource,
)
from provisioner.health.checks.gpu.xids import Action
from provisioner.health.faults.agent import DRIVER_STATES, SEVERITY_OF_ACTION
from provisioner.health.faults.catalogue import CATALOGUE, meaning_of
from provisioner.health.faults.conditions import TOOL_CONDITIONS
from provisioner.health.faults.sources import PATIENT_SOURCES, SOURCES, observe
from tests.health.faults.records import GPU, observed
from tests.health.objects import OTHER_BOOT, good_facts, gpu, gpu_by_nvml, node, node_condition
from tests.node.kernel_log.corpus import FAULTS

ALL = (*SOURCES, *PATIENT_SOURCES)
Found = list[tuple[str, str, str, str, str]]
DOCUMENT = (Path(__file__).parents[3] / "docs" / "health.md").read_text()


def found(*arguments: Any, in_use: bool = True, **fields: Any) -> Found:
    """Source, component, device, code and severity."""
    return [
        (each.source, each.component, each.device, each.code, each.severity)
        for each in observe(node(*arguments, **fields), ALL if in_use else SOURCES)
    ]


def of_agent(*faults: Mapping[str, Any], **facts: Any) -> list[ObservedFault]:
    """What is observed of faults that an agent wrote, whatever they are."""
    text = json.dumps({**to_json(good_facts()), "faults": list(faults), **facts})
    return list(observe(node(text), ALL))


def test_a_node_that_is_well_has_no_faults() -> None:
    assert found() == []
    quiet = [node_condition(each.type, "False") for each in TOOL_CONDITIONS]
    assert found(None, *quiet, node_condition("GpuMemWatch", "Unknown")) == []


@pytest.mark.parametrize(
    ("xid", "expected"),
    [
        (GpuXidFacts(address=GPU, xid=79), ("GPU", "XID79", "Critical")),
        (GpuXidFacts(address=GPU, xid=94), ("GPU", "XID94", "Critical")),
        (GpuXidFacts(address=GPU, xid=64), ("GPU", "XID64", "Critical")),
        (GpuXidFacts(address=GPU, xid=74), ("GPU", "XID74", "Degraded")),
        (GpuXidFacts(address=GPU, xid=38), ("GPU", "XID38", "Degraded")),
        (GpuXidFacts(address=GPU, xid=31), ("GPU", "XID31", "Info")),
        (GpuXidFacts(address=GPU, xid=162), ("GPU", "XID162", "Info")),
        (GpuXidFacts(address=GPU, xid=99999), ("GPU", "XID99999", "Info")),
        (GpuXidFacts(address=GPU, xid=145, severity="Nonfatal"), ("GPU", "XID145", "Info")),
        (GpuXidFacts(address=GPU, xid=20034, kind="SXid", severity="Fatal"), ("NVSwitch", "SXID20034", "Critical")),
        (GpuXidFacts(address=GPU, xid=12028, kind="SXid", severity="Nonfatal"), ("NVSwitch", "SXID12028", "Info")),
        (GpuXidFacts(address=GPU, xid=10003, kind="SXid"), ("NVSwitch", "SXID10003", "Info")),
    ],
)
def test_an_xid_is_as_severe_as_what_the_catalogue_asks_for(xid: GpuXidFacts, expected: tuple[str, str, str]) -> None:
    component, code, severity = expected
    assert found(good_facts(gpu_xids=(xid,))) == [("KernelLog", component, GPU, code, severity)]


def test_every_action_of_the_catalogue_has_a_severity() -> None:
    assert SEVERITY_OF_ACTION.keys() == set(Action)
    assert {action for action in Action if not action.fails} == {
        action for action, severity in SEVERITY_OF_ACTION.items() if severity == "Info"
    }


@pytest.mark.parametrize(
    ("fields", "code", "severity"),
    [
        ({"error": "GPU_IS_LOST"}, "GPULost", "Critical"),
        ({"error": "UNKNOWN"}, "GPUBroken", "Critical"),
        ({"row_remapping": "Failed"}, "RowRemappingFailed", "Critical"),
        ({"row_remapping": "Pending"}, "RowRemappingPending", "Degraded"),
        ({"pages_retired_pending": True}, "RowRemappingPending", "Degraded"),
        ({"ecc_uncorrected": 3}, "UncorrectedErrors", "Critical"),
    ],
)
def test_a_gpu_that_is_bad_by_nvml_is_a_fault(fields: dict[str, Any], code: str, severity: str) -> None:
    assert found(good_facts(gpus=(gpu_by_nvml(1), gpu_by_nvml(2, **fields)))) == [
        ("NVML", "GPU", "0000:02:00.0", code, severity)
    ]


@pytest.mark.parametrize("state", DRIVER_STATES)
def test_a_driver_that_does_not_run_is_a_fault_unless_the_gpus_are_anothers(state: str) -> None:
    driver = GpuDriverFacts(state=state, message="its words")
    assert found(good_facts(gpu_driver=driver)) == [("NVML", "GPU", "", f"Driver{state}", DRIVER_STATES[state])]
    handed_on = (gpu(1, driver="vfio-pci"), gpu(2, driver="vfio-pci"))
    assert found(good_facts(gpu_driver=driver, pci=handed_on)) == []


def test_a_driver_that_is_surveyed_is_no_fault() -> None:
    assert found(good_facts(gpu_driver=GpuDriverFacts(state="Looking"))) == []
    assert found(good_facts(gpu_driver=None, gpus=())) == []


@pytest.mark.parametrize("known", TOOL_CONDITIONS, ids=lambda known: known.type)
def test_a_condition_of_a_tool_that_is_true_is_a_fault(known: Any) -> None:
    condition = node_condition(known.type, "True", message="its words", at=None)
    assert found(None, condition) == [("NodeCondition", known.component, "", known.type, known.severity)]
    (fault,) = observe(node(None, condition))
    assert (fault.count, fault.evidence) == (None, f"{known.tool}: {known.type} is True (Test): its words")


def test_each_tools_condition_is_known_once_and_documented() -> None:
    types = [known.type for known in TOOL_CONDITIONS]
    assert len(types) == len(set(types)) > 20
    assert {known.component for known in TOOL_CONDITIONS} <= set(get_args(FaultComponent))
    assert [type_ for type_ in types if type_ not in DOCUMENT] == []


@pytest.mark.parametrize(
    ("status", "code", "severity"),
    [("False", "NodeNotReady", "Degraded"), ("Unknown", "NodeUnreachable", "Critical")],
)
def test_a_kubelet_that_is_not_ready_is_a_fault_while_the_server_is_in_use(
    status: str, code: str, severity: str
) -> None:
    view = node(ready=False)
    body = dict(view.body)
    body["status"] = {**body["status"], "conditions": [node_condition("Ready", status)]}
    broken = type(view)(body)
    assert [(each.code, each.severity) for each in observe(broken, ALL)] == [(code, severity)]
    assert observe(broken) == ()


def test_a_node_on_which_no_kubelet_reported_is_no_fault() -> None:
    view = node()
    status = {"conditions": [node_condition("Ready", "Unknown")]}
    assert observe(type(view)({**view.body, "status": status}), ALL) == ()


def test_services_and_clock_count_only_while_the_server_is_in_use() -> None:
    facts = good_facts(kubelet_active=False, runtime_active=False, clock_synchronized=False)
    assert found(facts) == [
        ("Node", "Kubelet", "", "KubeletInactive", "Critical"),
        ("Node", "ContainerRuntime", "", "RuntimeInactive", "Critical"),
        ("Node", "Clock", "", "ClockNotSynchronized", "Info"),
    ]
    assert found(facts, in_use=False) == []
    assert found(good_facts(kubelet_active=None, runtime_active=None, clock_synchronized=None)) == []


def test_facts_of_an_earlier_boot_are_no_faults_of_this_one() -> None:
    facts = good_facts(boot_id=OTHER_BOOT, faults=(observed(),), gpu_xids=(GpuXidFacts(address=GPU, xid=79),))
    assert found(facts) == []
    assert [code for _, _, _, code, _ in found(facts, boot_id=OTHER_BOOT)] == ["XID79", "XID79"]


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"format": 1}', '{"faults": [{}]}', "[" * 5000, "7" * 100_000])
def test_facts_that_cannot_be_read_hide_no_condition(text: str) -> None:
    assert found(text or None, node_condition("KernelDeadlock")) == [
        ("NodeCondition", "Kernel", "", "KernelDeadlock", "Critical")
    ]


def test_ten_thousand_faults_of_a_node_are_cut_and_the_cut_is_said() -> None:
    many = [{"source": "KernelLog", "component": "Disk", "code": f"A{at}", "severity": "Info"} for at in range(700)]
    seen = of_agent(*many)
    assert len(seen) == 257
    assert (seen[-1].code, seen[-1].severity) == ("FaultsLeftOut", "Info")
    assert of_agent(*many * 15) == [], "more than an agent writes is not read at all"
    assert [each.code for each in of_agent(many[0], faultsLeftOut=True)] == ["A0", "FaultsLeftOut"]


def test_whatever_an_agent_writes_fits_a_record_and_stays_a_fault() -> None:
    base = {"source": "KernelLog", "component": "Disk", "device": "nvme0", "code": "DiskIOError", "severity": "Info"}
    strange = [
        base | {"severity": "Harmless"},
        base | {"component": "Moon", "code": "C"},
        base | {"source": "NodeCondition", "code": "D"},
        base | {"code": "no code \x1b[31m"},
        base | {"device": "nvme0\n\x1b[2J" + "x" * 500, "code": "F"},
        base | {"count": 10**30, "code": "G"},
        base | {"count": -5, "code": "H"},
        base | {"evidence": "\x1b]0;title\x07\u202e" + "y" * 5000, "code": "J"},
    ]
    seen = of_agent(*strange)
    assert [each.code for each in seen] == ["DiskIOError", "C", "D", "Unknown", "F", "G", "H", "J"]
    assert seen[0].severity == "Degraded", "not known is not nothing"
    assert (seen[1].component, seen[2].source) == ("System", "Node")
    assert seen[3].evidence == "no code [31m:"
    assert seen[4].device == ("nvme02J" + "x" * 500)[:64]
    assert [each.count for each in seen[5:7]] == [MAX_COUNT, 1]
    for each in seen:
        assert each.source in get_args(FaultSource)
        assert each.component in get_args(FaultComponent)
        assert each.severity in SEVERITIES
        assert len(each.evidence) <= MAX_EVIDENCE
        assert each.evidence.isprintable()


def test_an_honest_report_is_taken_as_it_is() -> None:
    fault = observed("DiskIOError", component="Disk", device="nvme0n1", severity="Degraded", count=4, time=None)
    assert of_agent(to_json(fault)) == [fault]


def test_every_fault_that_is_documented_is_in_the_catalogue_and_the_other_way_round() -> None:
    missing = [
        code for _, code in CATALOGUE if code not in DOCUMENT and code not in ("FaultsLeftOut", "KernelLogUnreadable")
    ]
    assert missing == []
    assert {component for component, _ in CATALOGUE} <= set(get_args(FaultComponent))
    assert get_args(FaultSeverity) == SEVERITIES


def test_every_fault_of_the_kernel_log_has_a_meaning_and_a_remedy() -> None:
    kinds = {(component, code) for _, component, code, _, _ in FAULTS}
    assert kinds
    assert kinds - CATALOGUE.keys() == set()


def test_a_code_that_nobody_knows_has_words_too() -> None:
    assert meaning_of("GPU", "XID79").meaning == "the GPU fell off the bus"
    assert "not know" in meaning_of("GPU", "XID99999").meaning
    assert "NVSwitch" in meaning_of("NVSwitch", "SXID20034").meaning
    assert meaning_of("GPU", "GpuMemWatch", "NodeCondition").meaning == "condition GpuMemWatch is True"
    assert "not known" in meaning_of("Disk", "Flux").meaning
