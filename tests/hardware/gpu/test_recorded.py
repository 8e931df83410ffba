"""What real GPUs answered (`recorded`, written by record.py), through the agent and the checks, without a GPU."""

from __future__ import annotations

import ctypes
import json
import re
from ctypes import Structure
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.nodes.facts import NodeFacts
from provisioner.node.machine.gpus import exposition, survey
from provisioner.node.machine.gpus.facts import gpu_facts
from provisioner.node.machine.gpus.kernel_log import KernelLog
from provisioner.node.machine.gpus.nvml import ERRORS, Nvml, NvmlError
from tests.hardware.gpu.record import DRIFTING, FAULTS, findings, given, masked, outputs, said

RECORDED = {
    path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "recorded").glob("*.json"))
}
MOMENTS = ("idle", "loaded")
AS_EXPECTED = dict.fromkeys(("GPUDriver", "GPUMemory", "GPULinks", "GPUFabric", "GPUClocks", "GPUErrors"), "AsExpected")
NO_NVLINK = {"GPULinks": "WrongNVLinks", "GPUFabric": "NoFabric"}
"""What a GPU that was passed to a virtual machine lacks."""


@pytest.fixture(params=RECORDED)
def recorded(request: pytest.FixtureRequest) -> Any:
    return RECORDED[request.param]


class ReplayedNvml(Nvml):
    """Answers each call as the real library did."""

    calls: list[dict[str, Any]]

    def __init__(self, path: str) -> None:
        assert path == "recorded"

    def call(self, function: str, *arguments: object) -> None:
        recorded = self.calls.pop(0)
        assert (function, given(arguments)) == (recorded["function"], recorded["given"])
        if "code" in recorded:
            raise NvmlError(function, recorded["code"])
        for target, answer in zip(outputs(arguments), recorded["said"], strict=True):
            write(target, answer)


def write(target: Any, answer: Any) -> None:
    """The opposite of `record.said`."""
    if isinstance(target, Structure):
        for name, type_ in target._fields_:  # type: ignore[misc]
            if isinstance(getattr(target, name), bytes):
                setattr(target, name, answer[name].encode())
            elif issubclass(type_, ctypes.Array):
                setattr(target, name, type_.from_buffer_copy(bytes.fromhex(answer[name])))
            else:
                setattr(target, name, answer[name])
    else:
        target.value = answer.encode() if isinstance(answer, str) else answer


