"""Defences of the join, the attestation and the agent, each by the test of the attack that it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from provisioner.attestation.quote import parse_quote
from provisioner.join.admission.web import OF_ALL
from tests.attacks.taken_away.defence import NOTHING, Defence, Patch, always, instead

_CONTINUATION: Final = "provisioner.attestation.continuation"
_ADMIT: Final = "provisioner.join.admission.admit"
_HANDED_OUT: Final = r"SealedConfiguration|JoinConfiguration"
"""Of what a test shows that expected a refusal."""


def _whatever_registers_it_sends(real: Any) -> Any:
    """A quote is taken for one of the registers that come beside it."""

    def verify(*signed: Any, pcrs: Sequence[int], values: Mapping[int, bytes], **more: Any) -> Any:
        found = real(*signed, pcrs=pcrs, values=values, **more)
        return parse_quote(signed[1]) if getattr(found, "reason", None) == "QuoteDigestMismatch" else found

    return verify


_BELIEVED: Final[Patch] = instead(property(lambda shown: not shown.evidence.event_log))

DEFENCES: Final[Mapping[str, Defence]] = {
    "tests/attacks/test_join_flood.py::test_malformed_requests_use_up_the_rate_too": Defence(
        "OF_A_CLIENT is what all have together",
        {"provisioner.join.admission.web:OF_A_CLIENT": instead(OF_ALL.others)},
        sees="400",
        early=True,
    ),
    "tests/attacks/test_join_continuation.py::test_a_quote_of_the_old_system_is_none_of_the_next": Defence(
        "the registers are not compared",
        {f"{_CONTINUATION}:_other_registers": NOTHING},
        sees=_HANDED_OUT,
    ),
    "tests/attacks/test_join_continuation.py::"
    "test_register_values_with_the_hand_over_that_the_tpm_did_not_sign_are_refused": Defence(
        "the registers that are sent are not compared with the quote",
        {"provisioner.attestation.judge:verify_quote": _whatever_registers_it_sends},
        sees=_HANDED_OUT,
    ),
    "tests/attacks/test_join_continuation.py::test_another_machine_that_stole_the_request_key_is_refused": Defence(
        "_without_proof objects to nothing",
        {f"{_ADMIT}:_without_proof": NOTHING},
        sees=_HANDED_OUT,
    ),
    "tests/attacks/test_join_continuation.py::"
    "test_a_machine_that_was_reset_and_measured_the_hand_over_by_itself_continues_nothing": Defence(
        "the TPM's keys and its count of resets are not compared",
        {f"{_CONTINUATION}:_other_tpm": NOTHING},
        sees=_HANDED_OUT,
    ),
    "tests/attacks/test_join_continuation.py::test_a_hand_over_of_an_earlier_kexec_is_none_of_the_next": Defence(
        "the registers are not compared",
        {f"{_CONTINUATION}:_other_registers": NOTHING},
        sees=_HANDED_OUT,
    ),
    "tests/join/test_continuation.py::test_what_does_not_continue_the_proved_boot_is_refused": Defence(
        "the registers are not compared",
        {f"{_CONTINUATION}:_other_registers": NOTHING},
        sees=_HANDED_OUT,
    ),
    "tests/attacks/test_join_attestation.py::"
    "test_a_server_that_has_proved_its_firmware_is_refused_once_it_drops_its_log": Defence(
        "who has proved its firmware may have none the next time",
        {"provisioner.join.admission.tpm.verifier:_Shown.never_had_log": _BELIEVED},
        sees=_HANDED_OUT,
        row="Optional",
    ),
    "tests/attacks/test_join_attestation.py::"
    "test_without_a_log_keys_activation_and_quote_have_to_hold_all_the_same": Defence(
        "an activation of zeros is the one that is due",
        {"provisioner.attestation.judge:activation_proof": always(bytes(32))},
        sees=_HANDED_OUT,
        row="ActivationFailed-Optional",
    ),
    "tests/join/test_vouched.py::test_a_dpus_word_is_no_way_around_a_tpm": Defence(
        "no server is known to have a TPM",
        {
            "provisioner.join.admission.vouched:known_endorsement_key": NOTHING,
            f"{_ADMIT}:known_endorsement_key": NOTHING,
        },
        sees="Proven",
    ),
    "tests/join/test_service.py::test_an_ordered_boot_gets_its_configuration_once": Defence(
        "_may_repeat allows all",
        {f"{_ADMIT}:_may_repeat": always(True)},
        sees=_HANDED_OUT,
    ),
}
