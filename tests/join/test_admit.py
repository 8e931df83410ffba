"""Who gets a join configuration, as a table: each row changes one thing about a server that would be admitted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.api import Condition, Image
from provisioner.api.images.image import ImageStatus
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import BOOT_REPORT_ANNOTATION
from provisioner.api.nodes.facts import BootReport
from provisioner.api.servers.attestation import SeenMachine
from provisioner.api.servers.dpu import DPU
from provisioner.api.servers.server import BootOrder, PowerStatus, Server
from provisioner.join.admission.admit import Admitted, Challenged, Decision, Denied, JoinFacts, NotYet
from provisioner.join.admission.attestation import Challenge, Pending, Proof, Proven, Unproven
from provisioner.join.admission.request import JoinRequest
from tests.join import samples
from tests.join.samples import (
    ADDRESS,
    DIGEST,
    KEY,
    NOW,
    OLD_BOOT_ID,
    ORDER,
    OTHER_KEY,
    admit,
    ago,
    fetched,
    image,
    key_digest,
    node,
    order,
    pool,
    request,
    server,
    with_spec,
    with_status,
)

FACTS = JoinFacts(
    server=server(), pool=pool(), image=image(), node=node(), proof=Unproven("the machine offered no evidence")
)
REQUEST = request()
DPU_ADDRESS = "10.80.0.31"


@dataclass(frozen=True)
class Row:
    """One situation and what must come of it."""

    why: str
    reason: str
    facts: JoinFacts = FACTS
    request: JoinRequest = REQUEST
    source: str = ADDRESS
    kind: type = Denied
    recorded: bool = False
    by_dpu: bool = False


def of(change: Callable[[Any], Any]) -> JoinFacts:
    return replace(FACTS, server=change(server()))


def card(name: str = "r01-u01-dpu", *, address: str | None = DPU_ADDRESS, **changes: Any) -> Server:
    """The DPU in the server, by which it boots."""
    given: dict[str, Any] = {
        "boot_mac_address": "52:54:00:dd:dd:01",
        "dpu": DPU(host_ref="r01-u01", host_boot="Proxied"),
    }
    return server(name, spec=samples.spec(**(given | changes)), status=samples.status(address=address))


def with_card(**changes: Any) -> JoinFacts:
    return replace(FACTS, dpus=(card(**changes),))


BY_DPU = with_card()


def kexec(**changes: Any) -> BootOrder:
    """An order that the agent in the running system carries out."""
    given: dict[str, Any] = {
        "reason": "Requested", "method": "Kexec", "maintenance_ref": "r01-u01-1", "attempt_id": "try-1"
    }  # fmt: skip
    return replace(order(), **{**given, **changes})


def lease(age_seconds: float, **spec: Any) -> dict[str, Any]:
    """The Node's Lease, renewed so long ago."""
    return {"spec": {"renewTime": rfc3339_micro(NOW - timedelta(seconds=age_seconds)), **spec}}


def fetched_by(key: str, **changes: Any) -> JoinFacts:
    return of(lambda s: with_status(s, join=fetched(key, **changes)))


def judged(reason: str, status: Any = "False") -> Image:
    """The ordered image, with what the controller says of its signature."""
    said = Condition(type="Verified", status=status, reason=reason, message="…", last_transition_time=ago(60))
    return replace(image(), status=ImageStatus(conditions=(said,)))


