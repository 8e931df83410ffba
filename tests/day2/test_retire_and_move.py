"""A rack goes for good, or to another cluster, with the controllers at work on a real API server."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from lab.binaries.obtain import Binaries
from lab.control_plane.plane import ControlPlane
from provisioner.api import AddressBlock, Maintenance, Rack, Server, VPCAttachment
from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.cli.service.rack import rack as rack_command
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventRecorder
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import BMC_SECRETS, NODES, SECRETS, of
from provisioner.inventory.controller import InventoryInformers, build_inventory_controllers
from tests.api.objects import bmc, maintenance, rack, server, vpc_attachment
from tests.inventory.site import Site, eventually

Run = Callable[..., Result]


@pytest.fixture
def run(control_plane: ControlPlane) -> Run:
    def call(*words: object) -> Result:
        told = [str(word) for word in words]
        return CliRunner().invoke(rack_command, [*told, "--kubeconfig", str(control_plane.kubeconfig)])

    return call


@pytest.fixture
def at_work(account: Callable[[str], Cluster]) -> Iterator[None]:
    """The inventory controllers, which give addresses and take them back."""
    cluster, stop = account("inventory"), threading.Event()
    recorder = EventRecorder(cluster, "inventory-test")
    followed = InventoryInformers(
        racks=Informer(cluster, of(Rack)),
        servers=Informer(cluster, of(Server)),
        address_blocks=Informer(cluster, of(AddressBlock)),
    )
    controllers = build_inventory_controllers(cluster, followed, recorder)
    for informer in (followed.racks, followed.servers, followed.address_blocks):
        assert isinstance(informer, Informer)
        informer.start(stop)
    threads = [threading.Thread(target=each.run, args=(stop,), daemon=True) for each in controllers]
    for thread in threads:
        thread.start()
    yield
    stop.set()
    for thread in threads:
        thread.join(60)
    recorder.close()


@pytest.fixture
def site(cluster: Cluster, unique: str, at_work: None) -> Site:
    """A rack of two servers with addresses, Nodes and the password of their BMCs, which are off."""
    made = Site(cluster, unique)
    made.add_rack()
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{unique}-bmc", "namespace": BMC_SECRETS}}
    cluster.apply({**secret, "stringData": {"username": "root", "password": "calvin"}}, manager="tests")
    for number in (1, 2):
        address = f"https://{made.address(200 + number)}"
        name = made.add(number, powerState="Off", bmc=bmc(address=address, credentialsName=f"{unique}-bmc"))
        made.becomes(name, "True", "Accepted", made.address(number + 1))
        cluster.apply_status(Server, name, {"power": {"state": "Off"}}, manager="tests-power")
        cluster.create(NODES, {"metadata": {"name": name}})
    return made


def remains(cluster: Cluster, prefix: str) -> list[str]:
    """Everything in the cluster that belongs to the rack, Events left out."""
    found = [
        f"{type_} {item['metadata']['name']}"
        for type_ in (of(Rack), of(Server), of(Maintenance), NODES, SECRETS)
        for item in cluster.list(type_).items
        if item["metadata"]["name"].startswith(prefix)
    ]
    for item in cluster.list(of(AddressBlock)).items:
        found += [f"claim {a}" for a, holder in item["spec"]["claims"].items() if holder.startswith(prefix)]
    return found


def test_a_rack_in_use_stays_and_each_reason_is_told_with_its_remedy(
    cluster: Cluster, site: Site, run: Run, unique: str
) -> None:
    first, second = f"{unique}-u01", f"{unique}-u02"
    cluster.patch(of(Server), first, {"spec": {"powerState": "On"}})
    cluster.apply_status(Server, second, {"power": {"state": "On"}}, manager="tests-power")
    cluster.apply(maintenance(f"{unique}-m", serverRef=second), manager="tests")
    before = remains(cluster, unique)
    for words in ((), ("--dry-run",)):
        refused = run("retire", unique, *words)
        assert isinstance(refused.exception, Refused)
        said = str(refused.exception)
        assert f"{first} is to be on; drain it" in said
        assert f"{second} is not off: its power is On" in said
        assert f"{second} has Maintenance {unique}-m (new)" in said
    assert remains(cluster, unique) == before
    cluster.delete(of(Maintenance), f"{unique}-m")


def test_a_retired_rack_leaves_nothing_behind(cluster: Cluster, site: Site, run: Run, unique: str) -> None:
    cluster.apply(maintenance(f"{unique}-m", serverRef=f"{unique}-u01"), manager="tests")
    cluster.apply_status(Maintenance, f"{unique}-m", {"phase": "Completed"}, manager="tests")
    rehearsed = run("retire", unique, "--dry-run")
    assert rehearsed.exit_code == 0, rehearsed.exception
    assert f"- Secret {unique}-bmc" in rehearsed.output
    assert remains(cluster, unique) != []
    done = run("retire", unique)
    assert done.exit_code == 0, (done.output, done.exception)
    assert f"rack {unique} is gone" in done.output
    assert remains(cluster, unique) == []
    assert isinstance(run("retire", unique).exception, NotFound)


def test_a_server_without_a_bmc_whose_kubelet_lives_keeps_its_rack_and_its_jobs(
    cluster: Cluster, site: Site, run: Run, unique: str
) -> None:
    name = site.add(3, powerState="Off")
    site.becomes(name, "True", "Accepted", site.address(4))
    cluster.create(NODES, {"metadata": {"name": name}})
    lives = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}
    cluster.patch(NODES, name, lives, subresource="status")
    before = remains(cluster, unique)
    refused = run("retire", unique)
    assert isinstance(refused.exception, Refused)
    assert f"{name} is not off: nobody tells its power, and its Node is Ready" in str(refused.exception)
    assert remains(cluster, unique) == before
    silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    cluster.patch(NODES, name, silent, subresource="status")
    done = run("retire", unique)
    assert done.exit_code == 0, (done.output, done.exception)
    assert remains(cluster, unique) == []


def test_a_password_that_another_rack_needs_stays(cluster: Cluster, site: Site, run: Run, unique: str) -> None:
    other, octets = f"{unique}-other", site.address(0).split(".")
    cidr = f"10.{octets[1]}.{(int(octets[2]) + 1) % 256}.0/24"
    cluster.apply(rack(other, subnets=[{"name": "boot", "cidr": cidr}]), manager="tests")
    shared = bmc(address=f"https://{site.address(250)}", credentialsName=f"{unique}-bmc")
    spec = {"rackRef": other, "bootMACAddress": site.mac(77), "powerState": "Off", "bmc": shared}
    cluster.apply(server(f"{other}-u01", **spec), manager="tests")
    assert run("retire", unique).exit_code == 0
    assert cluster.find(SECRETS, f"{unique}-bmc", namespace=BMC_SECRETS) is not None
    cluster.apply_status(Server, f"{other}-u01", {"power": {"state": "Off"}}, manager="tests-power")
    assert run("retire", other).exit_code == 0
    assert remains(cluster, unique) == []


def test_who_was_interrupted_goes_on(cluster: Cluster, site: Site, run: Run, unique: str, monkeypatch: Any) -> None:
    delete, count = Cluster.delete, [0]

    def power_fails(self: Cluster, *args: Any, **more: Any) -> bool:
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        return delete(self, *args, **more)

    monkeypatch.setattr(Cluster, "delete", power_fails)
    run("retire", unique)
    monkeypatch.setattr(Cluster, "delete", delete)
    left = remains(cluster, unique)
    assert f"Rack {unique}" in left
    assert f"Secret {unique}-bmc" in left, "one of its servers is there yet"
    assert run("retire", unique).exit_code == 0
    assert remains(cluster, unique) == []


def test_a_rack_moves_with_its_addresses_and_boots_nowhere_before_it_is_accepted(
    cluster: Cluster, site: Site, run: Run, unique: str
) -> None:
    before = {name: cluster.read(Server, name) for name in (f"{unique}-u01", f"{unique}-u02")}
    exported = run("export", unique)
    assert exported.exit_code == 0, exported.exception
    assert "calvin" not in exported.output
    assert f"# Secrets of {BMC_SECRETS} that it names: {unique}-bmc" in exported.output
    assert run("retire", unique).exit_code == 0
    assert remains(cluster, unique) == []
    # The other cluster: the same API server once more, in which nothing of the rack is left.
    for body in yaml.safe_load_all(exported.output):
        assert "status" not in body
        assert not {"uid", "resourceVersion", "managedFields", "finalizers"} & set(body["metadata"])
        cluster.apply(body, manager="kubectl")
    for name, was in before.items():
        now = cluster.read(Server, name)
        assert now.spec.acceptance == "Pending", "it boots there when it is accepted, and not before"
        assert now.status.order is None
        assert now.metadata.uid != was.metadata.uid
        assert now.spec.boot_mac_address == was.spec.boot_mac_address
        cluster.patch(of(Server), name, {"spec": {"acceptance": "Accepted"}})
        eventually(lambda name=name: cluster.read(Server, name).status.address, f"{name} has an address")  # type: ignore[misc]
        assert cluster.read(Server, name).status.address == was.status.address
    cluster.patch(of(Server), f"{unique}-u01", {"spec": {"powerState": "Off"}})
    cluster.patch(of(Server), f"{unique}-u02", {"spec": {"powerState": "Off"}})
    assert run("retire", unique).exit_code == 0


def test_a_server_with_a_tenant_keeps_its_rack(cluster: Cluster, site: Site, run: Run, unique: str) -> None:
    body = vpc_attachment(f"{unique}-a", serverRef=f"{unique}-u02")
    cluster.create(of(VPCAttachment), body)
    refused = run("retire", unique)
    assert f"{unique}-u02 is attached to a tenant's network: delete vpcattachment -n default {unique}-a" in str(
        refused.exception
    )
    cluster.delete(of(VPCAttachment), f"{unique}-a", namespace="default")
    assert run("retire", unique).exit_code == 0


def test_the_guides_loops_over_a_rack_do_what_they_say(
    control_plane: ControlPlane, binaries: Binaries, cluster: Cluster, site: Site, unique: str
) -> None:
    """Switched off, waited for; and accepted one after the other in the cluster to which it has moved."""
    guide = (Path(__file__).parents[2] / "docs/retire-and-move.md").read_text()
    blocks = re.findall(r"^```\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    (off,) = [block for block in blocks if '"powerState":"Off"' in block]
    (accept,) = [block for block in blocks if '"acceptance":"Accepted"' in block]
    loop = accept[accept.index("for server in") :].replace("--context=second ", "")
    names = [f"{unique}-u01", f"{unique}-u02"]

    def paste(script: str) -> None:
        path = f"{binaries.kubectl.parent}:{os.environ['PATH']}"
        environment = os.environ | {"KUBECONFIG": str(control_plane.kubeconfig), "PATH": path}
        named = script.replace("=r01", f"={unique}")
        command = ["bash", "-euo", "pipefail", "-c", named]
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)
        assert ran.returncode == 0, ran.stderr

    for name in names:
        cluster.patch(of(Server), name, {"spec": {"powerState": "On"}})
    paste(off)
    assert [cluster.read(Server, name).spec.power_state for name in names] == ["Off", "Off"]
    for name in names:
        cluster.patch(of(Server), name, {"spec": {"acceptance": "Pending"}})
    paste(loop)
    assert [cluster.read(Server, name).spec.acceptance for name in names] == ["Accepted", "Accepted"]
