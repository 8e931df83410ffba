"""The power controllers on a real API server, with the lab's own BMCs over fake machines."""

from __future__ import annotations

import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.ports import free_port
from lab.machine.machine import BootPlan
from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.api.servers.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import of
from provisioner.power import standing
from provisioner.power.bmc.pool import BmcPool
from provisioner.power.bmc.power_controller import BmcAccess, BmcUnreachable
from provisioner.power.bmc.redfish import RedfishPower
from provisioner.power.bmc.redfish_connection import BODY_BYTES
from provisioner.power.controller import build_power_controllers
from provisioner.power.record import MANAGER
from tests.lab.fake_machine import PASSWORD
from tests.power.hostile_bmc import HostileBmc
from tests.power.power_site import BOUND_SECONDS, PINNED, Site, wait_for


def test_an_order_powers_a_server_on_by_its_boot_method_and_only_once(site: Site) -> None:
    site.write_server()
    site.start()
    site.wait_for_condition("PowerOff")
    site.order("order-1")
    server = site.wait_for_order("order-1")
    assert server.status.power is not None
    assert (server.status.power.state, site.fake.machine.running) == ("On", True)
    site.wait_for_condition("On")
    site.stop()
    assert site.fake.endpoint.sessions == {}, "who stops leaves no session behind: a BMC has few"
    site.start()
    site.order("order-2")
    site.wait_for_order("order-2")
    assert site.fake.machine.boots == [BootPlan(source="UefiHttp", http_boot_uri=PINNED)] * 2
    site.wait_for_events("BootOrderAccepted")


def test_an_order_whose_record_was_lost_is_carried_out_once_more_whatever_was_reported(site: Site) -> None:
    """Nothing lives there that this could harm: without the record no boot of the order has joined. And who reports a
    boot may be the old one."""
    site.write_server()
    site.order("order-1")
    # The BMC accepted it, and nobody wrote that down; or it never did, and somebody lies.
    site.fake.machine.power_on(BootPlan(source="Pxe"))
    progress = {
        "stage": "Stage1",
        "bootID": "b1",
        "stageTimes": [{"stage": "Stage1", "time": rfc3339_micro(datetime.now(UTC))}],
    }
    site.cluster.apply_status(Server, site.name, {"progress": progress}, manager="provisioner-boot")
    site.start()
    site.wait_for_order("order-1")
    assert len(site.fake.machine.boots) == 2


class NeverAnswers(RedfishPower):
    """Does what it is told, and takes so long over it that nobody waits for the answer."""

    def power_on(self) -> None:
        super().power_on()
        raise BmcUnreachable("BMC does not answer: it takes its time", after_seconds=0.2)

    def reset(self) -> None:
        super().reset()
        raise BmcUnreachable("BMC does not answer: it takes its time", after_seconds=0.2)


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
def test_a_bmc_that_acts_without_answering_is_not_told_to_reset_for_ever(site: Site, on: bool) -> None:
    disk, http = BootPlan(source="Disk"), BootPlan(source="UefiHttp", http_boot_uri=PINNED)
    if on:
        site.fake.machine.power_on(disk)
    site.write_server()
    site.order("order-1")
    site.start(connect=NeverAnswers)
    site.wait_for_order("order-1")
    assert site.fake.machine.boots == [*([disk] if on else []), http, http], "once unanswered, once seen by its power"
    power = site.read().status.power
    assert power is not None
    assert (power.cut_order_id, power.state) == ("order-1", "On")


@pytest.mark.parametrize("wanted", ["On", "Off"])
@pytest.mark.parametrize("acceptance", ["Pending", "Rejected"])
def test_the_bmc_of_a_server_that_nobody_accepted_is_left_alone(site: Site, acceptance: str, wanted: str) -> None:
    attempts: list[BmcAccess] = []

    def connect(access: BmcAccess) -> RedfishPower:
        attempts.append(access)
        return RedfishPower(access)

    site.fake.machine.power_on(BootPlan(source="Disk"))
    site.write_server(acceptance=acceptance, powerState=wanted)
    site.order("order-1")
    site.start(connect=connect)
    condition = site.wait_for_condition("NotAccepted")
    assert condition.status == "Unknown"
    words = {"Pending": "waits to be accepted", "Rejected": "was rejected"}[acceptance]
    assert f"its BMC is left alone: Server '{site.name}' {words}" in condition.message
    assert (attempts, site.fake.endpoint.sessions, site.read().status.power) == ([], {}, None)
    assert (site.fake.machine.running, site.fake.machine.button_presses) == (True, 0)
    site.write_server()
    site.wait_for_order("order-1")
    assert len(attempts) == 1, "only when it is accepted"


