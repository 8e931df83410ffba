"""The emulated BMC, over HTTPS, as any Redfish client sees it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from lab.machine.machine import NETWORK_BOOT, BootPlan
from tests.lab.fake_machine import PASSWORD, USERNAME, FakeServer, fake_server

SYSTEM = "/redfish/v1/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
PINNED = "http://10.80.0.1/snponly.efi"


class Client:
    """A requests session that trusts the BMC's certificate and nothing else."""

    def __init__(self, server: FakeServer) -> None:
        self.url = server.url
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.verify = str(server.directory / "bmc.pem")
        self.session.auth = (USERNAME, PASSWORD)

    def call(self, method: str, path: str, **arguments: Any) -> requests.Response:
        return self.session.request(method, self.url + path, timeout=180, **arguments)

    def get(self, path: str) -> dict[str, Any]:
        answer = self.call("GET", path)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def patch_boot(self, **boot: Any) -> None:
        answer = self.call("PATCH", SYSTEM, json={"Boot": boot})
        assert answer.status_code == 204, answer.text

    def reset(self, type_: str) -> int:
        return self.call("POST", RESET, json={"ResetType": type_}).status_code


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    with fake_server(tmp_path) as made:
        yield made


@pytest.fixture
def client(server: FakeServer) -> Client:
    return Client(server)


def test_every_link_leads_to_a_document_that_names_itself(client: Client) -> None:
    seen: set[str] = set()
    pending = ["/redfish/v1"]
    while pending:
        path = pending.pop().rstrip("/")
        if path in seen:
            continue
        seen.add(path)
        document = client.get(path)
        assert document["@odata.id"] == path
        pending += [link for link in _links(document) if link.rstrip("/") not in seen]
    assert {SYSTEM, "/redfish/v1/Managers/1", "/redfish/v1/Chassis/1", f"{SYSTEM}/EthernetInterfaces/NIC1"} <= seen


def _links(value: Any) -> list[str]:
    if isinstance(value, dict):
        found = [value["@odata.id"]] if "@odata.id" in value else []
        return found + [link for item in value.values() for link in _links(item)]
    if isinstance(value, list):
        return [link for item in value for link in _links(item)]
    return []


def test_only_the_service_root_is_public(server: FakeServer, client: Client) -> None:
    client.session.auth = None
    assert client.call("GET", "/redfish/v1/").status_code == 200
    for path in (SYSTEM, "/redfish/v1/Systems", "/redfish/v1/SessionService/Sessions"):
        refused = client.call("GET", path)
        assert refused.status_code == 401
        assert refused.json()["error"]["@Message.ExtendedInfo"][0]["MessageId"].endswith("NoValidSession")
    assert client.reset("On") == 401
    client.session.auth = (USERNAME, "wrong")
    assert client.reset("On") == 401
    assert server.machine.boots == []


def test_a_session_works_until_it_is_deleted(client: Client) -> None:
    client.session.auth = None
    sessions = "/redfish/v1/SessionService/Sessions"
    assert client.call("POST", sessions, json={"UserName": USERNAME, "Password": "wrong"}).status_code == 401
    opened = client.call("POST", sessions, json={"UserName": USERNAME, "Password": PASSWORD})
    assert opened.status_code == 201
    token = {"X-Auth-Token": opened.headers["X-Auth-Token"]}
    assert client.call("GET", SYSTEM, headers=token).status_code == 200
    assert client.call("DELETE", opened.headers["Location"], headers=token).status_code == 204
    assert client.call("GET", SYSTEM, headers=token).status_code == 401


def test_power_follows_the_actions_and_misplaced_ones_are_refused(server: FakeServer, client: Client) -> None:
    assert client.get(SYSTEM)["PowerState"] == "Off"
    for impossible in ("GracefulShutdown", "ForceRestart", "PowerCycle"):
        assert client.reset(impossible) == 409
    assert client.reset("On") == 204
    assert client.get(SYSTEM)["PowerState"] == "On"
    assert client.reset("On") == 204
    assert len(server.machine.boots) == 1
    assert client.reset("ForceRestart") == 204
    assert client.reset("PowerCycle") == 204
    assert len(server.machine.boots) == 3
    assert client.reset("GracefulShutdown") == 204
    assert client.get(SYSTEM)["PowerState"] == "Off"
    assert client.reset("ForceOff") == 204
    assert client.reset("Nmi") == 400


def test_once_is_spent_by_one_boot(server: FakeServer, client: Client) -> None:
    client.patch_boot(BootSourceOverrideEnabled="Once", BootSourceOverrideTarget="UefiHttp", HttpBootUri=PINNED)
    client.reset("On")
    assert client.get(SYSTEM)["Boot"]["BootSourceOverrideEnabled"] == "Disabled"
    client.reset("ForceRestart")
    assert server.machine.boots == [BootPlan(source="UefiHttp", http_boot_uri=PINNED), NETWORK_BOOT]


