"""What the agent says of its machine, from made-up sysfs trees; in the very JSON that the controllers read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.nodes import contract as node_contract
from provisioner.api.nodes.facts import NodeFacts
from provisioner.node import intent
from provisioner.node.machine.boot_facts import BootFacts
from provisioner.node.machine.facts import (
    MAX_BYTES,
    REPEAT_SECONDS,
    SETTLED_SECONDS,
    SETTLING_SECONDS,
    is_news,
    node_facts,
    pause_seconds,
    render,
    rfc3339,
)
from provisioner.node.machine.hardware import hardware_facts
from provisioner.node.machine.numa import parse_list
from provisioner.node.machine.running import why_no_kexec
from tests.node.machine import BOOT_ID, SYSTEM_UUID
from tests.node.made_machine import add_disk, add_infiniband_port, add_nic, add_pci, make_machine, write

NOW = 1767225600.25


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_machine(tmp_path)


@pytest.fixture
def gpu_server(root: Path) -> Path:
    """Two GPUs, one of them without its driver, an InfiniBand card, an Ethernet card with a virtual function, disks."""
    add_pci(root, "0000:1b:00.0", "0x030200", ("0x10de", "0x2330"), "nvidia")
    add_pci(root, "0000:43:00.0", "0x030200", ("0x10DE", "0x2330"), None)
    ib = add_pci(root, "0000:18:00.0", "0x020700", ("0x15b3", "0x1021"), "mlx5_core")
    ethernet = add_pci(root, "0000:5e:00.0", "0x020000", ("0x8086", "0x1593"), "ice")
    function = add_pci(root, "0000:5e:01.0", "0x020000", ("0x8086", "0x1889"), "iavf", physfn="")
    add_pci(root, "0000:00:1f.2", "0x010601", ("0x8086", "0xa182"), "ahci")
    add_nic(root, "eth0", "3C:EC:EF:00:00:01", ethernet, "25000")
    add_nic(root, "eth1", "3c:ec:ef:00:00:02", function, "25000")
    add_nic(root, "ib0", "00:00:10:49:fe:80", ib)
    add_nic(root, "veth12", "0a:00:00:00:00:01", None, "10000")
    add_disk(root, "nvme0n1", 7501476528, "SAMSUNG MZQL23T8HCLS-00A07")
    add_disk(root, "loop0", 250000, None, is_real=False)
    add_disk(root, "nvme1n1", 0, "NOTHING IN IT")
    add_infiniband_port(root, "mlx5_0", 1, "4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand")
    add_infiniband_port(root, "mlx5_1", 1, "1: DOWN", "nonsense", "InfiniBand")
    return root


def boot() -> BootFacts:
    return BootFacts(
        server="r01-u01",
        mac_address="52:54:00:12:34:56",
        progress_url="",
        join_url="",
        image_digest="sha256:" + "9f" * 32,
        address=None,
        boot_id=BOOT_ID,
        system_uuid=SYSTEM_UUID,
    )


def test_the_hardware_of_a_gpu_server(gpu_server: Path) -> None:
    facts = hardware_facts(str(gpu_server))
    assert facts == {
        "vendor": "Supermicro",
        "product": "SYS-821GE-TNHR",
        "cpus": 113,
        "memoryBytes": 2113632108 * 1024,
        "nics": [
            {
                "name": "eth0",
                "macAddress": "3c:ec:ef:00:00:01",
                "pciAddress": "0000:5e:00.0",
                "driver": "ice",
                "speedMbps": 25000,
            },
            {"name": "ib0", "macAddress": "00:00:10:49:fe:80", "pciAddress": "0000:18:00.0", "driver": "mlx5_core"},
        ],
        "disks": [{"name": "nvme0n1", "sizeBytes": 7501476528 * 512, "model": "SAMSUNG MZQL23T8HCLS-00A07"}],
        "pci": [
            {
                "address": "0000:1b:00.0",
                "vendorID": "10de",
                "deviceID": "2330",
                "classID": "0302",
                "driver": "nvidia",
            },
            {"address": "0000:43:00.0", "vendorID": "10de", "deviceID": "2330", "classID": "0302"},
            {
                "address": "0000:18:00.0",
                "vendorID": "15b3",
                "deviceID": "1021",
                "classID": "0207",
                "driver": "mlx5_core",
            },
            {"address": "0000:5e:00.0", "vendorID": "8086", "deviceID": "1593", "classID": "0200", "driver": "ice"},
        ],
        "infinibandPorts": [
            {"device": "mlx5_0", "port": 1, "state": "ACTIVE", "rateGbps": 400, "linkLayer": "InfiniBand"},
            {"device": "mlx5_1", "port": 1, "state": "DOWN", "linkLayer": "InfiniBand"},
        ],
    }


@pytest.mark.programs
def test_the_annotation_is_exactly_what_the_controllers_would_write(gpu_server: Path) -> None:
    written = json.loads(render(node_facts(boot(), str(gpu_server), NOW)))
    assert to_json(from_json(NodeFacts, written)) == written
    assert written["bootID"] == BOOT_ID
    assert written["time"] == "2026-01-01T00:00:00.250000Z"
    assert written["kexecSupported"] is True
    assert set(written) >= {"clockSynchronized", "rootFreeBytes", "memoryBytes", "imageDigest"}


@pytest.mark.programs
def test_a_machine_whose_sysfs_says_nothing_still_gives_facts_that_are_read(tmp_path: Path) -> None:
    written = json.loads(render(node_facts(boot(), str(tmp_path), NOW)))
    facts = from_json(NodeFacts, written)
    assert (facts.cpus, facts.memory_bytes, facts.nics, facts.vendor) == (0, 0, (), None)
    assert facts.kexec_supported is False


@pytest.mark.programs
def test_this_very_machine_gives_facts_that_are_read() -> None:
    facts = from_json(NodeFacts, json.loads(render(node_facts(boot(), "", NOW))))
    assert facts.cpus > 0
    assert facts.memory_bytes > 1 << 20
    assert facts.root_free_bytes


@pytest.mark.programs
def test_a_machine_with_hundreds_of_devices_stays_below_the_limit(root: Path) -> None:
    for number in range(200):
        device = add_pci(root, f"0000:{number:02x}:00.0", "0x020000", ("0x15b3", "0x1021"), "mlx5_core")
        add_nic(root, f"enp{number}s0f0np0", f"52:54:00:00:00:{number:02x}", device, "400000")
        add_disk(root, f"nvme{number}n1", 7501476528, "A MODEL WITH A LONG NAME OF 40 CHARACTER")
    for number in range(200, 208):
        add_pci(root, f"0000:{number:02x}:00.0", "0x030200", ("0x10de", "0x2330"), "nvidia")
    text = render(node_facts(boot(), str(root), NOW))
    assert len(text) <= MAX_BYTES
    facts = from_json(NodeFacts, json.loads(text))
    assert sum(function.vendor_id == "10de" for function in facts.pci) == 8, "what is cut is not a GPU"


@pytest.mark.programs
@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("proc/sys/kernel/kexec_load_disabled", "1", "switched off"),
        ("sys/kernel/security/lockdown", "none integrity [confidentiality]", "locked down"),
        ("usr/sbin/kexec", None, "the image has no /usr/sbin/kexec"),
        ("sys/kernel/kexec_loaded", None, "CONFIG_KEXEC"),
    ],
)
def test_why_a_machine_cannot_kexec_is_said(root: Path, path: str, content: str | None, reason: str) -> None:
    assert why_no_kexec(str(root)) is None
    if content is None:
        (root / path).unlink()
    else:
        write(root, path, content)
    assert reason in (why_no_kexec(str(root)) or "")
    facts: dict[str, Any] = node_facts(boot(), str(root), NOW)
    assert facts["kexecSupported"] is False
    assert reason in facts["kexecReason"]


@pytest.mark.programs
def test_the_clock_is_good_once_timesyncd_says_so(root: Path) -> None:
    assert node_facts(boot(), str(root), NOW)["clockSynchronized"] is False
    write(root, "run/systemd/timesync/synchronized", "")
    assert node_facts(boot(), str(root), NOW)["clockSynchronized"] is True


def test_facts_are_written_again_when_they_changed_and_seldom_when_they_only_drift() -> None:
    first = {"kubeletActive": False, "rootFreeBytes": 10, "time": "a"}
    assert is_news(first, None, 0.0)
    assert not is_news(first | {"rootFreeBytes": 9, "time": "b"}, first, 60.0)
    assert is_news(first | {"rootFreeBytes": 9, "time": "b"}, first, REPEAT_SECONDS)
    assert is_news(first | {"kubeletActive": True}, first, 1.0)


def test_a_node_that_is_well_is_looked_at_less_often() -> None:
    well = {"clockSynchronized": True, "kubeletActive": True, "runtimeActive": True}
    assert pause_seconds(None) == 0.0
    assert pause_seconds(well | {"runtimeActive": False}) == SETTLING_SECONDS
    assert pause_seconds(well) == SETTLED_SECONDS


@pytest.mark.parametrize(("ranges", "count"), [("0", 1), ("0-3", 4), ("0-3,8,10-11", 7), ("", 0)])
def test_processors_are_counted(ranges: str, count: int) -> None:
    assert len(list(parse_list(ranges))) == count


def test_times_are_those_of_the_api() -> None:
    assert rfc3339(NOW) == "2026-01-01T00:00:00.250000Z"


def test_the_agent_and_the_controllers_mean_the_same_annotations() -> None:
    assert intent.INTENT_ANNOTATION == node_contract.BOOT_INTENT_ANNOTATION
    assert intent.REPORT_ANNOTATION == node_contract.BOOT_REPORT_ANNOTATION
    assert intent.FACTS_ANNOTATION == node_contract.NODE_FACTS_ANNOTATION
