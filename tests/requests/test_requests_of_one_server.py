"""What one server's first boot, one reimage by kexec and its part of a rollout cost the API server.

Real: the API server, the shipped accounts, all controllers as `provisioner controller` runs them, the boot service's
join and progress. Played: the BMC (one that is on when told), the kubelet (not counted), and the agent, which makes the
requests that provisioner.node makes: it reads its Node once a boot, and annotates it.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from lab.control_plane.plane import ControlPlane
from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.machinery.codec import encode, to_json
from provisioner.api.machinery.meta import ObjectMeta, rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import (
    BOOT_INTENT_ANNOTATION,
    BOOT_REPORT_ANNOTATION,
    NODE_FACTS_ANNOTATION,
    REIMAGE_REQUESTED,
)
from provisioner.api.pools.pool_settings import MaintenanceSettings
from provisioner.api.servers.server import ServerStatus
from provisioner.boot.observe.progress import ProgressReport
from provisioner.boot.observe.recorder import ProgressRecorder
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.cli.service.controllers import run_controllers
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.informer import Informer
from provisioner.cluster.metrics import Meters
from provisioner.cluster.resources import LEASES, NODE_LEASES, NODES, of
from provisioner.join.admission.configuration import JoinConfiguration, JoinSettings
from provisioner.join.admission.service import JoinService
from provisioner.power.bmc.pool import BmcPool
from tests.boot.objects import image, pool, rack, server
from tests.health.objects import good_facts, nic
from tests.join import samples
from tests.join.world import ask, certificate_pem, connect_as, connect_by_token, private_pem
from tests.people import BOOT, CONTROLLER, kubeconfig_of
from tests.requests.counted import Counts, lists, table

FIRST_BOOT_AT_MOST, REIMAGE_AT_MOST, ROLLOUT_AT_MOST = 53, 77, 6
LISTING_AT_MOST = 4
"""Of a boot: the earlier certificate off the list, the new one onto it; Role and RoleBinding once for many servers."""
NEXT_DIGEST = "sha256:" + "cd" * 32
SECONDS = 300.0


class FakeBmc:
    """Does what it is told at once."""

    def __init__(self) -> None:
        self.power, self.boots = "Off", 0

    def get_power_state(self) -> str:
        return self.power

    def set_boot_override(self, *_: Any, **__: Any) -> None:
        return

    def power_on(self) -> None:
        self.power, self.boots = "On", self.boots + 1

    def power_off(self, *, force: bool) -> None:
        self.power = "Off"

    def reset(self) -> None:
        self.boots += 1

    def close(self) -> None:
        return


@dataclass
class Site:
    """One server, everything around it, and what that asked so far."""

    plane: ControlPlane
    admin: Cluster
    folder: Path
    name: str
    mac: str
    counts: Counts
    bmc: FakeBmc
    join: JoinService
    progress: ProgressRecorder
    agent: Cluster
    boot_id: str = ""
    told: set[str] = field(default_factory=set)

    def server(self) -> Server:
        return self.admin.read(Server, self.name)

    def annotations(self) -> dict[str, str]:
        return self.admin.get(NODES, self.name)["metadata"].get("annotations") or {}

    def until(self, what: str, holds: Callable[[], Any]) -> None:
        end = time.monotonic() + SECONDS
        while not holds():
            assert time.monotonic() < end, f"{what}: {to_json(self.server().status)} {self.counts.log[-40:]}"
            time.sleep(0.2)

    # The machine

    def boots(self, digest: str, key: str, stages: tuple[str, ...]) -> None:
        """From the first sign of life to a Node that is Ready and has said what it has."""
        self.boot_id = str(uuid.uuid4())
        for stage in stages:
            boot_id = None if stage in ("Firmware", "IPXE") else self.boot_id
            self.progress.observe(ProgressReport(mac=self.mac, stage=stage, boot_id=boot_id))  # type: ignore[arg-type]
            time.sleep(1.0)
        configuration = self._joins(digest, key)
        self._becomes_node(configuration)
        self.agent.get(NODES, self.name)  # then it watches
        self._kubelet_reports()
        facts = good_facts(nics=(nic(self.mac),), boot_id=self.boot_id, image_digest=digest, kexec_supported=True)
        self.annotates(NODE_FACTS_ANNOTATION, to_json(facts))
        for _ in range(3):
            self._renews_lease()
            time.sleep(1.0)

    def _joins(self, digest: str, key: str) -> JoinConfiguration:
        end = time.monotonic() + SECONDS
        while True:
            request = samples.request(
                macAddress=self.mac,
                bootID=self.boot_id,
                requestKey=key,
                imageDigest=digest,
                systemUUID=str(uuid.UUID(int=1)),
            )
            answer = self.join.join(request, str(self.server().status.address))
            if isinstance(answer, JoinConfiguration):
                return answer
            assert time.monotonic() < end, answer
            time.sleep(1.0)

    def _becomes_node(self, configuration: JoinConfiguration) -> None:
        holder = connect_by_token(self.plane, self.folder, configuration.bootstrap_token.reveal())
        key = ec.generate_private_key(ec.SECP256R1())
        name = ask(holder, certificate_pem(key, f"system:node:{self.name}"))
        pem = self._certificate(name)
        node = connect_as(
            self.plane, self.folder, {"client-certificate-data": pem, "client-key-data": _base64(private_pem(key))}
        )
        ask_serving(node, self.name, str(self.server().status.address))

    def _certificate(self, name: str) -> str:
        from provisioner.cluster.resources import CSRS

        self.until("the certificate", lambda: (self.admin.get(CSRS, name).get("status") or {}).get("certificate"))
        return str(self.admin.get(CSRS, name)["status"]["certificate"])

    def _renews_lease(self) -> None:
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": rfc3339_micro(datetime.now(UTC))}
        body = {"apiVersion": LEASES.api_version, "kind": "Lease", "spec": spec,
                "metadata": {"name": self.name, "namespace": NODE_LEASES}}  # fmt: skip
        self.admin.apply(body, manager="kubelet")

    def _kubelet_reports(self) -> None:
        now = datetime.now(UTC)
        words = ("machineID", "systemUUID", "kernelVersion", "osImage", "kubeletVersion", "kubeProxyVersion")
        info = dict.fromkeys((*words, "operatingSystem", "architecture"), "x")
        status = {
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting",
                            "lastTransitionTime": rfc3339(now)}],
            "nodeInfo": {**info, "containerRuntimeVersion": "containerd://2.1", "bootID": self.boot_id},
        }  # fmt: skip
        self.admin.strategic_patch(NODES, self.name, {"status": status}, subresource="status")

    # The agent

    def annotates(self, key: str, value: dict[str, Any]) -> None:
        self.agent.patch(NODES, self.name, {"metadata": {"annotations": {key: json.dumps(value)}}})

    def obeys(self, action: str, *states: str, key_sha256: str | None = None) -> None:
        """Wait for an intent, and answer it."""

        def intent() -> dict[str, Any]:
            return json.loads(self.annotations().get(BOOT_INTENT_ANNOTATION) or "{}")

        self.until(f"the agent is told to {action}", lambda: intent().get("action") == action)
        told = intent()
        for state in states:
            report = {"id": told["id"], "state": state, "imageDigest": told["imageDigest"], "bootID": self.boot_id,
                      "message": state, "time": rfc3339(datetime.now(UTC))}  # fmt: skip
            if key_sha256:
                report["nextRequestKeySHA256"] = key_sha256
            self.annotates(BOOT_REPORT_ANNOTATION, report)
            time.sleep(2.0)

    def is_in_production(self) -> bool:
        status = self.server().status
        taints = self.admin.get(NODES, self.name)["spec"].get("taints") or []
        return (
            status.lifecycle == "InProduction"
            and status.boot_stage == "Ready"
            and status.boot_id == self.boot_id
            and not [t for t in taints if t["key"].startswith("provisioner.dev/")]
        )

    def take(self, title: str) -> Counter[tuple[str, str, str]]:
        """What was counted since the last time; printed, too."""
        conflicts, log = self.counts.conflicts, list(self.counts.log)
        counted = self.counts.take()
        print(title, table(counted), f"{conflicts:4}  of them met a conflict", *log, sep="\n")
        return counted


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(text.encode()).decode()


def ask_serving(node: Cluster, name: str, address: str) -> None:
    import ipaddress

    from cryptography import x509

    from provisioner.join.certificates.approve import SERVING_SIGNER

    key = ec.generate_private_key(ec.SECP256R1())
    alternative = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address(address))]
    pem = certificate_pem(key, f"system:node:{name}", alternative=alternative)
    ask(node, pem, signer=SERVING_SIGNER, usages=("digital signature", "server auth"))


@pytest.fixture
def site(
    control_plane: ControlPlane, cluster: Cluster, tmp_path: Path, unique: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    """Controllers that run, with rack, pool and Image; no server yet."""
    counts, bmc, stop = Counts(), FakeBmc(), threading.Event()
    monkeypatch.setattr(BmcPool, "get", lambda self, name, place: bmc)
    second = int(unique[1:3], 16) % 250
    subnet = replace(rack().spec.subnets[0], cidr=f"10.{second}.{int(unique[3:5], 16)}.0/24", **_no_addresses())
    create(cluster, Rack(metadata=ObjectMeta(name=unique), spec=replace(rack().spec, subnets=(subnet,))))
    for name, digest in ((f"{unique}-old", samples.DIGEST), (f"{unique}-new", NEXT_DIGEST)):
        create(cluster, image(name, digest=digest))
    settings = MaintenanceSettings(max_unavailable=1, kexec_models=("*",))
    create(cluster, pool(unique, image_ref=f"{unique}-old", maintenance=settings))
    controllers = counts.connect(kubeconfig_of(control_plane, tmp_path, CONTROLLER))
    boot = counts.connect(kubeconfig_of(control_plane, tmp_path, BOOT), "boot service")
    runner = threading.Thread(
        target=run_controllers,
        args=(controllers, stop),
        kwargs={"boot_url": "http://10.0.0.1", "power_poll_seconds": 600.0,
                "clock": lambda: datetime.now(UTC), "meters": Meters(causes=(), checks=())},
        name="controllers-0",
        daemon=True,
    )  # fmt: skip
    runner.start()
    servers = Informer(boot, of(Server))
    index = ServerIndex(servers)
    index.attach()
    servers.start(stop)
    pools, images = Informer(boot, of(NodePool)), Informer(boot, of(Image))
    for informer in (pools, images):
        informer.start(stop)
    assert all(informer.wait_for_sync(SECONDS) for informer in (servers, pools, images))
    events = EventRecorder(boot, "provisioner-boot")
    progress = ProgressRecorder(boot, index, events)
    threading.Thread(target=progress.run, args=(stop,), name="progress-0", daemon=True).start()
    settings_of_join = JoinSettings(api_server_url=control_plane.server_url, cluster_ca=control_plane.ca_pem)
    join = JoinService(
        boot,
        settings_of_join,
        find_server=lambda mac: unique,
        recorder=events,
        sources={of(NodePool): pools, of(Image): images},
    )
    mac = "02:" + ":".join(f"{b:02x}" for b in secrets.token_bytes(5))
    agent = counts.connect(control_plane.kubeconfig, "agent")
    yield Site(control_plane, cluster, tmp_path, unique, mac, counts, bmc, join, progress, agent)
    stop.set()
    runner.join(30)
    # Controllers of the next test would boot it by a BMC that is that one's.
    cluster.delete(of(Server), unique)
    cluster.delete(NODES, unique)


def _no_addresses() -> dict[str, Any]:
    return {"gateway": None, "dns_servers": (), "ntp_servers": ()}


def create(cluster: Cluster, resource: Any) -> None:
    body = encode(resource)
    status = body.pop("status", None)
    body["metadata"] = {"name": resource.metadata.name}
    cluster.create(of(type(resource)), body)
    if status:
        cluster.apply_status(type(resource), resource.metadata.name, status, manager="tests")


def test_what_a_first_boot_and_a_reimage_by_kexec_cost(site: Site) -> None:
    site.counts.come_to_rest()
    site.counts.take()
    _first_boot(site)
    first = site.take("FIRST BOOT")

    site.counts.take()
    asked = {"type": REIMAGE_REQUESTED, "status": "True", "reason": "WhenIdle", "message": f"image={site.name}-new",
             "lastTransitionTime": rfc3339(datetime.now(UTC))}  # fmt: skip
    site.admin.strategic_patch(NODES, site.name, {"status": {"conditions": [asked]}}, subresource="status")
    _comes_back_by_kexec(site)
    reimage = site.take("REIMAGE")

    assert site.bmc.boots == 1
    assert lists(first) == []
    assert lists(reimage, allowed=["Pod"]) == []
    # Requests that met another writer are requests, too: how many do is for the load of the machine to decide.
    assert sum(first.values()) <= FIRST_BOOT_AT_MOST, table(first)
    for boot in (first, reimage):
        listing = {key: n for key, n in boot.items() if key[0] == "join-credentials"}
        assert 0 < sum(listing.values()) <= LISTING_AT_MOST, table(boot)
    assert sum(reimage.values()) <= REIMAGE_AT_MOST, table(reimage)


def test_what_a_rollout_asks_about_each_server_beside_what_its_maintenance_costs(site: Site) -> None:
    site.counts.come_to_rest()
    _first_boot(site)
    site.counts.take()
    site.admin.patch(of(NodePool), site.name, {"spec": {"imageRef": f"{site.name}-new"}})
    _comes_back_by_kexec(site)
    site.until("the image is assigned", lambda: site.server().status.assigned_image_ref == f"{site.name}-new")
    site.counts.come_to_rest()
    asked = site.take("ROLLOUT")
    own = Counter({key: n for key, n in asked.items() if key[0] == "rollout"})
    of_server = Counter({key: n for key, n in own.items() if not key[2].startswith(("NodePool", "Event"))})
    assert lists(own) == []
    assert of_server["rollout", "CREATE", "Maintenance"] == 1
    assert of_server["rollout", "APPLY", "Server/status"] == 1
    assert sum(of_server.values()) <= ROLLOUT_AT_MOST, table(of_server)


def _first_boot(site: Site) -> None:
    create(
        site.admin,
        server(site.name, status=ServerStatus(), boot_mac_address=site.mac, rack_ref=site.name, node_pool_ref=site.name,
               system_uuid=None, bmc=samples.spec().bmc),
    )  # fmt: skip
    site.until("the BMC is told", lambda: site.bmc.boots)
    site.boots(samples.DIGEST, secrets.token_hex(32), ("IPXE", "Stage1", "Root", "System", "Token"))
    site.until("the server is in production", site.is_in_production)
    site.counts.come_to_rest()


def _comes_back_by_kexec(site: Site) -> None:
    site.obeys("Stage", "Staging", "Staged")
    key = secrets.token_hex(32)
    site.obeys("Kexec", "Rebooting", key_sha256=samples.key_digest(key))
    not_ready = {"conditions": [{"type": "Ready", "status": "False", "reason": "Kexec", "message": "starts it"}]}
    site.agent.strategic_patch(NODES, site.name, {"status": not_ready}, subresource="status")
    site.boots(NEXT_DIGEST, key, ("Stage1", "System", "Token"))
    site.until("the server is back", lambda: _is_over(site) and site.is_in_production())
    site.counts.come_to_rest()


def _is_over(site: Site) -> bool:
    from provisioner.api import Maintenance

    found = [m for m in site.admin.read_all(Maintenance) if m.spec.server_ref == site.name]
    return bool(found) and found[0].status.phase == "Completed"
