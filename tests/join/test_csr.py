"""Which certificates are approved, against the real API server: real tokens and certificates make the requests, the
real controller manager signs what is approved."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.servers.server import Server, ServerStatus
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import CSRS, NODES, SECRETS, of
from provisioner.join.certificates.approve import CLIENT_SIGNER, SERVING_SIGNER
from tests.join.samples import OTHER_KEY
from tests.join.world import World, ask, certificate_pem, connect_by_token

FORBIDDEN = "the API server's NodeRestriction"
"""Not even created; the approver would deny it as well, see test_csr_decisions."""
CLIENT = ("digital signature", "client auth")
SERVER = ("digital signature", "server auth")


def curve_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def rsa_key(bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def dns(name: str) -> x509.GeneralName:
    return x509.DNSName(name)


def ip(address: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(address))


@dataclass(frozen=True)
class Forged:
    """What a forger changes of a request that would be approved. `{name}`, `{address}` and `{other}` (another server of
    ours, Accepted and ordered) are filled in."""

    why: str
    verdict: str
    common_name: str = "system:node:{name}"
    organizations: Sequence[str] = ("system:nodes",)
    alternative: Sequence[str] = ()
    usages: Sequence[str] = CLIENT
    signer: str = CLIENT_SIGNER
    expiration_seconds: int | None = None
    make_key: Callable[[], Any] = curve_key
    extensions: Sequence[Any] = ()
    attributes: Sequence[x509.NameAttribute[str]] = field(default=())

    def ask(self, requester: Cluster, world: World, other: str) -> str:
        def filled(text: str) -> str:
            return text.format(name=world.name, address=world.address, other=other)

        kinds: dict[str, Callable[[str], x509.GeneralName]] = {
            "DNS": dns,
            "IP": ip,
            "URI": x509.UniformResourceIdentifier,
            "email": x509.RFC822Name,
        }
        names = [kinds[kind](filled(value)) for kind, _, value in (text.partition("=") for text in self.alternative)]
        pem = certificate_pem(
            self.make_key(),
            filled(self.common_name),
            organizations=self.organizations,
            alternative=names,
            extensions=self.extensions,
            attributes=self.attributes,
        )
        return ask(requester, pem, signer=self.signer, usages=self.usages, expiration_seconds=self.expiration_seconds)


def serving(why: str, verdict: str, *alternative: str, **changes: Any) -> Forged:
    """A request for the serving signer."""
    given = {"signer": SERVING_SIGNER, "usages": SERVER, "alternative": alternative}
    return Forged(why, verdict, **(given | changes))


def attribute(oid: x509.ObjectIdentifier) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, "kubernetes-admin")


CODE_SIGNING = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])

BY_TOKEN = [
    Forged("as a kubelet asks", "Approved"),
    Forged("with an RSA key", "Approved", make_key=lambda: rsa_key(2048), usages=(*CLIENT, "key encipherment")),
    Forged("for an hour", "Approved", expiration_seconds=3600),
    Forged("for another server's name", "WrongToken", common_name="system:node:{other}"),
    Forged("for a name that is no server's", "UnknownServer", common_name="system:node:nobody"),
    Forged("for a name in upper case", "WrongSubject", common_name="System:Node:{name}"),
    Forged("for a name with something behind", "UnknownServer", common_name="system:node:{name}/x"),
    Forged("for no name", "UnknownServer", common_name="system:node:"),
    Forged("for an administrator's name", "WrongSubject", common_name="kubernetes-admin"),
    Forged("for the group of administrators", "WrongSubject", organizations=("system:masters",)),
    Forged("for that group too", "WrongSubject", organizations=("system:nodes", "system:masters")),
    Forged("for no group", "WrongSubject", organizations=()),
    Forged("with two common names", "Malformed", attributes=(attribute(NameOID.COMMON_NAME),)),
    Forged("with a department", "WrongSubject", attributes=(attribute(NameOID.ORGANIZATIONAL_UNIT_NAME),)),
    Forged("with a DNS name", "WrongSubject", alternative=("DNS={name}",)),
    Forged("with an address", "WrongSubject", alternative=("IP={address}",)),
    Forged("with a URI", "WrongSubject", alternative=("URI=spiffe://x/y",)),
    Forged("with an email address", "WrongSubject", alternative=("email=a@example.org",)),
    Forged("as a certificate authority", "WrongSubject", extensions=(x509.BasicConstraints(True, None),)),
    Forged("with usages hidden in the PEM", "WrongSubject", extensions=(CODE_SIGNING,)),
    Forged("to serve as well", "WrongUsages", usages=(*CLIENT, "server auth")),
    Forged("to sign certificates", "WrongUsages", usages=(*CLIENT, "cert sign")),
    Forged("with too few usages", "WrongUsages", usages=("client auth",)),
    Forged("for a year", "WrongExpiration", expiration_seconds=31_536_000),
    Forged("with a short RSA key", "WeakKey", make_key=lambda: rsa_key(1024)),
    Forged("with an odd curve", "WeakKey", make_key=lambda: ec.generate_private_key(ec.SECP224R1())),
    serving("for a serving certificate", "WrongSigner", "DNS={name}"),
]


@pytest.mark.parametrize("forged", BY_TOKEN, ids=lambda forged: forged.why)
def test_a_token_is_good_for_its_own_servers_client_certificate_alone(
    world: World, make_world: Callable[..., World], forged: Forged
) -> None:
    other = make_world("b")
    other.order("order-1")
    csr = forged.ask(world.with_token(world.joined()), world, other.name)
    assert world.decide(csr) == forged.verdict
    join = world.server().status.join
    assert join is not None
    assert (join.certificate_request_name == csr) is (forged.verdict == "Approved")
    if forged.verdict != "Approved":
        denied = [name for _, name, _, reason, _ in world.recorded.told if reason == "CertificateDenied"]
        assert csr in denied


BY_NODE = [
    Forged("renews its client certificate", "Approved"),
    serving("serves under its name and address", "Approved", "DNS={name}", "IP={address}"),
    serving("serves under its address alone", "Approved", "IP={address}"),
    serving("serves under another's name", "WrongNames", "DNS={other}", "IP={address}"),
    serving("serves under the API server's name", "WrongNames", "DNS={name}", "DNS=kubernetes.default"),
    serving("serves under a wildcard", "WrongNames", "DNS=*"),
    serving("serves under a foreign address", "WrongNames", "DNS={name}", "IP=10.80.0.1"),
    serving("serves on loopback", "WrongNames", "DNS={name}", "IP=127.0.0.1"),
    serving("serves under an IPv6 spelling of its address", "WrongNames", "IP=::ffff:{address}"),
    serving("serves under a URI", "WrongSubject", "DNS={name}", "URI=spiffe://x/y"),
    serving("serves under nothing", "WrongNames"),
    serving("serves and is a client too", "WrongUsages", "DNS={name}", usages=(*SERVER, "client auth")),
    serving("serves as another node", FORBIDDEN, "DNS={other}", common_name="system:node:{other}"),
    Forged("renews for another node", FORBIDDEN, common_name="system:node:{other}"),
    Forged("renews for a node that is not ours", FORBIDDEN, common_name="system:node:nobody"),
    Forged("renews into the group of administrators", "WrongSubject", organizations=("system:masters",)),
    Forged("renews for a year", "WrongExpiration", expiration_seconds=31_536_000),
    Forged("asks another signer", "Pending", signer="example.org/signer"),
    Forged("asks the signer of plain clients", "Pending", signer="kubernetes.io/kube-apiserver-client"),
]


@pytest.mark.parametrize("forged", BY_NODE, ids=lambda forged: forged.why)
def test_a_node_gets_certificates_for_itself_alone(make_world: Callable[..., World], forged: Forged) -> None:
    world, other = make_world(), make_world("b")
    world.order("order-1")
    node = world.become_node()
    if forged.verdict == FORBIDDEN:
        with pytest.raises(Refused, match="can only create a node CSR with CN=system:node:"):
            forged.ask(node, world, other.name)
    else:
        assert world.decide(forged.ask(node, world, other.name)) == forged.verdict


def test_the_first_certificate_spends_the_token(world: World) -> None:
    token = world.with_token(world.joined())
    first = ask(token, certificate_pem(curve_key(), f"system:node:{world.name}"))
    second = ask(token, certificate_pem(curve_key(), f"system:node:{world.name}"))
    assert world.decide(first) == "Approved"
    assert world.decide(second) == "TokenSpent"
    world.wait_for_certificate(first)
    assert world.tokens() != []
    assert world.decide(first) == "Approved"
    assert world.tokens() == [], "the token is deleted when the certificate is there"
    server = world.server()
    join = server.status.join
    assert join is not None
    assert join.certificate_time is not None
    assert len(join.credentials) == 1
    assert join.credentials[0].startswith("X509SHA256=")
    condition = find_condition(server.status.conditions, "Joined")
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "CertificateApproved")
    assert "CertificateApproved" not in world.recorded.reasons(), "the condition says it; the Event Ready follows"


def test_an_approver_that_died_after_its_claim_finishes_it(world: World) -> None:
    token = world.with_token(world.joined())
    csr = ask(token, certificate_pem(curve_key(), f"system:node:{world.name}"))

    class DiesBeforeApproval:
        def __getattr__(self, name: str) -> Any:
            if name == "replace":
                raise KeyboardInterrupt
            return getattr(world.approver.cluster, name)

    dying = type(world.approver)(cluster=DiesBeforeApproval(), recorder=world.recorded, now=world.clock)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        dying.reconcile(csr)
    join = world.server().status.join
    assert join is not None
    assert join.certificate_request_name == csr
    late = ask(token, certificate_pem(curve_key(), f"system:node:{world.name}"))
    assert world.decide(late) == "TokenSpent"
    assert world.decide(csr) == "Approved"


def test_a_certificate_of_an_older_boot_renews_nothing(world: World) -> None:
    older = world.become_node()
    world.order("order-2")
    renewal = certificate_pem(curve_key(), f"system:node:{world.name}")
    assert world.decide(ask(older, renewal)) == "BootEnds"
    configuration = world.joined(requestKey=OTHER_KEY)
    assert world.decide(ask(older, renewal)) == "OldCertificate"
    newer = ask(world.with_token(configuration), renewal)
    assert world.decide(newer) == "Approved"
    world.wait_for_certificate(newer)
    assert world.decide(newer) == "Approved"
    assert world.decide(ask(older, renewal)) == "OldCertificate"


def test_renewed_certificates_follow_each_other(world: World) -> None:
    node = world.become_node()
    for _ in range(3):
        key = curve_key()
        csr = ask(node, certificate_pem(key, f"system:node:{world.name}"))
        assert world.decide(csr) == "Approved"
        certificate = world.wait_for_certificate(csr)
        # Without a second look of the approver: the serving request comes before the credential was noted.
        node = world.as_node(key, certificate)
        serving = certificate_pem(curve_key(), f"system:node:{world.name}", alternative=[dns(world.name)])
        assert world.decide(ask(node, serving, signer=SERVING_SIGNER, usages=SERVER)) == "Approved"


def test_a_kubelet_that_lost_its_renewed_certificate_may_renew_again(world: World) -> None:
    node = world.become_node()
    for _ in range(2):
        csr = ask(node, certificate_pem(curve_key(), f"system:node:{world.name}"))
        assert world.decide(csr) == "Approved"
        world.wait_for_certificate(csr)
        assert world.decide(csr) == "Approved"


@pytest.mark.parametrize("acceptance", ["Pending", "Rejected"])
def test_a_server_that_is_no_longer_accepted_gets_no_certificate(world: World, acceptance: str) -> None:
    configuration = world.joined()
    world.change_spec(acceptance=acceptance)
    csr = ask(world.with_token(configuration), certificate_pem(curve_key(), f"system:node:{world.name}"))
    assert world.decide(csr) == "NotAccepted"


def test_a_node_that_is_no_longer_accepted_renews_nothing(world: World) -> None:
    node = world.become_node()
    world.change_spec(acceptance="Rejected")
    assert world.decide(ask(node, certificate_pem(curve_key(), f"system:node:{world.name}"))) == "NotAccepted"


def test_a_token_whose_secret_is_gone_gets_nothing(world: World) -> None:
    """The API server believes a token for some seconds after it was deleted."""
    configuration = world.joined()
    csr = ask(world.with_token(configuration), certificate_pem(curve_key(), f"system:node:{world.name}"))
    token_id = configuration.bootstrap_token.reveal().split(".")[0]
    world.admin.delete(SECRETS, f"bootstrap-token-{token_id}", namespace="kube-system")
    assert world.decide(csr) == "WrongToken"


def test_the_approver_may_read_no_secret_and_learns_nothing_of_one_that_it_may_delete(world: World) -> None:
    token_id = world.joined().bootstrap_token.reveal().split(".")[0]
    name, account = f"bootstrap-token-{token_id}", world.approver.cluster
    with pytest.raises(Refused, match="cannot get resource"):
        account.get(SECRETS, name, namespace="kube-system")
    with pytest.raises(Refused, match="cannot list resource"):
        account.list(SECRETS, namespace="kube-system")
    assert account.delete(SECRETS, name, namespace="kube-system", dry_run=True)
    assert world.tokens() == [token_id]


def test_the_approver_deletes_tokens_of_ours_and_no_other_secret(world: World, unique: str) -> None:
    opaque = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": unique, "namespace": "kube-system"}}
    world.admin.create(SECRETS, opaque)
    kubeadm = f"bootstrap-token-{world.name[1:7]}"
    foreign_token(world)
    for name in (unique, kubeadm):
        with pytest.raises(Refused, match="and no other Secret"):
            world.approver.cluster.delete(SECRETS, name, namespace="kube-system")
        world.admin.delete(SECRETS, name, namespace="kube-system")


def test_a_user_who_asks_for_our_name_is_denied_and_for_another_left_alone(world: World) -> None:
    assert world.decide(ask(world.admin, certificate_pem(curve_key(), f"system:node:{world.name}"))) == "NameTaken"
    assert world.decide(ask(world.admin, certificate_pem(curve_key(), "system:node:nobody"))) == "Pending"


def foreign_token(world: World) -> Cluster:
    """A kubeadm token, as other joiners of the same cluster use."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": f"bootstrap-token-{world.name[1:7]}", "namespace": "kube-system"},
        "stringData": {
            "token-id": world.name[1:7],
            "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    }
    world.admin.create(SECRETS, secret)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kubeadm:kubelet-bootstrap"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:node-bootstrapper",
        },
        "subjects": [
            {
                "kind": "Group",
                "apiGroup": "rbac.authorization.k8s.io",
                "name": "system:bootstrappers:kubeadm:default-node-token",
            }
        ],
    }
    world.admin.apply(binding, manager="tests")
    return connect_by_token(world.plane, world.folder, f"{world.name[1:7]}.0123456789abcdef")


