"""The last version becomes this one, and that one again, while servers boot, join, are asked for, and change image.

Both versions run as they are shipped, in processes of their own: controllers (all groups, behind one Lease) and two
boot hosts, with the agents of both. The order is that of docs/upgrading.md. Nothing may be lost, or done twice.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from lab.binaries.obtain import Binaries
from lab.control_plane.pki import Authority
from lab.control_plane.plane import ControlPlane
from lab.control_plane.ports import free_port
from lab.tools import Tools
from provisioner import __version__
from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.errors import ProvisionerError, Refused
from provisioner.api.machinery.schema import API_VERSION
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import CRDS, KNOWN, LEASES, SYSTEM, of
from tests.benchmarks.fleet.copies import begin_job, end_job, make_jobs_namespace
from tests.conftest import may_begin
from tests.people import BINDINGS, BOOT, CONTROLLER, kubeconfig_of, until, wait_for_all_policies
from tests.tools import lab_tools, need_root
from tests.upgrade.fleet import ASKED, NEW_IMAGE, OLD_IMAGE, QUIET, ROLLED, Record, ask_for_reboot, publish, register
from tests.upgrade.machines import AgentsOf, Machines
from tests.upgrade.releases import CHECKOUT, Release, Running, previous_release

SECONDS: Final = 600
ADDRESSES: Final = {"boot-1": "127.0.81.1", "boot-2": "127.0.81.2"}
ALL: Final = (*ROLLED, *ASKED, QUIET)


def wait(what: str, holds: Callable[[], bool]) -> None:
    """Of what takes long, the test's output tells how long it took."""
    began = time.monotonic()
    deadline = began + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited too long: {what}"
        time.sleep(0.3)
    print(f"{time.monotonic() - began:6.1f} s: {what}")