def replay(trace: dict[str, Any], patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The survey of today's agent over these answers."""
    patch.setattr(survey, "Nvml", ReplayedNvml)
    patch.setattr(ReplayedNvml, "calls", list(trace["calls"]), raising=False)
    reading = survey.survey("recorded")
    assert ReplayedNvml.calls == [], "calls that the survey does not make any more: record them anew"
    return reading


def kernel_log(recorded: dict[str, Any], folder: Path) -> KernelLog:
    path = folder / "kmsg"
    path.write_text("".join(f"{line}\n" for line in recorded["kernelLog"]["lines"]))
    log = KernelLog(str(path))
    log.look()
    return log


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_survey_reads_what_a_real_library_answers(
    recorded: dict[str, Any], moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = recorded[moment]["trace"]
    assert replay(trace, monkeypatch) == trace["reading"]


def test_what_was_replayed_is_what_a_structure_would_say_again() -> None:
    """`write` and `record.said` fit each other, for each kind of answer."""
    pci, text, number = survey.PciInfo(), ctypes.create_string_buffer(96), ctypes.c_uint()
    fabric = survey.FabricInfo()
    answers = [
        {"bus_id_legacy": "0000:00:06.0", "domain": 1, "bus": 2, "device": 6, "pci_device_id": 7}
        | {"pci_subsystem_id": 8, "bus_id": "00000000:00:06.0"},
        "NVIDIA H200",
        7,
        {"version": 1, "cluster_uuid": "0a" * 16, "status": 2, "clique_id": 3, "state": 3, "health_mask": 5},
    ]
    arguments = (ctypes.byref(pci), text, ctypes.byref(number), ctypes.byref(fabric))
    for target, answer in zip(outputs(arguments), answers, strict=True):
        write(target, answer)
    assert said(arguments) == answers


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_agent_agrees_with_nvidia_smi(recorded: dict[str, Any], moment: str) -> None:
    compared = [each for each in recorded[moment]["comparison"] if each["fact"] not in DRIFTING]
    said_by_both = {each["fact"]: each for each in compared if each["agrees"] is not None}
    assert [each for each in said_by_both.values() if not each["agrees"]] == []
    assert {"uuid", "memoryBytes", "memoryUsedBytes", "eccEnabled", "migEnabled", "pcieMaxWidth"} <= set(said_by_both)


def test_an_idle_gpu_has_no_memory_in_use_and_a_job_has_what_it_took(recorded: dict[str, Any]) -> None:
    """The driver's reserve is no use: an H200 keeps 615 MiB for itself."""
    idle, loaded = (recorded[moment]["reading"]["gpus"][0]["memoryUsedBytes"] >> 20 for moment in MOMENTS)
    assert idle == 0
    assert loaded >= recorded["held"]["mib"]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_healthy_gpu_passes_every_check_that_it_can_pass(
    recorded: dict[str, Any], moment: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reading = recorded["environment"]["driverFacts"] | replay(recorded[moment]["trace"], monkeypatch)
    facts = node_facts(recorded, gpu_facts(reading, KernelLog(str(tmp_path))))
    told = {pool: {name: reason for name, (reason, _) in found.items()} for pool, found in findings(facts).items()}
    assert told == {
        "expects GPUs": AS_EXPECTED,
        "GPUs without a fabric": AS_EXPECTED,
        "HGX": AS_EXPECTED | NO_NVLINK,
    }


def test_clocks_that_the_power_limit_lowers_under_load_are_no_slowdown(recorded: dict[str, Any]) -> None:
    samples = recorded["underLoad"]["samples"]
    capped = [each for each in samples if each["reasons"] == [4]]
    assert capped, "SwPowerCap"
    assert all(each["smClockMhz"] < 1980 and each["utilizationPercent"] == 100 for each in capped)
    assert [each for each in samples if each["slowdowns"]] == []
    assert recorded["underLoad"]["findings"]["expects GPUs"]["GPUClocks"][0] == "AsExpected"


def test_real_lines_of_the_kernel_log_are_the_jobs_xids_and_no_complaints(
    recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = kernel_log(recorded, tmp_path)
    address = recorded["idle"]["reading"]["gpus"][0]["pciAddress"]
    assert [(*key, each["count"]) for key, each in log.xids.items()] == [(address, 31, 1), (address, 13, 3)]
    assert log.complaints == [], "a driver that loads says much that is no complaint"
    reading = replay(recorded["idle"]["trace"], monkeypatch)
    errors = findings(node_facts(recorded, gpu_facts(reading, log)))["expects GPUs"]["GPUErrors"]
    assert errors[0] == "AsExpected"
    assert f"XID 31 of GPU {address} (memory page fault" in errors[1]
    assert "3 lines of the kernel log" in errors[1]
    assert [recorded[f"after {name}"]["said"] for name in FAULTS] == [
        "cuCtxSynchronize: error 700",
        "cuCtxSynchronize: error 716",
    ]


def test_the_metrics_of_a_real_gpu_are_read_by_prometheus(
    recorded: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu = recorded["loaded"]["reading"]["gpus"][0]
    reading = replay(recorded["loaded"]["trace"], monkeypatch)
    text = exposition.render(reading, kernel_log(recorded, tmp_path), 1000.0)
    samples = {
        sample.name.removeprefix(exposition.PREFIX): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.value or sample.name.endswith("used_bytes")
    }
    assert samples["memory_bytes"].value == gpu["memoryBytes"]
    assert samples["memory_used_bytes"].value > recorded["held"]["mib"] << 20
    assert samples["power_limit_watts"].value == 700
    assert samples["xid_errors_total"].labels["uuid"] == gpu["uuid"], "the log's address is the survey's"
    assert "nvlinks_active" not in samples


def test_a_survey_that_is_killed_leaves_a_gpu_that_answers_the_next(recorded: dict[str, Any]) -> None:
    deadline = recorded["deadline"]
    assert (deadline["reading"]["state"], deadline["status"], deadline["nextState"]) == ("Hung", -9, "Ready")
    assert deadline["reading"]["moduleVersion"] == recorded["about"]["driver"], "what was read before it is kept"


def test_what_nvml_did_not_answer_was_not_supported_and_no_fault(recorded: dict[str, Any]) -> None:
    errors = {call["error"] for call in recorded["otherCalls"] if "error" in call}
    assert errors == {"NOT_SUPPORTED"}
    for moment in MOMENTS:
        assert recorded[moment]["errors"] == ["nvmlDeviceGetNvLinkState[0]: NOT_SUPPORTED"]
        assert "error" not in recorded[moment]["reading"]["gpus"][0]
    assert {call["error"] for call in recorded["otherCalls"] if "error" in call} <= set(ERRORS.values())


def test_no_card_can_be_known_by_its_record(recorded: dict[str, Any]) -> None:
    text = json.dumps(recorded)
    assert set(re.findall(r"GPU-[0-9a-f-]{36}", text)) == {recorded["idle"]["reading"]["gpus"][0]["uuid"]}
    for uuid in re.findall(r"GPU-[0-9a-f-]{36}", text):
        assert re.fullmatch(r"GPU-[0a-]+\d\d", uuid)
    (serial,) = (call["said"] for call in recorded["otherCalls"] if call["function"] == "nvmlDeviceGetSerial")
    assert re.fullmatch(r"0+\d\d", serial[0])
    assert masked("GPU-12ab34cd-5e6f-7081-92a3-b4c5d6e7f809", 3) == "GPU-00aa00aa-0a0a-0000-00a0-a0a0a0a0a003"


def node_facts(recorded: dict[str, Any], gpus: dict[str, Any]) -> dict[str, Any]:
    """The annotation's JSON: of the machine, what says that the GPU is on PCI."""
    facts = {
        "format": 1,
        "bootID": "6f1c5d0e-8c55-4b57-9f8f-0d8a5a3f1e11",
        "imageDigest": "sha256:" + "9f" * 32,
        "time": "2026-01-02T12:00:00Z",
        "cpus": 16,
        "memoryBytes": 128 << 30,
        "pci": recorded["idle"]["facts"]["pci"],
        **gpus,
    }
    known = from_json(NodeFacts, facts)
    assert to_json(known)["gpus"] == facts["gpus"], "nothing is lost on its way"
    return facts
