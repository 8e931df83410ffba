"""Alignment to NUMA nodes: what the agent makes of the pool's wish on its machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.values import Secret
from provisioner.api.pools.numa_alignment import COMPUTED_FIELDS, NumaAlignment
from provisioner.join.admission.configuration import JoinConfiguration
from provisioner.join.admission.kubelet_configuration import kubelet_configuration
from provisioner.node.alignment import align
from provisioner.node.join_files import ALIGNMENT_FILE, render_files, write_files
from provisioner.node.machine.numa import numa_nodes, parse_list
from provisioner.node.machine.running import running_facts
from tests.node.machine import CONFIGURATION
from tests.node.made_machine import write

GIB = 1 << 30
ASKED = {"reservedCores": 2, "reservedMemoryBytes": 4 * GIB, "evictionMemoryBytes": GIB}


def add_node(root: Path, number: int, cores: list[tuple[int, ...]], gib: int) -> None:
    """A NUMA node of sysfs, with the threads of each core."""
    folder = f"sys/devices/system/node/node{number}"
    threads = sorted(thread for core in cores for thread in core)
    write(root, f"{folder}/cpulist", ",".join(str(each) for each in threads) + "\n")
    write(
        root,
        f"{folder}/meminfo",
        f"Node {number} MemTotal:       {gib * GIB // 1024} kB\nNode {number} MemFree: 1 kB\n",
    )
    for core in cores:
        for thread in core:
            siblings = ",".join(str(each) for each in core)
            write(root, f"sys/devices/system/cpu/cpu{thread}/topology/thread_siblings_list", siblings + "\n")


def two_sockets(root: Path, cores: int = 8, gib: int = 512) -> Path:
    """As firmware numbers them: the second threads of all cores come after the first ones of both sockets."""
    for socket in (0, 1):
        first = socket * cores
        add_node(root, socket, [(first + each, first + each + 2 * cores) for each in range(cores)], gib)
    write(root, "sys/devices/system/cpu/online", f"0-{4 * cores - 1}\n")
    return root


def aligned(root: Path, asked: object = ASKED) -> tuple[Mapping[str, Any], str | None]:
    return align(kubelet_configuration({}), asked, numa_nodes(str(root)))


def total(configuration: Mapping[str, Any]) -> tuple[int, int]:
    """What the kubelet compares: reserved on all NUMA nodes, and by the node's allocatable."""
    by_node = sum(int(each["limits"]["memory"]) for each in configuration["reservedMemory"])
    in_all = int(configuration["systemReserved"]["memory"]) + int(configuration["evictionHard"]["memory.available"])
    return by_node, in_all


def test_whole_cores_and_memory_of_each_socket_are_the_systems(tmp_path: Path) -> None:
    configuration, words = aligned(two_sockets(tmp_path))
    assert configuration["cpuManagerPolicy"] == "static"
    assert configuration["memoryManagerPolicy"] == "Static"
    assert configuration["topologyManagerPolicy"] == "single-numa-node"
    assert configuration["reservedSystemCPUs"] == "0,1,8,9,16,17,24,25", "both threads of two cores of each"
    assert configuration["reservedMemory"] == [
        {"numaNode": number, "limits": {"memory": str(4 * GIB)}} for number in (0, 1)
    ]
    assert total(configuration) == (8 * GIB, 8 * GIB), "or the kubelet does not start"
    assert configuration["evictionHard"] == {"memory.available": str(GIB)}
    assert words == ("aligned to 2 NUMA nodes: processors 0,1,8,9,16,17,24,25 and 4096 MiB of each are the system's")


def test_all_else_stays_as_the_pool_wants_it(tmp_path: Path) -> None:
    before = kubelet_configuration({"maxPods": 64, "topologyManagerScope": "pod"})
    after, _ = align(before, ASKED, numa_nodes(str(two_sockets(tmp_path))))
    assert {key: after[key] for key in before if key not in COMPUTED_FIELDS} == before
    assert set(after) - set(before) <= set(COMPUTED_FIELDS), "and the API server keeps pools from setting those"


def test_what_an_older_pool_says_of_reservations_cannot_keep_the_kubelet_from_starting(tmp_path: Path) -> None:
    """The CRD refuses them beside the alignment; an older object may be in the cluster."""
    older = kubelet_configuration({"kubeReserved": {"memory": "7Gi"}, "evictionHard": {"nodefs.available": "5%"}})
    configuration, _ = align(older, ASKED, numa_nodes(str(two_sockets(tmp_path))))
    assert "kubeReserved" not in configuration
    assert total(configuration) == (8 * GIB, 8 * GIB)
    assert configuration["evictionHard"] == {"nodefs.available": "5%", "memory.available": str(GIB)}