@dataclass
class Site:
    """The cluster, what runs in it, and what was asked of it."""

    cluster: Cluster
    plane: ControlPlane
    folder: Path
    tools: Tools
    stop: threading.Event
    ports: dict[str, tuple[int, int]]
    hosts: list[tuple[str, int]]
    agents: list[AgentsOf] = field(default_factory=list)
    running: dict[str, Running] = field(default_factory=dict)
    requests: dict[int, str] = field(default_factory=dict)
    asking: threading.Event = field(default_factory=threading.Event)

    def follow(self) -> None:
        """Machines and record: once the kinds are served."""
        self.record = Record(Cluster.connect(self.plane.kubeconfig, user_agent="record"), self.stop)
        self.machines = Machines(self.plane.kubeconfig, self.stop, self.hosts)
        self.machines.start()

    def use_agents_of(self, release: Release) -> None:
        self.agents.append(AgentsOf(release, self.folder / "tls" / "ca.crt"))
        self.machines.agents = self.agents[-1]

    def connect_as(self, user: str) -> Cluster:
        return Cluster.connect(kubeconfig_of(self.plane, self.folder, user))

    def apply_manifests(self, release: Release) -> None:
        manifests = release.manifests()
        crds = [each for each in manifests if each["kind"] == "CustomResourceDefinition"]
        for each in crds:
            self.cluster.apply(each, manager="kubectl")
        until(lambda: all(self._is_served(each) for each in crds))
        for each in manifests:
            if each not in crds:
                self.cluster.apply(each, manager="kubectl")
        wait_for_all_policies(self.cluster)

    def _is_served(self, crd: dict[str, Any]) -> bool:
        with suppress(ProvisionerError):
            self.cluster.list(KNOWN[API_VERSION, crd["spec"]["names"]["kind"]])
            return True
        return False

    def start_controller(self, name: str, release: Release) -> None:
        account = kubeconfig_of(self.plane, self.folder, CONTROLLER)
        command = ["--log-json", "controller", f"--kubeconfig={account}", "--boot-url=http://127.0.81.1"]
        self._start(name, release, release.command(*command, f"--identity={name}"))

    def start_boot_host(self, name: str, release: Release) -> None:
        """Under a host name of its own, as images' stores are told apart by it."""
        port, join_port = self.ports[name]
        address, account = ADDRESSES[name], kubeconfig_of(self.plane, self.folder, BOOT)
        options = {
            "kubeconfig": account,
            "address": address,
            "state": self.folder / f"state-{name}",
            "image-store": self.folder / "images",
            "tls-certificate": self.folder / "tls" / f"{name}.crt",
            "tls-key": self.folder / "tls" / f"{name}.key",
            "api-server": self.plane.server_url,
            "http-port": port,
            "join-port": join_port,
            "tools-root": self.tools.root,
        }
        words = [f"--{option}={value}" for option, value in options.items()]
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name]
        self._start(name, release, [*named, *release.command("--log-json", "boot", "--no-dhcp", *words)])

    def _start(self, name: str, release: Release, command: list[str]) -> None:
        self.running[name] = Running(name, release, command, self.folder / f"{name}.log").start()

    def stop_one(self, name: str) -> None:
        self.running.pop(name).stop()

    @property
    def leader(self) -> str | None:
        lease = self.cluster.find(LEASES, "provisioner-controller", namespace=SYSTEM)
        holder: str | None = ((lease or {}).get("spec") or {}).get("holderIdentity")
        return holder or None

    def status(self, server: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get(of(Server), server).get("status") or {}
        return found

    def is_in_use(self, server: str) -> bool:
        status = self.status(server)
        return status.get("lifecycle") == "InProduction" and "assignedImageRef" in status

    def keep_asking(self) -> None:
        """One reboot after the other of each of the servers, until told to stop."""

        def ask(server: str) -> None:
            while not self.asking.is_set():
                number = next(numbers)
                self.requests[number] = server
                ask_for_reboot(self.cluster, server, number)
                wait(f"request {number} for {server} ends", partial(self.is_over, number))

        numbers = itertools.count()
        self.askers = [threading.Thread(target=ask, args=(server,)) for server in ASKED]
        for each in self.askers:
            each.start()

    def stop_asking(self) -> None:
        self.asking.set()
        for each in getattr(self, "askers", ()):
            each.join()

    def is_over(self, number: int) -> bool:
        return (self.asking.is_set() and self.stop.is_set()) or len(self.ended_of(number)) == 1

    def ended_of(self, number: int) -> list[str]:
        """Maintenances by which the request was met and which have ended, by phase."""
        found = []
        for each in self.cluster.list(of(Maintenance)).items:
            words = [requestor.get("message", "") for requestor in each["spec"]["requestors"]]
            if f"request {number}" in words and each.get("status", {}).get("phase") in (
                "Completed",
                "Failed",
                "Cancelled",
            ):
                found.append(str(each["status"]["phase"]))
        return found

    def wait_for_load(self, what: str, job: str | None = None) -> None:
        """What runs now has carried requests through from begin to end, and the next server of the rollout.

        The last request that was begun before may have been half done by what ran then; the two after it are not.
        """
        begun = max(self.requests)
        if job is not None:
            end_job(self.cluster, job)
            wait(f"{what}: {job} follows", lambda: self.status(job).get("assignedImageRef") == NEW_IMAGE)
        wait(f"{what}: requests", lambda: all(len(self.ended_of(n)) == 1 for n in range(begun, begun + 3)))


@pytest.fixture
def site(binaries: Binaries, tmp_path: Path) -> Iterator[Site]:
    need_root("start nginx as another user")
    tools, stop = lab_tools(), threading.Event()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="upgrade-test-")))
        folder.chmod(0o755)
        plane = stack.enter_context(ControlPlane(tmp_path / "plane", binaries, node_grace="1h"))
        authority = Authority.create(folder / "tls", "ca")
        for name, address in ADDRESSES.items():
            authority.issue(name, name, server_names=(address,))
        cluster = Cluster.connect(plane.kubeconfig, user_agent="upgrade-test")
        ports = {name: (free_port(address), free_port(address)) for name, address in ADDRESSES.items()}
        hosts = [(ADDRESSES[name], http) for name, (http, _) in ports.items()]
        site = Site(cluster, plane, folder, tools, stop, ports, hosts)
        try:
            yield site
        finally:
            site.asking.set()
            stop.set()
            for each in site.running.values():
                each.kill()
            for agents in site.agents:
                agents.stop()


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_versions_change_under_load_and_nothing_is_lost(site: Site, tmp_path: Path) -> None:
    cluster = site.cluster
    old, new = previous_release(tmp_path / "previous"), Release(__version__, CHECKOUT)
    assert old.run("--version") != new.run("--version")

    # The last version, as it ran for months: all servers in use, a rollout begun, reboots asked for all the time.
    site.apply_manifests(old)
    site.follow()
    site.use_agents_of(old)
    for account in (CONTROLLER, BOOT):
        until(lambda account=account: may_begin(site.connect_as(account)))  # type: ignore[misc]
    register(cluster)
    for name in (OLD_IMAGE, NEW_IMAGE):
        publish(cluster, site.folder / "images", name)
    for name in ("old-1", "old-2"):
        site.start_controller(name, old)
    for name in ADDRESSES:
        site.start_boot_host(name, old)
    switched = [threading.Thread(target=site.machines.switch_on, args=(name,)) for name in ALL]
    for each in switched:
        each.start()
    wait("all servers are in use", lambda: all(site.is_in_use(name) for name in ALL))
    make_jobs_namespace(cluster)
    for name in ROLLED[1:]:
        begin_job(cluster, name)
    cluster.patch(of(NodePool), "rolled", {"spec": {"imageRef": NEW_IMAGE}})
    site.keep_asking()
    wait("the canary", lambda: site.status(ROLLED[0]).get("assignedImageRef") == NEW_IMAGE)
    site.wait_for_load("the last version alone")
    before = site.status(QUIET)

    # Kinds and rights first. A field that only a coming version knows stands for all that this one has more.
    site.apply_manifests(new)
    _let_servers_have_a_later_field(cluster)
    for name in ALL:
        cluster.apply_status(Server, name, {"later": "kept"}, manager="later")
    site.wait_for_load("controllers of the last version, kinds of this one", job=ROLLED[1])

    # Then controllers, one of which is of each version for a while, whichever leads.
    site.start_controller("new-1", new)
    site.stop_one("old-1")
    site.wait_for_load("both versions")
    site.stop_one("old-2")
    wait("this version leads", lambda: site.leader == "new-1")
    # Then boot hosts one by one; the agents in the images come last.
    for name in ADDRESSES:
        site.stop_one(name)
        site.wait_for_load(f"{name} is away")
        site.start_boot_host(name, new)
    site.wait_for_load("boot hosts and controllers of this version, agents of the last one", job=ROLLED[2])
    site.use_agents_of(new)
    site.wait_for_load("this version alone")

    # And back: controllers and boot hosts, as they came; the kinds stay. One dies without a word. Before it, by
    # docs/upgrading.md: the last version notes no certificate of the boots that it brings, and drops their record.
    for policy in ("provisioner-credentials", "provisioner-credential-record"):
        cluster.patch(BINDINGS, policy, {"spec": {"validationActions": ["Warn"]}})
    for name in ADDRESSES:
        site.stop_one(name)
        site.start_boot_host(name, old)
    site.start_controller("old-3", old)
    site.running.pop("new-1").kill()
    wait("the last version leads again", lambda: site.leader == "old-3")
    site.wait_for_load("the last version with the kinds of this one", job=ROLLED[3])
    site.stop_asking()
    wait("the rollout ends", lambda: all(site.status(each).get("imageRef") == NEW_IMAGE for each in ROLLED))
    wait("all are in use", lambda: all(site.is_in_use(name) for name in ALL))

    print({name: len(boots) for name, boots in site.machines.boots.items()}, len(site.requests), "requests")
    assert site.machines.errors == []
    _nothing_was_lost_or_done_twice(site)
    after = site.status(QUIET)
    assert after.pop("later") == "kept"
    assert _without_times(after) == _without_times(before)
    assert all(site.status(name)["later"] == "kept" for name in ALL)


