"""The files of a kubelet that has joined, from which a machine's agents take their own access."""

from __future__ import annotations

from pathlib import Path

from lab.control_plane.pki import Authority
from lab.control_plane.plane import ControlPlane
from provisioner.node.join_files import KUBELET_FOLDER


def join_as(machine: Path, plane: ControlPlane, node: str, certificate_of: str) -> None:
    """Write below `machine` what a kubelet keeps, in the form in which it does. Its certificate is that of the Node
    `certificate_of`, which is `node` on every honest machine."""
    folder = machine / KUBELET_FOLDER.lstrip("/")
    authority = Authority.create(plane.directory / "pki", "ca")
    user = f"system:node:{certificate_of}"
    pair = authority.issue(f"kubelet-{certificate_of}", user, organization="system:nodes")
    kubeconfig = (
        f"apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority: {KUBELET_FOLDER}/ca.crt\n"
        f"    server: {plane.server_url}\n  name: default-cluster\nkind: Config\n"
    )
    client = folder / "pki/client.pem"
    client.parent.mkdir(parents=True, exist_ok=True)
    (folder / "ca.crt").write_text(plane.ca_pem)
    (folder / "kubelet.env").write_text(f'KUBELET_ARGS="--hostname-override={node} --node-ip=127.0.0.1"\n')
    client.touch(mode=0o600)
    client.write_text(pair.certificate.read_text() + pair.key.read_text())
    current = folder / "pki/kubelet-client-current.pem"
    current.unlink(missing_ok=True)
    current.symlink_to(client)
    (folder / "kubeconfig").write_text(kubeconfig)
