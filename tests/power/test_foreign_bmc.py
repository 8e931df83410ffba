"""RedfishPower against a BMC that is not ours: sushy-tools' emulator with its fake driver, over TLS, with a password.

What that one gets wrong, so that nobody takes it for Redfish: it ignores `Once` (overrides are always Continuous),
turns UefiHttp without a URL into Pxe, downloads an HttpBootUri itself instead of leaving that to the server, and lists
no target None. What it does as hardware does: a power action takes up to 11 s, and a reset shows Off on the way.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path

import bcrypt
import pytest

from lab.bmc.certificate import obtain_certificate
from lab.control_plane.ports import free_port
from provisioner.api.machinery.values import Secret
from provisioner.api.servers.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import BMC_SECRETS, SECRETS, of
from provisioner.power.bmc.power_controller import BmcAccess, BmcRefused, BmcUnreachable
from provisioner.power.bmc.redfish import RedfishPower
from tests.http_peer import HttpPeer, target
from tests.lab.fake_machine import fake_server
from tests.power.conftest import create_namespace
from tests.power.power_site import Site

BOUND_SECONDS = 180.0


@pytest.fixture(scope="module")
def access(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BmcAccess]:
    tmp_path = tmp_path_factory.mktemp("foreign-bmc")
    certificate = obtain_certificate(tmp_path, "foreign", IPv4Address("127.0.0.1"), datetime.now(UTC))
    port = free_port("127.0.0.1")
    password = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    (tmp_path / "htpasswd").write_text(f"admin:{password}\n")
    (tmp_path / "state").mkdir()
    (tmp_path / "emulator.conf").write_text(
        f"SUSHY_EMULATOR_FAKE_DRIVER = True\n"
        f"SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\n"
        f"SUSHY_EMULATOR_LISTEN_PORT = {port}\n"
        f"SUSHY_EMULATOR_SSL_CERT = '{tmp_path}/bmc.pem'\n"
        f"SUSHY_EMULATOR_SSL_KEY = '{tmp_path}/bmc.key'\n"
        f"SUSHY_EMULATOR_AUTH_FILE = '{tmp_path}/htpasswd'\n"
        f"SUSHY_EMULATOR_STATE_DIR = '{tmp_path}/state'\n"
    )
    log = (tmp_path / "emulator.log").open("wb")
    program = "from sushy_tools.emulator.main import main; main()"
    emulator = subprocess.Popen(
        [sys.executable, "-c", program, "--config", str(tmp_path / "emulator.conf")], stdout=log, stderr=log
    )
    made = BmcAccess(
        address=f"https://127.0.0.1:{port}",
        username="admin",
        password=Secret("secret"),
        credentials_name="provisioner-system/foreign",
        certificate=certificate,
    )
    try:
        _wait_until_it_answers(made, emulator)
        yield made
    finally:
        emulator.kill()
        emulator.wait()
        log.close()


def _wait_until_it_answers(access: BmcAccess, emulator: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while True:
        with closing(RedfishPower(access)) as power:
            try:
                power.get_power_state()
                return
            except BmcUnreachable:
                if emulator.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def wait_for_power(power: RedfishPower, state: str) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while power.get_power_state() != state:
        assert time.monotonic() < deadline, f"not {state} within {BOUND_SECONDS} s"
        time.sleep(0.2)


def test_a_foreign_bmc_is_switched_on_reset_and_off(access: BmcAccess) -> None:
    with closing(RedfishPower(access)) as power:
        assert power.get_power_state() == "Off"
        power.set_boot_override("Pxe")
        power.power_on()
        wait_for_power(power, "On")
        power.reset()
        wait_for_power(power, "On")
        power.power_off(force=False)
        wait_for_power(power, "Off")


def test_a_foreign_bmc_that_cannot_do_http_boot_as_meant_is_not_taken_for_one_that_can(
    access: BmcAccess, httpserver: HttpPeer
) -> None:
    httpserver.no_handler_status_code = 404
    with closing(RedfishPower(access)) as power, pytest.raises(BmcRefused, match="HTTP 400"):
        power.set_boot_override("UefiHttp", f"{httpserver.url}/snponly.efi")
    fetched = [target(request) for request, _ in httpserver.log]
    assert set(fetched) == {"/snponly.efi"}, "the emulator is known to fetch the file itself"


def test_a_foreign_bmc_refuses_a_wrong_password_and_another_user(access: BmcAccess) -> None:
    for wrong in (replace(access, password=Secret("guess")), replace(access, username="root")):
        with closing(RedfishPower(wrong)) as power, pytest.raises(BmcRefused) as caught:
            power.get_power_state()
        assert caught.value.reason == "CredentialsRefused"


def test_a_system_of_a_foreign_bmc_is_found_by_its_id(access: BmcAccess) -> None:
    identity = "27946b59-9e44-4fa7-8e91-f3527a1ef094"
    with closing(RedfishPower(replace(access, system_id=identity))) as power:
        assert power.get_power_state() == "Off"
    with closing(RedfishPower(replace(access, system_id="1"))) as power, pytest.raises(BmcRefused, match=identity):
        power.get_power_state()


def test_a_server_behind_a_foreign_bmc_is_power_cycled(
    access: BmcAccess, cluster: Cluster, controller_account: Cluster, unique: str, tmp_path: Path
) -> None:
    """From the order to the BMC's own word: off in between, on at the end."""
    with fake_server(tmp_path / "unused", name=unique) as fake:
        site = Site(cluster, controller_account, unique, fake)
        create_namespace(cluster)
        site.write_secret("secret", username="admin")
        site.write_server(
            bmc={"address": access.address, "certificate": access.certificate, "bootMethod": "Pxe"},
        )
        with closing(RedfishPower(access)) as power:
            power.power_on()
            wait_for_power(power, "On")
        try:
            site.ask("PowerCycle")
            site.order_as_asked("order-1", "PowerCycle")
            site.start()
            recorded = site.wait_for_order("order-1").status.power
            assert recorded is not None
            assert recorded.cut_order_id == "order-1", "the BMC said that it was off"
            with closing(RedfishPower(access)) as power:
                wait_for_power(power, "On")
        finally:
            site.stop()
            site.withdraw()
            cluster.delete(of(Server), unique)
            cluster.delete(SECRETS, f"{unique}-bmc", namespace=BMC_SECRETS)
            with closing(RedfishPower(access)) as power:
                power.power_off(force=True)
                wait_for_power(power, "Off")
