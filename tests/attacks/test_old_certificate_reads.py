"""Reads by the certificate of an earlier boot, where the API server asks `provisioner authorizer`.

It is configured as docs/credentials.md has it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from lab.binaries.obtain import Binaries
from lab.control_plane.pki import Authority, KeyPair
from lab.control_plane.plane import ControlPlane, render_kubeconfig
from lab.control_plane.ports import free_port
from provisioner.api.machinery.errors import Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import CREDENTIALS, NODES, PODS, ROLES
from provisioner.join.credentials.listed import ListedServer, binding_of, role_of, shard_of
from provisioner.join.credentials.review import CredentialList
from provisioner.join.credentials.web import AuthorizerServer, ServerTLS
from tests.conftest import install
from tests.people import kubeconfig_of, of_account, until

DOCUMENT = Path(__file__).parents[2] / "docs/credentials.md"
OURS, STRANGER = "r01-u01", "stranger"


@dataclass
class Site:
    plane: ControlPlane
    admin: Cluster
    folder: Path
    port: int
    tls: ServerTLS

    def node(self, name: str, boot: str) -> tuple[Cluster, str]:
        """The cluster as the kubelet sees it by the certificate of that boot, and its credential id."""
        folder = self.folder / boot
        folder.mkdir(exist_ok=True)
        pair = Authority.create(self.plane.directory / "pki", "ca").issue(
            f"{name}-{boot}", f"system:node:{name}", organization="system:nodes"
        )
        path = folder / f"{name}.kubeconfig"
        path.write_text(render_kubeconfig(self.plane.server_url, self.plane.ca_pem.encode(), pair, user=name))
        return Cluster.connect(path), credential_of(pair)

    def lists(self, *credentials: str) -> None:
        self.admin.apply(role_of(shard_of(OURS), {OURS: ListedServer(credentials=credentials)}), manager="tests")


def credential_of(pair: KeyPair) -> str:
    return (
        "X509SHA256=" + x509.load_pem_x509_certificate(pair.certificate.read_bytes()).fingerprint(hashes.SHA256()).hex()
    )


def configuration() -> dict[str, Any]:
    """What the page has administrators write."""
    blocks = DOCUMENT.read_text().split("```yaml\n")[1:]
    found = [yaml.safe_load(block.partition("```")[0]) for block in blocks]
    return next(each for each in found if each["kind"] == "AuthorizationConfiguration")


@pytest.fixture(scope="module")
def site(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("authorizer")
    port = free_port("127.0.0.1")
    servers, clients = Authority.create(folder / "tls", "servers"), Authority.create(folder / "tls", "clients")
    served = servers.issue("authorizer", "authorizer", server_names=["127.0.0.1"])
    asking = render_kubeconfig(
        f"https://127.0.0.1:{port}/v1/authorize",
        servers.files.certificate.read_bytes(),
        clients.issue("api", "kube-apiserver"),
        user="kube-apiserver",
    )
    (folder / "authorizer.kubeconfig").write_text(asking)
    body = configuration()
    body["authorizers"][0]["webhook"]["connectionInfo"]["kubeConfigFile"] = str(folder / "authorizer.kubeconfig")
    body["authorizers"][0]["webhook"] |= {"authorizedTTL": "1ms", "unauthorizedTTL": "1ms"}
    (folder / "authorization.yaml").write_text(yaml.safe_dump(body))
    tls = ServerTLS(served.certificate, served.key, clients.files.certificate)
    with ControlPlane(folder / "plane", binaries, authorization=folder / "authorization.yaml") as plane:
        admin = Cluster.connect(plane.kubeconfig)
        install(admin)
        for name in (OURS, STRANGER):
            admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        admin.create(ROLES, role_of(shard_of(OURS), {OURS: ListedServer()}))
        admin.apply(binding_of(shard_of(OURS)), manager="tests")
        yield Site(plane, admin, folder, port, tls)


@pytest.fixture
def webhook(site: Site) -> Iterator[AuthorizerServer]:
    """By the shipped account."""
    stop = threading.Event()
    cluster = Cluster.connect(kubeconfig_of(site.plane, site.folder, of_account("authorizer")), patient=True)
    roles = Informer(cluster, ROLES, namespace=CREDENTIALS)
    server = AuthorizerServer("127.0.0.1", site.port, site.tls, CredentialList(roles, roles.heard_seconds))
    roles.start(stop)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    assert roles.wait_for_sync(60)
    yield server
    stop.set()
    server.shutdown()
    server.server_close()
    thread.join(180)


def reads(node: Cluster, name: str) -> bool:
    try:
        node.get(NODES, name)
    except Refused as error:
        if "is none of the current boot" not in str(error):
            raise
        return False
    return True


def test_a_certificate_of_an_earlier_boot_reads_nothing_and_the_current_one_reads(
    site: Site, webhook: AuthorizerServer
) -> None:
    thief, first = site.node(OURS, "first")
    current, second = site.node(OURS, "second")
    stranger, _ = site.node(STRANGER, "first")
    site.lists(first)
    until(lambda: reads(thief, OURS))
    assert not reads(current, OURS)
    site.lists(second)
    until(lambda: not reads(thief, OURS))
    until(lambda: reads(current, OURS))
    readings: list[Callable[[Cluster], object]] = [
        lambda node: node.list(PODS, field_selector=f"spec.nodeName={OURS}"),
        lambda node: node.list(NODES, field_selector=f"metadata.name={OURS}"),
        lambda node: node.patch(NODES, OURS, {"metadata": {"annotations": {"example.com/a": "b"}}}),
    ]
    for read in readings:
        with pytest.raises(Refused):
            read(thief)
        assert read(current)
    assert reads(stranger, STRANGER)


def test_without_the_webhook_the_policy_still_refuses_what_it_writes_and_nobody_is_shut_out(site: Site) -> None:
    thief, _ = site.node(OURS, "first")
    current, second = site.node(OURS, "second")
    site.lists(second)
    patch = {"metadata": {"annotations": {"example.com/a": "c"}}}

    def writes(node: Cluster) -> bool:
        try:
            node.patch(NODES, OURS, patch)
        except Refused:
            return False
        return True

    until(lambda: writes(current))
    assert not writes(thief)
    assert reads(thief, OURS)
