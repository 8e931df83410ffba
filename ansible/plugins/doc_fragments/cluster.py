"""What every plugin of this collection is told to reach the cluster."""

from __future__ import annotations


class ModuleDocFragment:
    """Options of the connection, and what the controller host needs."""

    DOCUMENTATION = r"""
options:
  kubeconfig:
    description:
      - Kubeconfig by which the cluster is reached. Where this is absent, E(KUBECONFIG) counts, else C(~/.kube/config),
        else the service account of the pod in which this runs.
    type: path
  context:
    description:
      - Context of the kubeconfig; its current one if absent.
    type: str
  impersonate_user:
    description:
      - User to act as, for who may impersonate.
    type: str
  impersonate_groups:
    description:
      - Groups to act as, together with O(impersonate_user).
    type: list
    elements: str
    default: []
requirements:
  - The Python package provisioner of the collection's own version, in the Python that runs this.
"""