def _nothing_was_lost_or_done_twice(site: Site) -> None:
    assert len(site.requests) > len(ASKED) * 5
    for number, server in site.requests.items():
        assert site.ended_of(number) == ["Completed"], f"request {number} for {server}"
    maintenances = site.cluster.list(of(Maintenance)).items
    for name in ALL:
        of_server = [each["metadata"]["name"] for each in maintenances if each["spec"]["serverRef"] == name]
        assert [site.record.ends[each] for each in of_server] == [["Completed"]] * len(of_server), name
        boots = 1 + len(of_server)  # it was switched on; each Maintenance boots it once
        assert len(site.machines.boots[name]) == boots, name
        assert len(site.record.orders[name]) == len(set(site.record.orders[name])) == boots, name
        assert site.record.joins[name] == site.record.orders[name], name
    for name in ROLLED:
        wanted = [each for each in maintenances if each["spec"]["serverRef"] == name]
        assert len(wanted) == 1, f"{name} was rolled more than once"


def _let_servers_have_a_later_field(cluster: Cluster) -> None:
    crd = cluster.get(CRDS, "servers.provisioner.dev")
    for version in crd["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["later"] = {"type": "string"}
    cluster.replace(CRDS, crd)

    def is_served() -> bool:
        with suppress(Refused):
            status = {"later": "kept"}
            return "later" in cluster.apply_status(Server, QUIET, status, manager="later").get("status", {})
        return False

    until(is_served)


def _without_times(value: Any) -> Any:
    """Conditions and the like repeat when they were last said; what they say must be the same."""
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if not key.lower().endswith("time")}
    return [_without_times(each) for each in value] if isinstance(value, list) else value
