"""What the agent says of GPUs, through the process that it starts for it, and a fake NVML; then what the checks say."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.nodes.facts import NodeFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.api.pools.pool_settings import ExpectedGpus, ExpectedInventory, VerificationSettings
from provisioner.health.checks.finding import Finding
from provisioner.health.checks.gpu.look import check_gpus
from provisioner.node.machine.facts import MAX_BYTES, is_news, node_facts, render
from provisioner.node.machine.gpus.facts import gpu_facts
from provisioner.node.machine.gpus.watch import GpuWatch
from tests.node.gpus.fake_gpu_server import ADDRESSES, DRIVER, FakeGpuServer
from tests.node.machine import install_agent
from tests.node.made_machine import add_disk, add_infiniband_port, add_nic, add_pci
from tests.node.test_facts import NOW, boot

pytestmark = pytest.mark.programs

LONG = 300.0
POOL = VerificationSettings(expected=ExpectedInventory(gpus=ExpectedGpus(count=8, device_id="2330")))


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of an image."""
    return str(install_agent(tmp_path_factory.mktemp("image")))


class Watched:
    """A server whose GPUs are watched, by a clock that the test sets."""

    def __init__(self, server: FakeGpuServer, python: str, *, deadline_seconds: float = 60.0) -> None:
        self.server = server
        self.now = 0.0
        self.watch = GpuWatch(str(server.root), lambda: self.now, deadline_seconds=deadline_seconds, python=python)

    def survey(self, *, after_seconds: float = 1000.0) -> dict[str, Any]:
        """The facts after one survey, in the JSON of the annotation."""
        self.now += after_seconds
        assert not self.watch.look()
        ends = time.monotonic() + LONG
        while not self.watch.look():
            assert time.monotonic() < ends, "no survey came to an end"
            time.sleep(0.01)
        return self.facts()

    def facts(self) -> dict[str, Any]:
        facts = node_facts(boot(), str(self.server.root), NOW, gpu_facts(self.watch.reading, self.watch.log))
        written = json.loads(render(facts))
        assert to_json(from_json(NodeFacts, written)) == written, "what the controllers would write"
        return dict(written)

    def findings(self, settings: VerificationSettings = POOL) -> dict[str, Finding]:
        return {each.name: each for each in check_gpus(settings, from_json(NodeFacts, self.survey()))}


@pytest.fixture
def server(tmp_path: Path) -> FakeGpuServer:
    return FakeGpuServer(tmp_path / "machine")


@pytest.fixture
def watched(server: FakeGpuServer, python: str) -> Iterator[Watched]:
    found = Watched(server, python)
    yield found
    found.watch.close()


def wrong(findings: dict[str, Finding]) -> dict[str, str]:
    return {name: each.reason for name, each in findings.items() if not each.ok}


def asked(**settings: Any) -> VerificationSettings:
    return replace(POOL, gpus=GpuSettings(**settings))


def test_a_healthy_server_with_8_h100(watched: Watched) -> None:
    facts = watched.survey()
    assert facts["gpuDriver"] == {
        "state": "Ready",
        "count": 8,
        "driverVersion": DRIVER,
        "libraryVersion": DRIVER,
        "moduleLoaded": True,
        "moduleInstalled": True,
        "moduleVersion": DRIVER,
        "switches": 4,
        "fabricManagerVersion": DRIVER,
        "fabricManagerState": "active",
    }
    assert [each["pciAddress"] for each in facts["gpus"]] == list(ADDRESSES)
    assert facts["gpus"][3] == {
        "uuid": "GPU-00000003-aaaa-bbbb-cccc-0123456789ab",
        "pciAddress": ADDRESSES[3],
        "name": "NVIDIA H100 80GB HBM3",
        "memoryMib": 81559,
        "eccEnabled": True,
        "eccUncorrected": 0,
        "eccUncorrectedAggregate": 0,
        "rowsRemappedUncorrectable": 0,
        "rowRemapping": "Settled",
        "nvlinksActive": 18,
        "fabricState": "Completed",
        "fabricStatus": 0,
        "fabricClique": 0,
        "fabricCluster": b"abcdefghijklmnop".hex(),
        "pcieWidth": 16,
        "pcieMaxWidth": 16,
        "pcieMaxGeneration": 5,
        "powerLimitWatts": 700,
        "powerLimitDefaultWatts": 700,
        "smClockMaxMhz": 1980,
        "migEnabled": False,
    }
    assert "gpuXids" not in facts


