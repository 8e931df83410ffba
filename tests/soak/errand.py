"""Something that root on a node does there, with the node's own programs: a pod, as there is no other way to a host
behind a DPU. Its answer comes back by the API server, in the pod's status."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, Final

from provisioner.cluster.resources import PODS
from provisioner.image.containerd.pause import REFERENCE
from tests.journey.virtual_rack import VirtualRack

LIBRARIES: Final = "/host/usr/lib/x86_64-linux-gnu"
_NAME: Final = "errand"


def on_the_node(own: str, targets: dict[str, list[Any]]) -> dict[str, str]:
    """Runs on the node, as root: take the address that DHCP gives, then try each target, (address, port)."""
    import json
    import pathlib
    import socket
    import subprocess
    import time

    interface = json.loads(pathlib.Path("/run/provisioner/boot.json").read_text())["interface"]
    drop_in = pathlib.Path("/run/systemd/network/10-provisioner.network.d/vpc.conf")
    drop_in.parent.mkdir(exist_ok=True)
    drop_in.write_text("[Network]\nDHCP=ipv4\n")
    subprocess.run(["/usr/bin/networkctl", "reload"], check=True, capture_output=True)
    shown = ""
    for _ in range(120):
        shown = subprocess.run(
            ["/usr/sbin/ip", "-4", "-o", "addr", "show", interface], check=True, capture_output=True, text=True
        ).stdout
        if f" {own}/31 " in shown:
            break
        time.sleep(1)
    else:
        return {"DHCP": shown}

    def tried(address: str, port: int) -> str:
        try:
            with socket.create_connection((address, port), 10) as opened:
                opened.settimeout(3)
                try:
                    return opened.recv(100).decode() or "connected"
                except TimeoutError:
                    return "connected"
        except OSError:
            return "no answer"

    return {what: tried(*where) for what, where in targets.items()}


_PROLOGUE: Final = """from __future__ import annotations
import encodings.idna, json, os, pathlib, socket, subprocess, sys, time
told = os.open("/dev/termination-log", os.O_WRONLY)
os.chroot("/host")
os.chdir("/")
"""


def carry_out_on(rack: VirtualRack, node: str, own: str, targets: Mapping[str, tuple[object, int]]) -> dict[str, str]:
    """`own`: the address that the node is to be given. Returns: of each target what it said, "connected" or "no
    answer". Raises: AssertionError with the pod's words."""
    asked = {what: [str(address), port] for what, (address, port) in targets.items()}
    script = f"{_PROLOGUE}\n{inspect.getsource(on_the_node)}\n"
    script += f"os.write(told, json.dumps(on_the_node({own!r}, {asked!r})).encode())\n"
    rack.create(_pod(node, script))
    try:
        ended: dict[str, Any] = {}

        def has_ended() -> bool:
            statuses = rack.look(PODS, _NAME, namespace="default").get("status", {}).get("containerStatuses", [])
            ended.update(*[each["state"].get("terminated") or {} for each in statuses])
            return bool(ended)

        rack.wait(f"the errand on {node} has ended", has_ended, seconds=600, every_seconds=2)
        assert ended["exitCode"] == 0, ended
        return dict(json.loads(ended["message"]))
    finally:
        rack.kubectl("delete", "pod", _NAME, "--grace-period=1")


def _pod(node: str, script: str) -> dict[str, Any]:
    """With all that root can do; the cluster's own policies let no pod be privileged."""
    loader = (f"{LIBRARIES}/ld-linux-x86-64.so.2", "--library-path", LIBRARIES)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _NAME, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "hostNetwork": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "errand",
                    "image": REFERENCE,
                    "imagePullPolicy": "Never",
                    "command": [*loader, "/host/usr/bin/python3", "-c", script],
                    "env": [{"name": "PYTHONHOME", "value": "/host/usr"}],
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "securityContext": {
                        "runAsUser": 0,
                        "capabilities": {"add": ["ALL"]},
                        "seccompProfile": {"type": "Unconfined"},
                    },
                    "volumeMounts": [{"name": "root", "mountPath": "/host"}],
                }
            ],
            "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
        },
    }
