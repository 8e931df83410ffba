"""`provisioner controller` against a real API server: what it answers as leader, as standby, and while that is away."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from lab.control_plane.plane import ControlPlane
from lab.control_plane.ports import free_port
from provisioner.cli.main import provisioner
from provisioner.cli.service import controller as service
from provisioner.cluster import process as process_health
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import LEASES, SYSTEM
from tests.cluster.fault_injecting_proxy import FaultInjectingProxy
from tests.monitoring.expositions import families, promtool, samples
from tests.monitoring.test_documentation import documented
from tests.people import until


@dataclass
class Replica:
    """One process of controllers, in a thread."""

    name: str
    kubeconfig: Path
    patch: pytest.MonkeyPatch
    metrics: int = field(default_factory=lambda: free_port("127.0.0.1"))
    health: int = field(default_factory=lambda: free_port("127.0.0.1"))

    def __enter__(self) -> Replica:
        self.stop = threading.Event()
        begun = threading.Event()

        def stop_on_signals() -> threading.Event:
            begun.set()
            return self.stop

        self.patch.setattr(service, "stop_on_signals", stop_on_signals)
        arguments = [
            "controller",
            "--boot-url=http://10.80.0.1",
            "--controllers=approver",
            f"--identity={self.name}",
            f"--kubeconfig={self.kubeconfig}",
            f"--metrics-address=127.0.0.1:{self.metrics}",
            f"--health-address=[::]:{self.health}",
        ]
        self.thread = threading.Thread(target=lambda: CliRunner().invoke(provisioner, arguments), daemon=True)
        self.thread.start()
        assert begun.wait(180)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(180)
        assert not self.thread.is_alive()

    def ask(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health}{path}", timeout=180) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def told(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}/metrics", timeout=180) as answer:
            text: str = answer.read().decode()
            return text

    def value(self, metric: str, **labels: str) -> float:
        return next(
            value for name, of, value in samples(self.told()) if name == metric and labels.items() <= of.items()
        )

    def leads(self) -> float:
        return self.value("provisioner_leads")


@pytest.fixture
def proxy(control_plane: ControlPlane) -> Iterator[FaultInjectingProxy]:
    made = FaultInjectingProxy(control_plane)
    yield made
    made.close()


@pytest.fixture
def kubeconfig(proxy: FaultInjectingProxy, tmp_path: Path) -> Path:
    proxy.connect(tmp_path)
    (file,) = tmp_path.glob("*.kubeconfig")
    return file


@pytest.fixture
def no_lease(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.delete(LEASES, "provisioner-approver", namespace=SYSTEM)


@pytest.mark.usefixtures("no_lease")
def test_a_leader_and_a_standby_are_ready_and_say_which_they_are_and_neither_is_dead_while_the_api_server_is_away(
    proxy: FaultInjectingProxy, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch, account: Any
) -> None:
    account("controller")  # the rights are in force
    with ExitStack() as stack:
        leader = stack.enter_context(Replica("a", kubeconfig, monkeypatch))
        until(lambda: leader.leads() == 1)
        standby = stack.enter_context(Replica("b", kubeconfig, monkeypatch))
        until(lambda: standby.ask("/readyz")[0] == 200)
        until(lambda: leader.ask("/readyz")[0] == 200)
        assert "[+]leader ok: holds provisioner-approver" in leader.ask("/readyz?verbose")[1]
        assert "[+]leader ok: stands by" in standby.ask("/readyz?verbose")[1]
        assert standby.leads() == 0
        assert (leader.ask("/healthz"), standby.ask("/healthz")) == ((200, "ok"), (200, "ok"))

        until(lambda: leader.value("provisioner_queue_depth", controller="join-certificates") == 0)  # of other tests
        text = leader.told()
        told = {(name, *sorted(labels.values())): value for name, labels, value in samples(text)}
        assert told["provisioner_api_requests_total", "2xx", "certificatesigningrequests", "list"] >= 1
        assert told["provisioner_watch_synced", "CertificateSigningRequest"] == 1
        assert told["provisioner_lease_transitions_total", "Acquired", "provisioner-approver"] == 1
        written = documented("Of every service") | documented("Of a controller")
        served = {name for name in families(text) if name.startswith("provisioner_") and not name.endswith("_created")}
        of_histograms = {f"{name}{end}" for name in written for end in ("_bucket", "_sum", "_count")}
        assert served <= {*written, *of_histograms}
        said = promtool("check", "metrics", given=text)
        assert said.returncode == 0, said.stdout + said.stderr

        monkeypatch.setattr(process_health, "ANSWER_SECONDS", 3.0)
        with proxy.refusing():
            until(lambda: "[-]api-server failed" in leader.ask("/readyz")[1])
            until(lambda: "[-]api-server failed" in standby.ask("/readyz")[1])
            assert (leader.ask("/healthz"), standby.ask("/healthz")) == ((200, "ok"), (200, "ok"))
        monkeypatch.setattr(process_health, "ANSWER_SECONDS", 60.0)
        until(lambda: (leader.ask("/readyz")[0], standby.ask("/readyz")[0]) == (200, 200))
        until(lambda: {leader.leads(), standby.leads()} == {0.0, 1.0})