def test_a_machine_without_gpus_says_nothing_of_them_and_starts_nothing(tmp_path: Path) -> None:
    watch = GpuWatch(str(tmp_path), lambda: 0.0, python="/nonexistent")
    assert not watch.look()
    assert watch.reading is None
    assert gpu_facts(watch.reading, watch.log) == {}


def test_until_the_first_survey_is_done_that_is_what_is_said(watched: Watched) -> None:
    watched.watch.look()
    assert watched.watch.is_looking
    assert watched.facts()["gpuDriver"] == {"state": "Looking"}


STATES: dict[str, tuple[dict[str, str], str, str]] = {
    "the library does not fit the module": ({"error.nvmlInit_v2": "18"}, "VersionMismatch", DRIVER),
    "no driver runs": ({"error.nvmlInit_v2": "9"}, "NotLoaded", "DRIVER_NOT_LOADED"),
    "something else": ({"error.nvmlInit_v2": "999"}, "Failed", "nvmlInit_v2: NVML_ERROR_UNKNOWN (999)"),
    "the count fails": ({"error.nvmlDeviceGetCount_v2": "17"}, "Failed", "OPERATING_SYSTEM"),
    "the library crashes": ({"crash": "nvmlDeviceGetPowerUsage"}, "Crashed", "SIGSEGV"),
}


@pytest.mark.parametrize("case", STATES)
def test_why_nvml_does_not_answer_is_a_fact_of_its_own(watched: Watched, case: str) -> None:
    answers, state, words = STATES[case]
    watched.server.write(**answers)
    driver = watched.survey()["gpuDriver"]
    assert driver["state"] == state
    assert words in json.dumps(driver)
    assert driver["moduleVersion"] == DRIVER, "what the kernel says is known all the same"


def test_an_image_without_nvml_and_one_whose_nvml_is_no_library(watched: Watched) -> None:
    library = watched.server.root / "usr/lib/libnvidia-ml.so.1"
    library.write_text("no ELF")
    assert watched.survey()["gpuDriver"]["state"] == "NoLibrary"
    library.unlink()
    driver = watched.survey()["gpuDriver"]
    assert driver["state"] == "NoLibrary"
    assert "libnvidia-ml.so.1" in driver["message"]


def test_a_call_that_never_returns_is_ended_and_told_and_nothing_is_started_beside_it(
    server: FakeGpuServer, python: str
) -> None:
    server.write(hang="nvmlDeviceGetTemperature")
    watched = Watched(server, python, deadline_seconds=5.0)
    watched.watch.look()
    assert not watched.watch.look()
    watched.now = 5.0
    assert watched.watch.look(), "the deadline has passed"
    driver = watched.facts()["gpuDriver"]
    assert (driver["state"], driver["message"]) == ("Hung", "NVML did not answer within 5 s")
    process = watched.watch._process
    assert process is not None
    assert process.wait(timeout=LONG) == -9
    server.write(hang="nothing")
    assert not watched.watch.look(), "that it was killed was told"
    assert watched.survey()["gpuDriver"]["state"] == "Ready"


class FakeStuckProcess:
    """A process that the kernel holds in a call: it is killed and does not end."""

    def __init__(self) -> None:
        self.kills = 0

    def poll(self) -> None:
        return None

    def kill(self) -> None:
        self.kills += 1


def test_a_survey_that_cannot_be_ended_is_told_once_and_no_other_is_started(watched: Watched) -> None:
    watched.watch.look()
    real, stuck = watched.watch._process, FakeStuckProcess()
    watched.watch._process = stuck  # type: ignore[assignment]
    watched.now = 60.0
    assert watched.watch.look()
    for watched.now in (70.0, 1000.0, 100000.0):
        assert not watched.watch.look()
    assert watched.watch._process is stuck  # type: ignore[comparison-overlap]
    assert stuck.kills == 1
    assert watched.facts()["gpuDriver"]["state"] == "Hung"
    watched.watch._process = real