def test_a_processor_that_is_off_is_nobodys(tmp_path: Path) -> None:
    root = two_sockets(tmp_path)
    write(root, "sys/devices/system/cpu/online", "1-31\n")
    configuration, _ = aligned(root)
    assert configuration["reservedSystemCPUs"] == "1,2,8,9,17,18,24,25"


def test_memory_of_gpus_that_the_kernel_takes_for_numa_nodes_is_left_alone(tmp_path: Path) -> None:
    root = two_sockets(tmp_path)
    add_node(root, 2, [], 96)
    configuration, words = aligned(root)
    assert [each["numaNode"] for each in configuration["reservedMemory"]] == [0, 1]
    assert total(configuration) == (8 * GIB, 8 * GIB)
    assert words is not None
    assert words.startswith("aligned to 2 NUMA nodes")


def test_a_kernel_without_numa_has_one_node(tmp_path: Path) -> None:
    write(tmp_path, "sys/devices/system/cpu/online", "0-3\n")
    write(tmp_path, "proc/meminfo", f"MemTotal: {16 * GIB // 1024} kB\n")
    configuration, _ = aligned(tmp_path)
    assert configuration["reservedSystemCPUs"] == "0,1"
    assert configuration["reservedMemory"] == [{"numaNode": 0, "limits": {"memory": str(4 * GIB)}}]


def many_nodes(root: Path) -> None:
    for number in range(34):
        add_node(root, number, [(2 * number,), (2 * number + 1,), (100 + number,)], 64)
    write(root, "sys/devices/system/cpu/online", "0-199\n")


@pytest.mark.parametrize(
    ("make", "asked", "words"),
    [
        (lambda root: two_sockets(root, cores=2), ASKED, "NUMA node 0 has 2 cores and 2 are to be the system's: none"),
        (lambda root: two_sockets(root, gib=7), ASKED, "NUMA node 0 has 7168 MiB of memory and 4096 MiB are to be the"),
        (lambda root: two_sockets(root, gib=0), ASKED, "NUMA node 0 has 0 MiB of memory"),
        (many_nodes, ASKED, "this machine has 34 NUMA nodes, and the kubelet takes 8"),
        (lambda root: None, ASKED, "the kernel names no NUMA node with processors"),
        (two_sockets, {}, "the join service's answer does not say what to reserve"),
        (two_sockets, "yes", "the join service's answer does not say what to reserve"),
        (two_sockets, ASKED | {"reservedCores": True}, "the join service's answer does not say what to reserve"),
        (two_sockets, ASKED | {"evictionMemoryBytes": 4 * GIB}, "the join service's answer does not say"),
    ],
)
def test_a_machine_for_which_it_cannot_be_right_joins_without_and_says_why(
    make: Any, asked: object, words: str, tmp_path: Path
) -> None:
    make(tmp_path)
    configuration, said = aligned(tmp_path, asked)
    assert configuration == kubelet_configuration({})
    assert said is not None
    assert said.startswith(f"not aligned to NUMA nodes: {words}")


def test_where_the_pool_asks_for_nothing_nothing_is_said_or_changed(tmp_path: Path) -> None:
    assert aligned(two_sockets(tmp_path), None) == (kubelet_configuration({}), None)
    assert ALIGNMENT_FILE not in render_files(dict(CONFIGURATION), numa_nodes(str(tmp_path)))


@pytest.mark.programs
def test_what_the_join_service_sends_is_what_the_agent_reads(tmp_path: Path) -> None:
    answer = JoinConfiguration(
        node_name="r01-u01",
        api_server_url="https://10.80.0.1:6443",
        cluster_ca="-----BEGIN CERTIFICATE-----",
        bootstrap_token=Secret("abcdef.0123456789abcdef"),
        node_address="10.80.0.21",
        kubelet=kubelet_configuration({}),
        numa_alignment=NumaAlignment(reserved_cores=3, reserved_memory="16Gi"),
    )
    files = render_files(json.loads(json.dumps(answer.to_wire())), numa_nodes(str(two_sockets(tmp_path))))
    configuration = json.loads(files["kubelet.yaml"][1])
    assert configuration["reservedSystemCPUs"] == "0,1,2,8,9,10,16,17,18,24,25,26"
    assert total(configuration) == (32 * GIB, 32 * GIB)
    assert configuration["evictionHard"] == {"memory.available": str(512 << 20)}
    write_files(str(tmp_path), files)
    told = running_facts(str(tmp_path))["numaAlignment"]
    assert told.startswith("aligned to 2 NUMA nodes"), "the node's facts tell of it"


@pytest.mark.programs
def test_a_node_whose_pool_asks_for_nothing_tells_nothing(tmp_path: Path) -> None:
    assert running_facts(str(tmp_path))["numaAlignment"] is None


def test_lists_of_processors() -> None:
    assert list(parse_list("0-3,8\n")) == [0, 1, 2, 3, 8]
    assert list(parse_list("")) == []
    assert list(parse_list("3-1,x,-,0-99999999999")) == []
