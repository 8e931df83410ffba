"""Twins that show of many attacks of one kind that they succeed: by the twin, what is taken away for which attacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_HERE: Final = "tests/attacks/test_"


def _at(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/{module}.py::test_{name}" for name in names)


def _of(module: str, *names: str) -> tuple[str, ...]:
    return _at(f"attacks/test_{module}", *names)


_ATTESTATION: Final = {
    "the registered key is not compared": (
        *_of("join_attestation", "a_machine_with_another_tpm_is_refused_and_the_servers_own_is_not"),
        *_at("attestation/test_judge", "another_tpm_than_the_registered_is_refused_before_it_is_challenged"),
    ),
    "any certificate vouches": (
        *_of("join_attestation", "a_machine_with_a_tpm_that_nobody_approved_pins_nothing"),
        *_at("attestation/test_endorsement", "a_certificate_that_does_not_vouch_is_refused_in_words"),
    ),
    "the activation is not compared, or the challenge not sealed": (
        *_of("join_attestation", "who_shows_the_servers_endorsement_key_without_its_tpm_cannot_answer"),
        *_at(
            "attestation/test_agent_and_service",
            "another_machine_that_shows_the_registered_key_opens_no_credential",
        ),
        *_at("attestation/test_judge", "a_machine_without_the_endorsement_key_does_not_learn_the_secret"),
    ),
    "the attestation key's attributes are not checked": (
        *_of("join_attestation", "an_attestation_key_that_signs_whatever_it_is_given_is_refused"),
        *_at("attestation/test_real_tpm", "a_key_that_would_sign_what_it_is_told_does_not_attest"),
    ),
    "a challenge is bound to no order and no token": _of(
        "join_attestation",
        "a_captured_proof_that_is_sent_again_brings_a_challenge_and_nothing_else",
        "a_proof_for_an_earlier_order_is_worth_nothing_for_the_next",
    ),
    "the quote's nonce is not compared": _at("attestation/test_judge", "the_answer_to_one_challenge_answers_no_other"),
    "LIFE_SECONDS is 1 h, or the challenge not sealed": (
        *_of("join_attestation", "a_challenge_of_more_than_a_minute_ago_is_not_taken"),
        *_at("attestation/test_challenge", "a_stranger_makes_none_and_a_changed_one_does_not_open"),
    ),
    "what was booted is not judged, the log not replayed, or the digest of the values not compared": (
        *_of("join_attestation", "a_machine_that_booted_another_kernel_cannot_say_otherwise"),
        *_at(
            "attestation/test_judge",
            "a_machine_that_booted_something_else_is_refused_and_the_component_named",
            "another_log_than_what_was_measured_is_refused",
            "a_foreign_program_is_not_hidden_by_another_type_in_the_log",
        ),
        *_at("join/test_tpm_join", "a_machine_that_booted_something_else_is_refused_and_told_what"),
    ),
    "known_endorsement_key knows none, or _without_proof objects to nothing": _of(
        "join_attestation", "a_server_whose_tpm_is_known_is_nobody_without_it"
    ),
    "CHALLENGES is monkeypatched": _at("join/test_tpm_join", "challenges_of_a_server_are_bounded_and_come_again"),
    "the key of the system before is not compared, or not asked whether it proved anything": _at(
        "join/test_continuation",
        "without_the_request_key_it_is_judged_as_one_that_the_firmware_started",
        "a_system_that_had_proved_nothing_or_too_little_hands_nothing_over",
    ),
}
_ONE: Final = {
    "two_machines_are_not_told_apart_without_the_rule_who_contests": _of(
        "join_attestation",
        "two_machines_that_ask_for_one_boots_credential_are_noticed_and_the_node_is_not_let_in",
        "who_asks_beside_a_machine_that_proved_itself_contests_nothing",
    ),
    "invented_firmware_fills_the_list_without_its_bound": _at(
        "join/test_tpm_join", "firmware_that_nobody_approved_is_learned_once_and_waits_for_a_person"
    ),
    "a_tpm_that_hides_its_resets_passes_for_a_new_boot_without_the_look_at_its_keys_hierarchy": _at(
        "attestation/test_real_tpm",
        "a_tpm_that_was_not_reset_since_the_boot_before_is_noticed_whatever_hierarchy_its_key_is_of",
    ),
    "an_event_log_writes_to_a_terminal_without_the_words_made_printable": _at(
        "attestation/test_event_log", "data_that_nobody_vouches_for_are_told_as_printable_words"
    ),
}
_APPROVER: Final = {
    "_judge_token approves all": _of(
        "join_stolen_token",
        "it_does_not_make_another_node",
        "it_does_not_make_a_second_node",
        "it_does_not_outlive_the_certificate",
        "it_does_not_outlive_the_repeat_of_the_request",
    ),
    "_refuse_form objects to nothing": _at(
        "join/test_csr", "a_token_is_good_for_its_own_servers_client_certificate_alone"
    ),
    "the first extension request is read alone": _at(
        "join/test_csr_decisions", "names_hidden_in_a_second_extension_request_are_refused"
    ),
    "what cannot be read is believed": _of(
        "csr_undecided",
        "what_the_api_server_takes_and_the_approver_cannot_read_is_denied",
        "a_node_that_asks_so_is_denied_and_goes_on_renewing",
    ),
    "_judge_node approves all": (
        *_of(
            "csr_stolen_certificate",
            "it_is_not_renewed_after_the_next_boot_of_its_server",
            "it_serves_under_no_other_name",
        ),
        *_at("day2/test_restore", "a_certificate_renewed_since_is_refused_named_and_trusted_by_a_person_alone"),
    ),
    "is_to_end is never": _of("csr_undecided", "an_old_boot_gets_no_certificate_once_the_next_one_is_ordered"),
    "_refuse_server objects to nothing": (
        *_of("csr_stolen_certificate", "it_is_not_renewed_once_the_server_is_rejected"),
        *_at("join/test_csr_decisions", "a_server_does_not_get_another_name_by_hiding_its_own_in_its_key"),
    ),
}
_IMAGES: Final = {
    "any key's signature is taken, or what the object says is not compared": _at(
        "image/trust/test_judge",
        "an_object_that_says_another_thing_than_was_signed_is_not_believed",
    ),
    "no signature is verified": _at("image/test_sign", "a_signature_is_accepted_for_its_message_and_key_alone"),
    "the list of revoked images is empty": _at(
        "image/trust/test_judge", "an_old_signed_image_is_believed_until_it_is_revoked"
    ),
    "the digest is not compared": _at(
        "image/test_sign_elsewhere", "what_is_not_the_manifest_that_was_built_is_not_signed"
    ),
}
_ADMISSION: Final = {
    "_may_repeat allows all": (
        *_of("join_neighbour", "a_neighbour_who_takes_the_address_after_the_join_gets_nothing_and_is_noticed"),
        *_of(
            "join_tenant",
            "a_tenant_on_a_running_node_gets_no_second_configuration_and_does_not_make_it_look_unjoined",
            "a_tenant_who_read_the_request_key_gets_nothing_after_the_join",
        ),
    ),
    "is_by_bmc is never": _of(
        "join_tenant", "a_tenant_cannot_fetch_ahead_of_a_reboot_that_the_bmc_has_not_carried_out"
    ),
    "find_successor finds none": _of(
        "join_kexec",
        "a_neighbour_gets_nothing_in_its_window",
        "a_pod_that_outlives_its_kubelet_gets_nothing_while_the_loaded_kernel_is_awaited",
        "the_old_boot_does_not_join_in_its_window",
    ),
    "find_elsewhere objects to nothing": _of(
        "join_by_dpu",
        "a_host_joins_through_its_dpu_and_through_nobody_elses",
        "a_card_that_was_not_accepted_passes_nothing_on",
        "who_takes_the_hosts_address_on_the_boot_network_gets_nothing",
        "a_host_does_not_become_its_own_dpu",
    ),
}
_BINDING: Final = "the bindings of the policies are not there"
_POLICIES: Final = {
    _BINDING: (
        *_of(
            "request_policies",
            "now_is_for_those_who_may_disrupt",
            "a_patient_request_does_not_become_an_urgent_one",
            "a_reason_that_says_nothing_is_refused_in_words",
            "a_maintenance_under_now_is_for_those_who_may_disrupt",
            "nobody_asks_in_another_name",
            "nobody_asks_as_a_rollout",
            "nobody_takes_over_or_withdraws_what_another_asked_for",
            "the_finalizer_that_guarantees_the_release_is_not_an_operators_to_take_off",
            "the_right_to_ask_is_not_the_right_to_say_how_a_node_is",
            "a_node_asks_for_nothing_in_its_own_name",
            "a_node_does_not_withdraw_a_hold_and_goes_on_reporting_under_it",
            "a_machine_is_booted_by_nobody_who_may_not_disrupt",
            "a_tool_that_writes_conditions_of_its_own_boots_no_machine",
            "a_stolen_boot_account_verifies_nothing",
            "a_stolen_maintenance_account_neither_cordons_nor_forges_conditions",
            "a_stolen_maintenance_account_changes_no_pod",
        ),
        *_of(
            "check_labels",
            "a_tenant_labels_nothing_as_a_check",
            "a_tenant_labels_none_of_its_own_as_a_check_afterwards",
        ),
        *_of(
            "request_tricks",
            "a_node_does_not_move_the_time_from_which_a_request_counts",
            "a_right_to_ask_does_not_renew_what_was_asked_for_now",
            "many_requests_do_not_keep_the_kubelet_from_its_status",
            "a_node_does_not_hide_behind_thousands_of_conditions",
            "a_node_does_not_say_for_which_order_it_was_prepared",
            "a_tool_that_may_write_a_nodes_status_speaks_for_no_machine_and_no_controller",
            "nobody_deletes_a_maintenance_by_an_owner_that_is_not_there",
            "nobody_takes_the_numbers_of_another_server",
        ),
        *_of(
            "node_at_its_limit",
            "a_node_that_its_machine_has_filled_is_drained_told_to_boot_and_answered",
            "a_machine_does_not_take_the_places_of_those_who_ask",
        ),
        *_of(
            "break_glass",
            "a_shell_that_would_not_be_what_the_record_says_is_refused",
            "a_node_opens_no_shell_in_a_persons_name",
            "who_tells_of_shells_tells_of_nothing_else",
        ),
        *_of("lies_about_joins", "it_says_nothing_else_of_a_join_that_is_over"),
        *_of(
            "boot_account",
            "it_hands_out_bootstrap_tokens_and_no_other_secret",
            "it_cannot_mint_a_token_of_a_group_that_others_approve",
            "it_cannot_delete_anybody_elses_secret",
            "it_makes_unknown_machines_known_but_accepts_none",
            "it_reports_progress_but_orders_no_boot",
            "it_says_whether_a_cache_is_good_and_nothing_else_of_a_rack",
            "it_lets_no_node_into_production",
        ),
        *_of(
            "forgotten_proof",
            "operators_and_the_accounts_of_other_services_may_not",
            "an_administrator_writes_nothing_else_of_a_servers_status",
            "an_administrator_writes_no_other_event_than_of_what_was_forgotten_in_its_own_name",
        ),
        *_of("bmc_secrets", "who_writes_bmc_secrets_gets_at_no_other"),
        *_of(
            "discovery_flood",
            "the_controllers_account_deletes_only_unknown_machines_that_nobody_touched",
        ),
    )
}
_CREDENTIALS: Final = {
    _BINDING: _of(
        "old_certificate",
        "a_certificate_of_an_earlier_boot_writes_nothing_and_the_current_one_writes",
        "it_is_out_from_the_approval_on_and_the_new_one_is_in_though_the_approver_died_in_between",
        "the_certificate_of_a_rejected_server_writes_nothing_until_it_is_accepted_again",
        "who_acts_as_a_node_without_its_certificate_writes_nothing",
    )
}
FAMILIES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    f"{_HERE}without_attestation.py::test_the_attack_succeeds_without_that_defence_of_attestation": _ATTESTATION,
    **{
        f"{_HERE}without_attestation.py::test_{name}": {name.partition("without_")[2].replace("_", " "): tests}
        for name, tests in _ONE.items()
    },
    f"{_HERE}without_defences.py::test_the_attack_succeeds_without_that_defence": _ADMISSION,
    f"{_HERE}without_approver.py::test_the_request_is_approved_without_that_rule": _APPROVER,
    f"{_HERE}without_approver.py::test_another_joiner_gets_our_name_without_the_search_of_all_names": {
        "common_names finds none": _of(
            "csr_undecided",
            "another_joiner_does_not_get_our_name_by_a_request_that_the_approver_cannot_read",
        )
    },
    f"{_HERE}without_approver.py::"
    "test_the_node_of_a_deleted_server_is_left_to_other_approvers_without_the_mark_that_it_was_ours": {
        "was_ours is never": _of("csr_undecided", "the_node_of_a_deleted_server_gets_no_certificate")
    },
    f"{_HERE}without_image_trust.py::test_the_image_is_believed_without_that_rule": _IMAGES,
    f"{_HERE}without_policies.py::test_the_attack_is_not_refused_without_the_bindings_of_the_policies": _POLICIES,
    f"{_HERE}without_policies.py::"
    "test_a_certificate_of_an_earlier_boot_writes_without_the_policy_on_credentials": _CREDENTIALS,
    f"{_HERE}amplification.py::test_more_is_sent_than_it_may_be_without_the_bound_of_a_reply": {
        "message_limit is 64 KB": _of(
            "amplification",
            "no_packet_has_anything_sent_outside_of_what_is_served_or_much_more_than_it_brought",
        )
    },
    f"{_HERE}amplification.py::test_a_relay_of_a_strangers_succeeds_without_the_list_of_relays": {
        "any relay is taken": _of("amplification", "a_relay_that_nobody_knows_has_nothing_sent_to_it")
    },
}
"""By the twin: what is taken away, in words, and the tests of the attacks that then succeed."""
