"""What is told of controllers, watches, Leases, boots, images, certificates, DPUs and reflectors."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from lab.control_plane.plane import ControlPlane
from provisioner import __version__
from provisioner.api.machinery.errors import Conflict, NeedsHuman, ProvisionerError, Retryable
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.controller_meter import certificate_ends
from provisioner.cluster.informer import Informer
from provisioner.cluster.metrics import Meters
from provisioner.cluster.network_metrics import MAX_REASONS
from provisioner.cluster.outcome_meter import BMC_ERRORS, CERTIFICATE_OUTCOMES
from provisioner.cluster.process import Process
from provisioner.cluster.resources import NODES
from provisioner.cluster.series import FamiliesCollector
from provisioner.outbound.lanes import Lanes
from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.test_metrics import NOON, FakeCache, new_meters, scrape, server
from tests.people import until


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def told(meters: Meters, prefix: str) -> dict[str, float]:
    """All samples that begin so and are not 0, without the time at which a series was born."""
    found = scrape(meters).items()
    return {n.removeprefix("provisioner_"): v for n, v in found if n.startswith(prefix) and v and "_created" not in n}


def condition(type_: str, status: str, reason: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, **more}


def test_version_and_process_are_told() -> None:
    found = scrape(new_meters())
    assert found[f'provisioner_build_info{{component="controller",version="{__version__}"}}'] == 1
    assert found["process_resident_memory_bytes"] > 1_000_000


def test_reconciles_are_measured_by_controller_and_by_what_came_of_them(stop: threading.Event) -> None:
    errors: dict[str, ProvisionerError | ValueError] = {
        "conflict": Conflict("", after_seconds=9000),
        "away": Retryable("", after_seconds=9000),
        "person": NeedsHuman("", hint=""),
        "fault": ValueError("a fault of ours"),
    }
    worked: list[str] = []

    def reconcile(key: str) -> None:
        worked.append(key)
        if key in errors:
            raise errors[key]

    meters, process, controller = new_meters(), Process(lambda: None), Controller("join-nodes", reconcile)
    meters.controllers.observe([controller])
    assert 'provisioner_reconcile_errors_total{controller="join-nodes",error="Failed"}' in scrape(meters)
    for key in ("well", *errors):
        controller.queue.add(key)
    threading.Thread(target=controller.run, args=(stop,), daemon=True).start()
    with process.working([controller]):
        until(
            lambda: (
                told(meters, "provisioner_queue_retries").get('queue_retries_total{controller="join-nodes"}', 0) >= 4
            )
        )
        until(lambda: told(meters, "provisioner_reconcile_errors").keys() >= {
            f'reconcile_errors_total{{controller="join-nodes",error="{error}"}}'
            for error in ("Conflict", "Retryable", "NeedsHuman", "Failed")
        })  # fmt: skip
    assert told(meters, "provisioner_reconcile_seconds_count")['reconcile_seconds_count{controller="join-nodes"}'] >= 5
    assert (
        told(meters, "provisioner_queue_wait_seconds_count")['queue_wait_seconds_count{controller="join-nodes"}'] >= 5
    )
    assert "well" not in str(scrape(meters))


def test_what_waits_for_a_backend_is_one_reconcile_and_its_lane_counts(stop: threading.Event) -> None:
    meters, process = new_meters(), Process(lambda: 0.0)
    lanes = Lanes("slurmrestd", lambda _key: None)
    begun, goes_on = threading.Event(), threading.Event()

    def reconcile(_key: str) -> None:
        lanes.enter("https://slurm")
        begun.set()
        goes_on.wait(300)

    controller = Controller("maintenance", reconcile)
    meters.controllers.observe([controller])
    with process.working([controller]):
        threading.Thread(target=controller.run, args=(stop,), daemon=True).start()
        controller.queue.add("a")
        assert begun.wait(180)
        time.sleep(0.05)
        assert controller.longest_seconds() >= 0.05
        count = 'reconcile_seconds_count{controller="maintenance"}'
        assert count not in told(meters, "provisioner_reconcile_seconds"), "it has only learned that it has to wait"
        goes_on.set()
        until(lambda: told(meters, "provisioner_reconcile_seconds").get(count) == 1)
    assert not told(meters, "provisioner_reconcile_errors")
    assert controller.longest_seconds() == 0


def test_a_queue_is_told_with_its_oldest_key_and_the_reconcile_that_lasts_longest(stop: threading.Event) -> None:
    meters, process = new_meters(), Process(lambda: 0.0)
    goes_on, begun = threading.Event(), threading.Event()

    def reconcile(_key: str) -> None:
        begun.set()
        goes_on.wait(300)

    controller = Controller("power", reconcile)
    meters.tell_of(process, FakeCluster())
    with process.working([controller]):
        threading.Thread(target=controller.run, args=(stop,), daemon=True).start()
        controller.queue.add("a")
        assert begun.wait(180)
        controller.queue.add("b")
        time.sleep(0.05)
        found = told(meters, "provisioner_")
        assert found['queue_depth{controller="power"}'] == 1
        assert found['queue_oldest_seconds{controller="power"}'] >= 0.05
        assert found['reconcile_longest_seconds{controller="power"}'] >= 0.05
        goes_on.set()
    assert not told(meters, "provisioner_queue_depth")


def test_watches_are_told_by_kind_with_their_age_and_what_failed(stop: threading.Event) -> None:
    class FakeAway(FakeCluster):
        def list(self, *_: Any, **__: Any) -> Any:
            raise Retryable("no answer")

    meters, process, informer = new_meters(), Process(lambda: 0.0), Informer(FakeAway(), NODES)
    meters.tell_of(process, FakeCluster())
    with process.following([informer]):
        informer.start(stop)
        until(lambda: informer.failures > 0)
        found = scrape(meters)
        assert found['provisioner_watch_synced{kind="Node"}'] == 0
        assert found['provisioner_watch_failures_total{kind="Node"}'] >= 1
        assert found['provisioner_watch_objects{kind="Node"}'] == 0
        assert found['provisioner_readiness_check{check="caches"}'] == 0
        assert found['provisioner_liveness_check{check="watches"}'] == 1


def test_a_watch_of_a_real_api_server_is_heard_of(cluster: Cluster, stop: threading.Event) -> None:
    meters, process, informer = new_meters(), Process(lambda: 0.0), Informer(cluster, NODES)
    meters.tell_of(process, cluster)
    assert informer.heard_time is None
    with process.following([informer]):
        informer.start(stop)
        assert informer.wait_for_sync(180)
        found = scrape(meters)
        assert found['provisioner_watch_synced{kind="Node"}'] == 1
        assert found['provisioner_watch_lists_total{kind="Node"}'] == 1
        assert 0 <= found['provisioner_watch_age_seconds{kind="Node"}'] < 180
        assert informer.heard_time is not None


def test_leases_that_are_taken_and_lost_are_counted() -> None:
    meters = new_meters()
    meters.leases.stand("provisioner-controller")
    assert 'provisioner_lease_transitions_total{change="Lost",lease="provisioner-controller"}' in scrape(meters)
    for lost in (False, True, True):
        meters.leases.lease_acquired("provisioner-controller")
        meters.leases.lease_ended("provisioner-controller", lost=lost)
    assert told(meters, "provisioner_lease") == {
        'lease_transitions_total{change="Acquired",lease="provisioner-controller"}': 3,
        'lease_transitions_total{change="Released",lease="provisioner-controller"}': 1,
        'lease_transitions_total{change="Lost",lease="provisioner-controller"}': 2,
    }


def late(stage: str, reason: str = "StageTimedOut") -> dict[str, Any]:
    return server(bootStage=stage, conditions=[condition("Ready", "False", reason)])


def test_a_boot_that_is_late_is_counted_once_a_stage_and_told_while_it_lasts() -> None:
    meters, servers = new_meters(), FakeCache(late("Root", "Root"))
    meters.follow(servers, FakeCache(), FakeCache(), FakeCache())
    for body in (late("Root"), late("Root"), late("Token"), late("Token", "Token"), late("Token")):
        servers.put(body)
    assert told(meters, "provisioner_boot_stage_timeouts") == {
        'boot_stage_timeouts_total{stage="Root"}': 1,
        'boot_stage_timeouts_total{stage="Token"}': 2,
    }
    assert told(meters, "provisioner_boots_late") == {'boots_late{stage="Token"}': 1}
    servers.put(server(bootStage="Ready", conditions=[condition("Ready", "True", "NodeReady")]))
    assert told(meters, "provisioner_boots_late") == {}


def test_a_late_boot_whose_cause_is_known_is_counted_as_late() -> None:
    meters, servers = new_meters(), FakeCache(late("Ordered", "Ordered"))
    meters.follow(servers, FakeCache(), FakeCache(), FakeCache())
    said = [condition("Ready", "False", "CredentialsMissing"), condition("Booted", "False", "StageTimedOut")]
    servers.put(server(bootStage="Ordered", conditions=said))
    assert told(meters, "provisioner_boots_late") == {'boots_late{stage="Ordered"}': 1}


def test_images_that_are_wanted_and_missing_are_counted() -> None:
    def image(name: str, status: str | None) -> dict[str, Any]:
        said = [condition("Available", status, "Incomplete")] if status else []
        return {"metadata": {"name": name}, "status": {"conditions": said}}

    def wants(name: str, image_ref: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"imageRef": image_ref}}

    meters = new_meters()
    images = FakeCache(image("there", "True"), image("half", "False"), image("new", None), image("unwanted", "False"))
    pools = FakeCache(wants("a", "there"), wants("b", "half"), wants("c", "gone"))
    servers = FakeCache(server(assignedImageRef="new"), server("b", assignedImageRef="gone"), server("c"))
    meters.follow(servers, FakeCache(), pools, FakeCache(), images=images)
    assert told(meters, "provisioner_images") == {
        'images{available="True"}': 1,
        'images{available="False"}': 2,
        'images{available="Unknown"}': 1,
        'images_missing{state="Absent"}': 1,
        'images_missing{state="Unavailable"}': 2,
    }


def test_certificate_requests_are_counted_when_they_are_decided_and_strangers_are_not() -> None:
    def request(name: str, signer: str, *said: dict[str, Any]) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"signerName": signer}, "status": {"conditions": list(said)}}

    client, serving = "kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"
    meters = new_meters()
    requests = FakeCache(request("before", client, condition("Approved", "True", "ProvisionerApproved")))
    meters.outcomes.follow_certificates(requests)
    decisions = (
        ("a", client, condition("Approved", "True", "ProvisionerApproved")),
        ("b", serving, condition("Denied", "True", "WrongNames")),
        ("c", client, condition("Denied", "True", "a word of somebody else")),
        ("d", "example.com/theirs", condition("Approved", "True", "x")),
    )
    for name, signer, said in decisions:
        requests.put(request(name, signer))
        for _ in range(2):
            requests.put(request(name, signer, said))
    assert told(meters, "provisioner_certificates") == {
        'certificates_total{outcome="Approved",signer="client"}': 1,
        'certificates_total{outcome="WrongNames",signer="serving"}': 1,
        'certificates_total{outcome="Other",signer="client"}': 1,
    }


def test_outcomes_of_certificates_and_errors_of_bmcs_are_those_that_the_code_words() -> None:
    """Whoever adds a reason adds it to what is counted."""
    root = Path(__file__).parents[2]
    approve = (root / "provisioner/join/certificates/approve.py").read_text()
    denials = set(re.findall(r'Deny\(\s*"(\w+)"', approve))
    assert denials == set(CERTIFICATE_OUTCOMES) - {"Approved", "Other"}
    power = "".join(file.read_text() for file in (root / "provisioner/power").rglob("*.py"))
    reasons = set(re.findall(r'\breason ?= ?"(\w+)"', power)) | set(re.findall(r'_refused\(\s*"(\w+)"', power))
    assert reasons - {"NodeAlive", "NotAskedFor"} <= set(BMC_ERRORS), reasons
    runbook = (root / "docs/runbook.md").read_text()
    assert {error for error in BMC_ERRORS if f"`{error}`" not in runbook} == {"Other"}


def test_looks_at_bmcs_that_fail_are_counted_by_kind() -> None:
    meters = new_meters()
    for reason in ("BMCUnreachable", "BMCUnreachable", "CredentialsRefused", "x" * 99):
        meters.outcomes.bmc_failed(reason)
    assert told(meters, "provisioner_bmc_errors") == {
        'bmc_errors_total{error="BMCUnreachable"}': 2,
        'bmc_errors_total{error="CredentialsRefused"}': 1,
        'bmc_errors_total{error="Other"}': 1,
    }


def attachment(name: str, reason: str, minutes: int = 0) -> dict[str, Any]:
    since = (NOON - timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")
    said = condition("Ready", "True" if reason == "Enforced" else "False", reason, lastTransitionTime=since)
    return {"metadata": {"name": name, "creationTimestamp": since}, "status": {"conditions": [said]}}


def follow_network(*attachments: dict[str, Any], **more: Any) -> Meters:
    meters = new_meters()
    caches = {"servers": FakeCache(), "networks": FakeCache(), "pools": FakeCache()} | more
    meters.follow_network(caches["servers"], FakeCache(*attachments), caches["networks"], caches["pools"])
    return meters


def test_attachments_are_counted_by_what_they_wait_for_and_for_how_long() -> None:
    meters = follow_network(
        attachment("a", "Enforced", 900), attachment("b", "WaitsForDPU", 10), attachment("c", "WaitsForDPU", 30)
    )
    assert told(meters, "provisioner_attachment") == {
        'attachments{reason="Enforced"}': 1,
        'attachments{reason="WaitsForDPU"}': 2,
        'attachment_oldest_wait_seconds{reason="WaitsForDPU"}': 1800,
    }


def test_however_many_reasons_there_are_the_series_stay_few() -> None:
    meters = follow_network(*(attachment(f"a-{number}", f"Reason{number}") for number in range(500)))
    found = told(meters, "provisioner_attachments")
    assert len(found) == MAX_REASONS + 1
    assert found['attachments{reason="Other"}'] == 500 - MAX_REASONS


def test_dpus_that_are_away_or_have_not_confirmed_are_counted() -> None:
    def card(name: str, status: str, acceptance: str = "Accepted") -> dict[str, Any]:
        spec = {"dpu": {"hostRef": "h"}, "acceptance": acceptance}
        return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [condition("Ready", status, "x")]}}

    def network(name: str, generation: int, observed: int | None, exchanged: str | None = None) -> dict[str, Any]:
        said = [condition("RoutesExchanged", exchanged, "x")] if exchanged else []
        spec = {"evpn": {"asn": 1}} if exchanged else {}
        return {
            "metadata": {"name": name, "generation": generation},
            "spec": spec,
            "status": {"observedGeneration": observed, "conditions": said},
        }

    meters = follow_network(
        servers=FakeCache(
            card("a", "True"), card("b", "False"), card("c", "False", "Pending"), server(conditions=[])
        ),
        networks=FakeCache(
            network("a", 3, 3, "True"),
            network("b", 3, 2, "False"),
            network("c", 1, None, "Unknown"),
            network("d", 1, 1),
        ),
    )  # fmt: skip
    assert told(meters, "provisioner_dpu") == {
        'dpus{state="Ready"}': 1,
        'dpus{state="NotReady"}': 1,
        'dpu_networks{state="Confirmed"}': 2,
        'dpu_networks{state="Waiting"}': 1,
        'dpu_networks{state="Never"}': 1,
        'dpus_exchanging{exchanged="True"}': 1,
        'dpus_exchanging{exchanged="False"}': 1,
        'dpus_exchanging{exchanged="Unknown"}': 1,
    }


def test_reflectors_that_the_pool_names_are_counted_by_what_they_last_said() -> None:
    said = [condition("Reflector.10.0.0.1", "True", "Serving"), condition("Reflector.10.0.0.2", "False", "BgpdFailed")]
    chosen = {"type": "EVPN", "asn": 65000, "reflectors": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]}
    pool = {"metadata": {"name": "default"}, "spec": {"routeDistribution": chosen}, "status": {"conditions": said}}
    assert told(follow_network(pools=FakeCache(pool)), "provisioner_reflectors") == {
        'reflectors{state="Serving"}': 1,
        'reflectors{state="BgpdFailed"}': 1,
        'reflectors{state="Silent"}': 1,
    }
    chosen["type"] = "APIServer"
    assert told(follow_network(pools=FakeCache(pool)), "provisioner_reflectors") == {}


def expiry(read: dict[str, Callable[[], str | None]]) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(FamiliesCollector(lambda: certificate_ends(read)))
    lines = generate_latest(registry).decode().splitlines()
    return {n: float(v) for n, _, v in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def test_the_ends_of_the_certificates_towards_the_api_server_are_told(
    control_plane: ControlPlane, cluster: Cluster
) -> None:
    meters = new_meters()
    meters.tell_of(Process(lambda: None), cluster)
    found = told(meters, "provisioner_certificate_expiry")
    assert found['certificate_expiry_timestamp_seconds{purpose="api-server-ca"}'] > datetime.now(UTC).timestamp()
    assert found['certificate_expiry_timestamp_seconds{purpose="client"}'] > datetime.now(UTC).timestamp()


def test_a_certificate_that_cannot_be_read_is_left_out_and_hides_no_other(cluster: Cluster) -> None:
    def gone() -> str:
        raise FileNotFoundError("gone")

    found = expiry({"a": gone, "b": lambda: "no PEM", "c": lambda: None, "d": lambda: cluster.ca_pem})
    assert list(found) == ['provisioner_certificate_expiry_timestamp_seconds{purpose="d"}']


def test_a_scrape_with_ten_thousand_servers_stays_small_and_takes_no_longer_than_one_probe_may() -> None:
    """Bytes are what grows with names in labels; the time is told in docs/monitoring.md, and bounded widely here."""
    few, many = fleet(100), fleet(10_000)
    generate_latest(many.registry)
    began = time.process_time()
    big = len(generate_latest(many.registry))
    seconds = time.process_time() - began
    print(f"a scrape with 10,000 servers: {big} bytes, {seconds * 1000:.0f} ms of processor time")
    assert seconds < 5
    assert big < 2 * len(generate_latest(few.registry))


def fleet(size: int) -> Meters:
    """So many servers with BMCs, an attachment and a card each, a Maintenance for every tenth."""
    meters = new_meters()

    def one(number: int) -> dict[str, Any]:
        conditions = [condition(t, "True", "x") for t in ("Accepted", "Discovered", "Booted", "Joined", "Verified")]
        body = server(f"s-{number}", conditions=[*conditions, condition("PoweredOn", "True", "On")])
        body["spec"] |= {"bmc": {"address": "https://10.0.0.1"}, "dpu": {}, "acceptance": "Accepted"}
        return body

    servers = FakeCache(*map(one, range(size)))
    waits = FakeCache(
        *({"metadata": {"name": f"m-{n}", "creationTimestamp": "2026-01-02T11:00:00Z"},
           "spec": {"serverRef": f"s-{n}"}, "status": {"phase": "Waiting", "blockers": [{"kind": "Pod"}]}}
          for n in range(0, size, 10))
    )  # fmt: skip
    meters.follow(servers, waits, FakeCache(), FakeCache(), images=FakeCache())
    attachments = FakeCache(*(attachment(f"a-{n}", "WaitsForDPU", n % 60) for n in range(size)))
    meters.follow_network(servers, attachments, FakeCache(), FakeCache())
    return meters