def test_continuous_stays_also_when_the_bmc_is_replaced_by_a_new_process(server: FakeServer, client: Client) -> None:
    client.patch_boot(BootSourceOverrideEnabled="Continuous", BootSourceOverrideTarget="UefiHttp", HttpBootUri=PINNED)
    client.reset("On")
    client.reset("ForceRestart")
    reborn = FakeServer(server.directory)
    reborn.power.reset("On")
    plan = BootPlan(source="UefiHttp", http_boot_uri=PINNED)
    assert server.machine.boots + reborn.machine.boots == [plan] * 3


def test_a_system_that_reboots_itself_obeys_the_override_too(server: FakeServer, client: Client) -> None:
    client.reset("On")
    client.patch_boot(BootSourceOverrideEnabled="Once", BootSourceOverrideTarget="Hdd")
    server.power.guest_reset()
    server.power.guest_reset()
    assert [plan.source for plan in server.machine.boots] == ["Pxe", "Hdd", "Pxe"]
    server.power.guest_reset()
    assert len(server.machine.boots) == 3, "QEMU went on by itself: the plan had not changed"


def test_a_stale_etag_is_refused_and_the_current_one_accepted(client: Client) -> None:
    before = client.call("GET", SYSTEM).headers["ETag"]
    boot = {"Boot": {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}}
    assert client.call("PATCH", SYSTEM, json=boot, headers={"If-Match": before}).status_code == 204
    stale = client.call("PATCH", SYSTEM, json=boot, headers={"If-Match": before})
    assert stale.status_code == 412
    assert stale.json()["error"]["code"].endswith("PreconditionFailed")
    now = client.call("GET", SYSTEM).headers["ETag"]
    assert client.call("PATCH", SYSTEM, json=boot, headers={"If-Match": f"W/{now}"}).status_code == 204


@pytest.mark.parametrize(
    ("boot", "message"),
    [
        ({"BootSourceOverrideTarget": "Floppy"}, "PropertyValueNotInList"),
        ({"BootSourceOverrideEnabled": "Twice"}, "PropertyValueNotInList"),
        ({"BootSourceOverrideMode": "Legacy"}, "PropertyValueNotInList"),
        ({"HttpBootUri": "file:///etc/passwd"}, "PropertyValueFormatError"),
        ({"BootOrder": []}, "PropertyUnknown"),
    ],
)
def test_a_bad_override_is_refused_whole(client: Client, boot: dict[str, Any], message: str) -> None:
    before = client.get(SYSTEM)["Boot"]
    refused = client.call("PATCH", SYSTEM, json={"Boot": {"BootSourceOverrideEnabled": "Once"} | boot})
    assert refused.status_code == 400
    information = refused.json()["error"]["@Message.ExtendedInfo"][0]
    assert information["MessageId"].endswith(message)
    assert information["RelatedProperties"] == [f"#/Boot/{next(iter(boot))}"]
    assert client.get(SYSTEM)["Boot"] == before


def test_a_bios_machine_offers_no_uefi_http_boot(tmp_path: Path) -> None:
    with fake_server(tmp_path, "BIOS") as server:
        client = Client(server)
        boot = client.get(SYSTEM)["Boot"]
        assert boot["BootSourceOverrideTarget@Redfish.AllowableValues"] == ["None", "Pxe", "Hdd"]
        assert "HttpBootUri" not in boot
        assert client.call("PATCH", SYSTEM, json={"Boot": {"BootSourceOverrideTarget": "UefiHttp"}}).status_code == 400


def test_nonsense_gets_redfish_errors(client: Client) -> None:
    assert client.call("GET", "/redfish/v1/Nothing").status_code == 404
    assert client.call("POST", RESET, data="{").json()["error"]["code"].endswith("MalformedJSON")
    assert client.call("PATCH", SYSTEM, json={"AssetTag": "x"}).status_code == 400
    assert client.call("PATCH", "/redfish/v1/Managers/1", json={}).status_code == 404


def test_faults_come_and_go(server: FakeServer, client: Client) -> None:
    server.endpoint.faults.unavailable = True
    busy = client.call("GET", SYSTEM)
    assert (busy.status_code, busy.headers["Retry-After"]) == (503, "2")
    server.endpoint.faults.unavailable = False
    server.endpoint.faults.resets_unavailable = True
    asked = [client.call("GET", SYSTEM), client.call("POST", RESET, json={"ResetType": "On"})]
    assert [answer.status_code for answer in asked] == [200, 503]
    server.endpoint.faults.delay_seconds = 3600
    with pytest.raises(requests.exceptions.ReadTimeout):
        client.session.get(client.url + SYSTEM, timeout=0.5)
    server.endpoint.faults.delay_seconds = 0
    assert client.get(SYSTEM)["PowerState"] == "Off"


def test_a_client_that_says_nothing_does_not_hold_up_the_others(server: FakeServer, client: Client) -> None:
    with socket.create_connection(("127.0.0.1", server.port)):
        assert client.get(SYSTEM)["PowerState"] == "Off"
