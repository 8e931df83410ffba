"""Role boot_host on a host of Debian: run twice, changed in parts, and what it installed answers machines."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from artefacts.wheel import build_wheel
from lab.control_plane.pki import Authority
from lab.control_plane.plane import ControlPlane
from provisioner.api import Rack, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from tests.ansible.hosts import PACKAGES, Host, host_in
from tests.ansible.runs import ROOT, Installed
from tests.ansible.wheels import obtain_wheels
from tests.boot.dhcp.relay import is_written, wait_until
from tests.boot.dhcp.wire import Namespace, connect, namespaces
from tests.people import kubeconfig_of, of_account
from tests.tools import CACHE, installed, lab_tools

pytestmark = pytest.mark.long

ADDRESS = "10.80.0.1"


@contextlib.contextmanager
def reached_from(namespace: Namespace, port: int) -> Iterator[None]:
    """127.0.0.1:port of this machine, at the same place in the namespace."""
    with namespace.entered():
        listener = socket.create_server(("127.0.0.1", port))

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                inside, _ = listener.accept()
                outside = socket.create_connection(("127.0.0.1", port))
                for pair in ((inside, outside), (outside, inside)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.fixture
def machine(cluster: Cluster, unique: str) -> Iterator[str]:
    """MAC address of a server in a rack of its own."""
    mac = f"52:54:{unique[1:3]}:{unique[3:5]}:{unique[5:7]}:01"
    api = {"apiVersion": "provisioner.dev/v1alpha1"}
    subnets = [{"name": "boot", "cidr": "10.80.0.0/24"}]
    cluster.create(of(Rack), api | {"kind": "Rack", "metadata": {"name": unique}, "spec": {"subnets": subnets}})
    spec = {"rackRef": unique, "bootMACAddress": mac, "acceptance": "Accepted"}
    cluster.create(of(Server), api | {"kind": "Server", "metadata": {"name": unique}, "spec": spec})
    cluster.apply_status(Server, unique, {"address": "10.80.0.21", "subnetName": "boot"}, manager="tests")
    yield mac
    cluster.delete(of(Server), unique)
    cluster.delete(of(Rack), unique)


@pytest.fixture
def variables(control_plane: ControlPlane, tmp_path: Path) -> dict[str, Any]:
    """What a site would have in its inventory and its vault."""
    kubeconfig = kubeconfig_of(control_plane, tmp_path, of_account("boot"))
    pair = Authority.create(tmp_path / "join", "join-ca").issue("join", "provisioner boot", server_names=[ADDRESS])
    return {
        "boot_host_address": ADDRESS,
        "boot_host_api_server": "https://10.80.0.1:6443",
        "boot_host_interfaces": ["rack0"],
        "boot_host_kubeconfig": kubeconfig.read_text(),
        "boot_host_tls_certificate": pair.certificate.read_text(),
        "boot_host_tls_key": pair.key.read_text(),
        "boot_host_settings": {"cluster-dns": ["10.96.0.10", "10.96.0.11"], "dhcp-workers": 1},
        "boot_host_wheel": str(build_wheel(ROOT, tmp_path / "dist")),
        "boot_host_requirements": str(ROOT / "requirements/runtime.txt"),
        "boot_host_pip_arguments": "--no-index --find-links=/srv/wheels --no-compile",
        "boot_host_start": False,
    }


KEEPALIVED = {
    "boot_host_virtual_address": f"{ADDRESS}/24",
    "boot_host_keepalived_interface": "rack0",
    "boot_host_keepalived_source": "10.80.0.251",
    "boot_host_keepalived_peers": ["10.80.0.252"],
}
VRRP = {"boot_host_keepalived_interface": "rack0"}
ANYCAST = {
    "boot_host_anycast": True,
    "boot_host_anycast_asn": 64601,
    "boot_host_anycast_source": "10.80.1.2",
    "boot_host_anycast_neighbors": [{"address": "10.80.1.1", "asn": 64600}],
}
SECRETS = ("/etc/provisioner/boot.kubeconfig", "/etc/provisioner/join.key", "/etc/provisioner/join.crt")
CHECK = "/usr/local/lib/provisioner/check-boot"


def handlers(run: Any) -> list[str]:
    """Those that were notified; they are skipped where nothing is started."""
    return [each.task for each in run.told if each.task.startswith(("Restart ", "Read ", "Allow "))]


@pytest.mark.timeout(3000)  # four runs of a role of twenty tasks, and pip
def test_a_boot_host_is_installed_once_changed_in_parts_and_answers(
    collection: Installed, tmp_path: Path, variables: dict[str, Any], control_plane: ControlPlane, machine: str
) -> None:
    wheels = obtain_wheels(CACHE)
    with namespaces(2) as (boot, far), host_in(boot, lab_tools(PACKAGES), tmp_path, collection, wheels) as host:
        connect(boot, "rack0", far, "eth0")
        far.ip("link", "set", "eth0", "address", machine)
        boot.ip("address", "add", f"{ADDRESS}/24", "dev", "rack0")

        rehearsed = host.play("boot_host", variables, "--check")
        assert rehearsed.code == 0, rehearsed.output
        assert "Write the settings" in rehearsed.changed
        assert host.run("sh", "-c", "ls -A /etc/provisioner /opt/provisioner 2>/dev/null || true") == ""

        first = host.play("boot_host", variables, "--diff")
        assert first.code == 0, first.output
        assert "Restart the boot service" in handlers(first)
        key = variables["boot_host_tls_key"].splitlines()[2]
        assert key not in first.output
        assert host.run("stat", "--format=%a %U", *SECRETS).splitlines() == ["600 root"] * 3
        assert host.run("systemctl", "is-enabled", "provisioner-boot.service").strip() == "enabled"
        again = host.play("boot_host", variables)
        assert (again.code, again.changed, handlers(again)) == (0, [], []), again.output

        others = {"boot_host_settings": {"cluster-dns": "10.96.0.12"}} | KEEPALIVED
        changed = host.play("boot_host", variables | others)
        assert changed.code == 0, changed.output
        assert [task for task in changed.changed if "keepalived" not in task] == [
            "Write the settings",
            "Make the folder of the check",
            "Let nginx and dnsmasq listen on the virtual address before this host has it",
            "Write the check",
        ], changed.output
        assert handlers(changed) == ["Allow addresses of others", "Restart the boot service", "Restart keepalived"]
        assert 'PROVISIONER_BOOT_CLUSTER_DNS="10.96.0.12"' in host.read("/etc/provisioner/boot.env")
        host.run("keepalived", "--config-test", "--use-file=/etc/keepalived/keepalived.conf")

        with reached_from(boot, int(control_plane.server_url.rpartition(":")[2])):
            what_was_installed_answers(host, far, tmp_path)


def what_was_installed_answers(host: Host, far: Namespace, tmp_path: Path) -> None:
    """The unit's own words start a service that is ready, and that gives the machine its address."""
    log, out, hook = tmp_path / "boot.log", tmp_path / "told", tmp_path / "hook.sh"
    hook.write_text(f'#!/bin/sh\n[ "$1" != bound ] || echo "$ip" >> {out}\n')
    hook.chmod(0o755)
    url = f"http://{ADDRESS}/readyz"
    host.run("mkdir", "-p", "/var/cache/provisioner")  # systemd's CacheDirectory
    with host.started("provisioner-boot.service", log) as service:

        def is_ready() -> bool:
            assert service.poll() is None, log.read_text()
            return subprocess.run([*host.enter, "curl", "-fs", url], capture_output=True, check=False).returncode == 0

        wait_until(is_ready, "the boot service is not ready")
        udhcpc = ["udhcpc", "-f", "-i", "eth0", "-s", str(hook), "-t", "20", "-T", "1"]
        with far.started(installed("busybox"), *udhcpc):
            wait_until(lambda: is_written(out), "the machine got no address")
        assert out.read_text().split()[0] == "10.80.0.21"
        host.run(CHECK)
    assert subprocess.run([*host.enter, CHECK], check=False).returncode != 0, "keepalived is told that it is ready"