def test_one_of_8_that_fell_off_the_bus_is_named(watched: Watched) -> None:
    watched.server.write(**{"gpu.2.error.nvmlDeviceGetHandleByIndex_v2": "15"})
    facts = watched.survey()
    assert facts["gpus"][2] == {"error": "GPU_IS_LOST"}
    finding = watched.findings()["GPUDriver"]
    assert (finding.ok, finding.reason) == (False, "GPULost")
    assert f"8 GPUs on PCI, 7 answering NVML ({ADDRESSES[2]}), NVML says GPU_IS_LOST" in finding.message
    assert "power-cycle the server" in finding.message


def test_one_that_is_lost_while_it_is_read_keeps_what_was_read(watched: Watched) -> None:
    watched.server.write(**{"gpu.5.error.nvmlDeviceGetMemoryInfo_v2": "15"})
    assert watched.survey()["gpus"][5]["uuid"].startswith("GPU-00000005")
    finding = watched.findings()["GPUDriver"]
    assert finding.reason == "GPULost"
    assert ADDRESSES[5] in finding.message


def test_7_of_8_that_nvml_knows_and_the_kernel_says_why(watched: Watched) -> None:
    watched.server.write(count="7")
    watched.server.say("NVRM: GPU 0000:df:00.0: RmInitAdapter failed! (0x62:0xffff:2351)")
    finding = watched.findings()["GPUDriver"]
    assert finding.reason == "GPULost"
    assert f"7 answering NVML ({ADDRESSES[7]})" in finding.message
    assert "the kernel says: NVRM: GPU 0000:df:00.0: RmInitAdapter failed! (0x62:0xffff:2351)" in finding.message


def test_a_gpu_that_answers_with_another_error_is_broken_and_not_lost(watched: Watched) -> None:
    watched.server.write(**{"gpu.0.error.nvmlDeviceGetHandleByIndex_v2": "11"})
    assert watched.findings()["GPUDriver"].reason == "GPUBroken"


def test_a_question_that_a_gpu_has_no_answer_to_costs_nothing_else(watched: Watched) -> None:
    for function in ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetRemappedRows", "nvmlDeviceGetNvLinkState"):
        watched.server.write(**{f"gpu.*.error.{function}": "13"})
    gpu = watched.survey()["gpus"][0]
    assert {"fabricState", "rowRemapping", "nvlinksActive"}.isdisjoint(gpu)
    assert gpu["smClockMaxMhz"] == 1980


def test_the_module_that_is_missing_and_the_one_that_does_not_load(watched: Watched) -> None:
    watched.server.unload_driver()
    watched.server.write(**{"error.nvmlInit_v2": "9"})
    watched.server.say("nvidia: Loading of unsigned module is rejected")
    finding = watched.findings()["GPUDriver"]
    assert finding.reason == "NotLoaded"
    assert "unsigned module is rejected" in finding.message
    assert "Secure Boot" in finding.message
    next((watched.server.root / "lib/modules").rglob("modules.dep")).write_text("kernel/drivers/net/veth.ko.xz:\n")
    missing = watched.findings()["GPUDriver"]
    assert missing.reason == "NoModule"
    assert "publish an image with a driver layer" in missing.message


def test_a_module_that_runs_while_the_gsp_does_not_start(watched: Watched) -> None:
    watched.server.write(**{"error.nvmlInit_v2": "9"})
    watched.server.say(
        "nvidia 0000:1b:00.0: Direct firmware load for nvidia/550.163.01/gsp_ga10x.bin failed with error -2"
    )
    finding = watched.findings()["GPUDriver"]
    assert finding.reason == "NotStarted"
    assert "gsp_ga10x.bin failed with error -2" in finding.message
    assert "GSP firmware" in finding.message


