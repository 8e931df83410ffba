"""docs/node-contents.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from provisioner.api.pools.numa_alignment import COMPUTED_FIELDS, NumaAlignment
from provisioner.image.toolkit.build import PROGRAMS
from provisioner.join.admission.kubelet_configuration import kubelet_configuration
from provisioner.node.alignment import MOST_NUMA_NODES
from tests.image.samples import NODE, RECIPE

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs/node-contents.md").read_text()


def test_its_alignment_has_the_defaults_that_it_says() -> None:
    (sample,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    said = yaml.safe_load(sample)["kubelet"]["numaAlignment"]
    defaults = NumaAlignment()
    assert said == {
        "reservedCores": defaults.reserved_cores,
        "reservedMemory": defaults.reserved_memory,
        "evictionMemory": defaults.eviction_memory,
    }
    refused = GUIDE.split("of the pool")[0].split("shortens its own pods")[1].split("are refused")[0]
    assert set(re.findall(r"`(\w+)`", refused)) == set(COMPUTED_FIELDS)
    assert f"more than {MOST_NUMA_NODES} NUMA nodes" in GUIDE


def test_its_bounds_are_those_of_the_image() -> None:
    configuration = kubelet_configuration({})
    size = configuration["containerLogMaxSize"].replace("Mi", " MiB")
    assert f"{configuration['containerLogMaxFiles']} × {size} for each" in GUIDE
    assert f"within the {configuration['containerLogMonitorInterval'].rstrip('s')} s" in GUIDE
    tree = NODE / "tree/etc/systemd"
    assert "size=5%" in (tree / "system/var-log-pods.mount").read_text()
    assert "all of them 5 % of RAM" in GUIDE
    assert "RuntimeMaxUse=64M" in (tree / "journald.conf.d/10-provisioner.conf").read_text()
    assert re.search(r"the journal \| 64 MiB", GUIDE)
    for folder in ("containerd", "kubelet"):
        assert "size=50%" in (tree / f"system/var-lib-{folder}.mount").read_text()


def test_the_clock_asks_nobody_but_the_rack() -> None:
    settings = (NODE / "tree/etc/systemd/timesyncd.conf.d/10-provisioner.conf").read_text().splitlines()
    assert "FallbackNTP=" in settings, "empty, which takes the built-in ones out"


def test_the_shutdown_that_logind_waits_for_is_the_kubelets() -> None:
    delay = (NODE / "tree/etc/systemd/logind.conf.d/10-provisioner.conf").read_text()
    grace = kubelet_configuration({})["shutdownGracePeriod"]
    assert f"InhibitDelayMaxSec={grace.rstrip('s')}\n" in delay, (
        "or the kubelet writes it, and restarts logind, at each boot"
    )


def test_what_it_names_is_there() -> None:
    for name in PROGRAMS:
        assert f"`{name}`" in GUIDE
    for file in ("tree/etc/sysctl.d/20-gpu.conf", "tree/etc/systemd/system/nvidia-cdi.service"):
        assert (RECIPE / file).is_file()
    for link in re.findall(r"\]\(([\w.-]+\.(?:md|yaml))", GUIDE):
        assert (ROOT / "docs" / link).exists(), link


def test_every_setting_of_the_kernel_is_given_once_and_with_a_reason() -> None:
    lines = (RECIPE / "tree/etc/sysctl.d/20-gpu.conf").read_text().splitlines()
    keys = [line.partition("=")[0].strip() for line in lines if not line.startswith("#")]
    assert len(keys) == len(set(keys))
    assert lines[0].startswith("#")
    common = (NODE / "tree/etc/sysctl.d/10-provisioner.conf").read_text()
    assert [key for key in keys if re.search(rf"^{re.escape(key)} ", common, re.MULTILINE)] == []
