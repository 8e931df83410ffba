"""Each rule of the approver of certificates, taken away by itself, lets the request through that it is for.

The attacks on a real API server are in test_csr_*.py, test_join_stolen_token.py and tests/join/test_csr.py; here the
decision alone is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from provisioner.join.certificates.approve import (
    CLIENT_SIGNER,
    SERVING_SIGNER,
    ApproveBootstrap,
    ApproveRenewal,
    ApproveServing,
    CertificateFacts,
    asked_names,
)
from provisioner.join.certificates.request import CertificateRequest, CertificateSubject
from tests.join.der import KEY, signed
from tests.join.samples import fetched, order, server, with_spec, with_status
from tests.join.test_csr_decisions import (
    BY_NODE,
    BY_TOKEN,
    CREDENTIAL,
    HIDING,
    JOINED,
    NODE_FACTS,
    TOKEN_FACTS,
    UNREADABLE,
    reason,
    with_second_extension_request,
)
from tests.join.world import certificate_pem

APPROVE: Final = "provisioner.join.certificates.approve."
NAME: Final = "system:node:r01-u01"
SERVING: Final = replace(BY_NODE, signer=SERVING_SIGNER, usages=("digital signature", "server auth"))
NO_FORM: Final = {f"{APPROVE}_refuse_form": lambda *_: None}
NO_SERVER: Final = {f"{APPROVE}_refuse_server": lambda *_: None}
ANY_TOKEN: Final = {f"{APPROVE}_judge_token": lambda *_: ApproveBootstrap("abc123")}
ANY_CREDENTIAL: Final = {f"{APPROVE}_judge_node": lambda *_: ApproveRenewal(CREDENTIAL)}
GOING: Final = replace(JOINED, metadata=replace(JOINED.metadata, deletion_timestamp="2026-03-01T12:00:00Z"))
SPENT: Final = with_status(server(), join=fetched(certificate_token_id="abc123", certificate_request_name="csr-1"))


def as_it_says(pem: bytes) -> CertificateSubject:
    """The reading of who believes that whatever an API server took is what a kubelet asks for."""
    return CertificateSubject(
        common_name=NAME, organizations=("system:nodes",), dns_names=(), ip_addresses=(), other=(), weakness=None
    )


def first_names(pem: bytes) -> CertificateSubject:
    """The reading of who stops at the first extension request."""
    names = x509.load_pem_x509_csr(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return replace(as_it_says(pem), dns_names=tuple(names.get_values_for_type(x509.DNSName)))


def alternative(name: str) -> bytes:
    return certificate_pem(KEY, NAME, alternative=[x509.DNSName(name)])


@dataclass(frozen=True)
class Attack:
    """absent: by the names of what refuses it, what is there in its place."""

    reason: str
    request: CertificateRequest
    facts: CertificateFacts
    absent: Mapping[str, object] = field(default_factory=dict)
    succeeds: str = "ApproveRenewal"


ATTACKS = {
    "a token for another server's name": Attack(
        "WrongToken",
        BY_TOKEN,
        replace(TOKEN_FACTS, server=with_status(server(), join=fetched(token_id="zzz999"))),
        ANY_TOKEN,
        "ApproveBootstrap",
    ),
    "a token a second time": Attack(
        "TokenSpent", BY_TOKEN, replace(TOKEN_FACTS, server=SPENT), ANY_TOKEN, "ApproveBootstrap"
    ),
    "a token that was kept until its Secret was gone": Attack(
        "WrongToken", BY_TOKEN, replace(TOKEN_FACTS, token_exists=False), ANY_TOKEN, "ApproveBootstrap"
    ),
    "a token for a serving certificate": Attack(
        "WrongSigner", replace(SERVING, username=BY_TOKEN.username, groups=BY_TOKEN.groups), TOKEN_FACTS, ANY_TOKEN,
        "ApproveBootstrap",
    ),
    "a token for the group of administrators": Attack(
        "WrongSubject",
        replace(BY_TOKEN, pem=certificate_pem(KEY, NAME, organizations=("system:nodes", "system:masters"))),
        TOKEN_FACTS,
        NO_FORM,
        "ApproveBootstrap",
    ),
    "a certificate of years": Attack(
        "WrongExpiration", replace(BY_NODE, expiration_seconds=10**8), NODE_FACTS, NO_FORM
    ),
    "a certificate for other uses": Attack(
        "WrongUsages", replace(BY_NODE, usages=("digital signature", "client auth", "server auth")), NODE_FACTS, NO_FORM
    ),
    "a certificate for a key that can be guessed": Attack(
        "WeakKey",
        replace(BY_NODE, pem=certificate_pem(ec.generate_private_key(ec.SECP192R1()), NAME)),
        NODE_FACTS,
        NO_FORM,
    ),
    "a client certificate that serves a name, too": Attack(
        "WrongSubject", replace(BY_NODE, pem=alternative("kubernetes.default")), NODE_FACTS, NO_FORM
    ),
    "names behind the first extension request": Attack(
        "WrongSubject",
        replace(SERVING, pem=with_second_extension_request(alternative("r01-u01"), alternative("kubernetes.default"))),
        NODE_FACTS,
        {f"{APPROVE}read_subject": first_names},
        "ApproveServing",
    ),
    **{
        f"what cannot be read ({why})": Attack(
            "Malformed",
            replace(BY_NODE, pem=signed(parts.whole())),
            NODE_FACTS,
            {f"{APPROVE}read_subject": as_it_says},
        )
        for why, parts in UNREADABLE.items()
    },
    "the certificate of an earlier boot": Attack(
        "OldCertificate", BY_NODE, replace(NODE_FACTS, credentials=()), ANY_CREDENTIAL
    ),
    "a boot that is to end": Attack(
        "BootEnds",
        BY_NODE,
        replace(NODE_FACTS, server=with_status(JOINED, order=order(id="the-next"))),
        {f"{APPROVE}is_to_end": lambda _: False},
    ),
    "a server that is being deleted": Attack("ServerDeleted", BY_NODE, replace(NODE_FACTS, server=GOING), NO_SERVER),
    "a server that was rejected": Attack(
        "NotAccepted", BY_NODE, replace(NODE_FACTS, server=with_spec(JOINED, acceptance="Rejected")), NO_SERVER
    ),
    "another name, with the server's own hidden in the key": Attack(
        "UnknownServer",
        replace(BY_TOKEN, pem=certificate_pem(HIDING, "system:node:control-plane-1")),
        TOKEN_FACTS,
        NO_SERVER,
        "ApproveBootstrap",
    ),
    "another server's name": Attack(
        "NotItsOwnName", replace(BY_NODE, username="system:node:r01-u02"), NODE_FACTS, ANY_CREDENTIAL
    ),
    "to serve under no name, which its clients might not check": Attack(
        "WrongNames",
        replace(SERVING, pem=certificate_pem(KEY, NAME)),
        NODE_FACTS,
        {f"{APPROVE}_judge_node": lambda *_: ApproveServing()},
        "ApproveServing",
    ),
    "to serve under another name": Attack(
        "WrongNames",
        replace(SERVING, pem=alternative("kubernetes.default")),
        NODE_FACTS,
        {f"{APPROVE}_judge_node": lambda *_: ApproveServing()},
        "ApproveServing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_request_is_denied_by_that_rule(attack: Attack) -> None:
    assert reason(attack.request, attack.facts) == attack.reason


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_request_is_approved_without_that_rule(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, instead in attack.absent.items():
        monkeypatch.setattr(name, instead)
    assert reason(attack.request, attack.facts) == attack.succeeds


def test_another_joiner_gets_our_name_without_the_search_of_all_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a request that no parser takes no name would be known: it is nobody's, and left for another approver."""
    foreign = replace(
        BY_NODE,
        signer=CLIENT_SIGNER,
        username="system:bootstrap:kubead",
        groups=("system:bootstrappers:kubeadm",),
        pem=signed(UNREADABLE["version 1"].whole()),
    )

    def judged() -> str:
        found = server() if asked_names(foreign) else None
        return reason(foreign, CertificateFacts(server=found))

    assert judged() == "NameTaken"
    monkeypatch.setattr(f"{APPROVE}common_names", lambda *_: ())
    assert judged() == "Ignore"


def test_the_node_of_a_deleted_server_is_left_to_other_approvers_without_the_mark_that_it_was_ours() -> None:
    assert reason(BY_NODE, CertificateFacts(server=None, former_server=True)) == "ServerDeleted"
    assert reason(BY_NODE, CertificateFacts(server=None, former_server=False)) == "Ignore"
