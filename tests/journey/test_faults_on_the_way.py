"""What goes wrong while servers boot, in the virtual rack: each ends Ready without a hand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from provisioner.api.boot_stage import BOOT_STAGES, BootStage, stage_order
from provisioner.api.meta import parse_time
from provisioner.api.node_contract import PREPARED_ORDER_ANNOTATION
from tests.journey.virtual_rack import VirtualRack

pytestmark = pytest.mark.timeout(2400)

BOOT_SECONDS = 900
AWAY_SECONDS = 60


def test_a_boot_comes_to_ready_though_boot_service_and_controller_die_in_each_of_its_stages(rack: VirtualRack) -> None:
    """All in one boot. It is kept in a stage by what the next one needs, or by a halt of the machine, until both have
    died by SIGKILL in it and have started again, with empty disks.
    """
    name, before = "r01-u01", rack.node_boot_id("r01-u01")
    image = rack.get("image", str(rack.server(name).status.image_ref))["spec"]["digest"].replace(":", "-")
    files = rack.state.image_store / image
    rack.switch_off(name)
    rack.inject(name, "Unavailable")
    began = datetime.now(UTC)
    rack.kubectl("patch", "server", name, "--type=merge", "-p", '{"spec":{"powerState":"On"}}')
    hit: list[BootStage] = []

    def kill_in(stage: BootStage) -> None:
        rack.wait(f"{name} is in stage {stage}", lambda: _stage(rack, name, began) == stage, seconds=BOOT_SECONDS)
        killed = {part: rack.pid(part) for part in ("boot", "controller")}
        for pid in killed.values():
            os.kill(pid, signal.SIGKILL)
        assert _stage(rack, name, began) == stage, f"it went on before both had died: {hit}"
        for part, pid in killed.items():
            rack.wait(f"{part} was started again", lambda p=part, old=pid: rack.pid(p) != old, seconds=90)  # type: ignore[misc]
        hit.append(stage)

    kill_in("Ordered")
    rack.inject(name, "None")
    with _halted(rack, name, began, "Firmware"):
        kill_in("Firmware")
        _freeze(rack.processes("nginx: "))  # killed with the boot service
    with _away(files / "manifest"):
        kill_in("IPXE")
        with _away(files / "root.squashfs"):
            kill_in("Stage1")
            (files / "manifest.away").rename(files / "manifest")
            kill_in("Root")
    with _halted(rack, name, began, "System"):
        kill_in("System")
        _freeze([rack.pid("controller")])
        rack.kubectl("annotate", "node", name, f"{PREPARED_ORDER_ANNOTATION}-")
    kill_in("Token")
    with _halted(rack, name, began, "Kubelet"):
        kill_in("Kubelet")
    rack.wait_for_boot(name, before, seconds=BOOT_SECONDS)
    assert [*hit, "Ready"] == list(BOOT_STAGES)


def test_a_boot_that_nobody_ordered_is_made_an_ordered_one_beside_one_that_loses_its_power(rack: VirtualRack) -> None:
    """The reset button is pressed. Meanwhile the other server loses its power while stage-1 fetches the root."""
    began = datetime.now(UTC)
    before = {name: rack.node_boot_id(name) for name in ("r01-u01", "r01-u02")}
    rack.inject("r01-u01", "ResetButton")
    order_before = rack.server("r01-u02").status.order
    rack.switch_off("r01-u02")
    rack.kubectl("patch", "server", "r01-u02", "--type=merge", "-p", '{"spec":{"powerState":"On"}}')

    rack.wait_for_stage("r01-u02", ("Root", "System"), began, seconds=BOOT_SECONDS)
    rack.inject("r01-u02", "PowerCut")

    rack.wait(
        "the boot that nobody ordered was noticed and made an ordered one",
        lambda: rack.server("r01-u01").status.order.reason == "Unordered",  # type: ignore[union-attr]
        seconds=BOOT_SECONDS,
    )
    for name, boot_id in before.items():
        rack.wait_for_boot(name, boot_id, seconds=BOOT_SECONDS)
    order = rack.server("r01-u02").status.order
    assert order is not None
    assert order_before is not None
    assert order.id != order_before.id
    assert "PowerLost" in rack.kubectl("describe", "server", "r01-u02")


def test_a_server_boots_though_images_and_the_api_server_go_away_for_a_minute(rack: VirtualRack) -> None:
    began = datetime.now(UTC)
    before = rack.node_boot_id("r01-u02")
    rack.switch_off("r01-u02")
    rack.kubectl("patch", "server", "r01-u02", "--type=merge", "-p", '{"spec":{"powerState":"On"}}')

    rack.wait_for_stage("r01-u02", ("IPXE", "Stage1", "Root"), began, seconds=BOOT_SECONDS)
    with _image_server_gone(rack):
        time.sleep(AWAY_SECONDS)

    rack.wait_for_stage("r01-u02", ("System", "Token", "Kubelet"), began, seconds=BOOT_SECONDS)
    rack.kill("kube-apiserver")

    rack.wait_for_boot("r01-u02", before, seconds=BOOT_SECONDS)


def _stage(rack: VirtualRack, name: str, since: datetime) -> BootStage | None:
    """The last stage that the boot ordered after `since` has reached, by its order and by what was heard of it."""
    status = rack.server(name).status
    if status.order is None or parse_time(status.order.ordered_time) < since or status.boot_stage is None:
        return None
    heard = status.progress.stage_times if status.progress is not None else ()
    reached = [entry.stage for entry in heard if parse_time(entry.time) >= parse_time(status.order.ordered_time)]
    return max((status.boot_stage, *reached), key=stage_order)


@contextmanager
def _halted(rack: VirtualRack, name: str, since: datetime, stage: BootStage) -> Iterator[None]:
    """The machine stands still from when it has reached the stage until the block has run."""
    rack.wait(f"{name} is in stage {stage}", lambda: _stage(rack, name, since) == stage, seconds=BOOT_SECONDS)
    machine = rack.processes(f"-name {name} ")
    assert machine
    _freeze(machine)
    try:
        yield
    finally:
        _thaw(machine)


@contextmanager
def _away(file: Path) -> Iterator[None]:
    """The image store lacks a file, unless the block brings it back before."""
    away = file.with_name(f"{file.name}.away")
    file.rename(away)
    try:
        yield
    finally:
        if away.exists():
            away.rename(file)


def _freeze(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)


def _thaw(pids: Iterable[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def _image_server_gone(rack: VirtualRack) -> Iterator[None]:
    """nginx does not answer while the block runs: it is stopped, not ended, so nobody starts another one."""
    stopped = rack.processes("nginx: ")
    assert stopped
    _freeze(stopped)
    try:
        yield
    finally:
        _thaw(stopped)
