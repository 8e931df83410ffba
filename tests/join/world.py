"""A server in a real cluster, with what it needs to join; and the people who make certificate requests there."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from lab.control_plane.plane import ControlPlane
from provisioner.api.images.image import Image
from provisioner.api.machinery.codec import encode, to_json
from provisioner.api.machinery.errors import Conflict, Refused
from provisioner.api.machinery.meta import ObjectMeta, rfc3339, rfc3339_micro
from provisioner.api.nodes.maintenance import AGENT_METHODS
from provisioner.api.servers.server import BootOrder, PowerStatus, Server, ServerSpec
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import CSRS, SECRETS, ResourceType, of
from provisioner.join.admission.admit import Denied
from provisioner.join.admission.configuration import JoinConfiguration, JoinSettings
from provisioner.join.admission.request import JoinRequest
from provisioner.join.admission.service import Answer, JoinService
from provisioner.join.certificates.approve import CLIENT_SIGNER
from provisioner.join.certificates.controller import Approver
from provisioner.join.nodes.node_controller import NodePreparer
from tests.cluster.fake_events import FakeEvents
from tests.join import samples
from tests.people import until

SYSTEM_NAMESPACE = "provisioner-system"
ACCOUNTS = ResourceType("", "v1", "ServiceAccount", "serviceaccounts", namespaced=True)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class Clock:
    """The wall clock, with an offset that a test may turn."""

    def __init__(self) -> None:
        self.offset = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.offset


def connect_as(plane: ControlPlane, folder: Path, user: dict[str, Any]) -> Cluster:
    """The door to the cluster for somebody with these credentials (fields of a kubeconfig's user)."""
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": plane.server_url,
                    "certificate-authority-data": base64.b64encode(plane.ca_pem.encode()).decode(),
                },
            }
        ],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / f"{secrets.token_hex(4)}.kubeconfig"
    path.write_text(json.dumps(kubeconfig))
    return Cluster.connect(path)


def connect_as_account(admin: Cluster, plane: ControlPlane, folder: Path, name: str) -> Cluster:
    """The door for a ServiceAccount of ours."""
    subject = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}}
    admin.apply(subject, manager="tests")
    request = ResourceType("", "v1", "TokenRequest", f"serviceaccounts/{name}/token", namespaced=True)
    answer = admin.create(
        request,
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {}},
        namespace=SYSTEM_NAMESPACE,
    )
    return connect_as(plane, folder, {"token": answer["status"]["token"]})


def connect_by_token(plane: ControlPlane, folder: Path, token: str) -> Cluster:
    """The door for whoever holds a bootstrap token, once the API server, which looks them up in a cache, knows it."""
    holder = connect_as(plane, folder, {"token": token})

    def is_known() -> bool:
        try:
            holder.ask_who_i_am()
        except Refused:
            return False
        return True

    until(is_known)
    return holder


def again(reconcile: Callable[[], object]) -> None:
    """As a Controller does: after a Conflict (other controllers write the same objects) once more."""
    for _ in range(20):
        try:
            reconcile()
        except Conflict:
            time.sleep(0.05)
        else:
            return
    pytest.fail("20 conflicts in a row")


