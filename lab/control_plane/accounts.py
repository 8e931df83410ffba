"""Kubeconfigs of the services' accounts: each has its own account's rights and no more, as in a cluster."""

from __future__ import annotations

from pathlib import Path

from lab.control_plane.pki import Authority
from lab.control_plane.plane import ControlPlane, render_kubeconfig
from provisioner.cluster.resources import SYSTEM


def write_account_kubeconfig(plane: ControlPlane, account: str, path: Path) -> None:
    """Of a ServiceAccount of the manifests, such as provisioner-boot; here by certificate."""
    authority = Authority.create(plane.directory / "pki", "ca")
    pair = authority.issue(account, f"system:serviceaccount:{SYSTEM}:{account}", organization="system:serviceaccounts")
    path.touch(mode=0o600)
    path.write_text(render_kubeconfig(plane.server_url, plane.ca_pem.encode(), pair, user=account))
