"""A DPU's boot on real parts, but for the card: an arm64 machine with UEFI, our services, Debian's kernel, stage-1.

On to a Ready node, and with its host behind it, takes minutes of emulation: `python -m tests.soak.behind_a_dpu`, a part
of `make soak`. By its name it runs before the tests that share a rack, whose machines would take half of the processors
from it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.binaries.obtain import Binaries
from lab.cli.parts import daemon_arguments, describe_demo_rack, lab_signing_key, run_step
from lab.demo import up as demo_up
from lab.demo.state import DemoState
from lab.tools import ARM64_PACKAGES
from provisioner.image.recipe import read_recipe
from provisioner.image.tools.foreign import find_foreign
from tests.journey.conftest import ends
from tests.journey.small_dpu_image import build_small_image, unpacked_base
from tests.journey.virtual_rack import VirtualRack
from tests.tools import CACHE, lab_tools, need_root

DPU = "r01-u01"
MEMORY_MIB = 768
IMAGES = Path(__file__).parents[2] / "images"

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def dpu(
    binaries: Binaries, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VirtualRack]:
    """A lab with one DPU, switched on by its BMC with an image that ends where stage-1 hands over."""
    need_root("make network namespaces and mounts for a virtual DPU")
    state = DemoState(cache=CACHE, name=f"dpu{os.getpid()}")
    state.directory.mkdir(parents=True)
    recipe = read_recipe(IMAGES / "dpu")
    foreign = find_foreign("arm64", interpreter=lab_tools(ARM64_PACKAGES).path("/usr/bin/qemu-aarch64"))
    image = build_small_image(
        recipe, unpacked_base(recipe, CACHE / "image-tests"), lab_signing_key(state), foreign, state.image_store
    )
    state.image_record(demo_up.DPU_POOL).write_text(str(image))
    rack = describe_demo_rack(state, lab_tools(), MEMORY_MIB, "DPU", False, None)
    arguments = daemon_arguments(MEMORY_MIB, "DPU", False)
    with ends(state, request.session, tmp_path_factory):
        rack.prepare(demo_up.now())
        demo_up.create_network(state, rack)
        demo_up.start_daemon(state, arguments)
        run_step(state, "publish", state.name, f"--pool={demo_up.DPU_POOL}")
        run_step(state, "register", state.name, *arguments)
        yield VirtualRack(state, binaries.kubectl)


def test_a_virtual_dpu_comes_from_firmware_to_its_verified_root(dpu: VirtualRack) -> None:
    dpu.wait_for_console(DPU, "root: end", after=0)
    console = dpu.console(DPU)
    server = dpu.server(DPU)
    assert server.spec.dpu is not None
    assert server.spec.architecture == "arm64"
    for words in (
        "UEFI firmware",
        "Start PXE over IPv4",
        "iPXE",
        f"provisioner: {DPU} boots dpu-",
        "stage-1: manifest of sha256-",
        "stage-1: layer base verified",
        f"root: {DPU} aarch64",
        "root: mounted overlay / overlay rw",
    ):
        assert words in console, words
        console = console[console.index(words) :]
    dpu.wait("the boot reached its system", lambda: "system" in dpu.timeline(DPU))
    print(dpu.timeline(DPU))
