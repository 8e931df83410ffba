"""From nothing to a running demo: what must be obtained before, the daemon, the rack's registration, the boots."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from lab.demo.job import NAMESPACE, demo_job
from lab.demo.leftovers import clean_lab
from lab.demo.state import DemoState, is_running, stop_daemon
from lab.machine.machine import EMULATED_KERNEL_ARGUMENTS
from lab.network import LabNetwork
from lab.rack import VirtualRack
from provisioner.api import Server
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import JOBS, PODS, of

POOL: Final = "gpu"
DPU_POOL: Final = "dpu"
RACK: Final = "r01"
SUBNET: Final[Mapping[str, Any]] = {
    "name": "boot",
    "cidr": "10.80.0.0/24",
    "rangeStart": "10.80.0.20",
    "rangeEnd": "10.80.0.199",
    "discoveryRangeStart": "10.80.0.200",
    "discoveryRangeEnd": "10.80.0.249",
}
EMULATED_SECONDS: Final = 900
"""For what takes a server half a minute: one that is emulated beside other work takes its time, and is not given up."""


def clean(state: DemoState) -> None:
    """End whatever a demo of this name left, also one that was killed half-way."""
    stop_daemon(state)
    clean_lab(LabNetwork(state.name))


def create_network(state: DemoState, rack: VirtualRack) -> None:
    """The namespace with everything that the rack and its BMCs need."""
    LabNetwork(state.name).create(rack.bmc_addresses, rack.taps, rack.cables)


def start_daemon(
    state: DemoState, arguments: Sequence[str], *, command: str = "run", timeout_seconds: float = 180.0
) -> float:
    """Start the daemon (`python -m lab.cli COMMAND`) in the lab's namespace and wait until all parts run. Returns the
    control plane's seconds.

    Raises: NeedsHuman with the daemon's last words.
    """
    network = LabNetwork(state.name)
    daemon = [sys.executable, "-m", "lab.cli", command, "--name", state.name, *arguments]
    (state.directory / "state.json").unlink(missing_ok=True)
    with state.daemon_log.open("wb") as log:
        process = subprocess.Popen(
            network.command(daemon),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        said = state.read()
        if said.get("phase") == "running":
            return float(said["controlPlaneSeconds"])
        if process.poll() is not None:
            break
        time.sleep(0.1)
    words = "\n".join(state.daemon_log.read_text(errors="replace").splitlines()[-20:])
    raise NeedsHuman(
        f"demo {state.name!r} did not start (phase: {state.read().get('phase', 'none')}); its log ends:\n{words}\n",
        hint=f"read {state.daemon_log} and {state.directory}/logs",
    )


def registration(rack: VirtualRack) -> list[dict[str, Any]]:
    """What ops would hand to `provisioner rack register`: the rack and its servers."""
    return [
        {
            "apiVersion": "provisioner.dev/v1alpha1",
            "kind": "Rack",
            "metadata": {"name": rack.description.name},
            "spec": {"site": "lab", "failureDomain": rack.description.name, "subnets": [dict(SUBNET)]},
        },
        *(_host(name, rack.description.name) for name in sorted(_hosts_elsewhere(rack))),
        *rack.servers(POOL, DPU_POOL),
    ]


def _hosts_elsewhere(rack: VirtualRack) -> set[str]:
    """Servers in which DPUs sit, and which are no machines of the lab."""
    servers = rack.description.servers
    return {server.host for server in servers if server.host} - {server.name for server in servers}


def _host(name: str, rack: str) -> dict[str, Any]:
    return {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Server",
        "metadata": {"name": name},
        "spec": {"rackRef": rack, "bootMACAddress": "52:54:00:00:00:ff", "acceptance": "Pending"},
    }


def tell_underlay_addresses(cluster: Cluster, rack: VirtualRack, *, timeout_seconds: float = 60.0) -> None:
    """The boot network is the underlay of DPUs through which hosts boot: their addresses there are those that they were
    given for their own boot. Raises: NeedsHuman."""
    deadline = time.monotonic() + timeout_seconds
    for dpu in (server.name for server in rack.description.servers if server.proxies_boot):
        while (address := cluster.read(Server, dpu).status.address) is None:
            if time.monotonic() > deadline:
                raise NeedsHuman(
                    f"DPU {dpu} was given no address within {timeout_seconds:.0f} s",
                    hint=f"kubectl provision why {dpu}",
                )
            time.sleep(0.2)
        cluster.patch(of(Server), dpu, {"spec": {"dpu": {"vtepAddress": address}}}, manager="provisioner-lab")


def node_pool(
    image: str,
    *,
    name: str = POOL,
    attestation: Literal["Required", "Optional"] = "Optional",
) -> dict[str, Any]:
    """A pool of the demo. attestation: Required where all its servers have a TPM (lab/rack_description.py)."""
    return {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "imageRef": image,
            "attestation": attestation,
            "kubelet": {
                "labels": {"example.com/accelerator": "none"},
                # A container runtime that is asked anew for what it is still at makes it no faster.
                "configuration": {
                    "evictionHard": {"memory.available": "32Mi"},
                    "runtimeRequestTimeout": f"{EMULATED_SECONDS}s",
                },
            },
            # Any model: QEMU's survives a kexec. One at a time: there are only two.
            "maintenance": {
                "kexecModels": ["*"],
                "maxUnavailable": 1,
                "methodTimeoutSeconds": {"kexec": EMULATED_SECONDS},
            },
            "stageTimeoutSeconds": {"kubelet": EMULATED_SECONDS},
            "verification": {"expected": {"nics": 1}},
            "kernelArguments": list(EMULATED_KERNEL_ARGUMENTS),
        },
    }


def run_job(cluster: Cluster, node: str, seconds: int, say: Callable[[str], None]) -> str:
    """Start a Job on `node`, and say so once its pod runs; returns its name. Raises: NeedsHuman."""
    job = demo_job(f"demo-{int(now().timestamp())}", node, seconds)
    name = str(job["metadata"]["name"])
    cluster.create(JOBS, job)
    say(f"Job {name} is created for {node}; waiting for its pod")
    _wait_for_pod(cluster, name, timeout_seconds=120)
    say(f"Job {name} runs on {node} for {seconds} s, and is not interrupted")
    return name


def _wait_for_pod(cluster: Cluster, job: str, *, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while time.monotonic() < deadline:
        pods = cluster.list(PODS, namespace=NAMESPACE, label_selector=f"job-name={job}").items
        if any((pod.get("status") or {}).get("phase") == "Running" for pod in pods):
            return
        time.sleep(0.5)
    raise NeedsHuman(
        f"Job {job} did not start in {timeout_seconds:.0f} s", hint=f"kubectl describe pods -l job-name={job}"
    )


def require_running(state: DemoState) -> None:
    """Raises: NeedsHuman if there is no demo to act on."""
    if not is_running(state):
        raise NeedsHuman(f"no demo {state.name!r} is running", hint="make demo")


def write_json(path: Path, documents: Sequence[Mapping[str, Any]]) -> Path:
    """Documents as a YAML stream (JSON is YAML), for the commands that take a file."""
    path.write_text("---\n".join(json.dumps(document, indent=1) + "\n" for document in documents))
    return path


def now() -> datetime:
    """The time of day."""
    return datetime.now(UTC)
