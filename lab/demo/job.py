"""A job for the demo: a Kubernetes Job on one node that takes some seconds and ends well.

A node of the lab has no registry to ask, so the job runs the node's own `sleep`, from the root mounted read-only, in
the one container image that every node has.
"""

from __future__ import annotations

from typing import Any, Final

from provisioner.image.containerd.pause import REFERENCE

NAMESPACE: Final = "default"
_LIBRARIES: Final = "/host/usr/lib/x86_64-linux-gnu"


def demo_job(name: str, node: str, seconds: int) -> dict[str, Any]:
    """A Job called `name` that sleeps for `seconds` on `node`, and ends at once when it is told to."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": node},
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 1,
                    "automountServiceAccountToken": False,
                    "containers": [
                        {
                            "name": "work",
                            "image": REFERENCE,
                            "imagePullPolicy": "Never",
                            "command": [
                                f"{_LIBRARIES}/ld-linux-x86-64.so.2",
                                "--library-path",
                                _LIBRARIES,
                                "/host/usr/bin/sleep",
                                str(seconds),
                            ],
                            "volumeMounts": [{"name": "root", "mountPath": "/host", "readOnly": True}],
                        }
                    ],
                    "volumes": [{"name": "root", "hostPath": {"path": "/"}}],
                },
            },
        },
    }
