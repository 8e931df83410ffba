"""What goes wrong while servers boot, in the virtual rack: each ends Ready without a hand."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime

import pytest

from provisioner.api.servers.boot_stage import BOOT_STAGES, BootStage
from provisioner.api.servers.boot_timeline import stage_moments
from tests.journey.virtual_rack import VirtualRack

pytestmark = [pytest.mark.timeout(2400), pytest.mark.long]

NEEDS_NOBODY: frozenset[BootStage] = frozenset({"Firmware", "System"})
"""Stages in which the server asks nothing of us: it stands still while it is without services, lest it passes on."""


def test_a_boot_comes_to_ready_though_boot_service_and_controller_die_in_each_of_its_stages(rack: VirtualRack) -> None:
    """In one boot. What would end a stage is kept from the server until both have died in it, by SIGKILL, and serve
    again with empty disks.
    """
    name, before = "r01-u01", rack.node_boot_id("r01-u01")
    powered_on, handed_out = _powered_on(rack, name), _handed_out(rack, name)
    rack.switch_off(name)
    rack.inject(name, "ResetsUnavailable")
    began = datetime.now(UTC)
    hit, written = list[BootStage](), len(rack.console(name))
    with rack.cable(name) as cable:
        cable.keep_in(BOOT_STAGES)
        rack.switch_on(name)
        for place, stage in enumerate(BOOT_STAGES[:-1], start=1):
            # System is the one that nothing holds: where KVM boots the server, it lasts a second.
            rack.wait_for_stage(name, stage, began, every_seconds=0.05 if stage == "System" else 0.5)
            if stage == "IPXE":  # a ROM that does not get the first script gives up; the script never does
                rack.wait_for_console(name, f"provisioner: {name} boots", after=written)
            with rack.stopped(f"-name {name} ") if stage in NEEDS_NOBODY else nullcontext():
                killed = rack.kill("boot", "controller")
                assert rack.stage(name, began) == stage, f"it had left {stage} before both were dead, after {hit}"
                hit.append(stage)
                _wait_until_both_serve(rack, killed)
                cable.keep_in(BOOT_STAGES[place:])
            if stage == "Ordered":
                order = rack.server(name).status.order
                rack.inject(name, "None")
    assert [*hit, "Ready"] == [*BOOT_STAGES]

    rack.wait_for_boot(name, before)
    status = rack.server(name).status
    print(rack.timeline(name))
    assert [stage for stage, _ in stage_moments(status)] == [*BOOT_STAGES]
    assert order is not None
    assert status.join is not None
    assert status.order == order
    assert (status.join.order_id, status.join.boot_id) == (order.id, rack.node_boot_id(name))
    assert _powered_on(rack, name) == powered_on + 1
    assert _handed_out(rack, name) == handed_out + 1
    assert sorted(node["metadata"]["name"] for node in rack.get("nodes")["items"]) == [
        "r01-u01",
        "r01-u02",
        "r01-u03",
    ]
    assert rack.get("node", name)["metadata"]["uid"] == status.node_uid


def test_servers_come_back_from_a_reset_and_from_losing_images_power_and_api_server(rack: VirtualRack) -> None:
    """The reset button of one is pressed: that boot, which nobody ordered, is made an ordered one. Of the other's boot
    the image server goes away, then its power, both while stage-1 fetches the root; of its next one the API server,
    when it asks to join.
    """
    before = {name: rack.node_boot_id(name) for name in ("r01-u01", "r01-u02")}
    rack.inject("r01-u01", "ResetButton")
    rack.switch_off("r01-u02")
    began = datetime.now(UTC)
    with rack.cable("r01-u02") as cable:
        cable.keep_in(["Root", "Token"])
        rack.switch_on("r01-u02")
        rack.wait_for_stage("r01-u02", "Root", began)
        order_before = rack.server("r01-u02").status.order
        with rack.stopped("nginx: "):
            cable.keep_in(["Token"])
            written = len(rack.console("r01-u02"))
            rack.wait_for_console("r01-u02", "stage-1: not booted", after=written)
            cable.keep_in(["Root", "Token"])
            written = len(rack.console("r01-u02"))
        rack.wait_for_console("r01-u02", "stage-1: fetching layer base", after=written)
        rack.inject("r01-u02", "PowerCut")

        cable.keep_in(["Token"])
        rack.wait_for_stage("r01-u02", "Token", began)
        killed = rack.kill("kube-apiserver")
    rack.wait_for_restart(killed)

    rack.wait(
        "the boot that nobody ordered was noticed and made an ordered one",
        lambda: rack.server("r01-u01").status.order.reason == "Unordered",  # type: ignore[union-attr]
    )
    for name, boot_id in before.items():
        rack.wait_for_boot(name, boot_id)
    order = rack.server("r01-u02").status.order
    assert order is not None
    assert order_before is not None
    assert order.id != order_before.id
    assert "PowerLost" in rack.kubectl("describe", "server", "r01-u02")


def _wait_until_both_serve(rack: VirtualRack, killed: dict[str, int]) -> None:
    """A controller leads once its dead predecessor's Lease is gone. That would expire; nobody needs to see it eight
    times."""
    lease = ("lease", "provisioner-controller", "--namespace=provisioner-system")
    rack.kubectl("delete", "--ignore-not-found", *lease)
    rack.wait_for_restart(killed)
    rack.wait("another controller leads", lambda: rack.try_kubectl("get", *lease).returncode == 0)
    rack.wait("the boot service answers", rack.is_served)


def _powered_on(rack: VirtualRack, name: str) -> int:
    """How often its machine was started or has reset itself."""
    log = "rack/bmc.log"
    return rack.count(log, "machine was powered on", name) + rack.count(log, "machine reset itself", name)


def _handed_out(rack: VirtualRack, name: str) -> int:
    """A repeat is for the machine that did not get the answer: it was on its way when the boot service died."""
    return rack.count("logs/boot.log", "join configuration handed out", f"server={name}", "repeat=False")
