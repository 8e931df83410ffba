"""Verdicts that the shared API server cannot be made to ask for: it has NodeRestriction and credential ids."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.api.servers.server import Server
from provisioner.join.certificates.approve import (
    CLIENT_SIGNER,
    SERVING_SIGNER,
    ApproveBootstrap,
    ApproveRenewal,
    ApproveServing,
    CertificateFacts,
    Deny,
    Ignore,
    asked_names,
    is_ours,
    judge,
    was_ours,
)
from provisioner.join.certificates.request import CertificateRequest, SubjectError, read_request, read_subject
from provisioner.join.tokens.mint import BOOTSTRAP_GROUP
from tests.join.der import (
    ALTERNATIVE_NAME,
    AUTHORITY_INFORMATION,
    COMMON_NAME,
    EDI_PARTY_NAME,
    KEY,
    OCSP,
    TLS_FEATURE,
    X400_ADDRESS,
    Parts,
    armoured,
    content,
    extensions,
    key_that_hides,
    signed,
    tlv,
)
from tests.join.samples import fetched, node, order, server, with_spec, with_status
from tests.join.world import certificate_pem

CREDENTIAL = "X509SHA256=" + "ab" * 32
JOINED = with_status(server(), join=fetched(certificate_token_id="abc123", certificate_request_name="csr-1"))

BY_NODE = CertificateRequest(
    name="csr-2",
    signer=CLIENT_SIGNER,
    username="system:node:r01-u01",
    groups=("system:nodes", "system:authenticated"),
    credential=CREDENTIAL,
    usages=("digital signature", "client auth"),
    expiration_seconds=None,
    pem=certificate_pem(KEY, "system:node:r01-u01"),
)
NODE_FACTS = CertificateFacts(server=JOINED, requesting_server=True, credentials=(CREDENTIAL,))

BY_TOKEN = replace(BY_NODE, username="system:bootstrap:abc123", groups=(BOOTSTRAP_GROUP,), credential=None)
TOKEN_FACTS = CertificateFacts(server=with_status(server(), join=fetched()), token_exists=True)


def reason(request: CertificateRequest, facts: CertificateFacts) -> str:
    verdict = judge(request, facts)
    return verdict.reason if isinstance(verdict, Deny) else type(verdict).__name__


def test_what_is_changed_below_would_be_approved() -> None:
    assert judge(BY_NODE, NODE_FACTS) == ApproveRenewal(CREDENTIAL)
    assert judge(BY_TOKEN, TOKEN_FACTS) == ApproveBootstrap("abc123")


@pytest.mark.parametrize("signer", [CLIENT_SIGNER, SERVING_SIGNER])
def test_a_node_does_not_ask_for_another(signer: str) -> None:
    usage = "client auth" if signer == CLIENT_SIGNER else "server auth"
    request = replace(BY_NODE, username="system:node:r01-u02", signer=signer, usages=("digital signature", usage))
    assert reason(request, NODE_FACTS) == "NotItsOwnName"


def test_a_node_of_ours_does_not_ask_for_a_name_that_is_nobodys() -> None:
    request = replace(BY_NODE, pem=certificate_pem(KEY, "system:node:nobody"))
    assert reason(request, replace(NODE_FACTS, server=None)) == "UnknownServer"


def test_a_foreign_node_whose_name_a_server_bears_is_left_alone() -> None:
    facts = CertificateFacts(server=server(), requesting_server=False)
    assert judge(BY_NODE, facts) == Ignore()
    assert reason(replace(BY_NODE, username="system:node:r01-u02"), facts) == "NameTaken"
    assert reason(replace(BY_NODE, groups=("system:authenticated",)), facts) == "NameTaken"


@pytest.mark.parametrize(
    ("why", "of", "found", "ours"),
    [
        ("it was handed a token", JOINED, None, True),
        ("its Node was made for it", server(), node(), True),
        ("its Node was made for a server of that name that is gone", server(), node(uid="another"), False),
        ("its Node was made by others", server(), node(uid=None), False),
        ("it has no Node", server(), None, False),
        ("nothing was handed out to it", with_status(server(), join=fetched(token_id=None)), None, False),
    ],
)
def test_a_node_is_ours_by_more_than_its_name(why: str, of: Server, found: Any, ours: bool) -> None:
    assert is_ours(of, found) is ours, why


def test_without_the_credential_nothing_is_renewed() -> None:
    assert reason(replace(BY_NODE, credential=None), NODE_FACTS) == "UnknownCertificate"


def test_a_credential_that_is_not_on_record_renews_nothing() -> None:
    assert reason(BY_NODE, replace(NODE_FACTS, credentials=())) == "OldCertificate"


def test_somebody_in_our_group_who_is_no_token_is_denied() -> None:
    assert reason(replace(BY_TOKEN, username="eve"), TOKEN_FACTS) == "UnknownRequester"


def test_a_user_who_is_named_like_a_node_but_is_not_in_its_group_is_no_node() -> None:
    request = replace(BY_NODE, groups=("system:authenticated",))
    assert reason(request, replace(NODE_FACTS, requesting_server=False)) == "NameTaken"


def test_another_signers_request_is_left_alone_whoever_asks() -> None:
    for request, facts in ((BY_NODE, NODE_FACTS), (BY_TOKEN, TOKEN_FACTS), (BY_TOKEN, NODE_FACTS)):
        assert judge(replace(request, signer="example.com/anything"), facts) == Ignore()


def test_a_claim_that_was_written_before_we_died_is_carried_out_and_spends_the_token() -> None:
    claimed = replace(TOKEN_FACTS, server=JOINED)
    assert judge(replace(BY_TOKEN, name="csr-1"), claimed) == ApproveBootstrap("abc123")
    assert reason(replace(BY_TOKEN, name="csr-2"), claimed) == "TokenSpent"


def test_the_secret_of_the_token_must_be_there() -> None:
    assert reason(BY_TOKEN, replace(TOKEN_FACTS, token_exists=False)) == "WrongToken"


def test_a_server_that_was_handed_nothing_gets_nothing() -> None:
    assert reason(BY_TOKEN, replace(TOKEN_FACTS, server=server())) == "WrongToken"


BOMBS = {
    "blocks that do not end": b"-----BEGIN \n" * 120_000,
    "names without end": armoured(b"\x06\x03\x55\x04\x03\x0c\x82\xff\xff" * 110_000),
    "names of the longest kind": armoured(b"\x06\x03\x55\x04\x03\x0c\x82\x04\xb0" * 110_000),
    "lines": b"-----BEGIN CERTIFICATE REQUEST-----\n" + b"A\n" * 700_000,
}


@pytest.mark.parametrize("why", BOMBS)
def test_what_is_made_to_cost_much_costs_little_and_hides_no_name(why: str) -> None:
    """A valid request and 1 MB behind it pass the API server. Quadratic work would take hours of a worker."""
    pem = BY_NODE.pem + BOMBS[why] + certificate_pem(KEY, "system:node:behind")
    before = time.process_time()
    assert asked_names(replace(BY_NODE, pem=pem)) == ("r01-u01", "behind")
    assert reason(replace(BY_TOKEN, pem=pem), TOKEN_FACTS) == "Malformed"
    assert time.process_time() - before < 120.0


@pytest.mark.parametrize("signer", [CLIENT_SIGNER, SERVING_SIGNER])
def test_a_boot_that_is_to_end_gets_no_more_certificates(signer: str) -> None:
    usage = "client auth" if signer == CLIENT_SIGNER else "server auth"
    request = replace(BY_NODE, signer=signer, usages=("digital signature", usage))
    ending = with_status(JOINED, order=order(id="the-next"))
    assert reason(request, replace(NODE_FACTS, server=ending)) == "BootEnds"
    assert reason(request, replace(NODE_FACTS, server=with_spec(JOINED, power_state="Off"))) == "BootEnds"
    assert reason(request, NODE_FACTS) == ("ApproveRenewal" if signer == CLIENT_SIGNER else "WrongNames")


def test_a_node_whose_server_was_deleted_is_denied_and_one_that_never_had_one_is_left_alone() -> None:
    assert reason(BY_NODE, CertificateFacts(server=None, former_server=True)) == "ServerDeleted"
    assert judge(BY_NODE, CertificateFacts(server=None)) == Ignore()
    assert was_ours(node())
    assert not was_ours(node(uid=None))
    assert not was_ours(None)


def test_a_server_that_is_being_deleted_gets_no_certificate() -> None:
    going = replace(JOINED, metadata=replace(JOINED.metadata, deletion_timestamp="2026-03-01T12:00:00Z"))
    assert reason(BY_NODE, replace(NODE_FACTS, server=going)) == "ServerDeleted"


@pytest.mark.parametrize("username", ["alice", "system:serviceaccount:openshift:node-bootstrapper"])
def test_people_and_other_tools_are_left_alone_but_not_with_our_names(username: str) -> None:
    request = replace(BY_NODE, username=username, groups=("system:authenticated",))
    assert judge(request, CertificateFacts(server=None)) == Ignore()
    assert reason(request, CertificateFacts(server=server())) == "NameTaken"


def test_a_foreign_node_that_renews_its_own_certificate_is_left_alone() -> None:
    request = replace(BY_NODE, username="system:node:cp-1", pem=certificate_pem(KEY, "system:node:cp-1"))
    assert judge(request, CertificateFacts(server=None)) == Ignore()


def test_a_usage_that_is_listed_twice_is_denied() -> None:
    usages = ("digital signature", "client auth", "client auth")
    assert reason(replace(BY_TOKEN, usages=usages), TOKEN_FACTS) == "WrongUsages"


def altered(pem: bytes) -> bytes:
    der = bytearray(x509.load_pem_x509_csr(pem).public_bytes(Encoding.DER))
    der[-1] ^= 1
    return armoured(bytes(der))


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"nothing",
        BY_NODE.pem + BY_NODE.pem,
        b"-----BEGIN CERTIFICATE REQUEST-----\na\n-----END CERTIFICATE REQUEST-----\n",
        BY_NODE.pem.replace(b"CERTIFICATE REQUEST", b"CERTIFICATE"),
        BY_NODE.pem[:100],
        altered(BY_NODE.pem),
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + b"A" * 20_000 + b"\n-----END CERTIFICATE REQUEST-----\n",
    ],
    ids=["nothing", "words", "two", "no base64", "certificate", "cut", "altered", "too long"],  # keys differ each time
)
def test_what_is_not_one_signed_request_is_malformed(pem: bytes) -> None:
    with pytest.raises(SubjectError):
        read_subject(pem)
    request = replace(BY_TOKEN, pem=pem)
    assert reason(request, replace(TOKEN_FACTS, server=None)) == "Malformed"


UNREADABLE = {
    "version 1": replace(Parts.of(BY_NODE.pem), version=tlv(0x02, b"\x01")),
    "an x400Address": replace(
        Parts.of(BY_NODE.pem), attributes=extensions((ALTERNATIVE_NAME, tlv(0x30, X400_ADDRESS)))
    ),
    "an ediPartyName": replace(
        Parts.of(BY_NODE.pem), attributes=extensions((ALTERNATIVE_NAME, tlv(0x30, EDI_PARTY_NAME)))
    ),
    "an unknown TLS feature": replace(
        Parts.of(BY_NODE.pem), attributes=extensions((TLS_FEATURE, tlv(0x30, tlv(0x02, b"\x63"))))
    ),
    "an issuer at an x400Address": replace(
        Parts.of(BY_NODE.pem),
        attributes=extensions((AUTHORITY_INFORMATION, tlv(0x30, tlv(0x30, OCSP + X400_ADDRESS)))),
    ),
}
"""Requests that the API server takes, and the parser raises at."""


@pytest.mark.parametrize("why", UNREADABLE)
def test_a_request_that_cannot_be_read_is_decided_by_who_asks_and_for_whom(why: str) -> None:
    pem = signed(UNREADABLE[why].whole())
    assert asked_names(replace(BY_TOKEN, pem=pem)) == ("r01-u01",)
    assert reason(replace(BY_TOKEN, pem=pem), TOKEN_FACTS) == "Malformed"
    assert reason(replace(BY_NODE, pem=pem), NODE_FACTS) == "Malformed"
    foreign = replace(BY_NODE, pem=pem, username="system:bootstrap:kubead", groups=("system:bootstrappers:kubeadm",))
    assert reason(foreign, CertificateFacts(server=server())) == "NameTaken"
    assert judge(foreign, CertificateFacts(server=None)) == Ignore()


@pytest.mark.parametrize("tag", [0x0C, 0x13, 0x14, 0x16, 0x1C, 0x1E])
def test_whose_name_is_asked_for_is_known_in_each_kind_of_string_and_wherever_it_stands(tag: int) -> None:
    encoding = {0x1C: "utf-32-be", 0x1E: "utf-16-be"}.get(tag, "ascii")
    common_name = tlv(0x30, COMMON_NAME + tlv(tag, "system:node:r01-u01".encode(encoding)))
    first = content(Parts.of(certificate_pem(KEY, "somebody")).subject)
    pem = signed(replace(Parts.of(BY_NODE.pem), subject=tlv(0x30, first + tlv(0x31, common_name))).whole())
    for odd in (pem, b"Subject: r01\n" + pem + BY_TOKEN.pem, pem.replace(b"-----\n", b"-----\nProc-Type: 4\n\n", 1)):
        assert asked_names(replace(BY_NODE, pem=odd)) == ("r01-u01",)
    assert asked_names(replace(BY_NODE, pem=pem + certificate_pem(KEY, "system:node:b"))) == ("r01-u01", "b")


def with_second_extension_request(pem: bytes, other: bytes) -> bytes:
    """`pem` with the extension request of `other` appended to its own, and signed again."""
    ours, theirs = Parts.of(pem), Parts.of(other)
    both = sorted([content(ours.attributes), content(theirs.attributes)])
    return signed(replace(ours, attributes=tlv(0xA0, b"".join(both))).whole())


def test_names_hidden_in_a_second_extension_request_are_refused() -> None:
    """Go merges them, cryptography reads the first: the API server's signer would see names that we do not."""
    good = certificate_pem(KEY, "system:node:r01-u01", alternative=[x509.DNSName("r01-u01")])
    evil = certificate_pem(KEY, "system:node:r01-u01", alternative=[x509.DNSName("kubernetes.default")])
    pem = with_second_extension_request(good, evil)
    assert x509.load_pem_x509_csr(pem).is_signature_valid
    request = replace(BY_NODE, signer=SERVING_SIGNER, usages=("digital signature", "server auth"), pem=good)
    assert judge(request, NODE_FACTS) == ApproveServing()
    assert reason(replace(request, pem=pem), NODE_FACTS) == "WrongSubject"


