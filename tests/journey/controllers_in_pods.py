"""The chart's controllers on the lab's own nodes, from a registry in the lab, in place of the lab's process.

What a cluster has and the lab lacks is put there by hand: where the API server is (kube-proxy's part), and that the
registry is reached without TLS (a file of containerd's, which a DaemonSet writes on each boot of a node).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from lab.demo.daemon import API_SERVER_PORT
from lab.demo.job import demo_job
from lab.demo.state import ADDRESS
from lab.network import LabNetwork
from provisioner import __version__
from provisioner.cluster.resources import LEASES, PODS, SYSTEM
from tests.chart.helm import find_helm
from tests.image.registry.real_registry import real_registry
from tests.journey.virtual_rack import VirtualRack
from tests.packaging.made import CONTROLLER, make, read_ingredients
from tests.packaging.pushing import push
from tests.tools import installed

REGISTRY: Final = f"{ADDRESS}:5000"
LEASE: Final = "provisioner-controller"
_LABEL: Final = "app.kubernetes.io/component=controller"
_HOSTS: Final = f'server = "http://{REGISTRY}"\n[host."http://{REGISTRY}"]\n  capabilities = ["pull", "resolve"]\n'


@dataclass(frozen=True)
class ControllersInPods:
    """`rack`: on whose nodes they are."""

    rack: VirtualRack

    def pods(self) -> dict[str, str]:
        """Name → node, of those that are ready and not about to go."""
        found = self.rack.ask(lambda cluster: cluster.list(PODS, namespace=SYSTEM, label_selector=_LABEL)).items
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in found
            if not pod["metadata"].get("deletionTimestamp")
            and any(
                each["type"] == "Ready" and each["status"] == "True"
                for each in pod.get("status", {}).get("conditions", [])
            )
        }

    def lease(self) -> dict[str, Any]:
        return dict(self.rack.look(LEASES, LEASE, namespace=SYSTEM)["spec"])

    def leader(self) -> str | None:
        """The pod that leads; None if it is none of them, or nobody."""
        holder = str(self.lease().get("holderIdentity") or "")
        # An identity is the host's name, which in a pod is the pod's, and eight random digits.
        return next((pod for pod in self.pods() if holder.rpartition("-")[0] == pod), None)

    def log(self, pod: str) -> list[dict[str, Any]]:
        """What it has logged, line by line."""
        lines = self.rack.kubectl("-n", SYSTEM, "logs", pod).splitlines()
        return [dict(json.loads(line)) for line in lines if line.startswith("{")]


@contextmanager
def controllers_in_pods(rack: VirtualRack, folder: Path) -> Iterator[ControllersInPods]:
    """Two of them, ready, one of which leads."""
    image = make(read_ingredients(folder)[CONTROLLER]).image
    with _registry(rack, folder, image.name, lambda address: push(image, address)):
        rack.create(_trust_in_the_registry())
        # Before anybody pulls: whoever failed once waits longer and longer.
        rack.wait("every node knows the registry", lambda: _is_known_everywhere(rack))
        deployment = _deployment(folder)
        for each in deployment:
            rack.create(each)
        controllers = ControllersInPods(rack)
        try:
            rack.wait("both controllers are ready on nodes of the rack", lambda: len(controllers.pods()) == 2)
            with _nobody_else_leads(rack):
                rack.wait("a pod leads", lambda: controllers.leader() is not None)
                yield controllers
        except BaseException:
            print(rack.try_kubectl("-n", SYSTEM, "get", "pods", "-o", "wide").stdout)
            print(rack.try_kubectl("-n", SYSTEM, "describe", "pods", "-l", _LABEL).stdout[-6000:])
            for pod in controllers.pods():
                print(pod, rack.try_kubectl("-n", SYSTEM, "logs", "--tail=60", pod).stdout)
            raise
        finally:
            for each in (*deployment, _trust_in_the_registry()):
                words = (each["kind"], each["metadata"]["name"], "-n", each["metadata"]["namespace"])
                rack.try_kubectl("delete", *words, "--wait=true", "--timeout=120s")


@contextmanager
def _registry(rack: VirtualRack, folder: Path, name: str, fill: Any) -> Iterator[None]:
    """One on this machine's loopback, to push to; another in the lab, on the same files."""
    with real_registry(folder / "registry", secured=False) as here:
        fill(f"oci://{here.host}/{name}")
        storage = here.storage
    configuration = folder / "registry-in-the-lab.yml"
    configuration.write_text(
        yaml.safe_dump(
            {
                "version": 0.1,
                "storage": {
                    "filesystem": {"rootdirectory": str(storage)},
                    "maintenance": {"readonly": {"enabled": True}},
                },
                "http": {"addr": REGISTRY, "secret": "s" * 32},
            }
        )
    )
    command = [installed("docker-registry"), "serve", str(configuration)]
    with (folder / "registry-in-the-lab.log").open("wb") as log:
        process = subprocess.Popen(LabNetwork(rack.state.name).command(command), stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def _nobody_else_leads(rack: VirtualRack) -> Iterator[None]:
    """The lab's own controller stands still: it is a leader that hangs, and its lease ends."""
    pid = rack.pid("controller")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _is_known_everywhere(rack: VirtualRack) -> bool:
    status = rack.get("daemonset", "registry")["status"]
    return bool(status["desiredNumberScheduled"]) and status.get("numberReady") == status["desiredNumberScheduled"]


def _deployment(folder: Path) -> list[dict[str, Any]]:
    """What the chart makes of controllers; accounts, rights and kinds are in the lab already."""
    values = {
        "bootURL": f"http://{ADDRESS}",
        "image": {"repository": f"{REGISTRY}/{CONTROLLER}"},
        "controller": {
            "onServers": True,
            "spreadStrictly": True,
            "extraEnvironment": [
                {"name": "KUBERNETES_SERVICE_HOST", "value": ADDRESS},
                {"name": "KUBERNETES_SERVICE_PORT", "value": str(API_SERVER_PORT)},
            ],
        },
    }
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    rendered = find_helm(folder).template("--values", file, "--show-only", "templates/controller.yaml")
    assert {each["kind"] for each in rendered} == {"Deployment", "PodDisruptionBudget"}
    (found,) = [each for each in rendered if each["kind"] == "Deployment"]
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"{REGISTRY}/{CONTROLLER}:{__version__}"
    # A machine of the lab may be emulated, beside others: there Python alone takes minutes to load.
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        container[probe] |= {"failureThreshold": 600, "timeoutSeconds": 60}
    # Without the PodDisruptionBudget: the lab runs no disruption controller, and what nobody counts lets nobody go.
    return [found]


def _trust_in_the_registry() -> dict[str, Any]:
    pod = demo_job("registry", "", 1)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    *loader, _, _ = container["command"]
    script = f"set -e; printf '%s' '{_HOSTS}' >/certs/hosts.toml; exec {' '.join(loader)} /host/usr/bin/sleep 100000"
    container["command"] = [*loader, "/host/usr/bin/dash", "-c", script]
    container["securityContext"] = {"runAsUser": 0}
    container["volumeMounts"].append({"name": "certs", "mountPath": "/certs"})
    path = f"/etc/containerd/certs.d/{REGISTRY}"
    pod["volumes"].append({"name": "certs", "hostPath": {"path": path, "type": "DirectoryOrCreate"}})
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "registry", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "registry"}},
            "template": {
                "metadata": {"labels": {"app": "registry"}},
                "spec": {
                    **{key: value for key, value in pod.items() if key not in ("nodeSelector", "restartPolicy")},
                    "tolerations": [{"operator": "Exists"}],
                },
            },
        },
    }
