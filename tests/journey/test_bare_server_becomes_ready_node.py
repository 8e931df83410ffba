"""The README's story, on real parts: firmware, iPXE, kernel, stage-1, root, join, kubelet, Ready."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.bmc.rack_of_bmcs import RACK_FILE
from provisioner.cluster.resources import PODS
from provisioner.image.containerd.pause import REFERENCE
from tests.attacks.leaks import Sought, core_bytes_allowed, dumped_cores, secret_of_key
from tests.journey.virtual_rack import VirtualRack

SERVERS = ("r01-u01", "r01-u02", "r01-u03")

pytestmark = pytest.mark.timeout(1800)


def test_all_servers_are_ready_nodes_with_the_pools_labels(rack: VirtualRack) -> None:
    for name in SERVERS:
        node = rack.get("node", name)
        ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
        assert ready["status"] == "True"
        labels = node["metadata"]["labels"]
        assert labels["provisioner.dev/pool"] == "gpu"
        assert labels["provisioner.dev/rack"] == "r01"
        assert labels["topology.kubernetes.io/zone"] == "r01"
        assert labels["example.com/accelerator"] == "none"


def test_the_node_runs_the_boot_and_the_image_that_were_ordered(rack: VirtualRack) -> None:
    pool = rack.get("nodepool", "gpu")
    for name in SERVERS:
        status = rack.server(name).status
        assert status.order is not None
        assert status.join is not None
        assert status.join.order_id == status.order.id
        assert status.image_ref == status.order.image_ref == pool["spec"]["imageRef"]
        assert rack.node_boot_id(name) == status.boot_id == status.join.boot_id


def test_the_boot_is_a_record_of_times_conditions_and_events(rack: VirtualRack) -> None:
    for name in SERVERS:
        timeline = rack.timeline(name)
        for phase in ("firmware", "iPXE", "stage-1", "root", "system", "kubelet", "Ready"):
            assert phase in timeline, timeline
        described = rack.kubectl("describe", "server", name)
        for reason in ("BootOrdered", "BootOrderAccepted", "BootStageRoot", "JoinConfigurationIssued", "Ready"):
            assert reason in described
        print(name, timeline)


def test_the_console_asks_for_no_login_and_no_unit_fails_for_good(rack: VirtualRack) -> None:
    for name in SERVERS:
        text = re.sub(r"\x1b\[[0-9;]*m", "", rack.console(name))
        assert "login:" not in text
        for unit in re.findall(r"Failed to start (\S+)", text):
            known = unit.partition("…")[0]  # systemd shortens names on a console, each line as it fits
            assert text.rfind(f"Started {known}") > text.rfind(f"Failed to start {known}"), unit


def test_no_bootstrap_token_outlives_its_use(rack: VirtualRack) -> None:
    secrets = rack.get("secrets", "--namespace=kube-system", "--field-selector=type=bootstrap.kubernetes.io/token")
    rack.wait("used tokens are deleted", lambda: not secrets["items"] or not _tokens(rack))


def test_no_secret_is_in_a_script_or_on_a_console(rack: VirtualRack) -> None:
    scripts = rack.state.directory / "boot-state" / "scripts" / "ipxe"
    texts = [path.read_text() for path in scripts.glob("*.ipxe")] + [rack.console(name) for name in SERVERS]
    assert len(texts) == 2 * len(SERVERS)
    tokens = [rack.server(name).status.join.token_id for name in SERVERS]  # type: ignore[union-attr]
    for text in texts:
        for word in ("PRIVATE KEY", "password", *tokens):
            assert word not in text  # type: ignore[operator]


def test_after_the_boot_no_secret_is_in_a_log_a_script_a_process_an_event_or_a_cache(rack: VirtualRack) -> None:
    """All that the lab wrote is searched, but for the files that secrets are kept in."""
    directory = rack.state.directory
    kubeconfigs = [rack.state.kubeconfig, *directory.glob("*.kubeconfig")]
    secrets = {path.name: _key_of(path) for path in kubeconfigs}
    secrets["join.key"] = secret_of_key((rack.state.keys / "join.key").read_text())
    secrets["BMC password"] = (rack.state.keys / "bmc-password").read_text()
    assert {"provisioner-boot.kubeconfig", "provisioner-controller.kubeconfig"} <= secrets.keys()
    sought = Sought(secrets)
    kept = (directory / "control-plane", directory / "rack" / RACK_FILE, *kubeconfigs)
    leaks = sought.in_folder(directory, kept=kept) | sought.in_processes(rack.processes(""))
    for kind in ("events", "servers", "nodes", "racks", "images", "maintenances"):
        leaks |= sought.in_bytes(rack.kubectl("get", kind, "--all-namespaces", "-o", "json").encode(), kind)
    assert leaks == set()
    assert dumped_cores(directory) == []
    for service in ("boot", "controller"):
        assert core_bytes_allowed(rack.pid(service)) == 0


def _key_of(kubeconfig: Path) -> str:
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    return secret_of_key(base64.b64decode(user["client-key-data"]).decode())


def test_a_pod_runs_on_each_node_and_the_api_server_reaches_its_kubelet(rack: VirtualRack) -> None:
    """With a port of the node's: it takes containerd, runc, the pause image, all CNI plugins and iptables' modules."""
    for name in SERVERS:
        rack.kubectl("create", "--save-config", "-f", _write(rack, _pod(name)))
    for name in SERVERS:
        rack.wait(
            f"pod on {name} runs",
            lambda name=name: _pause(rack, name)["status"]["phase"] == "Running",  # type: ignore[misc]
        )
        assert _pause(rack, name)["status"]["podIP"]
        rack.kubectl(
            "logs", f"pause-{name}"
        )  # over the kubelet's serving certificate, which was approved for its address
    for name in SERVERS:
        rack.kubectl("delete", "pod", f"pause-{name}", "--grace-period=1", "--wait=false")


def _tokens(rack: VirtualRack) -> list[Any]:
    return list(
        rack.get("secrets", "--namespace=kube-system", "--field-selector=type=bootstrap.kubernetes.io/token")["items"]
    )


def _pause(rack: VirtualRack, node: str) -> dict[str, Any]:
    return rack.look(PODS, f"pause-{node}", namespace="default")


def _pod(node: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pause-{node}", "namespace": "default"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [
                {
                    "name": "pause",
                    "image": REFERENCE,
                    "imagePullPolicy": "Never",
                    "ports": [{"containerPort": 80, "hostPort": 8080}],
                }
            ],
        },
    }


def _write(rack: VirtualRack, document: dict[str, Any]) -> str:
    path = rack.state.directory / f"{document['metadata']['name']}.json"
    path.write_text(json.dumps(document))
    return str(path)