AS_IT_SHOULD_BE: dict[str, tuple[dict[str, str], dict[str, Any], dict[str, str], str]] = {
    "an uncorrected error": (
        {"gpu.1.ecc-uncorrected": "3"},
        {},
        {"GPUMemory": "UncorrectedErrors"},
        f"GPU {ADDRESSES[1]} had 3 uncorrected ECC errors",
    ),
    "a row to be remapped": ({"gpu.1.rows": "0 1 1 0"}, {}, {"GPUMemory": "ResetPending"}, "reboot the server"),
    "a row that cannot be": ({"gpu.1.rows": "0 1 0 1"}, {}, {"GPUMemory": "RemappingFailed"}, "replace the GPU"),
    "a retired page": (
        {"gpu.*.error.nvmlDeviceGetRemappedRows": "3", "gpu.1.pages-pending": "1"},
        {},
        {"GPUMemory": "ResetPending"},
        "reboot",
    ),
    "many remapped rows": (
        {"gpu.1.rows": "0 9 0 0"},
        {"max_remapped_rows": 8},
        {"GPUMemory": "TooManyRemapped"},
        "has remapped 9 rows",
    ),
    "no ECC": ({"gpu.1.ecc-mode": "0 1"}, {}, {"GPUMemory": "WrongEccMode"}, "nvidia-smi -e 1"),
    "MIG": ({"gpu.1.mig-mode": "1 1"}, {"mig": "Disabled"}, {"GPUMemory": "WrongMigMode"}, "nvidia-smi -mig 0"),
    "an NVLink that is down": (
        {"gpu.1.nvlinks": "111011111111111101"},
        {},
        {"GPULinks": "NVLinkDown"},
        f"GPU {ADDRESSES[1]} has NVLinks 3, 16 down, 16 up",
    ),
    "too few NVLinks": ({"gpu.1.nvlinks": "1" * 12}, {"nvlinks": 18}, {"GPULinks": "WrongNVLinks"}, "has 12 NVLinks"),
    "a narrow link": ({"gpu.1.pcie-width": "8"}, {}, {"GPULinks": "PCIeTooNarrow"}, "uses 8 PCIe lanes of 16"),
    "an old slot": (
        {"gpu.*.pcie-max-generation": "4"},
        {"pcie_generation": 5},
        {"GPULinks": "PCIeTooOld"},
        "PCIe generation 4",
    ),
    "a fabric that has not begun": (
        {"gpu.*.fabric": "1 0 0 0"},
        {},
        {"GPUFabric": "NotRegistered"},
        "the NVLink fabric of 8 GPUs is NotStarted",
    ),
    "a fabric with an error": (
        {"gpu.4.fabric": "3 999 0 0"},
        {},
        {"GPUFabric": "NotRegistered"},
        "the NVLink fabric of 1 GPU is Completed with error 999",
    ),
    "a split fabric": ({"gpu.4.fabric": "3 0 7 0x2a abcdefghijklmnop"}, {}, {"GPUFabric": "Split"}, "(0, 7)"),
    "a degraded fabric": (
        {"gpu.4.fabric": "3 0 0 0x529 abcdefghijklmnop"},
        {},
        {"GPUFabric": "Degraded"},
        f"GPU {ADDRESSES[4]}: DegradedBandwidth, TooFewNVLinks",
    ),
    "a power cap": ({"gpu.1.power-limit": "400000"}, {}, {"GPUClocks": "PowerCapped"}, "may draw 400 W"),
    "a cap that is wanted lower": ({"gpu.*.power-limit": "500000"}, {"power_limit_watts": 500}, {}, ""),
    "limited clocks": (
        {"gpu.1.clock-sm-max": "1410"},
        {"sm_clock_mhz": 1980},
        {"GPUClocks": "ClockTooLow"},
        "can reach 1410 MHz",
    ),
    "another driver": ({}, {"driver_version": "570"}, {"GPUDriver": "WrongVersion"}, f"driver {DRIVER}; expected: 570"),
    "a driver of the branch": ({}, {"driver_version": "550"}, {}, ""),
    "a version that only begins alike": ({}, {"driver_version": "55"}, {"GPUDriver": "WrongVersion"}, "55"),
}


@pytest.mark.parametrize("case", AS_IT_SHOULD_BE)
def test_one_thing_that_is_wrong_is_told_by_its_check_alone(watched: Watched, case: str) -> None:
    answers, settings, expected, words = AS_IT_SHOULD_BE[case]
    watched.server.write(**answers)
    found = watched.findings(asked(**settings))
    assert wrong(found) == expected
    for name in expected:
        assert words in found[name].message
        assert "; expected: " in found[name].message
        assert "; remedy: " in found[name].message