UNJUDGED = replace(image(), status=ImageStatus())
ROWS = [
    Row("nobody registered it", "UnknownMachine", replace(FACTS, server=None)),
    Row("it has no address yet", "NoAddress", of(lambda s: with_status(s, address=None)), kind=NotYet),
    Row("a neighbour asks for it", "WrongAddress", source="10.80.0.22"),
    Row("it asks past the DPU by which it boots", "WrongAddress", BY_DPU),
    Row("its DPU asks where machines ask for themselves", "WrongAddress", BY_DPU, source=DPU_ADDRESS),
    Row("another server's DPU passes it on", "WrongAddress", BY_DPU, source="10.80.0.32", by_dpu=True),
    Row(
        "the DPU that passes it on is in another server",
        "WrongAddress",
        replace(FACTS, dpus=(card(dpu=DPU(host_ref="r01-u02", host_boot="Proxied")),)),
        source=DPU_ADDRESS,
        by_dpu=True,
    ),
    Row("it names its own address where DPUs pass on", "WrongAddress", BY_DPU, by_dpu=True),
    Row("nothing passes it on, and it asks where DPUs do", "WrongAddress", by_dpu=True),
    *(
        Row(
            f"the card was {acceptance}",
            "WrongAddress",
            with_card(acceptance=acceptance),
            source=DPU_ADDRESS,
            by_dpu=True,
        )
        for acceptance in ("Pending", "Rejected")
    ),
    Row(
        "the card is not told to pass on",
        "WrongAddress",
        with_card(dpu=DPU(host_ref="r01-u01")),
        source=DPU_ADDRESS,
        by_dpu=True,
    ),
    Row("the card has no address", "WrongAddress", with_card(address=None), source=DPU_ADDRESS, by_dpu=True),
    Row(
        "a host asks in the name of its own DPU",
        "WrongAddress",
        of(lambda s: with_status(with_spec(s, dpu=DPU(host_ref="r01-u09", host_boot="Proxied")), address=DPU_ADDRESS)),
        source=DPU_ADDRESS,
        by_dpu=True,
    ),
    Row("it waits to be accepted", "NotAccepted", of(lambda s: with_spec(s, acceptance="Pending")), recorded=True),
    Row("it was rejected", "NotAccepted", of(lambda s: with_spec(s, acceptance="Rejected")), recorded=True),
    Row(
        "another mainboard answers",
        "SystemUUIDMismatch",
        request=request(systemUUID="00000000-0042-4410-8056-b4c04f564432"),
        recorded=True,
    ),
    Row("it hides its UUID", "SystemUUIDMismatch", request=request(systemUUID=None), recorded=True),
    Row("nobody has checked its image's signature", "ImageNotJudged", replace(FACTS, image=UNJUDGED), kind=NotYet),
    Row("it is in no pool", "NoPool", of(lambda s: with_spec(s, node_pool_ref=None)), recorded=True),
    Row("its pool does not exist", "NoPool", replace(FACTS, pool=None), recorded=True),
    Row(
        "the pool wants proof and there is none",
        "AttestationRequired",
        replace(FACTS, pool=pool(attestation="Required")),
        recorded=True,
    ),
    Row("no boot was ordered", "NotOrdered", of(lambda s: with_status(s, order=None)), kind=NotYet),
    Row("the configuration was handed out", "AlreadyFetched", fetched_by(OTHER_KEY), recorded=True),
    Row("the certificate is out", "AlreadyFetched", fetched_by(KEY, certificate_token_id="abc123"), recorded=True),
    Row(
        "the BMC has not been told",
        "OrderNotCarriedOut",
        of(lambda s: with_status(s, power=PowerStatus(order_id="older", order_time=ago(50)))),
        kind=NotYet,
    ),
    Row("nothing is known of its power", "OrderNotCarriedOut", of(lambda s: with_status(s, power=None)), kind=NotYet),
    Row("it has not rebooted yet", "StillOldBoot", request=request(bootID=OLD_BOOT_ID), kind=NotYet),
    Row(
        "the BMC was told too long ago",
        "OrderExpired",
        of(lambda s: with_status(s, power=PowerStatus(order_id=ORDER, order_time=ago(2281)))),
        recorded=True,
    ),
    Row(
        "it has no BMC and was ordered too long ago",
        "OrderExpired",
        of(lambda s: with_status(with_spec(s, bmc=None), power=None, order=order(ordered_time=ago(2281)))),
        recorded=True,
    ),
    Row(
        "it has not been kexec'd yet",
        "StillOldBoot",
        of(lambda s: with_status(s, order=kexec())),
        request(bootID=OLD_BOOT_ID.upper()),
        kind=NotYet,
    ),
    Row(
        "whoever asks, the kubelet of the old boot lives",
        "OldBootRuns",
        replace(of(lambda s: with_status(s, order=kexec())), lease=lease(24.9)),
        kind=NotYet,
    ),
    Row(
        "it has no BMC, and its Node lives",
        "OldBootRuns",
        replace(of(lambda s: with_status(with_spec(s, bmc=None), power=None)), lease=lease(11)),
        kind=NotYet,
    ),
    Row(
        "the same, by a Lease that its pool has renewed every 40 s",
        "OldBootRuns",
        replace(
            of(lambda s: with_status(with_spec(s, bmc=None), power=None)), lease=lease(99, leaseDurationSeconds=160)
        ),
        kind=NotYet,
    ),
    Row(
        "the same, and its clock is fast",
        "OldBootRuns",
        replace(of(lambda s: with_status(s, order=kexec(method="Reboot"))), lease=lease(-20)),
        kind=NotYet,
    ),
    Row(
        "it was told to kexec too long ago",
        "OrderExpired",
        of(lambda s: with_status(s, order=kexec(ordered_time=ago(2281)))),
        recorded=True,
    ),
    Row(
        "its kexec'd boot has joined",
        "AlreadyFetched",
        of(lambda s: with_status(s, order=kexec(), join=fetched(OTHER_KEY))),
        recorded=True,
    ),
    Row(
        "a reset was asked for, and the BMC has not been told",
        "OrderNotCarriedOut",
        of(lambda s: with_status(s, order=order(reason="Requested", method="Reset"), power=None)),
        kind=NotYet,
    ),
    Row(
        "the kexec'd boot hung, and the BMC has not been told to reset it",
        "OrderNotCarriedOut",
        of(lambda s: with_status(s, order=order(reason="TimedOut", attempt_id="try-1"), power=None)),
        kind=NotYet,
    ),
    Row("the image is gone", "NoImage", replace(FACTS, image=None), kind=NotYet),
    Row("it booted another image", "WrongImage", request=request(imageDigest="sha256:" + "00" * 32), recorded=True),
    Row(
        "its image is signed by nobody who is believed",
        "ImageNotVerified",
        replace(FACTS, image=judged("SignatureInvalid")),
        recorded=True,
    ),
    Row(
        "an old image, rightly signed and on purpose assigned, that was revoked",
        "ImageNotVerified",
        replace(FACTS, image=judged("Revoked")),
        recorded=True,
    ),
    Row("the Node is somebody else's", "NodeNameTaken", replace(FACTS, node=node(uid="other")), recorded=True),
    Row("the Node was made by hand", "NodeNameTaken", replace(FACTS, node=node(uid=None)), recorded=True),
    Row("there is no Node yet", "NodeNotPrepared", replace(FACTS, node=None), kind=NotYet),
    Row("the Node is as of the last boot", "NodeNotPrepared", replace(FACTS, node=node(prepared="old")), kind=NotYet),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.why)
