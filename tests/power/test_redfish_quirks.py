"""What BMCs get wrong about the boot override and about refusals, and what is made of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from werkzeug import Request, Response

from provisioner.power.bmc import boot_override
from provisioner.power.bmc.power_controller import BmcRefused, BmcUnreachable
from provisioner.power.bmc.redfish import RedfishPower
from tests.http_peer import HttpPeer
from tests.power.fake_quirky_bmc import (
    ROOT,
    SESSIONS,
    SETTINGS,
    SYSTEM,
    FakeQuirkyBmc,
    Quirk,
    answered,
    boot,
    refused,
)

URI = "http://10.80.0.1/snponly.efi"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot_override, "READ_BACK_SECONDS", (0.0, 0.0))


@contextmanager
def connected(bmc: FakeQuirkyBmc, **changes: Any) -> Iterator[RedfishPower]:
    power = RedfishPower(replace(bmc.access, **changes))
    try:
        yield power
    finally:
        power.close()


def legacy_unless_named(request: Request, body: dict[str, Any]) -> Response | None:
    if request.method == "PATCH":
        body["Boot"].setdefault("BootSourceOverrideMode", "Legacy")
    return None


def mode_refused(request: Request, body: dict[str, Any]) -> Response | None:
    if request.method == "PATCH" and "BootSourceOverrideMode" in body["Boot"]:
        return refused(400, "PropertyNotWritable", "BootSourceOverrideMode is read only")
    return None


def always_continuous(request: Request, body: dict[str, Any]) -> Response | None:
    if request.method == "PATCH":
        body["Boot"]["BootSourceOverrideEnabled"] = "Continuous"
    return None


def no_override(request: Request, body: dict[str, Any]) -> Response | None:
    if request.method == "PATCH":
        body["Boot"].clear()
    return None


def another_target(request: Request, body: dict[str, Any]) -> Response | None:
    if request.method == "PATCH":
        body["Boot"]["BootSourceOverrideTarget"] = "Hdd"
    return None


def always_legacy(request: Request, body: dict[str, Any]) -> Response | None:
    if request.method == "PATCH":
        body["Boot"]["BootSourceOverrideMode"] = "Legacy"
    return None


@pytest.mark.parametrize("shown", ["UEFI", "Legacy", None])
@pytest.mark.parametrize(
    "quirk", [lambda _request, _body: None, legacy_unless_named, mode_refused], ids=["honest", "falls back", "refuses"]
)
def test_a_server_stays_in_the_mode_that_it_is_in(httpserver: HttpPeer, quirk: Quirk, shown: str | None) -> None:
    bmc = FakeQuirkyBmc(httpserver, quirk)
    bmc.documents[SYSTEM]["Boot"] = boot(BootSourceOverrideMode=shown)
    with connected(bmc) as power:
        power.set_boot_override("Pxe")
    is_unnamed = shown is None and quirk is not legacy_unless_named
    assert bmc.boot.get("BootSourceOverrideMode") == (None if is_unnamed else shown or "UEFI")
    assert (bmc.boot["BootSourceOverrideEnabled"], bmc.boot["BootSourceOverrideTarget"]) == ("Once", "Pxe")


def test_http_boot_is_uefi_whatever_mode_the_bmc_shows(httpserver: HttpPeer) -> None:
    bmc = FakeQuirkyBmc(httpserver)
    bmc.documents[SYSTEM]["Boot"] = boot(BootSourceOverrideMode="Legacy")
    with connected(bmc) as power:
        power.set_boot_override("UefiHttp")
    assert bmc.boot["BootSourceOverrideMode"] == "UEFI"


def test_an_override_for_ever_in_place_of_one_boot_is_taken(httpserver: HttpPeer) -> None:
    with connected(FakeQuirkyBmc(httpserver, always_continuous)) as power:
        power.set_boot_override("Pxe")


@pytest.mark.parametrize("quirk", [no_override, another_target, always_legacy])
def test_an_override_that_is_another_when_it_is_read_back_is_no_success(httpserver: HttpPeer, quirk: Quirk) -> None:
    with connected(FakeQuirkyBmc(httpserver, quirk)) as power, pytest.raises(BmcRefused, match="bootMethod") as caught:
        power.set_boot_override("Pxe")
    assert caught.value.reason == "NotSupported"
    assert "accepted the boot override" in str(caught.value)


@pytest.mark.parametrize(
    ("present", "taken"),
    [({}, None), ({"HttpBootUri": ""}, URI), ({"HttpBootUri": "http://10.80.0.9/old.efi"}, URI)],
    ids=["no HttpBootUri", "an empty one", "another one"],
)
def test_a_uri_is_set_where_the_bmc_has_a_place_for_it_and_left_to_dhcp_elsewhere(
    httpserver: HttpPeer, present: dict[str, str], taken: str | None
) -> None:
    bmc = FakeQuirkyBmc(httpserver)
    bmc.boot.update(present)
    with connected(bmc) as power:
        assert power.set_boot_override("UefiHttp", URI) == taken
    assert bmc.boot.get("HttpBootUri") == taken
    assert bmc.boot["BootSourceOverrideTarget"] == "UefiHttp"


def test_a_method_that_the_bmc_does_not_offer_is_named_with_those_that_it_does(httpserver: HttpPeer) -> None:
    bmc = FakeQuirkyBmc(httpserver)
    bmc.boot["BootSourceOverrideTarget@Redfish.AllowableValues"] = ["None", "Pxe"]
    with connected(bmc) as power, pytest.raises(BmcRefused, match="does not offer to boot by UefiHttp") as caught:
        power.set_boot_override("UefiHttp")
    assert "Pxe" in str(caught.value)
    assert bmc.patched == []


def only_at_its_settings(request: Request, body: dict[str, Any]) -> Response | None:
    is_refused = request.method == "PATCH" and request.path == SYSTEM
    return refused(405, "OperationNotAllowed") if is_refused else None


@pytest.mark.parametrize("settings", [{"Boot": boot()}, {}], ids=["which show Boot", "which do not"])
@pytest.mark.parametrize("is_linked", [True, False], ids=["linked", "not linked"])
def test_a_bmc_that_takes_the_override_at_its_settings_alone_gets_it_there(
    httpserver: HttpPeer, settings: dict[str, Any], is_linked: bool
) -> None:
    bmc = FakeQuirkyBmc(httpserver, only_at_its_settings, settings=settings)
    if not is_linked:
        del bmc.documents[SYSTEM]["@Redfish.Settings"]
    with connected(bmc) as power:
        power.set_boot_override("Pxe")
    assert [path for path, _ in bmc.patched] == [SETTINGS]
    assert bmc.documents[SETTINGS]["Boot"]["BootSourceOverrideTarget"] == "Pxe"


def test_settings_that_are_linked_and_absent_are_no_obstacle(httpserver: HttpPeer) -> None:
    bmc = FakeQuirkyBmc(httpserver, settings={})
    del bmc.documents[SETTINGS]
    with connected(bmc) as power:
        power.set_boot_override("Pxe")
    assert [path for path, _ in bmc.patched] == [SYSTEM]


@pytest.mark.parametrize("etag", ['"17"', 'W/"17"', "17"])
@pytest.mark.parametrize("place", ["header", "body"])
@pytest.mark.parametrize("settings", [None, {"Boot": boot()}], ids=["of the system", "of its settings"])
def test_an_etag_counts_wherever_the_bmc_gives_it(
    httpserver: HttpPeer, etag: str, place: str, settings: dict[str, Any] | None
) -> None:
    def wants_etag(request: Request, body: dict[str, Any]) -> Response | None:
        if request.method == "PATCH" and request.headers.get("If-Match") != etag:
            return refused(428, "PreconditionRequired")
        if request.method != "GET" or not request.path.startswith(SYSTEM):
            return None
        document = bmc.documents[request.path]
        return answered(document, ETag=etag) if place == "header" else answered({**document, "@odata.etag": etag})

    bmc = FakeQuirkyBmc(httpserver, wants_etag, settings=settings)
    with connected(bmc) as power:
        power.set_boot_override("Pxe")
    assert len(bmc.patched) == 1


@pytest.mark.parametrize("etag", ["17\r\nX-Auth-Token: theirs", 17, "", "x" * 300])
def test_an_etag_that_is_none_is_left_out(httpserver: HttpPeer, etag: Any) -> None:
    bmc = FakeQuirkyBmc(httpserver)
    bmc.documents[SYSTEM]["@odata.etag"] = etag
    with connected(bmc) as power:
        power.set_boot_override("Pxe")
    assert len(bmc.patched) == 1
    assert [request.path for request, _ in httpserver.log if "If-Match" in request.headers] == []


@pytest.mark.parametrize(
    ("status", "message_id", "message", "reason", "remedy"),
    [
        (403, "PasswordChangeRequired", "change it", "PasswordChangeRequired", "then write the new one to Secret"),
        (401, "PasswordChangeRequired", "change it", "PasswordChangeRequired", "AccountService"),
        (403, "InsufficientPrivilege", "no", "PrivilegeRefused", "Operator or Administrator"),
        (401, "GeneralError", "The account is locked out", "AccountLocked", "unlock"),
        (401, "NoValidSession", "no", "CredentialsRefused", "correct username and password"),
    ],
)
def test_refusals_are_told_apart(
    httpserver: HttpPeer, status: int, message_id: str, message: str, reason: str, remedy: str
) -> None:
    def refuses(request: Request, body: dict[str, Any]) -> Response | None:
        is_open = request.path.rstrip("/") == ROOT or request.method != "GET"
        return None if is_open else refused(status, message_id, message)

    with connected(FakeQuirkyBmc(httpserver, refuses)) as power, pytest.raises(BmcRefused, match=remedy) as caught:
        power.get_power_state()
    assert caught.value.reason == reason


@pytest.mark.parametrize("lacks", [("Actions",), ("Actions", "PowerState")])
def test_a_system_that_is_no_computer_needs_another_system_id(httpserver: HttpPeer, lacks: tuple[str, ...]) -> None:
    bmc = FakeQuirkyBmc(httpserver)
    for name in lacks:
        del bmc.documents[SYSTEM][name]
    with connected(bmc) as power, pytest.raises(BmcRefused, match=r"set spec\.bmc\.systemID") as caught:
        power.power_on() if len(lacks) == 1 else power.get_power_state()
    assert caught.value.reason == "SystemNotFound"


def test_a_bmc_that_does_not_know_its_power_yet_is_asked_again(httpserver: HttpPeer) -> None:
    bmc = FakeQuirkyBmc(httpserver)
    bmc.documents[SYSTEM]["PowerState"] = None
    with connected(bmc) as power, pytest.raises(BmcUnreachable):
        power.get_power_state()


def to_a_last_slash(status: int) -> Quirk:
    def redirects(request: Request, body: dict[str, Any]) -> Response | None:
        is_moved = request.method != "DELETE" and not request.path.endswith("/")
        return Response(status=status, headers={"Location": f"{request.path}/"}) if is_moved else None

    return redirects


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_bmc_that_wants_a_last_slash_gets_every_request_there(httpserver: HttpPeer, status: int) -> None:
    bmc = FakeQuirkyBmc(httpserver, to_a_last_slash(status))
    with connected(bmc) as power:
        assert power.get_power_state() == "Off"
        power.set_boot_override("Pxe")
        power.power_on()
    assert (len(bmc.patched), len(bmc.posted)) == (1, 1)


def test_an_action_is_sent_to_where_it_has_moved_and_a_password_is_not(httpserver: HttpPeer) -> None:
    def moved(request: Request, body: dict[str, Any]) -> Response | None:
        is_moved = request.path.endswith("ComputerSystem.Reset")
        return Response(status=307, headers={"Location": f"{SYSTEM}/Actions/Reset"}) if is_moved else None

    bmc = FakeQuirkyBmc(httpserver, moved)
    with connected(bmc) as power:
        power.power_on()
    assert bmc.posted == [f"{SYSTEM}/Actions/Reset"]
    assert [request.path for request, _ in httpserver.log if b"secret" in request.get_data()] == [SESSIONS]