def test_a_server_as_it_should_be_passes_whatever_is_asked(watched: Watched) -> None:
    assert wrong(watched.findings()) == {}
    strict = asked(
        driver_version=DRIVER,
        nvlinks=18,
        fabric="Required",
        pcie_generation=5,
        pcie_width=16,
        max_remapped_rows=0,
        power_limit_watts=700,
        sm_clock_mhz=1980,
        mig="Disabled",
    )
    assert wrong(watched.findings(strict)) == {}


def test_a_fabricmanager_of_another_version_is_named_with_both(watched: Watched) -> None:
    watched.server.write(**{"gpu.*.fabric": "1 0 0 0"})
    watched.server.install_fabric_manager("550.90.07")
    finding = watched.findings()["GPUFabric"]
    assert finding.reason == "WrongFabricManager"
    assert f"fabricmanager has version 550.90.07, the driver {DRIVER}" in finding.message
    watched.server.install_fabric_manager(DRIVER)
    watched.server.fabric_manager_is("failed")
    failed = watched.findings()["GPUFabric"]
    assert failed.reason == "FabricManagerNotRunning"
    assert f"fabricmanager {DRIVER} is failed" in failed.message
    (watched.server.root / "usr/bin/nv-fabricmanager").unlink()
    assert watched.findings()["GPUFabric"].reason == "NoFabricManager"