def test_the_bmc_of_a_duplicate_is_left_alone_until_it_is_none(site: Site) -> None:
    site.fake.machine.power_on(BootPlan(source="Disk"))
    site.write_server(powerState="Off")
    site.accepted("False", "Duplicate")
    site.start()
    condition = site.wait_for_condition("Duplicate")
    assert (condition.status, site.read().status.power, site.fake.machine.button_presses) == ("Unknown", None, 0)
    assert "Server r01-u09 claims the same BMC" in condition.message
    site.accepted("True", "Accepted")
    site.wait_for_condition("Off")
    assert not site.fake.machine.running


def test_a_server_whose_acceptance_is_withdrawn_keeps_the_record_of_its_order(site: Site) -> None:
    site.write_server()
    site.order("order-1")
    site.start()
    site.wait_for_condition("On")
    site.write_server(acceptance="Rejected")
    site.wait_for_condition("NotAccepted")
    power = site.read().status.power
    assert power is not None
    assert (power.order_id, power.state) == ("order-1", "Unknown")
    wait_for("no session to be left", lambda: site.fake.endpoint.sessions == {})
    site.write_server()
    site.wait_for_condition("On")
    assert len(site.fake.machine.boots) == 1, "it is not reset when it is accepted again"


def test_power_that_is_lost_is_noticed_and_told(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.power.status.SETTLING", timedelta(0))
    site.write_server()
    site.order("order-1")
    site.start()
    site.wait_for_condition("On")
    site.fake.power.cut_power()
    condition = site.wait_for_condition("PowerOff")
    assert condition.status == "False"
    power = site.read().status.power
    assert power is not None
    assert (power.state, power.order_id) == ("Off", "order-1")
    site.wait_for_events("PowerLost")
    assert not site.fake.machine.running, "bringing it back is the boot controller's decision"


def test_a_server_that_shall_be_off_is_asked_and_then_cut(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.write_server()
    site.order("order-1")
    site.start()
    site.wait_for_condition("On")
    site.fake.machine.hangs = True
    site.write_server(powerState="Off")
    site.wait_for_condition("ShuttingDown")
    assert site.fake.machine.running
    monkeypatch.setattr("provisioner.power.decide.SHUTDOWN_PATIENCE", timedelta(0))
    site.wait_for_condition("Off")
    assert (site.fake.machine.running, site.fake.machine.button_presses) == (False, 1)
    site.wait_for_events("ShuttingDown", "PowerCut")


def test_a_bmc_that_is_away_is_told_and_its_order_carried_out_when_it_is_back(site: Site) -> None:
    site.fake.endpoint.stop()
    port = free_port("127.0.0.1")  # its own could be somebody else's by then
    site.write_server(bmc={"address": f"https://127.0.0.1:{port}"})
    site.order("order-1")
    site.start()
    condition = site.wait_for_condition("BMCUnreachable")
    assert condition.status == "Unknown"
    assert "Connection refused" in condition.message
    site.fake.endpoint = site.fake.new_endpoint(port)
    site.fake.endpoint.start()
    site.wait_for_order("order-1")
    site.wait_for_condition("On")


def test_a_wrong_password_is_tried_once_until_the_secret_changes(site: Site) -> None:
    attempts: list[str] = []

    def connect(access: BmcAccess) -> RedfishPower:
        attempts.append(access.password.reveal())
        return RedfishPower(access)

    site.write_secret("wrong")
    site.write_server()
    site.start(BmcPool(site.door, clock=time.monotonic, connect=connect))
    condition = site.wait_for_condition("CredentialsRefused")
    assert f"{site.name}-bmc" in condition.message
    for number in range(3):
        # Each change makes the controller look again: it must not make it log in again.
        site.write_server(position=f"u{number:02d}")
        site.wait_until_looked_at()
    assert attempts == ["wrong"]
    site.write_secret()
    site.write_server(position="u09")
    site.wait_for_condition("PowerOff")
    assert attempts == ["wrong", PASSWORD]


BY_IPMI: dict[str, Any] = {"protocol": "IPMI", "certificate": None, "bootMethod": "Pxe"}


@pytest.mark.parametrize(
    ("bmc", "reason"),
    [
        ({"credentialsName": "absent"}, "CredentialsMissing"),
        ({"systemID": "Blade7"}, "SystemNotFound"),
        ({"address": "https://[fd00::12"}, "AddressInvalid"),
        ({**BY_IPMI, "address": "ipmi://]fd00:12"}, "AddressInvalid"),
        ({**BY_IPMI, "address": "ipmi://10.90.0.11:66666"}, "AddressInvalid"),
    ],
)
def test_what_a_person_must_correct_is_named(site: Site, bmc: dict[str, Any], reason: str) -> None:
    site.write_server(bmc=bmc)
    site.start()
    condition = site.wait_for_condition(reason)
    assert (condition.status, "; " in condition.message) == ("Unknown", True)
    site.wait_for_events(reason)


def test_an_error_that_no_backend_expects_is_said_at_the_server_too(site: Site) -> None:
    def connect(access: BmcAccess) -> RedfishPower:
        raise ValueError(f"{access.protocol} cannot make anything of it")

    site.write_server()
    site.start(BmcPool(site.door, clock=time.monotonic, connect=connect))
    condition = site.wait_for_condition("BMCUnusable")
    assert "Redfish cannot make anything of it; remedy: correct spec.bmc" in condition.message


def test_a_dead_bmc_does_not_hold_up_the_others(site: Site, cluster: Cluster, unique: str) -> None:
    """More dead BMCs than workers: the living one is still served."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        dead = [Site(cluster, site.door, f"{unique}-dead-{number}", site.fake) for number in range(3)]
        try:
            for one in dead:
                one.write_server(
                    bmc={
                        "address": f"https://127.0.0.1:{silent.getsockname()[1]}",
                        "credentialsName": f"{unique}-bmc",
                    }
                )
            site.write_server()
            _run_all(site, dead)
        finally:
            for one in dead:
                cluster.delete(of(Server), one.name)


def _run_all(site: Site, dead: list[Site]) -> None:
    stop = threading.Event()
    informer = Informer(site.door, of(Server))
    pool = BmcPool(
        site.door,
        clock=time.monotonic,
        connect=lambda access: RedfishPower(access, connect_seconds=3.0, read_seconds=3.0),
    )
    recorder = EventRecorder(site.door, "power-test")
    controllers = build_power_controllers(site.door, informer, recorder, site.settings, pool=pool)
    informer.start(stop)
    assert informer.wait_for_sync(BOUND_SECONDS)
    threads = [threading.Thread(target=controller.run, args=(stop,)) for controller in controllers]
    for thread in threads:
        thread.start()
    try:
        for one in dead:
            one.wait_for_condition("BMCUnreachable")
        for number in range(3):
            site.order(f"order-{number}")
            site.wait_for_order(f"order-{number}")
    finally:
        stop.set()
        for thread in threads:
            thread.join(BOUND_SECONDS)


def test_the_power_manager_owns_nothing_but_its_part(site: Site) -> None:
    site.write_server()
    site.order("order-1")
    site.start()
    site.wait_for_order("order-1")
    site.wait_for_condition("On")
    fields = next(
        entry["fieldsV1"]["f:status"]
        for entry in site.cluster.get(of(Server), site.name)["metadata"]["managedFields"]
        if entry["manager"] == MANAGER
    )
    assert set(fields) == {"f:power", "f:conditions"}
    assert [key for key in fields["f:conditions"] if key.startswith("k:")] == ['k:{"type":"PoweredOn"}']


def test_a_bmc_that_answers_slowly_is_told_and_its_orders_carried_out_all_the_same(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "BURST_SECONDS", 0.0)  # so that each look is one too many
    monkeypatch.setattr(standing, "SHARE", 1e-9)
    site.write_server()
    site.fake.machine.running = True
    site.start()
    told = site.wait_for_condition("SlowBMC")
    assert told.status == "True"
    assert "is asked less often; reset it or update its firmware" in told.message
    site.order("order-1")
    site.wait_for_order("order-1")


def test_a_bmc_that_was_cut_off_is_told_with_what_was_expected(site: Site, tmp_path: Path) -> None:
    """The Server says what was observed, what was expected, and what to do."""
    hostile = HostileBmc(site.fake, tmp_path / "keys")
    hostile.attacks["GET /redfish/v1/"] = lambda wire: wire.answer(b"[" * (BODY_BYTES + 200_000))
    site.write_server()
    site.start()
    told = site.wait_for_condition("BMCCutOff")
    assert told.status == "Unknown"
    assert f"it sent more than {BODY_BYTES} bytes" in told.message
    assert "reset the BMC or update its firmware" in told.message
    hostile.attacks.clear()
    site.wait_for_condition("PowerOff")
