"""What the boot service answers, and what it does not let through."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from provisioner.api.machinery.errors import Refused
from provisioner.api.servers.discovery import MAX_WAITING_IN_SUBNET, Claims
from provisioner.api.servers.dpu import DPU
from provisioner.api.servers.server import BootOrder, Interface, ServerStatus
from provisioner.boot.host.peer import RealPeer
from provisioner.boot.host.web import OF_A_CLIENT, OF_ALL, boot_blueprint
from provisioner.boot.observe.progress import ProgressReport
from provisioner.boot.observe.server_index import ServerIndex
from tests.boot.fake_source import FakeSource
from tests.boot.objects import at, server

MAC, BOOT = "52:54:00:12:34:56", "11111111-1111-4111-8111-111111111111"
REPORT = {"mac": MAC, "stage": "Stage1", "bootID": BOOT}


@dataclass
class World:
    """The routes over fakes; `clock` is what the rate limit goes by."""

    ready: bool = True
    clock: float = 0.0
    trouble: str | None = None
    full: bool = False
    reports: list[ProgressReport] = field(default_factory=list)
    offered: list[Claims] = field(default_factory=list)
    servers: FakeSource = field(default_factory=FakeSource)

    def observe(self, report: ProgressReport) -> bool:
        self.reports.append(report)
        return True

    def offer(self, claims: Claims) -> str:
        if self.full:
            raise Refused(
                f"unknown machine not recorded: {MAX_WAITING_IN_SUBNET} wait already", hint="accept or delete some"
            )
        self.offered.append(claims)
        return "unknown-525400123456"

    def client(self) -> FlaskClient:
        index = ServerIndex(self.servers)
        index.attach()
        application = Flask("test")
        application.register_blueprint(
            boot_blueprint(
                index=index, recorder=self, discoverer=self, ready=lambda: self.ready, monotonic=lambda: self.clock,  # type: ignore[arg-type]
            )
        )  # fmt: skip
        return application.test_client()

    def ask(self, **said: str) -> str:
        response = self.client().get("/v1/unknown", query_string={"mac": "52-54-00-12-34-56", **said})
        assert response.status_code == 200
        assert response.text.startswith("#!ipxe\n")
        assert response.headers["Cache-Control"] == "no-store"
        return response.text


def test_a_report_is_taken_as_json_and_as_a_form() -> None:
    world = World()
    assert world.client().post("/v1/progress", json={**REPORT, "message": "hello"}).status_code == 204
    assert world.client().post("/v1/progress", data=REPORT).status_code == 204
    assert [(r.mac, r.stage, r.boot_id, r.message) for r in world.reports] == [
        (MAC, "Stage1", BOOT, "hello"),
        (MAC, "Stage1", BOOT, None),
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"mac": "no"}, {"mac": "ff:ff:ff:ff:ff:ff"}, {"mac": None}, {"mac": 7}, {"mac": ["a"]}, {"stage": "Ready"},
        {"stage": "Kubelet"}, {"stage": "Ordered"}, {"stage": "IPXE"}, {"stage": None}, {"bootID": "x"},
        {"bootID": None}, {"bootID": BOOT + "\n{}"}, {"message": 7}, {"message": "x" * 3000}, {"extra": "x"},
    ],
)  # fmt: skip
def test_a_report_that_is_not_exactly_one_is_refused(changed: dict[str, Any]) -> None:
    world = World()
    assert world.client().post("/v1/progress", json={**REPORT, **changed}).status_code == 400
    assert world.reports == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 2000])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    world = World()
    response = world.client().post("/v1/progress", data=body, content_type="application/json")
    assert response.status_code == 400
    assert world.client().post("/v1/progress", data=body, content_type="text/xml").status_code == 400


def test_a_large_body_is_not_read() -> None:
    response = World().client().post("/v1/progress", json={**REPORT, "message": "x" * 100_000})
    assert response.status_code == 413


def test_one_source_may_not_report_without_end_and_others_still_may() -> None:
    world = World()
    client = world.client()
    answers = [client.post("/v1/progress", json=REPORT).status_code for _ in range(int(OF_A_CLIENT.burst) + 5)]
    assert answers == [204] * int(OF_A_CLIENT.burst) + [429] * 5
    other = client.post("/v1/progress", json=REPORT, environ_base={"REMOTE_ADDR": "10.80.0.99"})
    assert other.status_code == 204
    world.clock += 10
    assert client.post("/v1/progress", json=REPORT).status_code == 204


CARD = "10.80.0.31"


def behind_a_card(world: World, **changes: Any) -> None:
    """The server boots through the card in it."""
    card = {"acceptance": "Accepted", "dpu": DPU(host_ref="r01-u01", host_boot="Proxied"), **changes}
    world.servers.put(server())
    world.servers.put(
        server("r01-u01-dpu", boot_mac_address="52:54:00:dd:dd:01", status=ServerStatus(address=CARD), **card)
    )


def test_what_a_dpu_passes_on_is_a_report_of_its_own_host() -> None:
    world = World()
    behind_a_card(world)
    client = world.client()
    ask = {"json": REPORT, "environ_base": {"REMOTE_ADDR": CARD}}
    assert client.post("/by-dpu/v1/progress", **ask).status_code == 204
    assert [report.mac for report in world.reports] == [MAC]


@pytest.mark.parametrize(
    ("why", "changes", "source", "mac"),
    [
        ("another server's DPU passes it on", {}, "10.80.0.32", MAC),
        ("the host reports another server's progress", {}, CARD, "52:54:00:99:99:99"),
        ("the host reports its DPU's progress", {}, CARD, "52:54:00:dd:dd:01"),
        ("nobody has accepted the card", {"acceptance": "Pending"}, CARD, MAC),
        ("the card is in another server", {"dpu": DPU(host_ref="r01-u02", host_boot="Proxied")}, CARD, MAC),
        ("the host boots past the card", {"dpu": DPU(host_ref="r01-u01")}, CARD, MAC),
    ],
)
def test_what_a_dpu_passes_on_of_another_machine_is_refused(
    why: str, changes: dict[str, Any], source: str, mac: str
) -> None:
    world = World()
    behind_a_card(world, **changes)
    ask = {"json": {**REPORT, "mac": mac}, "environ_base": {"REMOTE_ADDR": source}}
    assert world.client().post("/by-dpu/v1/progress", **ask).status_code == 403, why
    assert world.reports == []


def test_a_host_that_reports_without_end_leaves_its_dpus_own_reports_alone() -> None:
    world = World()
    behind_a_card(world)
    client = world.client()
    ask = {"json": REPORT, "environ_base": {"REMOTE_ADDR": CARD}}
    answers = [client.post("/by-dpu/v1/progress", **ask).status_code for _ in range(int(OF_A_CLIENT.burst) + 1)]
    assert answers[-1] == 429
    assert client.post("/v1/progress", **ask).status_code == 204


def test_the_answer_does_not_tell_whether_a_server_exists() -> None:
    world = World()
    known = world.client().post("/v1/progress", json=REPORT)
    unknown = world.client().post("/v1/progress", json={**REPORT, "mac": "52:54:00:99:99:99"})
    assert (known.status_code, known.data) == (unknown.status_code, unknown.data) == (204, b"")


def test_ipxe_says_that_it_runs() -> None:
    world = World()
    assert world.client().get("/v1/ipxe?mac=52-54-00-12-34-56").status_code == 200
    assert world.client().get("/v1/ipxe?mac=nonsense").status_code == 400
    assert [(report.mac, report.stage) for report in world.reports] == [(MAC, "IPXE")]


def test_an_unknown_machine_is_told_to_wait_not_to_wipe() -> None:
    world = World()
    script = world.ask(uuid="4c4c4544-0000-1000-8000-000000000001", serial="S1", buildarch="arm64")
    assert "kubectl provision accept unknown-525400123456" in script
    assert "sleep 15" in script
    (claims,) = world.offered
    assert (claims.mac, claims.serial_number, claims.architecture) == (MAC, "S1", "arm64")
    assert claims.source_address == "127.0.0.1"


def test_an_unknown_machine_learns_that_it_could_not_be_recorded() -> None:
    world = World(trouble="GET: connection refused")
    assert "connection refused" in world.ask()


def test_when_too_many_wait_the_machine_is_told_so() -> None:
    world = World(full=True)
    script = world.ask()
    assert f"{MAX_WAITING_IN_SUBNET} wait already" in script
    assert "sleep 60" in script


def test_one_source_may_not_ask_without_end_and_is_told_to_wait() -> None:
    world = World()
    client = world.client()

    def ask(source: str) -> str:
        answer = client.get("/v1/unknown?mac=52-54-00-12-34-56", environ_base={"REMOTE_ADDR": source})
        assert answer.status_code == 200, "firmware would give up on an error"
        return answer.text

    answers = [ask("10.80.0.200") for _ in range(int(OF_A_CLIENT.burst) + 5)]
    assert len(world.offered) == int(OF_A_CLIENT.burst)
    assert all("TooOften" in text and "sleep 30" in text for text in answers[-5:])
    assert all(text.startswith("#!ipxe\n") for text in answers)
    assert "kubectl provision accept" in ask("10.80.0.201"), "another machine is another source"
    world.clock += 10
    assert "kubectl provision accept" in ask("10.80.0.200")


def test_reports_of_a_source_do_not_use_up_its_scripts() -> None:
    world = World()
    client = world.client()
    for _ in range(int(OF_A_CLIENT.burst) + 5):
        client.post("/v1/progress", json=REPORT)
    assert "kubectl provision accept" in client.get("/v1/unknown?mac=52-54-00-12-34-56").text


def test_a_flood_from_many_addresses_keeps_no_registered_server_from_reporting_or_from_its_script() -> None:
    """Each address asks but twice; together they are too many, and the server waits for none of them."""
    world = World()
    order = BootOrder(id="o1", reason="FirstBoot", ordered_time=at(0), attempt=1)
    world.servers.put(server(status=ServerStatus(address="10.80.0.21", subnet_name="boot", order=order)))
    client = world.client()

    def ask(path: str, source: str) -> str:
        return client.get(f"{path}?mac=52-54-00-12-34-56", environ_base={"REMOTE_ADDR": source}).text

    flood = [f"10.9.{number // 250}.{number % 250}" for number in range(int(OF_ALL.others.burst) + 50)]
    answers = {path: [ask(path, source) for source in flood] for path in ("/v1/ipxe", "/v1/unknown")}
    assert answers["/v1/ipxe"][-50:] == ["too many reports\n"] * 50
    assert all("TooMany" in text and "sleep 30" in text for text in answers["/v1/unknown"][-50:])
    assert ask("/v1/ipxe", "10.80.0.21") == "seen\n"
    assert "TooMany" not in ask("/v1/unknown", "10.80.0.21")


def test_before_the_inventory_is_known_nobody_is_unknown() -> None:
    world = World(ready=False)
    assert "Starting" in world.ask()
    assert world.offered == []
    assert world.client().get("/readyz").status_code == 503
    assert world.client().get("/healthz").status_code == 200


def test_a_known_server_without_a_file_comes_again_soon() -> None:
    world = World(servers=FakeSource(server()))
    assert "sleep 2" in world.ask()
    assert world.offered == []


def test_another_interface_of_a_known_server_is_not_a_new_machine() -> None:
    world = World(
        servers=FakeSource(
            server(boot_mac_address="52:54:00:00:00:01", interfaces=(Interface(name="b", mac_address=MAC),))
        )
    )
    script = world.ask()
    assert "boots from 52:54:00:00:00:01" in script
    assert "sleep 1" in script
    assert world.offered == []


@pytest.mark.parametrize("mac", ["", "x", "ff-ff-ff-ff-ff-ff", "52-54-00-12-34-56;shell", "${net0/mac}"])
def test_a_machine_that_names_no_interface_gets_a_script_all_the_same(mac: str) -> None:
    world = World()
    script = world.ask(mac=mac) if mac else world.client().get("/v1/unknown").text
    assert "NoMACAddress" in script
    assert "${net0" not in script
    assert world.offered == []


def peer_of(environ: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What the application sees of a request, and its status."""
    seen: dict[str, Any] = {}

    def application(inner: dict[str, Any], start_response: Any) -> list[bytes]:
        seen.update(inner)
        start_response("200 OK", [])
        return []

    status: list[str] = []
    list(RealPeer(application)({"wsgi.url_scheme": "http", **environ}, lambda line, headers: status.append(line)))
    return status[0], seen