def test_xids_are_counted_from_the_kernel_log_and_judged_by_the_catalogue(watched: Watched) -> None:
    watched.server.say("NVRM: Xid (PCI:0000:1b:00): 31, pid=1234, name=python, Ch 00000008, intr 00000000.")
    assert wrong(watched.findings()) == {}, "that is the job's own fault"
    for _ in range(3):
        watched.server.say("NVRM: Xid (PCI:0000:1B:00): 79, pid='<unknown>', GPU has fallen off the bus.")
    watched.server.say(
        "NVRM: Xid (PCI:0000:43:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    )
    facts = watched.survey()
    assert [(each["address"], each["xid"], each["count"]) for each in facts["gpuXids"]] == [
        (ADDRESSES[0], 31, 1),
        (ADDRESSES[0], 79, 3),
    ]
    finding = watched.findings()["GPUErrors"]
    assert (finding.ok, finding.reason) == (False, "XID79")
    assert f"XID 79 of GPU {ADDRESSES[0]} (the GPU fell off the bus), 3 lines of the kernel log" in finding.message
    assert wrong(watched.findings(asked(ignored_xids=(79,)))) == {}
    assert wrong(watched.findings(asked(ignored_xids=(79,), failing_xids=(31,)))) == {"GPUErrors": "XID31"}


def test_a_storm_of_xids_neither_fills_the_facts_nor_makes_each_of_them_news(watched: Watched) -> None:
    watched.server.say("NVRM: Xid (PCI:0000:1b:00): 63, pid=1, row")
    first = watched.survey()
    for number in range(400):
        watched.server.say("NVRM: Xid (PCI:0000:1b:00): 63, pid=1, row")
        watched.server.say("NVRM: Xid (PCI:0000:1b:00): 999999999999999999999, no number of an XID")
        watched.server.say(f"NVRM: loading NVIDIA GSP-RM complaint {number} " + "x" * 500)
    again = watched.survey()
    assert again["gpuXids"] == [{**first["gpuXids"][0], "count": 401}]
    assert len(again["gpuDriver"]["kernelMessages"]) == 4
    (unread,) = again["gpuDriver"]["xidsUnread"]
    assert "no number of an XID" in unread
    quiet = {**first, "gpuXids": again["gpuXids"]}
    assert not is_news(quiet, first, 60.0), "more of the same"
    for number in range(100, 200):
        watched.server.say(f"NVRM: Xid (PCI:0000:43:00): {number}, something")
    many = watched.survey()
    assert len(many["gpuXids"]) == 32
    assert many["gpuDriver"]["xidsLeftOut"] is True
    assert is_news(many, first, 1.0)


def test_what_drifts_is_no_fact_and_a_short_slowdown_neither(watched: Watched) -> None:
    first = watched.survey()
    watched.server.write(**{"gpu.*.temperature": "83", "gpu.*.power": "699000", "gpu.*.clock-sm": "1980"})
    watched.server.write(**{"gpu.*.throttle": "0x44", "gpu.*.pcie-generation": "1", "gpu.*.ecc-corrected": "12"})
    assert not is_news(watched.survey(), first, 60.0)
    watched.server.write(**{"gpu.*.throttle": "0x4"})
    assert not is_news(watched.survey(), first, 60.0), "a power cap under load is as it should be"


def test_a_slowdown_that_lasts_is_told_until_it_was_gone_for_a_while(watched: Watched) -> None:
    watched.server.write(**{"gpu.6.throttle": "0x48"})
    watched.survey()
    findings = watched.findings()
    assert wrong(findings) == {"GPUClocks": "SlowedDown"}
    assert f"GPU {ADDRESSES[6]} is slowed down: HwSlowdown, HwThermal" in findings["GPUClocks"].message
    assert wrong(watched.findings(asked(slowdowns="Ignore"))) == {}
    watched.server.write(**{"gpu.6.throttle": "0x1"})
    assert watched.survey(after_seconds=500.0)["gpus"][6]["slowdowns"] == ["HwSlowdown", "HwThermal"]
    assert "slowdowns" not in watched.survey(after_seconds=500.0)["gpus"][6]


def test_a_kernel_log_that_cannot_be_read_is_told(watched: Watched) -> None:
    (watched.server.root / "dev/kmsg").unlink()
    finding = watched.findings()["GPUErrors"]
    assert finding.reason == "NoKernelLog"
    assert "/dev/kmsg" in finding.message


def test_16_gpus_in_a_full_server_fit_into_the_annotation(server: FakeGpuServer, python: str) -> None:
    root = server.root
    for number in range(8):
        address = f"0001:{number + 1:02x}:00.0"
        add_pci(root, address, "0x030200", ("0x10de", "0x2330"), "nvidia")
        uuid = f"GPU-{number + 8:08x}-aaaa-bbbb-cccc-0123456789ab"
        server.nvml |= {f"gpu.{number + 8}.pci": address, f"gpu.{number + 8}.uuid": uuid}
    server.write(count="16")
    for number in range(12):
        device = add_pci(root, f"0002:{number:02x}:00.0", "0x020700", ("0x15b3", "0x1021"), "mlx5_core")
        add_nic(root, f"ibp{number}s0", f"52:54:00:00:00:{number:02x}", device, "400000")
        add_infiniband_port(root, f"mlx5_{number}", 1, "4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand")
        add_disk(root, f"nvme{number}n1", 7501476528, "SAMSUNG MZQL23T8HCLS-00A07")
    watched = Watched(server, python)
    facts = watched.survey()
    text = json.dumps(facts, separators=(",", ":"))
    assert len(text) <= MAX_BYTES
    sizes = {key: len(facts[key]) for key in ("gpus", "pci", "nics", "infinibandPorts", "disks")}
    assert sizes == {"gpus": 16, "pci": 28, "nics": 12, "infinibandPorts": 12, "disks": 12}, "nothing was cut"
    sixteen = replace(POOL, expected=ExpectedInventory(gpus=ExpectedGpus(count=16)))
    assert wrong(watched.findings(sixteen)) == {}


def test_more_gpus_than_the_facts_have_room_for_are_counted_all_the_same(server: FakeGpuServer, python: str) -> None:
    for number in range(12):
        address = f"0001:{number + 1:02x}:00.0"
        add_pci(server.root, address, "0x030200", ("0x10de", "0x2330"), "nvidia")
        server.nvml[f"gpu.{number + 8}.pci"] = address
    server.write(count="20")
    twenty = replace(POOL, expected=ExpectedInventory(gpus=ExpectedGpus(count=20)))
    assert wrong(Watched(server, python).findings(twenty)) == {}
    server.write(count="19")
    assert wrong(Watched(server, python).findings(twenty)) == {"GPUDriver": "GPULost"}
