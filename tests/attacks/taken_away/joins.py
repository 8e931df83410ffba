"""Defences of the join, the attestation and the agent, each by the test of the attack that it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from provisioner.api.servers.server import BootOrder
from provisioner.boot.host.nginx import NginxSite
from provisioner.join.admission.successor import Successor
from provisioner.join.admission.web import OF_ALL
from provisioner.node.image.command_line import boot_url
from provisioner.node.join import JoinOutcome, NoProver
from provisioner.node.tpm.device import TpmError
from tests.attacks.taken_away.defence import NOTHING, Defence, always, instead

_ADMIT: Final = "provisioner.join.admission.admit:"
_ATTESTATION: Final = "provisioner.attestation."
_CONTINUATION: Final = f"{_ATTESTATION}continuation:"
_HANDED_OUT: Final = "JoinConfiguration"
"""In the words of an assertion that there was none."""
_SEALED: Final = "SealedConfiguration"


class _Alike:
    """In the place of `hmac`: everything is the same as everything."""

    @staticmethod
    def compare_digest(one: object, other: object) -> bool:
        return True


def _of_trusting_everybody(render: Callable[[NginxSite], str]) -> Callable[[NginxSite], str]:
    """By which a client that writes the header itself says its own address."""
    return lambda site: render(replace(site, trusted_proxies=("0.0.0.0/0",)))


def _in_the_clear(running: str) -> Sequence[str]:
    """As stage-1 asks."""
    return [f"{boot_url(running)}/images"]


def _whoever_answers(take: Callable[..., JoinOutcome]) -> Callable[..., JoinOutcome]:
    def taken(answered: dict[str, object], server: str, prover: NoProver, *, is_proven: bool) -> JoinOutcome:
        return take(answered, server, prover, is_proven=is_proven and "sealed" in answered)

    return taken


def _as_without_a_tpm(measure: Callable[[str, str], bool]) -> Callable[[str, str], bool]:
    def measured(root: str, digest: str) -> bool:
        try:
            return measure(root, digest)
        except TpmError:
            return False

    return measured


def _of_any_method(find: Callable[..., Successor | None]) -> Callable[..., Successor | None]:
    def found(node: Mapping[str, Any] | None, order: BootOrder) -> Successor | None:
        return find(node, replace(order, method="Kexec"))

    return found


DEFENCES: Final[Mapping[str, Defence]] = {
    "tests/attacks/test_join_flood.py::test_malformed_requests_use_up_the_rate_too": Defence(
        "OF_A_CLIENT is what all have together",
        {"provisioner.join.admission.web:OF_A_CLIENT": instead(OF_ALL.others)},
        sees="400",
        early=True,
    ),
    "tests/attacks/test_join_neighbour.py::"
    "test_a_header_that_a_neighbour_writes_before_a_proxy_that_appends_never_counts": Defence(
        "everybody is a trusted proxy",
        {"tests.join.front:render_nginx": _of_trusting_everybody},
        sees=r"\(200, 'None'\)",
    ),
    "tests/node/tpm/test_prover.py::test_a_service_that_answers_a_proof_in_the_clear_is_refused": Defence(
        "what comes in the clear is taken after a proof, too",
        {"provisioner.node.join:take": _whoever_answers},
        sees="intru1",
    ),
    "tests/node/test_stage_by_tls.py::test_an_image_is_staged_by_tls_and_nothing_is_asked_in_the_clear": Defence(
        "the boot host is asked as stage-1 asks it",
        {"provisioner.node.image.stage:image_sources": instead(_in_the_clear)},
        sees="/images/",
    ),
    "tests/node/tpm/test_hand_over.py::test_what_the_tpm_does_not_measure_is_not_started": Defence(
        "a TPM that fails is as none",
        {"provisioner.node.real_machine:measure": _as_without_a_tpm},
        sees="DID NOT RAISE",
    ),
    "tests/attacks/test_join_kexec.py::test_the_key_is_good_for_a_kexec_alone": Defence(
        "find_successor takes any order for one of a kexec",
        {f"{_ADMIT}find_successor": _of_any_method},
        sees=_HANDED_OUT,
    ),
    "tests/attacks/test_join_tenant.py::test_an_agent_of_the_old_boot_does_not_take_the_next_boots_configuration": (
        Defence("_is_boot_before is never", {f"{_ADMIT}_is_boot_before": always(False)}, sees=_HANDED_OUT)
    ),
    "tests/attacks/test_join_vouched.py::"
    "test_a_neighbour_that_says_it_passes_on_and_another_hosts_dpu_get_nothing": Defence(
        "find_elsewhere objects to nothing, and every card in the server has passed the request on",
        {
            f"{_ADMIT}find_elsewhere": NOTHING,
            "provisioner.join.admission.vouched:_passes_on": always(True),
        },
        sees=r"\(200, '",
    ),
    "tests/join/test_vouched.py::test_a_dpus_word_is_no_way_around_a_tpm": Defence(
        "vouch knows no TPM of any server",
        {"provisioner.join.admission.vouched:known_endorsement_key": NOTHING},
        sees=r"Proven\(how='DPU",
    ),
    "tests/boot/test_web.py::test_what_a_dpu_passes_on_of_another_machine_is_refused": Defence(
        "every DPU carries every boot",
        {"provisioner.boot.observe.server_index:ServerIndex.is_carried_by": always(True)},
        sees="204",
    ),
    "tests/join/test_csr.py::test_an_approver_that_died_after_its_claim_finishes_it": Defence(
        "_is_claimed is never",
        {"provisioner.join.certificates.approve:_is_claimed": always(False)},
        sees="'Approved' == 'TokenSpent'",
    ),
    "tests/join/test_service.py::test_an_ordered_boot_gets_its_configuration_once": Defence(
        "_may_repeat allows all", {f"{_ADMIT}_may_repeat": always(True)}, sees=_HANDED_OUT
    ),
    "tests/attacks/test_join_attestation.py::"
    "test_a_server_that_has_proved_its_firmware_is_refused_once_it_drops_its_log": Defence(
        "no server is known to have proved its firmware",
        {"provisioner.join.admission.tpm.verifier:_was_proven": always(False)},
        sees=_SEALED,
        row="Optional",
    ),
    "tests/attacks/test_join_attestation.py::"
    "test_without_a_log_keys_activation_and_quote_have_to_hold_all_the_same": Defence(
        "the digest over the registers is not compared",
        {f"{_ATTESTATION}quote:hmac": instead(_Alike)},
        sees=_SEALED,
        row="QuoteDigestMismatch-Optional",
    ),
    **{
        f"tests/attacks/test_join_continuation.py::test_{test}": Defence(taken_away, patches, sees=sees, row="Optional")
        for test, taken_away, patches, sees in (
            (
                "a_quote_of_the_old_system_is_none_of_the_next",
                "no register is looked at",
                {f"{_CONTINUATION}_other_registers": NOTHING},
                _SEALED,
            ),
            (
                "register_values_with_the_hand_over_that_the_tpm_did_not_sign_are_refused",
                "the digest over the registers is not compared",
                {f"{_ATTESTATION}quote:hmac": instead(_Alike)},
                _SEALED,
            ),
            (
                "another_machine_that_stole_the_request_key_is_refused",
                "admit knows no TPM of any server",
                {f"{_ADMIT}known_endorsement_key": NOTHING},
                _HANDED_OUT,
            ),
            (
                "a_machine_that_was_reset_and_measured_the_hand_over_by_itself_continues_nothing",
                "_was_reset is never",
                {f"{_CONTINUATION}_was_reset": always(False)},
                _SEALED,
            ),
            (
                "a_hand_over_of_an_earlier_kexec_is_none_of_the_next",
                "no register is looked at",
                {f"{_CONTINUATION}_other_registers": NOTHING},
                _SEALED,
            ),
        )
    },
    "tests/join/test_continuation.py::test_what_does_not_continue_the_proved_boot_is_refused": Defence(
        "no register is looked at",
        {f"{_CONTINUATION}_other_registers": NOTHING},
        sees=_SEALED,
        row="other firmware",
    ),
    "tests/health/test_credential.py::test_a_node_that_was_let_in_before_stays_in": Defence(
        "a round of checks that has passed is repeated, too",
        {"provisioner.health.decide:has_passed": always(False)},
        sees="'Credential'",
    ),
}
