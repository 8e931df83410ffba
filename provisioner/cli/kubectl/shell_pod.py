"""The pod that is a shell on a node, and the Events that tell of it. Pure.

It needs no image but the one that every node has: the pause image, with the node's own /usr laid over it, whose nsenter
enters the node's namespaces. So it works where no registry answers, and brings no program that is not there already.
`provisioner/cli/data/break_glass.yaml` holds the same shape as a rule of the API server.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from provisioner.cli.kubectl.person_event import person_event
from provisioner.image.containerd.pause import REFERENCE

NAMESPACE: Final = "provisioner-break-glass"
REASON_ANNOTATION: Final = "provisioner.dev/break-glass-reason"
USER_ANNOTATION: Final = "provisioner.dev/break-glass-user"
CONTAINER: Final = "shell"

_NAMESPACES: Final = ("--mount", "--uts", "--ipc", "--net", "--pid")
_COMMAND: Final = ("/usr/bin/nsenter", "--target", "1", *_NAMESPACES, "--", "/bin/bash", "-l")
# The program, its libraries and their loader; in the node's root /lib and /lib64 are links, which no volume follows.
_MOUNTS: Final = {"usr": ("/usr", "/usr"), "lib": ("/usr/lib", "/lib"), "lib64": ("/usr/lib64", "/lib64")}


def shell_pod(node: str, *, user: str, reason: str, minutes: int, suffix: str) -> dict[str, Any]:
    """The pod; `suffix` tells two shells on one node apart."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{node[:230].rstrip('.-')}-{suffix}",
            "namespace": NAMESPACE,
            "annotations": {USER_ANNOTATION: user, REASON_ANNOTATION: reason},
        },
        "spec": {
            "nodeName": node,
            "hostPID": True,
            "hostNetwork": True,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": minutes * 60,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            # Also on a node that is held out of use: that is when one looks.
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": CONTAINER,
                    "image": REFERENCE,
                    "imagePullPolicy": "Never",
                    "command": list(_COMMAND),
                    "stdin": True,
                    "stdinOnce": True,
                    "tty": True,
                    "securityContext": {"privileged": True, "runAsUser": 0, "runAsGroup": 0},
                    # With requests it is let in where memory is short, and with a limit it does not make that worse.
                    "resources": {
                        "requests": {"cpu": "10m", "memory": "32Mi"},
                        "limits": {"memory": "1Gi"},
                    },
                    "volumeMounts": [
                        {"name": name, "mountPath": inside, "readOnly": True} for name, (_, inside) in _MOUNTS.items()
                    ],
                }
            ],
            "volumes": [{"name": name, "hostPath": {"path": path}} for name, (path, _) in _MOUNTS.items()],
        },
    }


def shell_event(
    node: dict[str, Any],
    reason: Literal["BreakGlassOpened", "BreakGlassClosed"],
    message: str,
    now: datetime,
    suffix: str,
) -> dict[str, Any]:
    """An Event about the Node; `message` begins with the user's name."""
    name = node["metadata"]["name"]
    # kubelets and `kubectl describe node` name a Node's uid by its name.
    regarding = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}
    return person_event(regarding, reason.lower(), reason, message, now, suffix)
