"""Whom a DPU vouches for, as a table: each row changes one thing about a host that joins by its DPU's word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from provisioner.api import Condition
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.attestation import AttestationStatus
from provisioner.api.servers.dpu import DPU
from provisioner.api.servers.server import BootOrder, Server
from provisioner.join.admission.admit import Admitted, Decision, Denied, JoinFacts, judge_claim, judge_proof
from provisioner.join.admission.attestation import Challenge, EvidenceQuestion, Proof, Proven, Unproven
from provisioner.join.admission.request import JoinRequest
from provisioner.join.admission.vouched import find_unattested, vouch
from tests.join import samples
from tests.join.samples import ADDRESS, NOW, ago, fetched, image, node, pool, request, server, with_spec, with_status

DPU_ADDRESS, DPU_ORDER, DPU_BOOT = (
    "10.80.0.31",
    "0d5f4a2e-0000-4000-8000-0000000000dd",
    "dddddddd-8c55-4b57-9f8f-0d8a5a3f1e11",
)
HOST, REQUEST = server(), request()
NOTHING_OFFERED = Unproven("the machine offered no evidence")
PROVED = AttestationStatus(
    endorsement_key_sha256="sha256:" + "ee" * 32,
    known_by="Registered",
    order_id=DPU_ORDER,
    boot_id=DPU_BOOT,
    time=ago(9),
)


def ready(status: Any = "True") -> tuple[Condition, ...]:
    return (Condition(type="Ready", status=status, reason="Any", message="", last_transition_time=ago(9)),)


def order_of_the_dpu(identifier: str = DPU_ORDER) -> BootOrder:
    return samples.order(id=identifier)


def card(name: str = "r01-u01-dpu", *, spec: dict[str, Any] | None = None, **status: Any) -> Server:
    """A DPU that has proved the boot that runs."""
    given: dict[str, Any] = {
        "boot_mac_address": "52:54:00:dd:dd:01",
        "dpu": DPU(host_ref="r01-u01", host_boot="Proxied"),
    }
    stands: dict[str, Any] = {
        "address": DPU_ADDRESS,
        "order": order_of_the_dpu(),
        "join": fetched(order_id=DPU_ORDER, boot_id=DPU_BOOT),
        "boot_id": DPU_BOOT,
        "attestation": PROVED,
        "conditions": ready(),
    }
    return server(name, spec=samples.spec(**(given | (spec or {}))), status=samples.status(**(stands | status)))


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request of a host without TPM that its attested DPU has passed on."""

    server: Server = HOST
    dpus: tuple[Server, ...] = (card(),)
    proof: Proof = NOTHING_OFFERED
    request: JoinRequest = REQUEST
    attestation: Any = "Required"
    without_tpm: Any = "VouchedByDPU"
    source: str = DPU_ADDRESS
    by_dpu: bool = True

    @property
    def pool(self) -> NodePool:
        return pool(attestation=self.attestation, without_tpm=self.without_tpm)

    def vouched(self) -> Proof:
        question = EvidenceQuestion(
            server=self.server, request=self.request, order=samples.order(), pool=self.pool, image=image(),
            address=self.source, now=NOW,
        )  # fmt: skip
        return vouch(self.proof, question, self.dpus, by_dpu=self.by_dpu)

    def decision(self) -> Decision:
        """As the join service decides: the claim first, then the proof."""
        facts = JoinFacts(server=self.server, pool=self.pool, image=image(), node=node(), dpus=self.dpus)
        claimed = judge_claim(facts, self.request, self.source, NOW, by_dpu=self.by_dpu)
        return judge_proof(replace(facts, proof=self.vouched()), claimed) if isinstance(claimed, Admitted) else claimed


def test_an_attested_dpu_vouches_for_the_host_whose_request_it_passed_on() -> None:
    proof = Asked().vouched()
    assert isinstance(proof, Proven)
    assert "DPU r01-u01-dpu" in proof.how
    assert isinstance(Asked().decision(), Admitted)


def test_of_two_dpus_in_it_the_one_that_passed_it_on_counts() -> None:
    silent = card("a-dpu", spec={"boot_mac_address": "52:54:00:dd:dd:02"}, address="10.80.0.33", attestation=None)
    assert isinstance(Asked(dpus=(silent, card())).decision(), Admitted)
    assert isinstance(Asked(dpus=(silent, card()), source="10.80.0.33").decision(), Denied)


KNOWN_TPM = AttestationStatus(
    endorsement_key_sha256="sha256:" + "ab" * 32, order_id="older", boot_id=samples.OLD_BOOT_ID
)

