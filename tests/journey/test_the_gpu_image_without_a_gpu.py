"""NVIDIA's driver on a machine that has no GPU: its image boots by kexec and by firmware, and says what is missing.

Real: the driver, built for the image's own kernel, and all layers. What a GPU would do with them is not seen here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from lab.binaries.obtain import Binaries
from lab.cli.parts import Report, build_demo_image
from lab.demo.job import demo_job
from lab.demo.maintenance import find_latest
from lab.network import LabNetwork
from provisioner.api import Image
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.conditions import find_condition, is_true
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.nodes.maintenance import FINAL_PHASES, Maintenance
from provisioner.cli.progress import Progress
from provisioner.cluster.resources import JOBS, NODES, of
from tests.journey.virtual_rack import VirtualRack

pytestmark = pytest.mark.timeout(2400)

SERVER, POOL = "r01-u02", "accelerated"
ON_THE_NODE = r"""
is() { "$@" || { echo "not so: $*"; exit 1; }; }
has() { echo "$2" | grep -q -- "$1" || { echo "no '$1' in: $2"; exit 1; }; }
has /updates/nvidia/nvidia-uvm.ko "$(modprobe --dry-run --show-depends nvidia_uvm 2>&1)"
is [ "$(grep -c '^[0-9a-f]* [0-9]* /dev/loop' /run/provisioner/layers)" = 4 ]
has 'NVIDIA-SMI has failed' "$(nvidia-smi 2>&1)"
is [ "$(systemctl is-active provisioner-gpu.service nvidia-cdi.service | sort -u)" = active ]
is [ -z "$(systemctl list-units --failed --plain --no-legend)" ]
"""
"""The driver and all that it stands on is in the merged root, for the kernel that runs; stage-1 has told of each layer;
NVML is found, and has its words for a driver that does not run; nothing failed, and nothing waits for ever."""


@pytest.fixture(scope="module")
def image(rack: VirtualRack, binaries: Binaries) -> str:
    """The name of the published Image, which the boot host has. The servers beside it are off: they cost as much."""
    for other in ("r01-u01", "r01-u03"):
        rack.switch_off(other)
    with Progress() as progress:
        built = build_demo_image(rack.state, binaries.kubelet, Report(progress), pool="gpus")
    publish = [sys.executable, "-m", "provisioner.cli", "image", "publish", str(built.folder)]
    where = ["--store", str(rack.state.image_store), "--key", str(rack.state.keys / "image.pub")]
    account = ["--kubeconfig", str(rack.state.kubeconfig)]
    command = LabNetwork(rack.state.name).command([*publish, *where, *account])
    name = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[1]

    def is_available() -> bool:
        return is_true(decode(Image, rack.look(of(Image), name)).status.conditions, "Available")

    rack.wait(f"Image {name} is available", is_available)
    return name


def test_it_comes_by_kexec_with_all_its_layers_and_waits_for_no_gpu(rack: VirtualRack, image: str) -> None:
    spec = dict(rack.get("nodepool", "gpu")["spec"])
    spec |= {"imageRef": image, "verification": {"expected": {"nics": 1}, "attempts": 1}}
    rack.create({"apiVersion": API_VERSION, "kind": "NodePool", "metadata": {"name": POOL}, "spec": spec})
    asked, before = datetime.now(UTC), rack.node_boot_id(SERVER)

    rack.kubectl("provision", "move", SERVER, "--to", POOL)
    rack.wait_for_boot(SERVER, before)
    rack.wait("it runs the image", lambda: rack.server(SERVER).status.image_ref == image)
    done = _ended(rack, asked)
    assert (done.status.phase, done.status.reboot and done.status.reboot.method) == ("Completed", "Kexec")
    print(rack.timeline(SERVER))
    _run_on_the_node(rack, "the-driver-is-there", ON_THE_NODE)


@pytest.mark.long
def test_it_comes_by_firmware_too_and_a_gpu_that_is_missing_is_told_as_that(rack: VirtualRack, image: str) -> None:
    before, asked = rack.node_boot_id(SERVER), datetime.now(UTC)
    expects = {"expected": {"nics": 1, "gpus": {"count": 8, "vendorID": "10de", "deviceID": "2330"}}, "attempts": 1}
    changed = {"verification": expects, "maintenance": {"rebootMethods": ["PowerCycle"]}}
    rack.kubectl("patch", "nodepool", POOL, "--type=merge", "-p", json.dumps({"spec": changed}))

    rack.kubectl("provision", "reboot", SERVER, "-m", "its GPUs are expected now")
    failed = _ended(rack, asked)
    assert failed.status.phase == "Failed", failed.status.timeline
    assert rack.node_boot_id(SERVER) != before
    print(rack.timeline(SERVER))
    status = rack.server(SERVER).status
    assert (status.image_ref, status.boot_id) == (image, rack.node_boot_id(SERVER))
    verified = find_condition(status.conditions, "Verified")
    assert verified is not None
    assert (verified.status, verified.reason) == ("False", "GPUs")
    assert "0 GPUs 10de:2330 on PCI" in verified.message
    assert "expected: 8 of 10de:2330" in verified.message
    ready = next(each for each in rack.look(NODES, SERVER)["status"]["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "True", "all but the GPUs works"
    assert "0 GPUs 10de:2330" in rack.kubectl("provision", "why", SERVER)


def _ended(rack: VirtualRack, since: datetime) -> Maintenance:
    def latest() -> Maintenance | None:
        found = rack.ask(lambda cluster: cluster.list(of(Maintenance))).items
        return find_latest([decode(Maintenance, item) for item in found], SERVER, since)

    def has_ended() -> bool:
        found = latest()
        return found is not None and found.status.phase in FINAL_PHASES

    rack.wait(f"the maintenance of {SERVER} has ended", has_ended)
    ended = latest()
    assert ended is not None
    return ended


def _run_on_the_node(rack: VirtualRack, name: str, script: str) -> None:
    """A Job that succeeds if the script does, with the node's own programs, in its own mounts."""
    job: dict[str, Any] = demo_job(name, SERVER, 1)
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    loader = container["command"][:-2]
    container["command"] = [*loader, "/host/usr/bin/nsenter", "--target=1", "--mount", "--", "/bin/sh", "-ec", script]
    container["securityContext"] = {"privileged": True, "runAsUser": 0}
    pod["hostPID"] = True
    rack.create(job)

    def has_ended_well() -> bool:
        status = rack.look(JOBS, name, namespace="default")["status"]
        assert not status.get("failed"), rack.kubectl("logs", f"job/{name}")
        return status.get("succeeded") == 1

    rack.wait(f"job {name} has ended well", has_ended_well)
