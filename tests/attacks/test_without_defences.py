"""Each defence of the admission, taken away by itself, lets the attack through that it is for.

The attacks on the whole service are in test_join_*.py; here the decision alone is asked, which is all that they meet.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from provisioner.api.machinery.codec import to_json
from provisioner.api.nodes.contract import BOOT_REPORT_ANNOTATION
from provisioner.api.nodes.facts import BootReport
from provisioner.cli.kubectl import printing
from provisioner.join.admission import admit as admission
from provisioner.join.admission.admit import Admitted, JoinFacts
from provisioner.join.admission.request import JoinRequest
from provisioner.rules.liveness import read_heartbeat
from tests.join.samples import (
    ADDRESS,
    DIGEST,
    NOW,
    OLD_BOOT_ID,
    OTHER_KEY,
    admit,
    ago,
    fetched,
    key_digest,
    node,
    request,
    with_spec,
    with_status,
)
from tests.join.test_admit import FACTS, REQUEST, kexec, lease, of

NEIGHBOUR = "10.80.0.99"


@dataclass(frozen=True)
class Attack:
    """defence: what `admit` asks, by its name there; taken away it answers `absent`."""

    reason: str
    defence: str
    absent: Callable[..., Any]
    facts: JoinFacts = FACTS
    request: JoinRequest = REQUEST
    source: str = ADDRESS

    def outcome(self) -> str:
        decision = admit(self.facts, self.request, self.source, NOW)
        return "Admitted" if isinstance(decision, Admitted) else str(decision.reason)  # type: ignore[union-attr]


def nothing(*_: object, **__: object) -> None:
    """No objection."""


def preparing(key: str) -> dict[str, Any]:
    """The Node whose agent has loaded a kernel that has this key."""
    report = BootReport(
        id="try-1",
        boot_id=OLD_BOOT_ID,
        state="Rebooting",
        image_digest=DIGEST,
        message="",
        time=ago(5),
        next_request_key_sha256=key_digest(key),
    )
    made = node()
    made["metadata"]["annotations"][BOOT_REPORT_ANNOTATION] = json.dumps(to_json(report))
    return made


ATTACKS = {
    "a neighbour asks from its own address": Attack("WrongAddress", "find_elsewhere", nothing, source=NEIGHBOUR),
    "a machine that nobody accepted asks": Attack(
        "NotAccepted", "find_unaccepted", nothing, of(lambda s: with_spec(s, acceptance="Pending"))
    ),
    "a captured request is sent again, with a key of the thief's own": Attack(
        "AlreadyFetched",
        "_may_repeat",
        lambda *_: True,
        of(lambda s: with_status(s, join=fetched())),
        request(requestKey=OTHER_KEY),
    ),
    "a machine that runs another image asks": Attack(
        "WrongImage", "_judge_image", nothing, request=request(imageDigest="sha256:" + "99" * 32)
    ),
    "a boot asks before the BMC was told to end the one before": Attack(
        "OrderNotCarriedOut", "is_by_bmc", lambda _: False, of(lambda s: with_status(s, power=None))
    ),
    "somebody asks in the window of a kexec, without the key that its kernel was given": Attack(
        "OtherBootAwaited",
        "find_successor",
        nothing,
        replace(of(lambda s: with_status(s, order=kexec(boot_id_before=OLD_BOOT_ID))), node=preparing(OTHER_KEY)),
    ),
    "a pod outlives its kubelet's reboot and asks with an invented boot id": Attack(
        "OldBootRuns",
        "read_heartbeat",
        lambda _: read_heartbeat(None),
        replace(of(lambda s: with_status(s, order=replace(kexec(), method="Reboot"))), lease=lease(5)),
    ),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_attack_is_refused_by_that_defence(attack: Attack) -> None:
    assert attack.outcome() == attack.reason


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_the_attack_succeeds_without_that_defence(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, attack.defence, attack.absent)
    assert attack.outcome() == "Admitted"


def test_orders_to_a_terminal_succeed_without_the_words_made_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("r01", "pod \x1b[2Jx")]
    assert "\x1b" not in printing.table(("NODE", "WAITS FOR"), rows)
    monkeypatch.setattr(printing, "plain", str)
    assert "\x1b[2J" in printing.table(("NODE", "WAITS FOR"), rows)
