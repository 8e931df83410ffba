"""The daemon with GPUs: what it writes on its Node, and when, and the file of metrics beside it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.node.daemon import BUSY_SECONDS, LOOK_SECONDS, Daemon
from provisioner.node.intent import FACTS_ANNOTATION
from provisioner.node.machine.facts import MAX_BYTES
from provisioner.node.machine.gpus.exposition import FILE
from provisioner.node.machine.gpus.watch import GpuWatch
from tests.node.gpus.fake_gpu_server import FakeGpuServer
from tests.node.gpus.fake_kubelet import answer, fake_kubelet, pod
from tests.node.machine import install_agent
from tests.node.test_daemon import FakeMachine, FakeNode
from tests.node.test_facts import boot

pytestmark = pytest.mark.programs

UUID = "GPU-00000003-aaaa-bbbb-cccc-0123456789ab"


class World:
    """One node with its daemon, by a clock that the test sets."""

    def __init__(self, server: FakeGpuServer, python: str) -> None:
        self.now = 1000.0
        self.server = server
        self.node = FakeNode()
        self.gpus = GpuWatch(str(server.root), lambda: self.now, python=python)
        machine = FakeMachine(server.root, [])
        self.daemon = Daemon(boot(), str(server.root), self.node, machine, str, lambda: self.now, self.gpus)

    @property
    def facts(self) -> dict[str, Any]:
        assert self.node.annotations is not None
        return dict(json.loads(self.node.annotations[FACTS_ANNOTATION]))

    def look_until_surveyed(self) -> None:
        """Until the survey that is under way, or is due, is done."""
        before, ends = self.gpus.reading, time.monotonic() + 300
        while self.gpus.reading is before or self.gpus.is_looking:
            assert time.monotonic() < ends
            self.daemon.look()
            time.sleep(0.01)


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with tempfile.TemporaryDirectory(prefix="machine-") as folder:  # a socket's path may not be long
        python = str(install_agent(tmp_path_factory.mktemp("image")))
        found = World(FakeGpuServer(Path(folder)), python)
        yield found
        found.gpus.close()


def test_the_facts_come_at_once_and_again_when_the_gpus_were_surveyed(world: World) -> None:
    assert world.daemon.look() == BUSY_SECONDS, "the survey is awaited"
    assert world.facts["gpuDriver"]["state"] == "Looking"
    world.look_until_surveyed()
    world.now += 2.0
    assert world.daemon.look() == LOOK_SECONDS
    assert world.facts["gpuDriver"]["state"] == "Ready"
    assert len(world.facts["gpus"]) == 8
    assert world.node.annotations is not None
    assert len(world.node.annotations[FACTS_ANNOTATION]) < MAX_BYTES


def test_a_gpu_that_is_lost_is_written_and_one_that_is_warm_is_not(world: World) -> None:
    world.look_until_surveyed()
    world.now += 2.0
    world.daemon.look()
    written = world.facts
    world.server.write(**{"gpu.*.temperature": "80"})
    world.now += 40.0
    world.look_until_surveyed()
    world.daemon.look()
    assert world.facts == written
    assert "provisioner_gpu_temperature_celsius" in (world.server.root / FILE[1:]).read_text()
    world.server.write(**{"gpu.2.error.nvmlDeviceGetHandleByIndex_v2": "15"})
    world.now += 40.0
    world.look_until_surveyed()
    world.now += 40.0
    world.daemon.look()
    assert world.facts["gpus"][2] == {"error": "GPU_IS_LOST"}


def test_metrics_are_written_with_the_pods_that_the_kubelet_tells_of(world: World) -> None:
    socket = world.server.root / "var/lib/kubelet/pod-resources/kubelet.sock"
    with fake_kubelet(socket, answer(pod("red", "train-0", UUID))):
        world.look_until_surveyed()
    text = (world.server.root / FILE[1:]).read_text()
    assert (
        f'provisioner_gpu_pod_info{{uuid="{UUID}",pod_namespace="red",pod_name="train-0",container_name="main",'
        'mig_uuid=""} 1' in text
    )
    assert "provisioner_gpu_pod_resources_up 1" in text
    assert (world.server.root / FILE[1:]).stat().st_mode & 0o777 == 0o644


def test_metrics_go_on_while_the_kubelet_and_the_api_server_are_away(world: World) -> None:
    world.node.annotations = None
    world.look_until_surveyed()
    text = (world.server.root / FILE[1:]).read_text()
    assert "provisioner_gpu_pod_resources_up 0" in text
    assert text.count("provisioner_gpu_temperature_celsius{") == 8


def test_a_folder_that_cannot_be_written_ends_nothing(world: World) -> None:
    (world.server.root / FILE[1:]).parent.parent.mkdir(parents=True)
    (world.server.root / FILE[1:]).parent.write_text("in the way")
    world.look_until_surveyed()
    world.now += 2.0
    world.daemon.look()
    assert world.facts["gpuDriver"]["state"] == "Ready"
