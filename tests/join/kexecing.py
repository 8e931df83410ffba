"""A server whose system was proved, and is told to start the next one by kexec; at the desk of attesting.py."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Final

from provisioner.api.machinery.codec import to_json
from provisioner.api.nodes.contract import BOOT_REPORT_ANNOTATION
from provisioner.api.nodes.facts import BootReport
from provisioner.api.servers.attestation import AttestationStatus
from provisioner.node.tpm.hand_over import hand_over_digest
from tests.attestation.fake_tpm import FakeTpm
from tests.attestation.machine import FakeMachine
from tests.join import samples
from tests.join.attesting import Agent, Desk, approved_firmware, is_handed_out

FIRMWARE_BOOT: Final = "33333333-8c55-4b57-9f8f-0d8a5a3f1e11"
KEXEC_ORDER: Final = "0d5f4a2e-0000-4000-8000-000000000003"
NEXT_KEY: Final = "ef" * 32


def hand_over(name: str = "the ordered command line") -> str:
    return hand_over_digest(
        kernel_sha256="sha256:" + "aa" * 32,
        stage1_sha256="sha256:" + "bb" * 32,
        image_digest=samples.DIGEST,
        request_key_sha256=samples.key_digest(NEXT_KEY),
        command_line=name,
    )


def raw(digest: str) -> bytes:
    return bytes.fromhex(digest.removeprefix("sha256:"))


def proved(agent: Agent, attestation: str = "Required") -> Desk:
    """The firmware started it, and it has joined as boot FIRMWARE_BOOT."""
    order = samples.order(boot_id_before=None)
    before = Desk(attestation=attestation, registered=agent, firmware=approved_firmware(), order=order)
    assert is_handed_out(before.joins(replace(agent, boot_id=FIRMWARE_BOOT)))
    before.cluster.secrets.clear()
    return before


def spend_token(before: Desk) -> None:
    """As the approver claims the certificate: the boot has joined."""
    join = before.server().status.join
    assert join is not None
    before.change(join=replace(join, certificate_token_id=join.token_id))


def tell_to_kexec(
    before: Desk,
    *,
    says: str | None,
    order_id: str = KEXEC_ORDER,
    boot_id: str = FIRMWARE_BOOT,
    key: str = NEXT_KEY,
) -> None:
    """says: the hand-over that the agent of boot `boot_id` reports."""
    order = samples.order(
        id=order_id,
        method="Kexec",
        reason="Requested",
        attempt_id="try-1",
        maintenance_ref="r01-u01-1",
        boot_id_before=boot_id,
    )
    report = BootReport(
        id="try-1",
        boot_id=boot_id,
        state="Rebooting",
        image_digest=samples.DIGEST,
        message="",
        time=samples.ago(20),
        next_request_key_sha256=samples.key_digest(key),
        next_hand_over_sha256=says,
    )
    before.change(order=order, power=None)
    before.cluster.node = samples.node(prepared=order_id)
    before.cluster.node["metadata"]["annotations"][BOOT_REPORT_ANNOTATION] = json.dumps(to_json(report))


def told(agent: Agent, attestation: str = "Required", says: str | None = "") -> Desk:
    """Proved, and told to start the next system; says: what its agent reports, by default what it should."""
    before = proved(agent, attestation)
    tell_to_kexec(before, says=hand_over() if says == "" else says)
    return before


def kexeced(agent: Agent, *measured: str, tpm: FakeTpm | None = None, key: str = NEXT_KEY) -> Agent:
    """What runs on the machine now, with what went into PCR 14 before it was started. tpm: another machine's."""
    machine = agent.machine
    hand_overs = (*machine.hand_overs, *map(raw, measured))
    return Agent(FakeMachine(tpm or machine.tpm, machine.events, hand_overs), key)


def attested(before: Desk) -> AttestationStatus:
    record = before.server().status.attestation
    assert record is not None
    return record