REFUSED: list[tuple[str, Asked, str]] = [
    ("the pool takes no DPU's word", Asked(without_tpm="Refused"), "offered no evidence"),
    ("its DPU has proved nothing", Asked(dpus=(card(attestation=None),)), "proved nothing"),
    (
        "its DPU has shown a TPM that nobody has approved",
        Asked(dpus=(card(attestation=AttestationStatus()),)),
        "proved nothing",
    ),
    ("its DPU was never ordered to boot", Asked(dpus=(card(order=None),)), "proved nothing"),
    (
        "its DPU was ordered to boot anew, and has not come up",
        Asked(dpus=(card(order=order_of_the_dpu("next")),)),
        "ordered to boot anew",
    ),
    (
        "its DPU proved an earlier order's boot",
        Asked(dpus=(card(attestation=replace(PROVED, order_id="older")),)),
        "has not proved that boot yet",
    ),
    (
        "its DPU's credentials are of an earlier order",
        Asked(dpus=(card(join=fetched(order_id="older")),)),
        "not proved",
    ),
    ("its DPU has no credentials", Asked(dpus=(card(join=None),)), "not proved"),
    (
        "who got its DPU's credentials had proved nothing",
        Asked(dpus=(card(join=fetched(order_id=DPU_ORDER, boot_id="another")),)),
        "was given its credentials",
    ),
    ("its DPU runs another boot by now", Asked(dpus=(card(boot_id=samples.OLD_BOOT_ID),)), "its Node reports"),
    ("nobody knows which boot its DPU runs", Asked(dpus=(card(boot_id=None),)), "its Node reports none"),
    ("its DPU is down, and somebody has its address", Asked(dpus=(card(conditions=ready("False")),)), "not Ready"),
    ("nobody knows whether its DPU is up", Asked(dpus=(card(conditions=()),)), "not Ready"),
    (
        "its DPU was itself vouched for",
        Asked(dpus=(card(attestation=replace(PROVED, endorsement_key_sha256=None)),)),
        "proved nothing",
    ),
]


@pytest.mark.parametrize(("why", "asked", "says"), REFUSED, ids=[row[0] for row in REFUSED])
def test_nobody_vouches_for_it_and_it_is_told_why(why: str, asked: Asked, says: str) -> None:
    proof = asked.vouched()
    assert isinstance(proof, Unproven), why
    assert says in proof.why
    decision = asked.decision()
    assert isinstance(decision, Denied)
    assert decision.reason == "AttestationRequired"
    assert says in decision.message


ELSEWHERE: list[tuple[str, Asked]] = [
    ("a neighbour says that a DPU passes it on", Asked(source="10.80.0.77")),
    (
        "another server's DPU passes it on",
        Asked(dpus=(card(spec={"dpu": DPU(host_ref="r01-u02", host_boot="Proxied")}),)),
    ),
    ("it asks past its DPU, by its own address", Asked(source=ADDRESS, by_dpu=False)),
    ("its DPU's address asks where machines ask for themselves", Asked(by_dpu=False)),
    ("nobody has accepted the card", Asked(dpus=(card(spec={"acceptance": "Pending"}),))),
    ("the card does not carry its boot", Asked(dpus=(card(spec={"dpu": DPU(host_ref="r01-u01")}),))),
    ("there is no card", Asked(dpus=())),
]


@pytest.mark.parametrize(("why", "asked"), ELSEWHERE, ids=[row[0] for row in ELSEWHERE])
def test_what_comes_from_elsewhere_is_vouched_for_by_nobody(why: str, asked: Asked) -> None:
    assert isinstance(asked.vouched(), Unproven), "by this rule alone"
    decision = asked.decision()
    assert isinstance(decision, Denied), why
    assert decision.reason == "WrongAddress"


def test_without_a_card_a_host_by_its_own_address_is_vouched_for_by_nobody() -> None:
    decision = Asked(dpus=(), source=ADDRESS, by_dpu=False).decision()
    assert isinstance(decision, Denied)
    assert decision.reason == "AttestationRequired"


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Asked(server=with_spec(server(), endorsement_key_sha256="sha256:" + "ab" * 32)), "ProofMissing"),
        (Asked(server=with_status(server(), attestation=KNOWN_TPM)), "ProofMissing"),
        (Asked(proof=Unproven("the quote is of another nonce", offered=True)), "ProofRefused"),
    ],
    ids=["it is registered with a TPM", "it has proved itself by a TPM before", "it offers a proof that fails"],
)
def test_a_dpus_word_is_no_way_around_a_tpm(asked: Asked, reason: str) -> None:
    assert asked.vouched() is asked.proof
    decision = asked.decision()
    assert isinstance(decision, Denied)
    assert decision.reason == reason


@pytest.mark.parametrize("proof", [Proven("its TPM"), Challenge({"type": "TPM2"})], ids=["proven", "challenged"])
def test_a_proof_of_its_own_stands(proof: Proof) -> None:
    assert Asked(proof=proof).vouched() is proof


def test_what_is_on_record_of_it_names_no_key() -> None:
    proof = Asked().vouched()
    assert isinstance(proof, Proven)
    assert (proof.record.order_id, proof.record.boot_id) == (samples.ORDER, samples.BOOT_ID)
    assert proof.record.endorsement_key_sha256 is None
    assert proof.seal is None


def test_where_attestation_is_optional_nothing_changes() -> None:
    assert Asked(attestation="Optional").vouched() is NOTHING_OFFERED


@pytest.mark.parametrize("change", [str.upper, str.lower])
def test_boot_ids_are_the_same_in_either_case(change: Callable[[str], str]) -> None:
    assert find_unattested(card(boot_id=change(DPU_BOOT))) is None
