"""How the parts of the control plane are called: production's flags, with this lab's addresses and paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.control_plane.pki import KeyPair
from provisioner.cli.service.control_plane import CONTROLLERS, PRODUCTION_FLAGS

LOOPBACK: Final = "127.0.0.1"
SERVICE_CIDR: Final = "10.96.0.0/16"
SERVICE_ADDRESS: Final = "10.96.0.1"  # of the service `kubernetes`: the first of the range

Command = tuple[str, ...]


@dataclass(frozen=True)
class Keys:
    """Where the keys and certificates lie."""

    ca: KeyPair
    etcd_ca: Path
    etcd: KeyPair
    etcd_client: KeyPair
    api_server: KeyPair
    kubelet_client: KeyPair
    service_accounts: Path


@dataclass(frozen=True)
class ServerFiles:
    """Files of the API server that production has as well."""

    authentication: Path
    audit_policy: Path
    audit_log: Path
    authorization: Path | None = None
    """In place of the modes of production's flags."""


def etcd_command(etcd: Sequence[str], data: Path, port: int, peer_port: int, keys: Keys) -> Command:
    """One etcd on loopback that lets nobody in without a certificate of its own authority."""
    url, peer_url = f"https://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{peer_port}"
    return (
        *etcd,
        "--name=lab",
        f"--data-dir={data}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=lab={peer_url}",
        f"--cert-file={keys.etcd.certificate}",
        f"--key-file={keys.etcd.key}",
        "--client-cert-auth",
        f"--trusted-ca-file={keys.etcd_ca}",
        "--unsafe-no-fsync",  # a lab's data may be lost with its machine
        "--logger=zap",
    )


def api_server_command(
    program: Path, address: str, port: int, etcd_port: int, keys: Keys, files: ServerFiles
) -> Command:
    """The API server at `address`:`port`."""
    places = {
        "--authentication-config": files.authentication,
        "--audit-policy-file": files.audit_policy,
        "--audit-log-path": files.audit_log,
        "--kubelet-certificate-authority": keys.ca.certificate,
    }
    return (
        str(program),
        *_authorization(_production_flags("kube-apiserver", {k: str(path) for k, path in places.items()}), files),
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        f"--etcd-servers=https://{LOOPBACK}:{etcd_port}",
        f"--etcd-cafile={keys.etcd_ca}",
        f"--etcd-certfile={keys.etcd_client.certificate}",
        f"--etcd-keyfile={keys.etcd_client.key}",
        f"--client-ca-file={keys.ca.certificate}",
        f"--tls-cert-file={keys.api_server.certificate}",
        f"--tls-private-key-file={keys.api_server.key}",
        f"--kubelet-client-certificate={keys.kubelet_client.certificate}",
        f"--kubelet-client-key={keys.kubelet_client.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={keys.service_accounts}",
        f"--service-account-signing-key-file={keys.service_accounts}",
        "--endpoint-reconciler-type=none",  # the other ones refuse a loopback address
    )


def _authorization(flags: list[str], files: ServerFiles) -> list[str]:
    if files.authorization is None:
        return flags
    others = [flag for flag in flags if not flag.startswith("--authorization-mode=")]
    return [*others, f"--authorization-config={files.authorization}"]


def controller_manager_command(
    program: Path,
    kubeconfig: Path,
    keys: Keys,
    *,
    certificate_duration: str | None,
    node_grace: str | None = None,
) -> Command:
    """The controller manager; `certificate_duration` (`10m`) in place of production's, for tests of renewal, and
    `node_grace` for tests whose Nodes have no kubelet: after so long without a word one is not Ready any more."""
    changed = {"--controllers": ",".join(CONTROLLERS)}
    if certificate_duration:
        changed["--cluster-signing-duration"] = certificate_duration
    grace = (f"--node-monitor-grace-period={node_grace}",) if node_grace else ()
    return (
        str(program),
        *_production_flags("kube-controller-manager", changed),
        *grace,
        f"--kubeconfig={kubeconfig}",
        f"--cluster-signing-cert-file={keys.ca.certificate}",
        f"--cluster-signing-key-file={keys.ca.key}",
        f"--root-ca-file={keys.ca.certificate}",
        f"--service-account-private-key-file={keys.service_accounts}",
        "--leader-elect=false",
        "--secure-port=0",
    )


def scheduler_command(program: Path, kubeconfig: Path) -> Command:
    """The scheduler."""
    return (str(program), f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0")


def _production_flags(component: str, changed: dict[str, str]) -> list[str]:
    """Production's flags, those in `changed` with another value."""
    flags = []
    for flag in PRODUCTION_FLAGS[component]:
        name, _, value = flag.flag.partition("=")
        flags.append(f"{name}={changed.get(name, value)}")
    return flags