def test_it_is_turned_away_with_the_reason(row: Row) -> None:
    decision: Decision = admit(row.facts, row.request, row.source, NOW, by_dpu=row.by_dpu)
    assert isinstance(decision, row.kind)
    assert isinstance(decision, Denied | NotYet)
    assert decision.reason == row.reason
    assert len(decision.message) > 20
    if isinstance(decision, Denied):
        assert decision.recorded is row.recorded


@pytest.mark.parametrize(
    ("why", "facts"),
    [
        ("all is as it should be", FACTS),
        ("no UUID was registered", of(lambda s: with_spec(s, system_uuid=None))),
        ("it has no BMC", of(lambda s: with_status(with_spec(s, bmc=None), power=None))),
        ("an older order was fetched", of(lambda s: with_status(s, join=fetched(OTHER_KEY, order_id="older")))),
        (
            "it was ordered long ago but the BMC took it just now",
            of(lambda s: with_status(s, order=order(ordered_time=ago(9999)))),
        ),
        ("its agent started it by kexec", of(lambda s: with_status(s, order=kexec(), power=None))),
        (
            "its agent started it by kexec a moment ago",
            replace(of(lambda s: with_status(s, order=kexec())), lease=lease(25.1, leaseDurationSeconds=40)),
        ),
        (
            "its agent started it by kexec, and the old kubelet renewed its Lease every 40 s",
            replace(of(lambda s: with_status(s, order=kexec())), lease=lease(100.1, leaseDurationSeconds=160)),
        ),
        (
            "the old kubelet's clock was an hour fast",
            replace(of(lambda s: with_status(s, order=kexec())), lease=lease(-3600)),
        ),
        ("the BMC resets what a kubelet's Lease says lives", replace(FACTS, lease=lease(1))),
        ("its agent rebooted it", of(lambda s: with_status(s, order=kexec(method="Reboot")))),
        ("the pool wants proof and it gave it", replace(FACTS, pool=pool(attestation="Required"), proof=Proven("tpm"))),
    ],
)
def test_it_is_admitted(why: str, facts: JoinFacts) -> None:
    decision = admit(facts, request(), ADDRESS, NOW)
    assert isinstance(decision, Admitted), why
    assert decision.repeat is False
    assert decision.order.id == ORDER


