"""What goes wrong while servers boot, in the virtual rack: each ends Ready without a hand."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from tests.journey.virtual_rack import VirtualRack

pytestmark = pytest.mark.timeout(2400)

BOOT_SECONDS = 900
AWAY_SECONDS = 60


def test_a_boot_that_nobody_ordered_is_made_an_ordered_one_though_the_service_dies_at_each_stage(
    rack: VirtualRack,
) -> None:
    """The reset button is pressed; then the boot service is killed once in every stage, each time with an empty disk.

    Meanwhile the other server loses its power while stage-1 fetches the root.
    """
    began = datetime.now(UTC)
    before = {name: rack.node_boot_id(name) for name in ("r01-u01", "r01-u02")}
    rack.inject("r01-u01", "ResetButton")
    order_before = rack.server("r01-u02").status.order
    rack.kubectl("patch", "server", "r01-u02", "--type=merge", "-p", '{"spec":{"powerState":"Off"}}')
    rack.wait("r01-u02 is off", lambda: rack.server("r01-u02").status.power.state == "Off", seconds=180)  # type: ignore[union-attr]
    rack.kubectl("patch", "server", "r01-u02", "--type=merge", "-p", '{"spec":{"powerState":"On"}}')

    rack.wait_for_stage("r01-u02", ("Root", "System"), began, seconds=BOOT_SECONDS)
    rack.inject("r01-u02", "PowerCut")

    rack.wait(
        "the boot that nobody ordered was noticed and made an ordered one",
        lambda: rack.server("r01-u01").status.order.reason == "Unordered",  # type: ignore[union-attr]
        seconds=BOOT_SECONDS,
    )
    for stages in (
        ("Firmware", "IPXE", "Stage1", "Root", "System"),
        ("Stage1", "Root", "System"),
        ("System", "Token", "Kubelet"),
        ("Token", "Kubelet", "Ready"),
    ):
        rack.wait_for_stage("r01-u01", stages, began, seconds=BOOT_SECONDS)
        rack.kill("boot")
        rack.kill("controller")

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
    rack.kubectl("patch", "server", "r01-u02", "--type=merge", "-p", '{"spec":{"powerState":"Off"}}')
    rack.wait("r01-u02 is off", lambda: rack.server("r01-u02").status.power.state == "Off", seconds=180)  # type: ignore[union-attr]
    rack.kubectl("patch", "server", "r01-u02", "--type=merge", "-p", '{"spec":{"powerState":"On"}}')

    rack.wait_for_stage("r01-u02", ("IPXE", "Stage1", "Root"), began, seconds=BOOT_SECONDS)
    with _image_server_gone(rack):
        time.sleep(AWAY_SECONDS)

    rack.wait_for_stage("r01-u02", ("System", "Token", "Kubelet"), began, seconds=BOOT_SECONDS)
    rack.kill("kube-apiserver")

    rack.wait_for_boot("r01-u02", before, seconds=BOOT_SECONDS)


@contextmanager
def _image_server_gone(rack: VirtualRack) -> Iterator[None]:
    """nginx does not answer while the block runs: it is stopped, not ended, so nobody starts another one."""
    stopped = rack.processes("nginx: ")
    assert stopped
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
