"""RedfishPower against the lab's own BMC over TLS, healthy and otherwise."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from lab.bmc.certificate import obtain_certificate
from lab.bmc.handler import BmcHandler
from lab.machine.machine import NETWORK_BOOT, BootPlan
from provisioner.api.machinery.values import Secret
from provisioner.power.bmc.power_controller import BmcAccess, BmcRefused, BmcUnreachable
from provisioner.power.bmc.redfish import RedfishPower
from tests.http_peer import HttpPeer
from tests.lab.fake_machine import PASSWORD, USERNAME, FakeServer, fake_server

PINNED = "http://10.80.0.1/snponly.efi"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    with fake_server(tmp_path / "bmc") as made:
        yield made


def access_to(server: FakeServer) -> BmcAccess:
    return BmcAccess(
        address=server.url,
        username=USERNAME,
        password=Secret(PASSWORD),
        credentials_name="provisioner-system/r01-bmc",
        certificate=server.certificate,
    )


@pytest.fixture
def power(server: FakeServer) -> Iterator[RedfishPower]:
    with closing(RedfishPower(access_to(server))) as made:
        yield made


def test_a_server_is_booted_once_by_http_and_then_as_ever(server: FakeServer, power: RedfishPower) -> None:
    assert power.get_power_state() == "Off"
    power.set_boot_override("UefiHttp", PINNED)
    power.power_on()
    assert power.get_power_state() == "On"
    power.reset()
    assert server.machine.boots == [BootPlan(source="UefiHttp", http_boot_uri=PINNED), NETWORK_BOOT]


def test_a_uri_that_nobody_asks_for_any_more_is_cleared(server: FakeServer, power: RedfishPower) -> None:
    power.set_boot_override("UefiHttp", PINNED)
    power.set_boot_override("Pxe")
    power.power_on()
    assert server.machine.boots == [BootPlan(source="Pxe")]
    assert server.power.override.http_boot_uri is None


def test_power_off_asks_first_and_cuts_when_told(server: FakeServer, power: RedfishPower) -> None:
    server.machine.hangs = True
    power.power_on()
    power.power_off(force=False)
    assert (server.machine.button_presses, power.get_power_state()) == (1, "On")
    power.power_off(force=True)
    assert power.get_power_state() == "Off"


def test_the_bmc_has_one_session_of_ours_and_none_after_close(server: FakeServer, power: RedfishPower) -> None:
    for _ in range(3):
        power.get_power_state()
    assert len(server.endpoint.sessions) == 1
    power.close()
    assert server.endpoint.sessions == {}


def test_a_bmc_that_forgot_the_session_is_logged_into_again(server: FakeServer, power: RedfishPower) -> None:
    power.get_power_state()
    server.endpoint.sessions.clear()
    assert power.get_power_state() == "Off"
    server.endpoint.sessions.clear()
    power.power_on()
    assert len(server.machine.boots) == 1


def test_a_wrong_password_needs_a_human_and_names_the_secret(server: FakeServer) -> None:
    power = RedfishPower(replace(access_to(server), password=Secret("guess")))
    with pytest.raises(BmcRefused, match="Secret provisioner-system/r01-bmc") as caught:
        power.get_power_state()
    assert caught.value.reason == "CredentialsRefused"
    assert "guess" not in str(caught.value)


def test_another_certificate_is_refused_before_the_password_is_sent(server: FakeServer, tmp_path: Path) -> None:
    # The same name, address and key type; only the key is another one, as an impostor's would be.
    other = obtain_certificate(tmp_path / "impostor", "r01-u01", IPv4Address("127.0.0.1"), datetime.now(UTC))
    power = RedfishPower(replace(access_to(server), certificate=other))
    with pytest.raises(BmcRefused) as caught:
        power.get_power_state()
    assert caught.value.reason == "CertificateRefused"
    assert server.endpoint.sessions == {}


def test_without_a_pinned_certificate_a_self_signed_one_is_refused(server: FakeServer) -> None:
    with pytest.raises(BmcRefused) as caught:
        RedfishPower(replace(access_to(server), certificate=None)).get_power_state()
    assert caught.value.reason == "CertificateRefused"


def test_a_certificate_that_is_none_is_named(server: FakeServer) -> None:
    power = RedfishPower(replace(access_to(server), certificate="-----BEGIN CERTIFICATE-----\nxx\n"))
    with pytest.raises(BmcRefused, match=r"spec\.bmc\.certificate"):
        power.get_power_state()


def test_a_closed_port_is_worth_another_try(server: FakeServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(BmcUnreachable, match="does not answer: Connection refused"):
        RedfishPower(replace(access_to(server), address=f"https://127.0.0.1:{port}")).get_power_state()


def test_a_bmc_that_never_answers_is_given_up(server: FakeServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"https://127.0.0.1:{silent.getsockname()[1]}"
        power = RedfishPower(replace(access_to(server), address=address), connect_seconds=0.3, read_seconds=0.3)
        with pytest.raises(BmcUnreachable, match="does not answer"):
            power.get_power_state()


def test_a_busy_bmc_is_worth_another_try_and_recovers(server: FakeServer, power: RedfishPower) -> None:
    power.get_power_state()
    server.endpoint.faults.unavailable = True
    with pytest.raises(BmcUnreachable, match="busy"):
        power.get_power_state()
    server.endpoint.faults.unavailable = False
    assert power.get_power_state() == "Off"


def test_an_action_that_does_not_fit_the_state_is_worth_another_look(power: RedfishPower) -> None:
    with pytest.raises(BmcUnreachable, match="not possible while the power is off"):
        power.reset()


def test_a_bios_server_cannot_boot_by_uefi_http_and_says_so(tmp_path: Path) -> None:
    with fake_server(tmp_path, "BIOS") as server, pytest.raises(BmcRefused, match="bootMethod"):
        RedfishPower(access_to(server)).set_boot_override("UefiHttp", PINNED)


def test_a_system_id_that_the_bmc_does_not_have_is_named(server: FakeServer) -> None:
    assert RedfishPower(replace(access_to(server), system_id="1")).get_power_state() == "Off"
    with pytest.raises(BmcRefused, match="has no system 'Blade7'"):
        RedfishPower(replace(access_to(server), system_id="Blade7")).get_power_state()


def test_proxies_of_the_environment_are_not_used(
    server: FakeServer, power: RedfishPower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert power.get_power_state() == "Off"


def test_nothing_is_sent_by_plain_http_unless_the_server_says_so(server: FakeServer, httpserver: HttpPeer) -> None:
    plain = replace(access_to(server), address=httpserver.url, certificate=None)
    with pytest.raises(BmcRefused, match="allowPlainHTTP") as caught:
        RedfishPower(plain).get_power_state()
    assert caught.value.reason == "PlainHTTP"
    assert httpserver.log == []
    httpserver.no_handler_status_code = 404
    with pytest.raises(BmcUnreachable):
        RedfishPower(replace(plain, allow_plain_http=True)).get_power_state()
    request, _ = httpserver.log[0]
    assert (request.method, request.path.startswith("/redfish/v1")) == ("GET", True)


def test_a_bmc_that_redirects_to_plain_http_is_not_followed(
    server: FakeServer, power: RedfishPower, httpserver: HttpPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert power.get_power_state() == "Off"

    def redirect(handler: BmcHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", f"{httpserver.url}{handler.path}")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    monkeypatch.setattr(BmcHandler, "do_GET", redirect)
    with pytest.raises(BmcRefused, match="plain HTTP"):
        power.get_power_state()
    assert httpserver.log == []
