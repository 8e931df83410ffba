"""What is said of GPUs by facts alone: of other versions' agents, of machines that lie, of pools that ask otherwise.

That the agent's own facts come out right is in tests/node/gpus.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.nodes.facts import GpuDriverFacts, GpuFacts, GpuXidFacts, NodeFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.api.pools.pool_settings import VerificationSettings
from provisioner.health.checks.facts import read_facts
from provisioner.health.checks.finding import Finding
from provisioner.health.checks.gpu.driver import FIRST_SURVEY_SECONDS
from provisioner.health.checks.gpu.fabric import PATIENCE_SECONDS
from provisioner.health.checks.gpu.look import check_gpus
from provisioner.health.checks.gpu.xids import XIDS, Action
from provisioner.health.look import ALL_CHECKS
from tests.health.objects import EXPECTED, good_facts, gpu, gpu_by_nvml, node

DRIVER = GpuDriverFacts(state="Ready", count=2, driver_version="550.163.01")
POOL = VerificationSettings(expected=EXPECTED)
ASKED = replace(POOL, gpus=GpuSettings())
DOCUMENT = (Path(__file__).parents[2] / "docs" / "gpus.md").read_text()


def findings(facts: NodeFacts, settings: VerificationSettings = POOL) -> dict[str, Finding]:
    return {each.name: each for each in check_gpus(settings, facts)}


def driver(state: str = "Ready", **fields: Any) -> Finding:
    return findings(good_facts(gpu_driver=replace(DRIVER, state=state, **fields), gpus=()))["GPUDriver"]


def fabric(*gpus: GpuFacts, **fields: Any) -> Finding:
    return findings(good_facts(gpu_driver=replace(DRIVER, **fields), gpus=gpus or good_facts().gpus))["GPUFabric"]


def test_facts_of_an_agent_that_does_not_know_nvml_are_judged_as_before() -> None:
    old = good_facts(gpu_driver=None, gpus=())
    assert findings(old) == {}
    asked = findings(old, ASKED)
    assert [(each.name, each.reason) for each in asked.values()] == [("GPUDriver", "NotSurveyed")]
    assert "publish an image of this version" in asked["GPUDriver"].message


def test_facts_of_a_newer_agent_are_read_and_what_is_new_in_them_is_not_in_the_way() -> None:
    body = to_json(good_facts(gpu_xids=(GpuXidFacts(address="0000:01:00.0", xid=13),)))
    body["gpuDriver"] |= {"mood": "fine"}
    body["gpuWeather"] = ["sunny"]
    for part in (*body["gpus"], *body["gpuXids"]):
        part["colour"] = {"red": 1}
    facts, _ = read_facts(node(json.dumps(body)))
    assert facts is not None
    assert all(each.ok for each in findings(facts, ASKED).values())


def test_a_controller_that_does_not_know_gpus_reads_the_rest() -> None:
    """What `from_json` of the version before did: a field that it does not know is left out."""
    body = to_json(good_facts())
    known = {key: value for key, value in body.items() if not key.startswith("gpu")}
    assert from_json(NodeFacts, known) == good_facts(gpu_driver=None, gpus=())


def test_a_state_that_this_version_does_not_know_is_shown_and_fails() -> None:
    finding = driver("Dreaming", message="of sheep")
    assert (finding.ok, finding.reason) == (False, "Unknown")
    assert "of sheep" in finding.message


def test_gpus_that_another_driver_holds_are_left_to_it_unless_the_pool_asks() -> None:
    passed_through = (gpu(1, driver="vfio-pci"), gpu(2, driver="vfio-pci"))
    facts = good_facts(pci=passed_through, gpu_driver=GpuDriverFacts(state="NotLoaded"), gpus=())
    assert findings(facts) == {}
    assert findings(facts, ASKED)["GPUDriver"].reason == "NotLoaded"


def test_a_pool_without_gpus_and_one_with_another_vendors_ask_nothing() -> None:
    for gpus in (None, replace(EXPECTED.gpus, count=0), replace(EXPECTED.gpus, vendor_id="1002")):  # type: ignore[type-var]
        assert findings(good_facts(), replace(POOL, expected=replace(EXPECTED, gpus=gpus))) == {}


def test_the_first_survey_and_a_fabric_that_trains_are_waited_for_and_a_wrong_image_is_not() -> None:
    looking = driver("Looking")
    assert (looking.ok, looking.patience_seconds) == (None, FIRST_SURVEY_SECONDS)
    assert fabric(gpu_by_nvml(1, fabric_state="InProgress")).patience_seconds == PATIENCE_SECONDS
    assert driver("VersionMismatch", module_version="570.1", library_version="550.1").patience_seconds == 0
    assert driver("NotLoaded", module_loaded=False, module_installed=False).patience_seconds == 0


def test_switches_without_a_fabric_to_register_with_need_a_fabricmanager_all_the_same() -> None:
    """HGX A100: its GPUs tell of no fabric."""
    a100 = {"switches": 6, "fabric_manager_version": "550.163.01"}
    assert fabric(**a100, fabric_manager_state="active").ok
    assert fabric(**a100, fabric_manager_state="failed").reason == "FabricManagerNotRunning"
    assert fabric(switches=6).reason == "NoFabricManager"


def test_a_rack_whose_switches_are_elsewhere_needs_no_fabricmanager_of_its_own() -> None:
    there = [gpu_by_nvml(number, fabric_state="Completed", fabric_status=0, fabric_clique=5) for number in (1, 2)]
    assert fabric(*there).ok
    finding = fabric(*(replace(each, fabric_state="NotStarted") for each in there))
    assert finding.reason == "NotRegistered"
    assert "switch trays" in finding.message


def test_a_fabric_that_must_be_there_and_one_that_does_not_matter() -> None:
    required, ignored = (replace(POOL, gpus=GpuSettings(fabric=each)) for each in ("Required", "Ignored"))
    half = good_facts(gpus=(gpu_by_nvml(1, fabric_state="Completed", fabric_status=0), gpu_by_nvml(2)))
    assert findings(good_facts(), required)["GPUFabric"].reason == "NoFabric"
    assert findings(half, required)["GPUFabric"].reason == "NoFabric"
    broken = good_facts(gpus=(gpu_by_nvml(1, fabric_state="NotStarted", nvlinks_inactive=(1,)), gpu_by_nvml(2)))
    assert {name for name, each in findings(broken).items() if not each.ok} == {"GPUFabric", "GPULinks"}
    assert all(each.ok for each in findings(broken, ignored).values())


def test_a_lost_gpu_is_not_made_up_for_by_another_model_that_answers() -> None:
    """A small card for the console counts for NVML, too."""
    console = gpu(9, device_id="1eb8")
    facts = good_facts(pci=(gpu(1), gpu(2), console), gpus=(gpu_by_nvml(1), gpu_by_nvml(9)))
    finding = findings(facts)["GPUDriver"]
    assert finding.reason == "GPULost"
    assert "(0000:02:00.0)" in finding.message


def test_gpus_without_nvlinks_by_nvml_are_no_cables_fault() -> None:
    """An H200 in a virtual machine, whose driver was loaded without NVLink, answers NOT_SUPPORTED for each link."""
    asks_for_18 = replace(POOL, gpus=GpuSettings(nvlinks=18))
    none_known = findings(good_facts(), asks_for_18)["GPULinks"]
    assert none_known.reason == "WrongNVLinks"
    assert "has no NVLinks by NVML; " in none_known.message
    assert "NvLinkDisable" in none_known.message
    down = good_facts(gpus=tuple(gpu_by_nvml(number, nvlinks_active=0) for number in (1, 2)))
    assert "has 0 NVLinks up; " in findings(down, asks_for_18)["GPULinks"].message
    assert "reseat the GPU" in findings(down, asks_for_18)["GPULinks"].message
    assert findings(good_facts())["GPULinks"].message == "no NVLinks by NVML, PCIe of 2 GPUs as expected"
    assert findings(good_facts(), replace(POOL, gpus=GpuSettings(nvlinks=0)))["GPULinks"].ok


def test_what_a_machine_says_of_its_gpus_stays_on_one_bounded_line() -> None:
    hostile = "\x1b[2J\n" + "A" * 5000
    facts = good_facts(
        gpu_driver=replace(DRIVER, state="Failed", message=hostile, kernel_messages=(hostile,) * 4),
        gpus=tuple(gpu_by_nvml(number, error=hostile, pci_address=hostile) for number in range(200)),
        gpu_xids=tuple(GpuXidFacts(address=hostile, xid=79) for _ in range(200)),
    )
    ready = replace(facts, gpu_driver=replace(DRIVER, state="Ready"))
    for finding in (*findings(facts).values(), *findings(ready).values()):
        assert len(finding.message) <= 1024
        assert finding.message.isprintable()
        assert len(finding.reason) <= 64


def test_every_xid_of_the_catalogue_says_what_it_means_and_what_to_do() -> None:
    assert {Action.RESTART_JOB, Action.NOTHING} == {each for each in Action if not each.fails}
    for number in (48, 63, 64, 74, 79, 95, 119, 120, 140, 143):
        assert XIDS[number].action.fails, number
    for number in (13, 31, 43, 45):
        assert not XIDS[number].action.fails, number


@pytest.mark.parametrize("number", [999, 13])
def test_an_xid_that_is_unknown_or_the_jobs_own_is_shown_and_passes(number: int) -> None:
    finding = findings(good_facts(gpu_xids=(GpuXidFacts(address="0000:01:00.0", xid=number, count=7),)))["GPUErrors"]
    assert finding.ok
    assert f"XID {number} of GPU 0000:01:00.0" in finding.message
    assert "7 lines of the kernel log" in finding.message


def test_the_document_has_every_check_reason_setting_and_xid() -> None:
    folder = Path(__file__).parents[2] / "provisioner" / "health" / "checks" / "gpu"
    sources = "".join(path.read_text() for path in folder.glob("*.py"))
    reasons = set(re.findall(r'^ +"([A-Z][A-Za-z]+)",$', sources, re.MULTILINE)) | set(
        re.findall(r'_wrong\(\s*"(\w+)"', sources)
    )
    reasons |= (
        set(re.findall(r'reason="(\w+)"', sources))
        | set(re.findall(r'"(\w+)": "', sources))
        | {"NotRegistered", "FabricManagerNotRunning"}
    )
    checks = {each for each in ALL_CHECKS if each.startswith("GPU")}
    settings = set(to_json(from_json(GpuSettings, {}))) | {
        "driverVersion",
        "ignoredXids",
        "failingXids",
        "powerLimitWatts",
    }
    assert len(checks) == 7
    assert {"NoModule", "VersionMismatch", "GPULost", "WrongFabricManager", "NVLinkDown"} <= reasons
    missing = [
        each for each in (*sorted(checks), *sorted(reasons - checks), *sorted(settings)) if f"`{each}`" not in DOCUMENT
    ]
    assert missing == []
    for number, xid in XIDS.items():
        assert re.search(rf"^\| {number} \| {re.escape(xid.meaning)} \|", DOCUMENT, re.MULTILINE), number
