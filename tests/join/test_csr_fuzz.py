"""Mutated real requests through the real parser: each is approved, denied or not ours, and none raises."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.join.certificates.approve import (
    CLIENT_SIGNER,
    SERVING_SIGNER,
    ApproveBootstrap,
    ApproveRenewal,
    ApproveServing,
    CertificateFacts,
    Deny,
    asked_names,
    judge,
)
from provisioner.join.certificates.request import CertificateRequest, SubjectError, read_subject
from provisioner.join.tokens.mint import BOOTSTRAP_GROUP
from tests.join.der import (
    ALTERNATIVE_NAME,
    AUTHORITY_INFORMATION,
    EDI_PARTY_NAME,
    OCSP,
    TLS_FEATURE,
    X400_ADDRESS,
    Parts,
    armoured,
    content,
    parts,
    signed,
    tlv,
)
from tests.join.samples import ADDRESS, fetched, server, with_status
from tests.join.test_csr_decisions import UNREADABLE

GOLDEN: Final = Path(__file__).parents[1] / "golden" / "join"
NAME: Final = "ta7b9f7b0-a"
"""The node that the real requests were made for."""
REAL: Final = {path.stem: path.read_bytes() for path in sorted(GOLDEN.glob("*.pem"))}
MUTANTS: Final = 3000

_ODD: Final = (
    X400_ADDRESS, EDI_PARTY_NAME, b"\x02\x01\x63", b"\x05\x00", b"\x30\x00", b"\x31\x00", b"\x0c\x00", b"\x13\x01\x00",
    b"\x1e\x02\xd8\x00", b"\x06\x03\x55\x04\x03", TLS_FEATURE, AUTHORITY_INFORMATION + OCSP, ALTERNATIVE_NAME,
    b"\x82\x00", b"\x87\x03abc", b"\x86\x05\xff\xfe\xfd\xfc\xfb", b"\x01\x01\x2a", b"\x18\x0f20260101000000Z",
)  # fmt: skip


def mutants(count: int) -> Iterator[bytes]:
    """The same ones each time: bytes of the PEM, bytes of the DER, and its elements, with a signature that is right."""
    real = list(REAL.values())
    whole = [Parts.of(pem).whole() for pem in real]
    whole += [replace(parts_, subject=Parts.of(real[0]).subject).whole() for parts_ in UNREADABLE.values()]
    yield from map(signed, whole)
    for number in range(count):
        dice = random.Random(number)
        if number % 8 == 0:
            yield with_changed_bytes(dice.choice(real), dice)
        elif number % 8 == 1:
            yield armoured(
                with_changed_bytes(x509.load_pem_x509_csr(dice.choice(real)).public_bytes(Encoding.DER), dice)
            )
        elif number % 2 == 0:
            yield signed(with_changed_bytes(dice.choice(whole), dice))
        else:
            yield signed(with_changed_elements(dice.choice(whole), dice))


def with_changed_bytes(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(changed))
        match dice.randrange(4):
            case 0:
                changed[at] = dice.randrange(256)
            case 1:
                changed[at] ^= 1 << dice.randrange(8)
            case 2:
                del changed[at]
            case _:
                changed.insert(at, dice.randrange(256))
    return bytes(changed)


def with_changed_elements(der: bytes, dice: random.Random, depth: int = 0) -> bytes:
    """One element is left out, doubled, moved, given another tag or content: lengths stay right around it."""
    elements = parts(content(der))
    at = dice.randrange(len(elements))
    if elements[at][0] & 0x20 and len(elements[at]) > 2 and dice.random() < 0.9 - depth / 20:
        elements[at] = with_changed_elements(elements[at], dice, depth + 1)
        return tlv(der[0], b"".join(elements))
    match dice.randrange(6):
        case 0:
            del elements[at]
        case 1:
            elements.insert(at, elements[at])
        case 2:
            elements.insert(0, elements.pop(at))
        case 3:
            elements[at] = bytes([dice.randrange(256)]) + elements[at][1:]
        case 4:
            elements[at] = tlv(elements[at][0], dice.choice((b"", b"\x01", b"\xff" * 70, content(elements[at]) * 2)))
        case _:
            elements.insert(at, dice.choice(_ODD))
    return tlv(der[0], b"".join(elements))


OURS: Final = with_status(replace(server(), metadata=replace(server().metadata, name=NAME)), join=fetched())
CREDENTIAL: Final = "X509SHA256=" + "ab" * 32
FACTS: Final = CertificateFacts(server=OURS, token_exists=True, credentials=(CREDENTIAL,))
USAGES: Final = {
    CLIENT_SIGNER: ("digital signature", "client auth"), SERVING_SIGNER: ("digital signature", "server auth")
}  # fmt: skip
ASKERS: Final = {
    "our token": ("system:bootstrap:abc123", (BOOTSTRAP_GROUP,)),
    "our node": (f"system:node:{NAME}", ("system:nodes",)),
    "a kubeadm token": ("system:bootstrap:kubead", ("system:bootstrappers:kubeadm",)),
    "a person": ("alice", ("system:authenticated",)),
}


def request(pem: bytes, asker: str, signer: str) -> CertificateRequest:
    username, groups = ASKERS[asker]
    return CertificateRequest(
        name="csr-1",
        signer=signer,
        username=username,
        groups=groups,
        credential=CREDENTIAL,
        usages=USAGES[signer],
        expiration_seconds=None,
        pem=pem,
    )


def decide(pem: bytes, asker: str, signer: str) -> object:
    """As the approver puts it together: the facts are those of the Server whose name is asked for."""
    asked = request(pem, asker, signer)
    named = NAME in asked_names(asked)
    facts = replace(FACTS, server=OURS if named else None, requesting_server=asker == "our node")
    return judge(asked, facts)


@pytest.mark.parametrize("name", REAL)
def test_a_real_request_is_approved(name: str) -> None:
    assert asked_names(request(REAL[name], "our token", CLIENT_SIGNER)) == (NAME,)
    if "client" in name:
        assert decide(REAL[name], "our token", CLIENT_SIGNER) == ApproveBootstrap("abc123")
        assert decide(REAL[name], "our node", CLIENT_SIGNER) == ApproveRenewal(CREDENTIAL)
    else:
        assert OURS.status.address == ADDRESS
        assert decide(REAL[name], "our node", SERVING_SIGNER) == ApproveServing()
    assert decide(REAL[name], "a kubeadm token", CLIENT_SIGNER) == Deny(
        "NameTaken", f"system:bootstrap:kubead asks for the name of server {NAME}"
    )


@pytest.mark.parametrize("asker", ASKERS)
def test_a_mutated_request_is_decided_whoever_asks(asker: str) -> None:
    verdicts: Counter[str] = Counter()
    for pem in mutants(MUTANTS):
        for signer in (CLIENT_SIGNER, SERVING_SIGNER):
            verdict = decide(pem, asker, signer)
            verdicts[verdict.reason if isinstance(verdict, Deny) else type(verdict).__name__] += 1
            if isinstance(verdict, ApproveBootstrap | ApproveRenewal | ApproveServing):
                assert goes_to_our_server_alone(pem), pem.decode()
    if asker in ("our token", "our node"):
        assert set(verdicts) >= {"Malformed", "WrongSubject", "UnknownServer"}, verdicts
        assert "Ignore" not in verdicts
        assert sum(verdicts[each] for each in verdicts if each.startswith("Approve")) > 20, verdicts
    else:
        assert set(verdicts) == {"NameTaken", "Ignore"}, verdicts


def goes_to_our_server_alone(pem: bytes) -> bool:
    """By the bytes alone: nothing of its subject is more or other than what a kubelet asks for."""
    subject = Parts.of(pem).subject
    texts = [content(parts(content(pair))[1]) for name in parts(content(subject)) for pair in parts(content(name))]
    return sorted(texts) == sorted([b"system:nodes", f"system:node:{NAME}".encode()])


def test_without_its_care_the_parser_raises_whatever_it_meets() -> None:
    """What makes the test above one that can fail: these are no ValueErrors, and would leave a request pending."""
    raised = set[str]()
    for pem in mutants(MUTANTS):
        try:
            csr = x509.load_pem_x509_csr(pem)
            list(csr.extensions)
        except (ValueError, TypeError):
            continue
        except Exception as error:
            raised.add(type(error).__name__)
            with pytest.raises(SubjectError, match="the request cannot be read"):
                read_subject(pem)
    assert raised >= {"InvalidVersion", "UnsupportedGeneralNameType", "KeyError"}
