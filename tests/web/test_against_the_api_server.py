"""`provisioner web` as it is shipped: its own account, a real API server, people with tokens, a real browser."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import pytest
import urllib3
from playwright.sync_api import Page, expect

from lab.control_plane.plane import ControlPlane
from lab.control_plane.ports import free_port
from provisioner.api import VPC, NodePool, Rack, Server
from provisioner.api.machinery.meta import rfc3339
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import ResourceType, of
from provisioner.web.access.guard import COOKIE
from tests.api import objects
from tests.people import bind, kubeconfig_of, of_account, until
from tests.web.browser import PATIENCE_MS
from tests.web.made_up_fleet import NOON

ACCOUNTS = ResourceType("", "v1", "ServiceAccount", "serviceaccounts", namespaced=True)
READY_SECONDS = 120


@dataclass
class Running:
    """The command, as a process of its own."""

    arguments: tuple[str, ...]
    port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "provisioner.cli", "--log-json", "web", *self.arguments],
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        )
        deadline = time.monotonic() + READY_SECONDS
        while self.get("/readyz").status != HTTPStatus.OK:
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0

    def get(self, path: str, **headers: str) -> Answer:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            answer = urllib3.request("GET", self.url + path, headers=named, timeout=30, retries=False, redirect=False)
        except urllib3.exceptions.HTTPError:
            return Answer(0, "")
        return Answer(answer.status, answer.data.decode())


@dataclass(frozen=True)
class Answer:
    status: int
    text: str


@pytest.fixture(scope="module")
def command(
    control_plane: ControlPlane, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    folder, port = tmp_path_factory.mktemp("web"), free_port("127.0.0.1")
    config = kubeconfig_of(control_plane, folder, of_account("web"))
    found = Running(("--kubeconfig", str(config), "--listen", f"127.0.0.1:{port}"), port)
    found.start()
    yield found
    found.stop()


def token_of(cluster: Cluster, name: str, *audiences: str) -> str:
    """Of an account of that name, made anew."""
    with suppress(Exception):
        cluster.create(
            ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
        )
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": list(audiences), "expirationSeconds": 600},
    }
    path = f"{ACCOUNTS.item(name, 'default')}/token"
    answer = cluster._transport.request("POST", path, what="TOKEN", timeout_seconds=30, body=body)
    return str(answer["status"]["token"])


def user_of(name: str) -> str:
    return f"system:serviceaccount:default:{name}"


@pytest.fixture(scope="module")
def viewer(cluster: Cluster) -> str:
    """A token of somebody who has the role that the product ships for looking."""
    token = token_of(cluster, "web-viewer")
    bind(cluster, "provisioner-viewer", user_of("web-viewer"))
    return token


@pytest.fixture
def servers(cluster: Cluster, unique: str) -> Iterator[str]:
    """A rack with one server, in a pool; all of that name."""
    cluster.create(of(Rack), objects.rack(unique))
    cluster.create(of(NodePool), objects.node_pool(unique))
    mac = "52:54:" + ":".join(unique[n : n + 2] for n in (1, 3, 5, 7))
    spec = {
        "rackRef": unique,
        "nodePoolRef": unique,
        "acceptance": "Accepted",
        "position": "u03",
        "bootMACAddress": mac,
    }
    cluster.create(of(Server), objects.server(unique, **spec))
    yield unique
    for kind in (Server, NodePool, Rack):
        cluster.delete(of(kind), unique)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_nobody_sees_the_fleet_without_a_token(command: Running, servers: str) -> None:
    for path in ("/", f"/servers/{servers}", f"/racks/{servers}", "/pools", "/maintenances", "/events"):
        for headers in (
            {},
            bearer("x" * 40),
            bearer(""),
            {"Authorization": "Basic YWRhOnNlY3JldA=="},
            {"Cookie": f"{COOKIE}=abcdefghijk"},
        ):
            answer = command.get(path, **headers)
            assert answer.status == HTTPStatus.UNAUTHORIZED, (path, headers)
            assert servers not in answer.text
    assert command.get("/healthz").text == "alive\n"


def test_who_may_look_sees_it_and_who_may_not_is_told_what_is_missing(
    command: Running, cluster: Cluster, viewer: str, servers: str
) -> None:
    until(lambda: servers in command.get("/", **bearer(viewer)).text)
    stranger = token_of(cluster, "web-stranger")
    answer = command.get("/", **bearer(stranger))
    assert answer.status == HTTPStatus.FORBIDDEN
    assert f"{user_of('web-stranger')} may not list servers, racks" in answer.text
    assert "--clusterrole=provisioner-viewer" in answer.text
    assert servers not in answer.text


def test_a_tenant_who_views_its_own_namespace_sees_nothing(command: Running, cluster: Cluster, servers: str) -> None:
    token = token_of(cluster, "web-tenant")
    rbac = "rbac.authorization.k8s.io"
    cluster.apply(
        {
            "apiVersion": f"{rbac}/v1", "kind": "RoleBinding",
            "metadata": {"name": "web-tenant", "namespace": "default"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "web-tenant", "namespace": "default"}],
        },
        manager="tests",
    )  # fmt: skip
    tenant = cluster.acting_as(user_of("web-tenant"))
    until(lambda: may_list(tenant, VPC))
    assert command.get("/", **bearer(token)).status == HTTPStatus.FORBIDDEN


def may_list(somebody: Cluster, kind: type[VPC]) -> bool:
    with suppress(Exception):
        somebody.list(of(kind), namespace="default")
        return True
    return False


def test_a_token_for_somebody_else_is_none_for_us(command: Running, cluster: Cluster, viewer: str) -> None:
    assert (
        command.get("/", **bearer(token_of(cluster, "web-viewer", "vault.example.com"))).status
        == HTTPStatus.UNAUTHORIZED
    )


def test_a_person_logs_in_looks_on_and_logs_out(
    command: Running, cluster: Cluster, viewer: str, servers: str, page: Page
) -> None:
    expect.set_options(timeout=PATIENCE_MS)
    # 503: the page asks again while a service that was started anew does not know the fleet yet.
    page.quiet.expects = ("net::ERR", "403 (FORBIDDEN)", "503 (SERVICE UNAVAILABLE)")  # type: ignore[attr-defined]
    page.goto(f"{command.url}/servers/{servers}")
    expect(page).to_have_title("Log in · provisioner")
    page.get_by_label("A token that the cluster knows").fill("this is none")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("no bearer token")
    page.get_by_label("A token that the cluster knows").fill(viewer)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=servers, level=1)).to_be_visible()
    expect(page.get_by_role("status")).to_have_text("Live")
    assert page.evaluate("() => document.cookie") == "", "no script reads the token"
    message = f"no boot was ordered: {servers} <b>waits</b>"
    ready = {
        "type": "Ready",
        "status": "False",
        "reason": "ImageUnavailable",
        "message": message,
        "lastTransitionTime": rfc3339(NOON),
    }
    cluster.apply_status(Server, servers, {"conditions": [ready], "lifecycle": "Accepted"}, manager="provisioner-tests")
    expect(page.get_by_role("table", name="Conditions")).to_contain_text(message)
    command.stop()
    expect(page.get_by_role("status")).to_have_text("Not connected: what you see may be old")
    command.start()
    expect(page.get_by_role("status")).to_have_text("Live")
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_title("Log in · provisioner")
    page.goto(f"{command.url}/")
    expect(page).to_have_title("Log in · provisioner")


def test_without_authentication_it_listens_on_loopback_alone() -> None:
    from click.testing import CliRunner

    from provisioner.cli.service.web import web

    answer = CliRunner().invoke(
        web, ["--authentication", "none", "--listen", "0.0.0.0:8080", "--kubeconfig", "/nowhere"]
    )
    assert answer.exit_code == 2
    assert "shows the fleet to everybody who reaches 0.0.0.0" in answer.output
    for wrong in ("8080", "localhost:8080", "127.0.0.1:x", "127.0.0.1:70000"):
        assert CliRunner().invoke(web, ["--listen", wrong]).exit_code == 2


def test_the_command_needs_no_file_of_this_checkout() -> None:
    web = Path(sys.modules["provisioner.web"].__file__ or "").parent
    assert {path.suffix for path in web.rglob("*") if path.is_file() and "__pycache__" not in str(path)} == {
        ".py",
        ".html",
        ".css",
        ".js",
        ".svg",
    }