HIDING = key_that_hides(COMMON_NAME + tlv(0x0C, b"system:node:r01-u01"))
"""Its modulus looks like a common name: of each request with it, the server's name is one of the names asked for."""


@pytest.mark.parametrize(("honest", "facts"), [(BY_TOKEN, TOKEN_FACTS), (BY_NODE, NODE_FACTS)], ids=["token", "node"])
def test_a_server_does_not_get_another_name_by_hiding_its_own_in_its_key(
    honest: CertificateRequest, facts: CertificateFacts
) -> None:
    """Only the name in the subject counts: that is the one that the API server's signer writes into the certificate."""
    request = replace(honest, pem=certificate_pem(HIDING, "system:node:control-plane-1"))
    assert asked_names(request) == ("control-plane-1", "r01-u01"), "so the approver judges it by the facts of r01-u01"
    assert reason(request, facts) == "UnknownServer"


@pytest.mark.parametrize(("honest", "facts"), [(BY_TOKEN, TOKEN_FACTS), (BY_NODE, NODE_FACTS)], ids=["token", "node"])
def test_a_server_gets_its_own_name_whatever_its_key_looks_like(
    honest: CertificateRequest, facts: CertificateFacts
) -> None:
    request = replace(honest, pem=certificate_pem(HIDING, "system:node:r01-u01"))
    assert asked_names(request) == ("r01-u01",)
    assert judge(request, facts) == judge(honest, facts)
    assert isinstance(judge(request, facts), ApproveBootstrap | ApproveRenewal)


def test_a_request_is_read_as_the_api_server_wrote_it() -> None:
    csr = {
        "metadata": {"name": "csr-9"},
        "spec": {
            "request": "!!!",
            "signerName": CLIENT_SIGNER,
            "username": "system:node:r01-u01",
            "groups": ["system:nodes"],
            "extra": {"authentication.kubernetes.io/credential-id": ["a", "b"]},
        },
    }
    request = read_request(csr)
    assert request.pem == b""
    assert request.credential is None, "two credentials are none"
