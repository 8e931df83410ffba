"""The real agent and a real kubelet: from an ordered boot to the kubelet's certificate, through the real front.

The kubelet has no container runtime, so it becomes no Node that is Ready. What is shown here is that it takes our
configuration, spends the token, and gets its certificate from the approver and the controller manager.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from lab.binaries.obtain import Binaries
from lab.control_plane.ports import free_port
from provisioner.api.pools.node_pool import NodePool
from provisioner.cluster.resources import NODES, of
from tests.join.front import serve_behind_nginx
from tests.join.samples import DIGEST
from tests.join.test_controllers import informers, wait_until
from tests.join.world import World
from tests.node.machine import BOOT_ID, boot_machine, install_agent, start_agent
from tests.tools import need_root

__all__ = ["informers"]

ADDRESS = "127.0.0.21"
SECONDS = 180.0

# Nothing of the kubelet reaches the host: /run is its own, and so is everything else that it might write to.
MACHINE = """
set -eu
for path in /run /var/lib /var/log /etc/systemd; do mount -t tmpfs tmpfs "$path"; done
mkdir /run/provisioner
mount --bind "$1/run/provisioner" /run/provisioner
shift
exec "$@"
"""


@pytest.fixture
def silent_runtime(tmp_path: Path) -> Iterator[Path]:
    """A container runtime that takes connections and says nothing: the kubelet waits for it instead of dying."""
    path = tmp_path / "cri"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(16)
        yield path


def configure_for_this_machine(world: World, runtime: Path) -> None:
    """What a machine without cgroups v2 and with swap needs; put over the built-in configuration as a pool does it."""
    configuration = {
        "containerRuntimeEndpoint": f"unix://{runtime}",
        "port": free_port("127.0.0.1"),
        "healthzPort": 0,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "failCgroupV1": False,
    }
    world.admin.patch(of(NodePool), world.name, {"spec": {"kubelet": {"configuration": configuration}}})


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The root folder of the booted machine."""
    return tmp_path / "root"


@pytest.mark.usefixtures("informers")
def test_the_agent_and_a_real_kubelet_get_a_certificate(
    make_world: Callable[..., World], binaries: Binaries, tmp_path: Path, machine: Path, silent_runtime: Path
) -> None:
    need_root("run a kubelet")
    world = make_world()
    world.apply_status("provisioner-inventory", {"address": ADDRESS})
    world.address = ADDRESS
    configure_for_this_machine(world, silent_runtime)
    world.prepare_node = lambda: None  # type: ignore[method-assign]
    world.order("order-1")

    with serve_behind_nginx(world.service(), tmp_path) as front:
        boot_machine(machine, join_port=front.port, boot_port=front.http_port, ca=front.authority.pem())
        facts = json.loads((machine / "run/provisioner/boot.json").read_text())
        facts |= {"server": world.name, "mac": world.mac, "imageDigest": DIGEST, "address": f"{ADDRESS}/8"}
        (machine / "run/provisioner/boot.json").write_text(json.dumps(facts))
        agent = start_agent(install_agent(tmp_path / "image"), "join", "--root", str(machine))
        printed, _ = agent.communicate(timeout=SECONDS)
        assert agent.returncode == 0, printed

    folder = "/run/provisioner/kubelet"
    arguments = (machine / "run/provisioner/kubelet/kubelet.env").read_text().split('"')[1].split()
    assert arguments == [f"--hostname-override={world.name}", f"--node-ip={ADDRESS}"]
    command = [
        str(binaries.kubelet),
        f"--bootstrap-kubeconfig={folder}/bootstrap.kubeconfig",
        f"--kubeconfig={folder}/kubeconfig",
        f"--config={folder}/kubelet.yaml",
        f"--cert-dir={folder}/pki",
        *arguments,
    ]
    log = tmp_path / "kubelet.log"
    with log.open("w") as written:
        kubelet = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", MACHINE, "machine", machine, *command],
            stderr=written,
            stdout=written,
        )
    kubeconfig = machine / "run/provisioner/kubelet/kubeconfig"

    def has_certificate() -> bool:
        assert kubelet.poll() is None, log.read_text()[-4000:]
        return kubeconfig.exists() and (machine / "run/provisioner/kubelet/pki/kubelet-client-current.pem").is_symlink()

    try:
        wait_until(has_certificate, "the kubelet has its certificate")
    finally:
        kubelet.kill()
        kubelet.wait(SECONDS)

    link = (
        machine
        / "run/provisioner/kubelet/pki"
        / (machine / "run/provisioner/kubelet/pki/kubelet-client-current.pem").readlink().name
    )
    certificate = x509.load_pem_x509_certificate(link.read_bytes())
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == f"system:node:{world.name}"
    assert yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"] == world.plane.server_url
    wait_until(lambda: world.tokens() == [], "the spent token is deleted")
    join = world.server().status.join
    assert join is not None
    assert join.boot_id == BOOT_ID
    assert join.certificate_token_id == join.token_id
    taints = world.admin.get(NODES, world.name)["spec"]["taints"]
    assert {"key": "provisioner.dev/verification", "effect": "NoExecute"} in taints, "until the checks have passed"
