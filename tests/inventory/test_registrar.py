"""Registration at length, against a real API server: what it costs, what it survives."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provisioner.api import Rack, Server
from provisioner.api.machinery.errors import Refused, Retryable
from provisioner.cluster.client import Cluster, ListResult
from provisioner.cluster.resources import of
from provisioner.inventory.lists.packing_list import read_packing_list
from provisioner.inventory.registrar import RegistrationOutcome, carry_out, plan_registration

if TYPE_CHECKING:
    from lab.control_plane.plane import ControlPlane

SERVERS = 50
Request = tuple[str, str, dict[str, Any]]


class WatchedCluster(Cluster):
    """The real API server; notes each request, and lets `interfere` answer in its place by raising."""

    requests: list[Request]
    interfere: Callable[[Request], None]

    def _request(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        request = (method, path, arguments.get("query") or {})
        self.requests.append(request)
        self.interfere(request)
        return super()._request(method, path, **arguments)

    def writes(self) -> list[str]:
        """Paths that were written, rehearsals left out."""
        return [path for method, path, query in self.requests if method != "GET" and not query.get("dryRun")]


@pytest.fixture
def watched(control_plane: ControlPlane, unique: str) -> Iterator[WatchedCluster]:
    cluster = WatchedCluster.connect(control_plane.kubeconfig, user_agent="provisioner-tests")
    cluster.requests, cluster.interfere = [], lambda _: None
    yield cluster
    cluster.interfere = lambda _: None
    for kind in (Server, Rack):
        for body in cluster.list(of(kind)).items:
            if body["metadata"]["name"].startswith(unique):
                cluster.delete(of(kind), body["metadata"]["name"])


@pytest.fixture
def text(unique: str) -> str:
    """A rack of 50 servers, with fields of every kind that is owned in its own way: lists, mappings, keyed items."""
    digits = uuid.uuid4().hex[:6]
    mac = ":".join(["52", *(digits[i : i + 2] for i in (0, 2, 4))])
    servers = "".join(
        f'- {{name: {unique}-u{n:02d}, bootMACAddress: "{mac}:00:{n:02x}", bmc: {{address: "https://{digits}-{n}"}},\n'
        f'   interfaces: [{{name: nic2, macAddress: "{mac}:01:{n:02x}"}},\n'
        f'   {{name: nic3, macAddress: "{mac}:02:{n:02x}"}}]}}\n'
        for n in range(SERVERS)
    )
    return (
        f"rack:\n  name: {unique}\n  site: dc1\n  subnets:\n"
        "  - {name: boot, cidr: 10.80.0.0/24, gateway: 10.80.0.253, dnsServers: [10.80.0.252, 10.80.0.251]}\n"
        "  - {name: data, cidr: 10.81.0.0/24, relays: [10.81.0.253]}\n"
        f"servers:\n{servers}"
    )


def register(cluster: Cluster, text: str, **options: Any) -> RegistrationOutcome:
    plan = plan_registration(cluster, read_packing_list(text.encode(), "list.yaml"))
    return carry_out(cluster, plan, **options)


def test_fifty_servers_cost_an_apply_each_and_a_few_requests_more(watched: WatchedCluster, text: str) -> None:
    done = register(watched, text)
    assert (len(done.steps), done.failures, done.untried) == (SERVERS + 1, (), ())
    assert len(watched.writes()) == SERVERS + 1
    # A LIST of racks and of servers (in pages of 500), and a rehearsal of the first rack and the first server.
    assert len(watched.requests) <= SERVERS + 1 + 4


def test_what_is_registered_costs_a_list_and_no_write(watched: WatchedCluster, text: str, unique: str) -> None:
    register(watched, text)
    watched.requests.clear()
    again = register(watched, text)
    assert again.count("unchanged") == SERVERS + 1
    assert watched.writes() == []
    assert len(watched.requests) <= 2

    watched.requests.clear()
    changed = re.sub(r"https://(\w+)-7\b", r"https://\1-seven", text).replace("site: dc1", "site: dc2")
    steps = [step for step in register(watched, changed).steps if step.action != "unchanged"]
    assert [(step.name, [change.field for change in step.changes]) for step in steps] == [
        (unique, ["site"]),
        (f"{unique}-u07", ["bmc.address"]),
    ]
    assert len(watched.writes()) == 2


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ("dnsServers: [10.80.0.252, 10.80.0.251]", "dnsServers: [10.80.0.252]", "subnets[boot].dnsServers"),
        (", relays: [10.81.0.253]", "", "subnets[data].relays"),
        ("  site: dc1\n", "", "site"),
        ("  - {name: data, cidr: 10.81.0.0/24, relays: [10.81.0.253]}\n", "", "subnets[data]"),
    ],
)
def test_what_the_file_no_longer_has_is_seen_without_asking(
    watched: WatchedCluster, text: str, before: str, after: str, field: str
) -> None:
    one = text[: text.index("- {name: t", text.index("servers:") + 60)]
    register(watched, one)
    watched.requests.clear()
    (rack, _server) = register(watched, one.replace(before, after)).steps
    assert rack.action == "update"
    assert all(change.field.startswith(field) for change in rack.changes)
    assert len(watched.writes()) == 1


def test_what_somebody_else_changed_is_put_right_and_what_they_added_stays(
    watched: WatchedCluster, text: str, unique: str
) -> None:
    register(watched, text)
    watched.patch(of(Server), f"{unique}-u03", {"spec": {"bmc": {"address": "https://elsewhere"}}}, manager="somebody")
    watched.patch(of(Server), f"{unique}-u04", {"spec": {"nodePoolRef": "gpu"}}, manager="somebody")
    watched.requests.clear()
    (changed,) = [step for step in register(watched, text).steps if step.action != "unchanged"]
    assert (changed.name, [change.field for change in changed.changes]) == (f"{unique}-u03", ["bmc.address"])
    assert watched.read(Server, f"{unique}-u04").spec.node_pool_ref == "gpu"
    assert len(watched.writes()) == 1


def test_a_rehearsal_asks_for_each_and_writes_nothing(watched: WatchedCluster, text: str) -> None:
    rehearsed = register(watched, text, dry_run=True)
    assert rehearsed.count("create") == SERVERS + 1
    assert watched.writes() == []
    assert len(watched.requests) <= SERVERS + 1 + 4


def test_one_server_that_is_refused_does_not_stop_the_others(watched: WatchedCluster, text: str, unique: str) -> None:
    # The first server, which is rehearsed, is right.
    bad = re.sub(r"https://(\w+)-20\b", r"http://\1-20", text)
    done = register(watched, bad)
    (failure,) = done.failures
    assert isinstance(failure.error, Refused)
    assert str(failure.step.origin) == "list.yaml:68"
    assert "write https://" in str(failure.error)
    assert len(done.steps) == SERVERS


def test_servers_of_a_rack_that_could_not_be_written_are_not_tried(
    watched: WatchedCluster, text: str, unique: str
) -> None:
    def refuse_rack(request: Request) -> None:
        if request[1].endswith(f"/racks/{unique}") and not request[2].get("dryRun"):
            raise Refused("no", hint="none")

    watched.interfere = refuse_rack
    done = register(watched, text)
    assert len(done.failures) == SERVERS + 1
    assert f"not tried, as Rack {unique} was not written" in str(done.failures[-1].error)
    assert len(watched.writes()) == 1


def test_a_busy_api_server_is_asked_again(watched: WatchedCluster, text: str) -> None:
    busy = iter([True] * 20)
    lock = threading.Lock()

    def refuse_some(request: Request) -> None:
        with lock:
            if "/servers/" in request[1] and not request[2].get("dryRun") and next(busy, False):
                raise Retryable(f"{request[0]} {request[1]}: too many requests (HTTP 429)", after_seconds=0.0)

    watched.interfere = refuse_some
    done = register(watched, text)
    assert (len(done.steps), done.failures, done.untried) == (SERVERS + 1, (), ())


def test_an_api_server_that_is_gone_is_given_up_and_the_rest_is_not_tried(
    watched: WatchedCluster, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(request: Request) -> None:
        if "/servers/" in request[1] and not request[2].get("dryRun"):
            raise Retryable("no answer", after_seconds=0.0)

    monkeypatch.setattr("provisioner.inventory.registrar.PATIENCE_SECONDS", 0.5)
    watched.interfere = gone
    done = register(watched, text)
    assert len(done.failures) <= 8
    assert len(done.failures) + len(done.untried) == SERVERS
    watched.interfere = lambda _: None
    assert register(watched, text).failures == ()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_run_that_is_ended_in_the_middle_is_finished_by_the_next(
    watched: WatchedCluster, control_plane: ControlPlane, text: str, unique: str, tmp_path: Path,
    number: signal.Signals, code: int,
) -> None:  # fmt: skip
    file = tmp_path / "list.yaml"
    file.write_text(text)
    command = [sys.executable, "-m", "provisioner.cli", "rack", "register", str(file)]
    command += ["--kubeconfig", str(control_plane.kubeconfig)]
    # It is struck at its twentieth write, with others under way; what comes later waits until it has noticed.
    struck = (
        "import itertools, os, signal, sys, threading\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # what runs in a shell's background ignores it
        "from provisioner.cluster.client import Cluster\n"
        "from provisioner.inventory import registrar\n"
        "numbers, noticed = itertools.count(1), threading.Event()\n"
        "apply, end = Cluster.apply, registrar._Patience.end\n"
        "def count(self, *given, **named):\n"
        "    number = 0 if named.get('dry_run') else next(numbers)\n"
        "    if number == 20:\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "    if number >= 20:\n"
        "        noticed.wait()\n"
        "    return apply(self, *given, **named)\n"
        "def notice(self):\n"
        "    end(self)\n"
        "    noticed.set()\n"
        "Cluster.apply, registrar._Patience.end = count, notice\n"
        "from provisioner.cli.main import main\n"
        "main()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", struck, *command[3:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    out, err = running.communicate(timeout=240)
    assert running.returncode == code, out + err
    before, quiet_seconds = registered(watched, unique), 0
    while quiet_seconds < 3:  # what was under way when the client was killed may still be written
        time.sleep(1.0)
        seen, before = before, registered(watched, unique)
        quiet_seconds = quiet_seconds + 1 if before == seen else 0
    assert 5 <= len(before) < SERVERS
    if number == signal.SIGINT:
        assert f"interrupted: {SERVERS - len(before)} of {SERVERS + 1} were not tried" in err
        assert "Run the same command again" in err

    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert again.returncode == 0, again.stderr
    assert f"{SERVERS - len(before)} written, 0 failed, {len(before) + 1} unchanged" in again.stdout
    after = registered(watched, unique)
    assert len(after) == SERVERS
    assert {name: after[name] for name in before} == before


def registered(cluster: Cluster, unique: str) -> dict[str, str]:
    """Servers of this test by name, with their resourceVersion."""
    items = cluster.list(of(Server)).items
    return {
        body["metadata"]["name"]: body["metadata"]["resourceVersion"]
        for body in items
        if body["metadata"]["name"].startswith(unique)
    }


def test_a_list_ten_times_as_long_takes_ten_times_as_long_to_check() -> None:
    """Processor time of all that needs no API server. A quadratic step would take a hundred times as long."""

    def seconds(count: int) -> float:
        # One BMC for all, each with a system of its own: whom a claim clashes with must not be asked of each pair.
        rows = "".join(f"s{n},{0x020000000000 + n:012x},SN{n},10.90.0.1,sys{n}\n" for n in range(count))
        text = "Name,MAC,S/N,BMC IP,BMC System ID\n" + rows
        began = time.process_time()
        plan_registration(FakeEmptyCluster(), read_packing_list(text.encode(), "r.csv", rack="r01"))  # type: ignore[arg-type]
        return time.process_time() - began

    small, large = min(seconds(300) for _ in range(3)), min(seconds(3000) for _ in range(3))
    assert large < 40 * small


class FakeEmptyCluster:
    """Holds one rack and takes everything."""

    def list(self, type: Any, **_: Any) -> ListResult:  # noqa: A002
        rack = {
            "apiVersion": "provisioner.dev/v1alpha1",
            "kind": "Rack",
            "metadata": {"name": "r01"},
            "spec": {"subnets": [{"name": "boot", "cidr": "10.80.0.0/16"}]},
        }
        return ListResult([rack] if type.kind == "Rack" else [], "1")

    def apply(self, body: dict[str, Any], **_: Any) -> dict[str, Any]:
        return body
