"""Each check beside its twin: the machine as it should be passes, and one thing wrong is told with its remedy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api import Image, NodePool, Server
from provisioner.api.nodes.facts import NodeFacts
from provisioner.api.pools.pool_settings import ExpectedInfiniband, ExpectedInventory
from provisioner.health.checks.finding import Finding
from provisioner.health.look import ALL_CHECKS, ChecksObservation, look_at
from provisioner.health.situation import CheckInputs
from provisioner.rules.nodes import NodeView
from tests.boot.objects import image
from tests.health.objects import (
    DIGEST,
    EXPECTED,
    FABRIC_MAC,
    IMAGE,
    MAC,
    MIB,
    booted,
    good_facts,
    gpu,
    gpu_by_nvml,
    nic,
    node,
    node_condition,
    port,
    strict_pool,
)

OTHER_DIGEST = "sha256:" + "cd" * 32


def looked(
    server: Server,
    pool: NodePool,
    ordered: Image | None,
    seen: NodeView,
    skew: float | None = 0.0,
    *,
    has_ntp_servers: bool = True,
) -> ChecksObservation:
    situation = CheckInputs(
        server=server,
        pool=pool,
        image=ordered,
        node=seen,
        clock_skew_seconds=skew,
        has_ntp_servers=has_ntp_servers,
    )
    return look_at(situation, pool, seen)


def findings(
    facts: NodeFacts | None = None, *conditions: Any, skew: float | None = 0.0, **others: Any
) -> dict[str, Finding]:
    pool = others.pop("pool", strict_pool())
    ordered = others.pop("image", image())
    ntp = others.pop("ntp", True)
    seen = node(facts or good_facts(), *conditions, **others)
    look = looked(booted(), pool, ordered, seen, skew, has_ntp_servers=ntp)
    assert len({each.name for each in look.findings}) == len(look.findings), "names are the keys of a list map"
    return {each.name: each for each in look.findings}


def test_a_machine_as_it_should_be_passes_every_check() -> None:
    seen = findings()
    assert {name for name, each in seen.items() if not each.ok} == set()
    assert set(seen) == set(ALL_CHECKS)


@pytest.mark.parametrize(
    ("facts", "name", "reason", "observed", "remedy"),
    [
        (good_facts(image_digest=OTHER_DIGEST), "ImageDigest", "WrongImage", OTHER_DIGEST, "reimage"),
        (good_facts(clock_synchronized=False), "Clock", "NotSynchronized", "not synchronized", "ntpServers"),
        (good_facts(root_free_bytes=63 * MIB), "Root", "TooFull", "63 MiB", "du -xh"),
        (good_facts(root_free_bytes=None), "Root", "Unknown", "does not say", "df"),
        (good_facts(runtime_active=False), "Runtime", "NotActive", "not active", "containerd"),
        (good_facts(cpus=127), "Processors", "WrongCount", "127", "socket"),
        (good_facts(cpus=256), "Processors", "WrongCount", "256", "SMT"),
        (good_facts(memory_bytes=1999 * MIB), "Memory", "TooLittle", "1999 MiB", "module"),
        (good_facts(nics=(nic(MAC),)), "Interfaces", "Missing", f"{FABRIC_MAC} (interface ib0)", "reseat"),
        (good_facts(nics=(nic(FABRIC_MAC),)), "Interfaces", "Missing", f"{MAC} (the boot interface)", "reseat"),
        (
            good_facts(nics=(nic(MAC), nic(FABRIC_MAC, pci_address=None))),
            "Interfaces", "TooFew", "1 network interface", "lspci",
        ),
        (good_facts(disks=good_facts().disks[:1]), "Disks", "TooFew", "1 disk (nvme0n1)", "reseat"),
        (good_facts(pci=(gpu(1),)), "GPUs", "WrongCount", "1 GPU 10de:2330", "fell off the bus"),
        (
            good_facts(pci=(gpu(1), gpu(2), gpu(3)), gpus=(gpu_by_nvml(1), gpu_by_nvml(2), gpu_by_nvml(3))),
            "GPUs", "WrongCount", "3 GPUs", "expected.gpus",
        ),
        (good_facts(pci=(gpu(1), gpu(2, device_id="2331"))), "GPUs", "WrongCount", "1 × 10de:2331", "replace"),
        (good_facts(pci=(gpu(1), gpu(2, vendor_id="1a03"))), "GPUs", "WrongCount", "1 GPU", "power-cycle"),
        (good_facts(pci=(gpu(1), gpu(2, class_id="0200"))), "GPUs", "WrongCount", "1 GPU", "power-cycle"),
        (good_facts(pci=(gpu(1), gpu(2, driver=None))), "GPUs", "NoDriver", "0000:02:00.0", "dmesg"),
        (good_facts(infiniband_ports=(port(0),)), "InfiniBand", "WrongCount", "1 port (mlx5_0/1)", "lspci"),
        (
            good_facts(infiniband_ports=(port(0), port(1, link_layer="Ethernet"))),
            "InfiniBand", "WrongCount", "1 port", "lspci",
        ),
        (
            good_facts(infiniband_ports=(port(0), port(1, state="INIT"))),
            "InfiniBand", "WrongState", "mlx5_1/1 is INIT", "subnet manager",
        ),
        (
            good_facts(infiniband_ports=(port(0), port(1, rate_gbps=200))),
            "InfiniBand", "TooSlow", "mlx5_1/1 runs at 200 Gb/s", "cable",
        ),
    ],
)  # fmt: skip
def test_one_thing_wrong_fails_its_check_and_no_other(
    facts: NodeFacts, name: str, reason: str, observed: str, remedy: str
) -> None:
    seen = findings(facts)
    assert {each.name for each in seen.values() if not each.ok} == {name}
    assert seen[name].reason == reason
    assert observed in seen[name].message
    assert "; expected: " in seen[name].message
    assert remedy in seen[name].message.partition("; remedy: ")[2]


def test_what_the_pool_does_not_expect_is_not_looked_at() -> None:
    bare = strict_pool(expected=ExpectedInventory())
    seen = findings(good_facts(cpus=1, memory_bytes=1, disks=(), pci=(), infiniband_ports=()), pool=bare)
    assert {"Processors", "Memory", "Disks", "GPUs", "InfiniBand"}.isdisjoint(seen)
    assert all(each.ok for each in seen.values())
    assert not findings(good_facts(nics=()), pool=bare)["Interfaces"].ok, "registered interfaces always are"


def test_infiniband_ports_may_be_in_any_state_where_the_pool_says_so() -> None:
    lax = strict_pool(expected=replace(EXPECTED, infiniband=ExpectedInfiniband(ports=2, state="Any")))
    down = good_facts(infiniband_ports=(port(0, state="DOWN", rate_gbps=None), port(1)))
    assert findings(down, pool=lax)["InfiniBand"].ok


@pytest.mark.parametrize(("skew", "ok"), [(10.0, True), (-10.0, True), (11.0, False), (-11.0, False), (None, None)])
def test_the_nodes_clock_is_compared_with_the_controllers(skew: float | None, ok: bool | None) -> None:
    assert findings(skew=skew)["Clock"].ok is ok


def test_without_ntp_servers_only_the_difference_of_the_clocks_counts() -> None:
    alone = good_facts(clock_synchronized=False)
    assert not findings(alone)["Clock"].ok
    assert findings(alone, ntp=False)["Clock"].ok
    assert "names no ntpServers" in findings(alone, ntp=False)["Clock"].message
    assert not findings(alone, ntp=False, skew=11.0)["Clock"].ok


def test_which_way_a_clock_is_off_is_told() -> None:
    assert "75 s ahead of" in findings(skew=75.0)["Clock"].message
    assert "75 s behind" in findings(skew=-75.0)["Clock"].message


def test_a_node_that_is_not_ready_is_told_in_its_kubelets_words() -> None:
    kubelet = findings(ready=False)["Kubelet"]
    assert not kubelet.ok
    assert "kubelet says" in kubelet.message
    assert "its kubelet is not active" in findings(good_facts(kubelet_active=False), ready=False)["Kubelet"].message


@pytest.mark.parametrize("type_", ["MemoryPressure", "DiskPressure", "PIDPressure"])
def test_pressure_fails_and_its_absence_does_not(type_: str) -> None:
    pressed = findings(None, node_condition(type_, "True", message="it is short"))["Pressure"]
    assert not pressed.ok
    assert f"{type_}: it is short" in pressed.message
    assert findings(None, node_condition(type_, "False"))["Pressure"].ok


def test_the_digest_expected_is_that_of_the_image_ordered_whatever_else_is_known() -> None:
    assert not findings(image=image(digest=OTHER_DIGEST))["ImageDigest"].ok
    assert findings(good_facts(image_digest=OTHER_DIGEST), image=image(digest=OTHER_DIGEST))["ImageDigest"].ok


def test_without_the_image_the_digest_on_record_serves_and_without_that_a_person_is_asked() -> None:
    assert findings(image=None)["ImageDigest"].ok
    unknown = looked(booted(image_digest=None), strict_pool(), None, node())
    gone = next(each for each in unknown.findings if each.name == "ImageDigest")
    assert not gone.ok
    assert gone.reason == "ImageUnknown"
    assert f"publish Image {IMAGE} again" in gone.message
    other = looked(booted(image_ref="another"), strict_pool(), None, node())
    assert not next(each for each in other.findings if each.name == "ImageDigest").ok, "a digest of another image"
    assert other.image_digest == DIGEST


def test_what_a_machine_says_is_put_on_one_line_and_bounded() -> None:
    hostile = good_facts(nics=(nic("\x1b[2J\n" + "A" * 5000),))
    message = findings(hostile)["Interfaces"].message
    assert len(message) <= 1024
    assert message.isprintable()
    assert "; remedy: " in message