@pytest.mark.parametrize(
    ("why", "facts"),
    [
        ("the DPU in it passes it on", BY_DPU),
        ("one of its two DPUs does", replace(FACTS, dpus=(card("a", address="10.80.0.33"), card()))),
    ],
)
def test_its_dpus_address_is_as_good_as_its_own_where_dpus_pass_on(why: str, facts: JoinFacts) -> None:
    assert isinstance(admit(facts, request(), DPU_ADDRESS, NOW, by_dpu=True), Admitted), why


@pytest.mark.parametrize(
    "facts",
    [with_card(dpu=DPU(host_ref="r01-u01")), with_card(acceptance="Pending"), with_card(dpu=DPU(host_ref="r01-u02"))],
    ids=["one that does not pass on", "one that waits to be accepted", "another server's"],
)
def test_a_card_that_carries_no_boot_changes_nothing_for_its_host(facts: JoinFacts) -> None:
    assert isinstance(admit(facts, request(), ADDRESS, NOW), Admitted)


def test_a_dpu_joins_by_its_own_address_whatever_it_does_for_its_host() -> None:
    facts = of(lambda s: with_spec(s, dpu=DPU(host_ref="r01-u09", host_boot="Proxied")))
    assert isinstance(admit(facts, request(), ADDRESS, NOW), Admitted)


def test_the_same_machine_may_repeat_its_request() -> None:
    decision = admit(fetched_by(KEY), request(requestKey=KEY), ADDRESS, NOW)
    assert isinstance(decision, Admitted)
    assert decision.repeat is True


def test_a_repeat_after_the_window_is_refused() -> None:
    decision = admit(fetched_by(KEY), request(), ADDRESS, NOW + timedelta(seconds=2280))
    assert isinstance(decision, Denied)
    assert decision.reason == "OrderExpired"


def test_a_repeat_with_no_key_on_record_is_refused() -> None:
    decision = admit(fetched_by(KEY, request_key_sha256=None), request(), ADDRESS, NOW)
    assert isinstance(decision, Denied)
    assert decision.reason == "AlreadyFetched"


def test_a_challenge_is_put_before_a_pool_that_wants_proof() -> None:
    facts = replace(FACTS, pool=pool(attestation="Required"), proof=Challenge({"nonce": "n"}))
    assert admit(facts, request(), ADDRESS, NOW) == Challenged({"nonce": "n"})


