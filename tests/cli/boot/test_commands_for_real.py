"""The commands against a real API server, by people with the shipped roles and no others."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from lab.control_plane.plane import ControlPlane
from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import Forbidden, Refused
from provisioner.api.servers.trace import TRACE_ANNOTATION, TRACED_REASON, trace_value
from provisioner.boot.observe.trace.lines import SEPARATOR
from provisioner.cli.boot import trace_command
from provisioner.cli.boot.reading import read_boot
from provisioner.cli.main import provisioner
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.resources import of
from tests.boot.dhcp.messages import captured
from tests.boot.objects import image, pool, rack, server
from tests.people import bind, kubeconfig_of
from tests.requests.counted import Counts, table


@pytest.fixture(scope="session")
def viewer(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bind(Cluster.connect(control_plane.kubeconfig), "provisioner-viewer", "vera")
    return kubeconfig_of(control_plane, tmp_path_factory.mktemp("people"), "vera")


@pytest.fixture(scope="session")
def operator(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    bind(Cluster.connect(control_plane.kubeconfig), "provisioner-operator", "otto")
    return kubeconfig_of(control_plane, tmp_path_factory.mktemp("people"), "otto")


def mac_of(unique: str, n: int = 1) -> str:
    return "02:" + ":".join(unique[1 + at : 3 + at] for at in (0, 2, 4, 6)) + f":{n:02x}"


@pytest.fixture
def registered(cluster: Cluster, unique: str) -> Iterator[str]:
    """A server with its rack, NodePool and Image, and three more like it."""
    made = [replace(each, metadata=replace(each.metadata, name=f"{unique}-{each.KIND.short}")) for each in
            (rack(), pool(image_ref=f"{unique}-img"), image())]  # fmt: skip
    for each in made:
        cluster.create(of(type(each)), encode(each))
    for n in range(4):
        name = unique if n == 0 else f"{unique}-{n}"
        spec = {"boot_mac_address": mac_of(unique, n), "rack_ref": f"{unique}-rk", "node_pool_ref": f"{unique}-np"}
        body = encode(server(name, **spec))
        body["metadata"] = {"name": name}
        body.pop("status")
        cluster.create(of(Server), body)
    status = {"address": "10.80.0.21", "subnetName": "boot"}
    cluster.apply_status(Server, unique, status, manager="provisioner-inventory")
    yield unique
    for n in range(4):
        cluster.delete(of(Server), unique if n == 0 else f"{unique}-{n}")
    for kind, short in ((Rack, "rk"), (NodePool, "np"), (Image, "img")):
        cluster.delete(of(kind), f"{unique}-{short}")


def run(kubeconfig: Path, *arguments: str) -> Result:
    return CliRunner().invoke(provisioner, ["boot", *arguments, "--kubeconfig", str(kubeconfig)])


def test_a_viewer_explains_a_server_by_name_or_mac_address(viewer: Path, registered: str) -> None:
    by_name = run(viewer, "explain", registered, "--address", "10.80.0.1", "-o", "json")
    assert by_name.exit_code == 0, by_name.output
    told = json.loads(by_name.stdout)
    assert (told["server"], told["dhcp"]["firmware"]["verdict"]) == (registered, "offered")
    assert told["script"]["reason"] == "ImageUnavailable", "no boot host has it"
    assert told["join"]["reason"] == "NotOrdered"
    as_vendors_write_it = mac_of(registered, 0).upper().replace(":", "-")
    by_mac = run(viewer, "explain", as_vendors_write_it, "--address", "10.80.0.1", "-o", "json")
    assert json.loads(by_mac.stdout) == told
    screen = run(viewer, "explain", registered)
    assert "192.0.2.1 stands for its address" in screen.stdout


def test_what_is_neither_is_said_so(viewer: Path) -> None:
    result = run(viewer, "explain", "no-such-server")
    assert (result.exit_code, "there is no Server 'no-such-server'" in result.stderr) == (1, True)


def test_a_server_costs_one_request_for_each_kind(control_plane: ControlPlane, registered: str) -> None:
    counts = Counts()
    cluster = counts.connect(control_plane.kubeconfig, "person")
    read_boot(cluster, registered)
    counted = counts.take()
    assert sum(counted.values()) <= 9, table(counted)
    assert not any("Secret" in kind for _, _, kind in counted)
    read_boot(cluster, mac_of(registered, 0))
    assert sum(counts.take().values()) <= 8
    read_boot(cluster, "02:00:5e:00:53:ff")
    assert sum(counts.take().values()) == 3, "a MAC address that nobody has: Servers by it, all Servers, Racks"


def test_replay_reads_racks_and_servers_alone(viewer: Path, registered: str, tmp_path: Path) -> None:
    packet = bytearray(captured("x64-pxe-discover"))
    packet[28:34] = bytes.fromhex(mac_of(registered, 0).replace(":", ""))
    (tmp_path / "hex").write_text(packet.hex())
    result = run(viewer, "replay", str(tmp_path / "hex"), "--address", "10.80.0.1", "-o", "json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["server"], told["answer"]["verdict"]) == (registered, "offered")
    assert told["answer"]["reply"]["yourAddress"] == "10.80.0.21"
    assert "offered: it is offered its own address" in run(viewer, "replay", str(tmp_path / "hex")).stdout


def test_an_operator_may_ask_for_a_trace_and_write_nothing_else(
    operator: Path, cluster: Cluster, registered: str
) -> None:
    otto = Cluster.connect(operator)
    until = trace_value(datetime.now(UTC) + timedelta(minutes=5))
    cluster.patch(of(Server), registered, {"metadata": {"annotations": {"example.com/there": "x"}}})
    otto.patch(of(Server), registered, {"metadata": {"annotations": {TRACE_ANNOTATION: until}}})
    otto.patch(of(Rack), f"{registered}-rk", {"metadata": {"annotations": {TRACE_ANNOTATION: until}}})
    for patch in (
        {"metadata": {"annotations": {"provisioner.dev/other": "x"}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"finalizers": ["a.b/c"]}},
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone"}]}},
        {"metadata": {"annotations": {"example.com/there": None}}},
        {"spec": {"acceptance": "Rejected"}},
        {"spec": {"powerState": "Off"}, "metadata": {"annotations": {TRACE_ANNOTATION: until}}},
    ):
        with pytest.raises(Refused, match=r"otto may write the annotation provisioner\.dev/trace"):
            otto.patch(of(Server), registered, patch)
    with pytest.raises(Refused, match=r"otto may write the annotation provisioner\.dev/trace"):
        otto.patch(of(Rack), f"{registered}-rk", {"spec": {"site": "elsewhere"}})
    spec = {"bootMACAddress": mac_of(registered, 9)}
    made = {"kind": "Server", "metadata": {"name": f"{registered}-new"}, "spec": spec}
    with pytest.raises(Refused):
        otto.apply({"apiVersion": "provisioner.dev/v1alpha1", **made}, manager="otto")
    with pytest.raises(Forbidden):
        otto.delete(of(Server), registered)
    otto.patch(of(Server), registered, {"metadata": {"annotations": {TRACE_ANNOTATION: None}}})


def test_a_trace_asks_tells_and_takes_back(
    operator: Path, cluster: Cluster, registered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Thread(target=_hear, args=(cluster, registered))
    expected = {"~ boot1             DHCP DISCOVER", "lifecycle Booting"}
    lines: list[str] = []

    def echo(line: str, *, err: bool = False) -> None:
        assert not err, line
        lines.append(line)
        if all(any(words in each for each in lines) for words in expected):
            raise KeyboardInterrupt  # as who has seen enough

    monkeypatch.setattr(trace_command.printer, "say", echo)
    done.start()
    result = run(operator, "trace", registered, "--for", "10m")
    done.join()
    assert result.exit_code == 0, result.output
    booting = [line for line in lines if "lifecycle Booting" in line]
    assert booting
    assert not any("~" in line for line in booting)
    assert [line for line in lines if not line.isprintable()] == []
    annotations = cluster.get(of(Server), registered)["metadata"].get("annotations") or {}
    assert TRACE_ANNOTATION not in annotations


def _hear(cluster: Cluster, name: str) -> None:
    """A boot host that answers once it is asked."""
    for _ in range(600):
        body = cluster.get(of(Server), name)
        if TRACE_ANNOTATION in (body["metadata"].get("annotations") or {}):
            break
        threading.Event().wait(0.05)
    recorder = EventRecorder(cluster, "provisioner-boot")
    words = SEPARATOR.join(("12:00:00.000 DHCP DISCOVER", "12:00:00.100 HTTP \x1b[31m\u202e"))
    recorder.record(body, "Normal", TRACED_REASON, f"[boot1] {words}")
    recorder.close()
    cluster.apply_status(Server, name, {"lifecycle": "Booting"}, manager="provisioner-orders")


def test_of_two_who_ask_neither_ends_the_others_trace(operator: Path, cluster: Cluster, registered: str) -> None:
    rack_, first, second = f"{registered}-rk", "02:00:5e:00:53:01", "02:00:5e:00:53:02"
    theirs = trace_value(datetime.now(UTC) + timedelta(minutes=2), [first])
    cluster.patch(of(Rack), rack_, {"metadata": {"annotations": {TRACE_ANNOTATION: theirs}}})
    otto, ours = Cluster.connect(operator), datetime.now(UTC) + timedelta(minutes=20)
    with trace_command._asked(otto, of(Rack), rack_, frozenset({second}), ours, asks=True) as asks:
        assert asks
        assert _annotation(cluster, rack_) == trace_value(ours, [first, second])
    assert _annotation(cluster, rack_) == theirs
    with trace_command._asked(otto, of(Rack), rack_, frozenset({first}), datetime.now(UTC), asks=True) as asks:
        assert asks
        assert _annotation(cluster, rack_) == theirs, "it lasts longer"
    assert _annotation(cluster, rack_) == theirs


def _annotation(cluster: Cluster, name: str) -> str | None:
    found: str | None = (cluster.get(of(Rack), name)["metadata"].get("annotations") or {}).get(TRACE_ANNOTATION)
    return found


def test_who_may_not_ask_sees_the_rest(viewer: Path, registered: str) -> None:
    result = run(viewer, "trace", registered, "--for", "2s")
    assert result.exit_code == 0, result.output
    assert "boot hosts are not asked" in result.stderr
    assert "provisioner-tracer" in result.stderr
    assert "address 10.80.0.21" in result.stdout


def test_a_mac_address_of_nobody_needs_a_rack(operator: Path, registered: str) -> None:
    result = run(operator, "trace", "02:00:5e:00:53:ff")
    assert (result.exit_code, "--rack" in result.stderr) == (1, True)
    result = run(operator, "trace", "02:00:5e:00:53:ff", "--rack", f"{registered}-rk", "--for", "1s")
    assert result.exit_code == 0, result.output