def test_nginx_on_the_unix_socket_is_believed() -> None:
    _, seen = peer_of({"REMOTE_ADDR": "localhost", "HTTP_X_REAL_IP": "10.80.0.21", "HTTP_X_FORWARDED_PROTO": "https"})
    assert (seen["REMOTE_ADDR"], seen["wsgi.url_scheme"]) == ("10.80.0.21", "https")


def test_a_peer_with_an_address_is_believed_nothing_else() -> None:
    claims = {"HTTP_X_REAL_IP": "6.6.6.6", "HTTP_X_FORWARDED_FOR": "6.6.6.6", "HTTP_FORWARDED": "for=6.6.6.6"}
    _, seen = peer_of({"REMOTE_ADDR": "10.80.0.30", "HTTP_X_FORWARDED_PROTO": "https", **claims})
    assert (seen["REMOTE_ADDR"], seen["wsgi.url_scheme"]) == ("10.80.0.30", "http")
    assert "6.6.6.6" not in json.dumps(seen)


@pytest.mark.parametrize(
    "claim", [{}, {"HTTP_X_REAL_IP": ""}, {"HTTP_X_REAL_IP": "me"}, {"HTTP_X_FORWARDED_FOR": "10.80.0.21"}]
)
def test_a_unix_socket_without_an_address_is_refused(claim: dict[str, str]) -> None:
    status, seen = peer_of({"REMOTE_ADDR": "localhost", **claim})
    assert status.startswith("400")
    assert seen == {}
