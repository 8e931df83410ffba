"""The files of a kubelet that has joined, from which a machine's agents take their own access."""

from __future__ import annotations

from pathlib import Path

from provisioner.lab.control_plane.pki import Authority
from provisioner.lab.control_plane.plane import ControlPlane
from tests.node.made_machine import write


def join_as(machine: Path, plane: ControlPlane, node: str, certificate_of: str, work: Path) -> None:
    """The kubelet's files, in the form in which it writes them."""
    folder = "run/provisioner/kubelet"
    authority = Authority.create(plane.directory / "pki", "ca")
    user = f"system:node:{certificate_of}"
    pair = authority.issue(f"kubelet-{certificate_of}", user, organization="system:nodes")
    kubeconfig = (
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority: /run/provisioner/kubelet/ca.crt\n"
        f"    server: {plane.server_url}\n  name: default-cluster\nkind: Config\n"
    )
    write(machine, f"{folder}/ca.crt", plane.ca_pem)
    write(machine, f"{folder}/kubelet.env", f'KUBELET_ARGS="--hostname-override={node} --node-ip=127.0.0.1"\n')
    write(machine, f"{folder}/pki/client.pem", pair.certificate.read_text() + pair.key.read_text())
    current = machine / folder / "pki/kubelet-client-current.pem"
    current.unlink(missing_ok=True)
    current.symlink_to(machine / folder / "pki/client.pem")
    write(machine, f"{folder}/kubeconfig", kubeconfig)