def test_what_does_not_fit_together_is_told_before_anything_is_done(collection: Installed, tmp_path: Path) -> None:
    given = {
        "boot_host_address": ADDRESS,
        "boot_host_api_server": "https://10.80.0.1:6443",
        "boot_host_kubeconfig": "a",
        "boot_host_tls_certificate": "b",
        "boot_host_tls_key": "c",
        "boot_host_wheel": "provisioner.whl",
    }
    checks = {"ansible.builtin.include_role": {"name": "provisioner.provisioner.boot_host", "tasks_from": "checks"}}
    passed = {"ansible.builtin.debug": {"msg": "told"}}
    wrong = [
        (given | {"boot_host_virtual_address": "10.80.0.9/24"}, "expected the same address"),
        (given | {"boot_host_virtual_address": ADDRESS}, "expected a prefix length behind it"),
        (given | {"boot_host_virtual_address": f"{ADDRESS}/24"}, "without boot_host_keepalived_interface"),
        (given | {"boot_host_anycast": True}, "without boot_host_anycast_asn"),
        (given | ANYCAST | {"boot_host_virtual_address": f"{ADDRESS}/24"} | VRRP, "choose one"),
        (given | ANYCAST | {"boot_host_anycast_source": ADDRESS}, "name this host's own"),
        (given | ANYCAST | {"boot_host_interfaces": ["rack0"]}, "through routers and relays only"),
        (given | {"boot_host_settings": {"cache": 'a" b'}}, "boot.env cannot hold"),
    ]
    blocks = [{"block": [checks | {"vars": variables}], "rescue": [passed]} for variables, _ in wrong]
    ran = collection.tasks(tmp_path, blocks)
    told = [json.dumps(each.result) for each in ran.told if each.state in ("failed", "ignored")]
    assert len(told) == len(wrong), ran.output
    for (_, words), said in zip(wrong, told, strict=True):
        assert words in said


def test_the_package_is_taken_from_no_index_that_the_site_has_not_named(collection: Installed, tmp_path: Path) -> None:
    """Its name in the public index is anybody's, and what pip installs is root on each boot host."""
    checks = {"ansible.builtin.include_role": {"name": "provisioner.provisioner.boot_host", "tasks_from": "checks"}}
    given = {"boot_host_address": ADDRESS, "boot_host_kubeconfig": "a", "boot_host_api_server": "https://10.80.0.1"}
    given |= {"boot_host_tls_certificate": "b", "boot_host_tls_key": "c"}
    arguments = ["", "--extra-index-url https://pypi.example.com/simple", "--timeout 9"]
    attacked = [given | {"boot_host_pip_arguments": each} for each in arguments]
    own = [
        given | {"boot_host_pip_arguments": each}
        for each in ("--index-url https://p.example.com", "-i x", "--no-index")
    ]
    honest = [*own, given | {"boot_host_wheel": "provisioner.whl"}]
    passed = {"ansible.builtin.debug": {"msg": "told"}}
    ran = collection.tasks(
        tmp_path, [{"block": [checks | {"vars": each}], "rescue": [passed]} for each in (*attacked, *honest)]
    )
    told = [str(each.result) for each in ran.told if each.state == "failed"]
    assert len(told) == len(attacked), ran.output
    assert all("names no index" in each for each in told)