SEEN = SeenMachine(endorsement_key_sha256=f"sha256:{'e' * 64}", time=ago(1))
PENDING = Pending("KeyUnknown", "a person has to approve it", SEEN)
REFUSED = Unproven("the quote is of another nonce", offered=True, reason="NonceMismatch")


def decided(proof: Proof, attestation: Any = "Optional", **spec: Any) -> tuple[str, str]:
    """Kind of the decision, and its reason."""
    facts = replace(FACTS, server=with_spec(server(), **spec), pool=pool(attestation=attestation), proof=proof)
    decision = admit(facts, request(), ADDRESS, NOW)
    return type(decision).__name__, getattr(decision, "reason", "")


def test_what_a_person_has_to_approve_first_is_waited_for_where_the_pool_wants_proof() -> None:
    assert decided(PENDING, "Required") == ("NotYet", "KeyUnknown")
    assert decided(PENDING) == ("Admitted", "")


@pytest.mark.parametrize("attestation", ["Required", "Optional"])
def test_a_proof_that_does_not_hold_is_refused_in_every_pool(attestation: str) -> None:
    assert decided(REFUSED, attestation) == ("Denied", "NonceMismatch")


def test_a_server_whose_tpm_is_known_does_not_join_without_it() -> None:
    known = {"endorsement_key_sha256": f"sha256:{'e' * 64}"}
    assert decided(Unproven("nothing was offered"), **known) == ("Denied", "ProofMissing")
    assert decided(Proven("tpm"), **known) == ("Admitted", "")


def test_only_the_system_that_the_agent_has_started_joins_for_two_minutes() -> None:
    """It is known by the request key that the agent gave it; the old kubelet's reports do not matter then."""
    said = BootReport(
        id="try-1", state="Rebooting", image_digest=DIGEST, boot_id=OLD_BOOT_ID, message="", time=rfc3339(NOW),
        next_request_key_sha256=key_digest(KEY),
    )  # fmt: skip
    started = node()
    started["metadata"]["annotations"][BOOT_REPORT_ANNOTATION] = json.dumps(to_json(said))
    of_order = of(lambda s: with_status(s, order=kexec(boot_id_before=OLD_BOOT_ID)))
    facts = replace(of_order, node=started, lease=lease(1))
    assert isinstance(admit(facts, request(requestKey=KEY), ADDRESS, NOW), Admitted)
    other = admit(facts, request(requestKey=OTHER_KEY), ADDRESS, NOW + timedelta(seconds=120))
    assert isinstance(other, NotYet)
    assert other.reason == "OtherBootAwaited"
    later = admit(facts, request(requestKey=OTHER_KEY), ADDRESS, NOW + timedelta(seconds=121))
    assert isinstance(later, Admitted), "the machine may have come up by its firmware instead"


def test_the_wrong_address_learns_nothing_of_the_servers_state() -> None:
    """Whatever is the matter with the server, a neighbour hears the same words."""
    answers = {
        admit(row.facts, row.request, "10.80.0.99", NOW)
        for row in ROWS
        if row.facts.server is not None and row.facts.server.status.address == ADDRESS
    }
    assert len(answers) == 1


def test_samples_are_what_the_rows_say() -> None:
    assert samples.key_digest(KEY) == request().request_key_sha256


def test_the_kexecd_machine_may_repeat_its_request_while_its_own_kubelet_starts() -> None:
    order_of = of(lambda s: with_status(s, order=kexec(), join=fetched(KEY)))
    decision = admit(replace(order_of, lease=lease(1)), request(requestKey=KEY), ADDRESS, NOW)
    assert isinstance(decision, Admitted)
    assert decision.repeat is True


@pytest.mark.parametrize(("reason", "status"), [("Signed", "True"), ("NoTrustedKeys", "Unknown")])
def test_an_old_image_that_was_assigned_on_purpose_is_admitted(reason: str, status: str) -> None:
    facts = replace(FACTS, image=judged(reason, status))
    assert isinstance(admit(facts, REQUEST, ADDRESS, NOW), Admitted)