def certificate_pem(
    key: Key,
    name: str,
    *,
    organizations: Sequence[str] = ("system:nodes",),
    alternative: Iterable[x509.GeneralName] = (),
    extensions: Iterable[x509.ExtensionType] = (),
    attributes: Sequence[x509.NameAttribute[str]] = (),
) -> bytes:
    """A request as a kubelet makes it, and as a forger makes it."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, value) for value in organizations]
    subject += [x509.NameAttribute(NameOID.COMMON_NAME, name), *attributes]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    names = list(alternative)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def private_pem(key: Key) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()).decode()


def ask(
    requester: Cluster,
    pem: bytes,
    *,
    signer: str = CLIENT_SIGNER,
    usages: Sequence[str] = ("digital signature", "client auth"),
    expiration_seconds: int | None = None,
) -> str:
    """Create the CSR as `requester`; its name."""
    spec: dict[str, Any] = {"request": base64.b64encode(pem).decode(), "signerName": signer, "usages": list(usages)}
    if expiration_seconds is not None:
        spec["expirationSeconds"] = expiration_seconds
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": spec,
    }
    return str(requester.create(CSRS, body)["metadata"]["name"])


@dataclass
class World:
    """One server that may join, and the services around it."""

    admin: Cluster
    plane: ControlPlane
    folder: Path
    name: str
    mac: str
    address: str
    service_cluster: Cluster
    approver: Approver
    preparer: NodePreparer
    recorded: FakeEvents
    clock: Clock

    def service(self, cluster: Any = None, **changes: Any) -> JoinService:
        """A replica of the join service."""
        settings = JoinSettings(api_server_url=self.plane.server_url, cluster_ca=self.plane.ca_pem)
        return JoinService(
            cluster or self.service_cluster,
            settings,
            recorder=self.recorded,
            now=self.clock,
            **({"find_server": lambda mac: self.name if mac == self.mac else None} | changes),
        )

    def request(self, **changes: Any) -> JoinRequest:
        return samples.request(**({"macAddress": self.mac} | changes))

    def join(self, **changes: Any) -> Answer:
        return self.service().join(self.request(**changes), self.address)

    def joined(self, **changes: Any) -> JoinConfiguration:
        answer = self.join(**changes)
        assert isinstance(answer, JoinConfiguration), answer
        return answer

    def refused(self, **changes: Any) -> Denied:
        answer = self.join(**changes)
        assert isinstance(answer, Denied), answer
        return answer

    def order(self, order_id: str, **changes: Any) -> None:
        """As the boot controller and the power controller do; then the Node is prepared."""
        now = self.clock()
        first = BootOrder(id=order_id, reason="FirstBoot", ordered_time=rfc3339(now), attempt=1, image_ref=self.name)
        order = replace(first, **changes)
        self.apply_status("provisioner-boot-controller", {"order": to_json(order)})
        if order.method not in AGENT_METHODS:
            power = PowerStatus(order_id=order_id, order_time=rfc3339(now), state="On")
            self.apply_status("provisioner-power", {"power": to_json(power)})
        self.prepare_node()

    def renew_lease(self, renewed: datetime) -> None:
        """As the kubelet does."""
        self.admin.apply(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": self.name, "namespace": "kube-node-lease"},
                "spec": {
                    "holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": rfc3339_micro(renewed)
                },
            },
            manager="kubelet",
        )  # fmt: skip

    def prepare_node(self) -> None:
        again(lambda: self.preparer.reconcile(self.name))

    def apply_status(self, manager: str, status: dict[str, Any]) -> None:
        self.admin.apply_status(Server, self.name, status, manager=manager)

    def server(self) -> Server:
        return self.admin.read(Server, self.name)

    def change_spec(self, **changes: Any) -> None:
        spec: ServerSpec = replace(self.server().spec, **changes)
        self.admin.patch(of(Server), self.name, {"spec": to_json(spec)})

    def tokens(self) -> list[str]:
        """Ids of the tokens that exist for the server."""
        listed = self.admin.list(SECRETS, namespace="kube-system", label_selector=f"provisioner.dev/server={self.name}")
        return [item["metadata"]["name"].removeprefix("bootstrap-token-") for item in listed.items]

    def with_token(self, configuration: JoinConfiguration) -> Cluster:
        """Whoever holds the token of that configuration."""
        return connect_by_token(self.plane, self.folder, configuration.bootstrap_token.reveal())

    def decide(self, csr_name: str) -> str:
        """Let the approver look; `Approved`, `Pending` or the reason of the denial."""
        again(lambda: self.approver.reconcile(csr_name))
        conditions = self.admin.get(CSRS, csr_name)["status"].get("conditions") or []
        if not conditions:
            return "Pending"
        assert len(conditions) == 1
        return "Approved" if conditions[0]["type"] == "Approved" else str(conditions[0]["reason"])

    def wait_for_certificate(self, csr_name: str, seconds: float = 60.0) -> bytes:
        """What the controller manager signed, told by a watch."""
        listed = self.admin.list(CSRS, field_selector=f"metadata.name={csr_name}")
        issued = (listed.items[0].get("status") or {}).get("certificate")
        if issued is None:
            with self.admin.watch(
                CSRS,
                listed.resource_version,
                timeout_seconds=int(seconds),
                silence_seconds=seconds,
                field_selector=f"metadata.name={csr_name}",
            ) as stream:
                for line in stream.lines():
                    issued = (json.loads(line)["object"].get("status") or {}).get("certificate")
                    if issued:
                        break
        assert issued, f"{csr_name} was not signed"
        return base64.b64decode(issued)

    def as_node(self, key: Key, certificate: bytes) -> Cluster:
        """Whoever holds a client certificate."""
        return connect_as(
            self.plane,
            self.folder,
            {
                "client-certificate-data": base64.b64encode(certificate).decode(),
                "client-key-data": base64.b64encode(private_pem(key).encode()).decode(),
            },
        )

    def become_node(self) -> Cluster:
        """Join as a kubelet does, to the client certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        csr = ask(self.with_token(self.joined()), certificate_pem(key, f"system:node:{self.name}"))
        assert self.decide(csr) == "Approved"
        certificate = self.wait_for_certificate(csr)
        again(lambda: self.approver.reconcile(csr))
        return self.as_node(key, certificate)


def register(world: World) -> None:
    """Rack, pool, image and an Accepted server that has an address."""
    named = ObjectMeta(name=world.name)
    for resource in (
        replace(samples.rack(), metadata=named),
        replace(samples.image(), metadata=named),
        samples.pool(world.name, image_ref=world.name),
    ):
        world.admin.apply(encode(resource), manager="tests")
    said = [to_json(each) for each in samples.image().status.conditions]
    world.admin.apply_status(Image, world.name, {"conditions": said}, manager="tests")
    spec = samples.spec(rack_ref=world.name, boot_mac_address=world.mac, node_pool_ref=world.name)
    world.admin.apply(encode(Server(metadata=named, spec=spec)), manager="tests")
    world.apply_status("provisioner-inventory", {"address": world.address})