def test_other_joiners_are_left_alone_but_not_with_our_names(world: World) -> None:
    kubeadm = foreign_token(world)
    assert world.decide(ask(kubeadm, certificate_pem(curve_key(), "system:node:control-plane-1"))) == "Pending"
    assert world.decide(ask(kubeadm, certificate_pem(curve_key(), f"system:node:{world.name}"))) == "NameTaken"


def foreign_kubelet(world: World) -> Cluster:
    """Whoever has a certificate for the name that an administrator approved."""
    key = curve_key()
    name = ask(world.admin, certificate_pem(key, f"system:node:{world.name}"))
    csr = world.admin.get(CSRS, name)
    csr["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "ByHand", "message": "by hand"}]}
    world.admin.replace(CSRS, csr, subresource="approval")
    return world.as_node(key, world.wait_for_certificate(name))


def test_a_foreign_node_renews_though_a_server_is_registered_under_its_name(make_world: Callable[..., World]) -> None:
    """It has a Node that others made, and neither a join nor a token: its requests are not ours to deny."""
    world = make_world()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": world.name}}
    world.admin.create(NODES, node)
    world.order("order-1")
    kubelet = foreign_kubelet(world)
    renewal = ask(kubelet, certificate_pem(curve_key(), f"system:node:{world.name}"))
    serving = certificate_pem(curve_key(), f"system:node:{world.name}", alternative=[dns(world.name)])
    assert world.decide(renewal) == "Pending"
    assert world.decide(ask(kubelet, serving, signer=SERVING_SIGNER, usages=SERVER)) == "Pending"


def test_a_server_that_was_registered_anew_does_not_deny_its_node_the_renewal(world: World) -> None:
    node = world.become_node()
    registered = world.server()
    world.admin.delete(of(Server), world.name)
    world.admin.create(
        of(Server), encode(replace(registered, metadata=ObjectMeta(name=world.name), status=ServerStatus()))
    )
    assert world.decide(ask(node, certificate_pem(curve_key(), f"system:node:{world.name}"))) == "Pending"


def test_a_spent_token_is_deleted_only_if_it_is_labelled_as_the_servers(world: World) -> None:
    configuration = world.joined()
    csr = ask(world.with_token(configuration), certificate_pem(curve_key(), f"system:node:{world.name}"))
    assert world.decide(csr) == "Approved"
    world.wait_for_certificate(csr)
    name = f"bootstrap-token-{configuration.bootstrap_token.reveal().split('.')[0]}"
    unlabelled = {"metadata": {"namespace": "kube-system", "labels": {"provisioner.dev/server": None}}}
    world.admin.patch(SECRETS, name, unlabelled, namespace="kube-system")
    assert world.decide(csr) == "Approved"
    assert world.admin.get(SECRETS, name, namespace="kube-system")["metadata"]["name"] == name
    world.admin.delete(SECRETS, name, namespace="kube-system")


def test_a_decided_request_is_not_decided_again(world: World) -> None:
    csr = ask(world.with_token(world.joined()), certificate_pem(curve_key(), "system:node:nobody"))
    assert world.decide(csr) == "UnknownServer"
    version = world.admin.get(CSRS, csr)["metadata"]["resourceVersion"]
    assert world.decide(csr) == "UnknownServer"
    assert world.admin.get(CSRS, csr)["metadata"]["resourceVersion"] == version


def test_a_request_that_is_gone_is_nobodys_business(world: World) -> None:
    assert world.approver.reconcile("csr-that-never-was") is None, "it is not looked at again"
