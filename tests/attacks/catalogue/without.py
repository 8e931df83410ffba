"""How a defence is taken away, and the test that shows that the attack then succeeds; by a test of the attack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.attacks.catalogue.families import FAMILIES
from tests.attacks.taken_away.defences import DEFENCES
from tests.attacks.taken_away.plugin import twin_of


@dataclass(frozen=True)
class Without:
    """taken_away: in words. test: the one that shows it; None: the attack's own test does, in its second part."""

    taken_away: str
    test: str | None = None


_FRONT: Final = "tests/attacks/test_http_front.py::"
_CONTINUATION: Final = "tests/attacks/test_join_continuation.py::"
_FILES: Final = "tests/attacks/test_files_of_strangers.py::"
_FIRMWARE_NAMES: Final = "tests/attacks/test_firmware_names.py::"
_RECREATED: Final = "tests/attacks/test_recreated_image.py::"
_OBJECTS: Final = "tests/attacks/test_hostile_objects.py::"
_FLOOD: Final = "tests/attacks/test_join_flood.py::"
_AUTHORITIES: Final = "tests/day2/test_join_authorities.py::"
_IN_THE_CLEAR: Final = Without(
    "nginx passes on what asks to join in the clear",
    f"{_FRONT}test_a_join_in_the_clear_succeeds_without_the_fronts_refusal",
)
_ADMISSION: Final = "tests/attacks/test_without_defences.py::test_the_attack_succeeds_without_that_defence"
_PACKETS: Final = "tests/network/isolation/test_attacks.py::"
_FILTERS: Final = Without("the DPU's filters are flushed in the kernel")

WITHOUT: Final[Mapping[str, Without]] = {
    f"{_OBJECTS}test_large_objects_of_each_kind_take_little_memory_of_the_controllers": Without(
        "copies keep objects whole", f"{_OBJECTS}test_large_objects_take_much_memory_without_trims"
    ),
    f"{_FLOOD}test_a_neighbour_who_asks_all_the_time_waits_and_nobody_else_does": Without(
        "OF_A_CLIENT is monkeypatched", f"{_FLOOD}test_asking_all_the_time_succeeds_without_the_limit_of_each_client"
    ),
    f"{_FLOOD}test_a_flood_from_many_addresses_locks_no_registered_server_out": Without(
        "no address is known",
        f"{_FLOOD}test_a_flood_from_many_addresses_succeeds_without_the_share_of_registered_servers",
    ),
    f"{_FLOOD}test_a_bomb_is_refused_and_the_next_machine_is_answered": Without(
        "MAX_REQUEST_BYTES is monkeypatched", f"{_FLOOD}test_a_bomb_succeeds_without_the_bound_of_its_size"
    ),
    "tests/attacks/test_join_neighbour.py::test_a_neighbour_who_asks_from_its_own_address_gets_nothing": Without(
        "find_elsewhere objects to nothing", _ADMISSION
    ),
    "tests/attacks/test_join_neighbour.py::test_a_captured_request_is_worth_nothing_to_a_neighbour": Without(
        "_may_repeat allows all", _ADMISSION
    ),
    "tests/attacks/test_join_neighbour.py::test_a_machine_that_is_not_accepted_gets_nothing": Without(
        "find_unaccepted objects to nothing", _ADMISSION
    ),
    "tests/attacks/test_join_kexec.py::"
    "test_a_pod_of_the_old_boot_that_invents_a_boot_id_gets_nothing_while_its_kubelet_lives": Without(
        "read_heartbeat hears of no kubelet", _ADMISSION
    ),
    "tests/join/test_admit.py::test_it_is_turned_away_with_the_reason": Without(
        "_judge_image objects to nothing", _ADMISSION
    ),
    "tests/attacks/test_join_neighbour.py::test_a_header_that_a_neighbour_writes_itself_never_counts": Without(
        "nginx passes X-Real-IP on",
        f"{_FRONT}test_an_address_that_a_client_writes_succeeds_without_the_fronts_own_word",
    ),
    f"{_FRONT}test_an_address_that_a_client_writes_is_not_its_address": Without(
        "nginx passes X-Real-IP on",
        f"{_FRONT}test_an_address_that_a_client_writes_succeeds_without_the_fronts_own_word",
    ),
    f"{_FRONT}test_no_path_leads_out_of_what_is_served": Without(
        "an alias of a prefix in place of the expression",
        f"{_FRONT}test_a_path_out_of_what_is_served_succeeds_without_the_expression_of_names",
    ),
    f"{_FRONT}test_a_request_of_two_lengths_carries_no_second_one_past_the_front": Without(
        "nginx passes all paths on",
        f"{_FRONT}test_what_dpus_pass_on_is_asked_for_at_any_port_without_the_list_of_paths",
    ),
    f"{_FRONT}test_clients_that_never_end_their_request_are_left_and_the_next_is_answered": Without(
        "client_header_timeout is 1 h",
        f"{_FRONT}test_clients_that_never_end_their_request_succeed_without_the_time_for_a_head",
    ),
    "tests/attacks/test_amplification.py::test_who_says_that_it_has_a_victims_address_has_nothing_sent_there": Without(
        "destination() believes ciaddr",
        "tests/attacks/test_amplification.py::test_a_forged_address_succeeds_without_the_rule_where_an_offer_goes",
    ),
    "tests/attacks/test_terminal.py::test_why_gives_a_terminal_no_orders": Without(
        "plain() is str()",
        "tests/attacks/test_without_defences.py::test_orders_to_a_terminal_succeed_without_the_words_made_plain",
    ),
    "tests/attacks/test_join_secrets.py::test_a_token_cannot_be_pickled_or_formatted_into_a_message": Without(
        "the token is a str",
        "tests/attacks/test_leaks.py::test_a_token_in_a_log_is_found_without_the_type_that_keeps_it_out",
    ),
    "tests/cli/test_core_dumps.py::test_another_process_of_the_same_user_does_not_read_its_environment": Without(
        "forbid_core_dumps is not called"
    ),
    f"{_PACKETS}test_a_host_cannot_send": _FILTERS,
    f"{_PACKETS}test_a_host_cannot_give_its_address_another_mac_by_arp": _FILTERS,
    f"{_PACKETS}test_a_host_cannot_announce_itself_as_a_router": _FILTERS,
    f"{_PACKETS}test_a_storm_of_a_host_is_answered_in_measure": _FILTERS,
    f"{_PACKETS}test_a_host_reaches_no_bmc_no_dpu_and_no_metadata": Without("the agent is not there"),
    f"{_PACKETS}test_a_stranger_on_the_underlay_cannot_send_into_a_vpc": _FILTERS,
    f"{_PACKETS}test_a_dpu_cannot_send_in_a_vni_that_is_not_its_own": _FILTERS,
    f"{_PACKETS}test_another_dpu_cannot_send_from_an_address_that_is_behind_none_or_behind_us": _FILTERS,
    "tests/attacks/test_join_attestation.py::"
    "test_firmware_that_a_stranger_invents_leaves_room_for_that_of_servers_whose_key_is_known": Without(
        "a stranger's firmware is learned as others' is",
        "tests/attacks/test_join_attestation.py::"
        "test_firmware_that_a_stranger_invents_succeeds_without_a_bound_of_its_own",
    ),
    "tests/boot/test_measured_kernel.py::test_an_image_that_says_another_kernels_measurement_is_not_available": Without(
        "the kernel in the store is not measured",
        "tests/boot/test_measured_kernel.py::test_another_kernels_measurement_succeeds_without_the_look_at_the_file",
    ),
    f"{_FILES}test_a_packing_list_that_was_made_to_end_the_command_is_a_mistake_in_a_line": Without(
        "libyaml composes the list by itself", f"{_FILES}test_a_packing_list_ends_the_process_without_the_bounds"
    ),
    f"{_FILES}test_what_a_packing_list_says_is_shown_as_words_in_one_line": Without(
        "the printer's plain() is str()",
        f"{_FILES}test_what_a_packing_list_says_reaches_the_terminal_without_the_printer",
    ),
    f"{_FIRMWARE_NAMES}test_a_profile_with_the_name_of_another_content_lets_no_machine_in": Without(
        "find_false_name objects to nothing",
        f"{_FIRMWARE_NAMES}test_a_profile_with_the_name_of_another_content_succeeds_without_the_digest",
    ),
    f"{_FIRMWARE_NAMES}test_a_profile_with_the_name_of_another_content_is_not_approved": Without(
        "find_false_name objects to nothing",
        f"{_FIRMWARE_NAMES}test_a_profile_with_the_name_of_another_content_is_approved_without_the_digest",
    ),
    f"{_RECREATED}test_a_measurement_that_nobody_has_compared_attests_no_machine": Without(
        "is_measured is always true",
        f"{_RECREATED}test_a_measurement_that_nobody_has_compared_succeeds_without_the_condition_available",
    ),
    f"{_RECREATED}test_an_image_whose_signature_was_not_checked_is_not_booted": Without(
        "find_unjudged objects to nothing",
        f"{_RECREATED}test_an_image_whose_signature_was_not_checked_is_booted_without_the_rule",
    ),
    f"{_RECREATED}test_an_older_signed_image_does_not_take_the_name_of_a_newer_one": Without(
        "the digest in the name is not compared",
        f"{_RECREATED}test_an_older_signed_image_takes_the_name_of_a_newer_one_without_the_look_at_it",
    ),
    f"{_CONTINUATION}test_root_that_starts_a_kernel_of_its_own_without_the_agent_is_refused": Without(
        "PCR 14 is not looked at",
        f"{_CONTINUATION}test_a_kernel_of_its_own_succeeds_without_the_register_of_hand_overs",
    ),
    f"{_CONTINUATION}test_root_whose_kernel_passes_for_one_that_the_firmware_started_is_refused": Without(
        "the reset count on record is not looked at",
        f"{_CONTINUATION}test_what_passes_for_the_firmwares_succeeds_without_the_count_of_resets",
    ),
    f"{_CONTINUATION}test_root_that_says_another_boot_id_to_have_proved_nothing_is_refused": Without(
        "nobody is known to have joined",
        f"{_CONTINUATION}test_another_boot_id_succeeds_without_the_look_at_who_has_joined",
    ),
    f"{_CONTINUATION}test_root_that_asks_for_the_next_order_by_the_boot_id_on_record_is_refused": Without(
        "a boot id on record is believed for every order",
        f"{_CONTINUATION}test_the_boot_id_on_record_succeeds_without_the_look_at_its_order",
    ),
    "tests/attacks/test_join_vouched.py::"
    "test_a_host_behind_an_attested_dpu_joins_and_behind_one_that_proved_nothing_does_not": Without(
        "the proof of a DPU is not looked at",
        "tests/attacks/test_join_vouched.py::test_without_the_rule_a_dpu_that_proved_nothing_would_do",
    ),
    "tests/attacks/test_old_certificate_reads.py::"
    "test_a_certificate_of_an_earlier_boot_reads_nothing_and_the_current_one_reads": Without(
        "the webhook is stopped",
        "tests/attacks/test_old_certificate_reads.py::"
        "test_without_the_webhook_the_policy_still_refuses_what_it_writes_and_nobody_is_shut_out",
    ),
    "tests/attacks/test_hostile_tenants.py::"
    "test_a_tenant_that_changes_a_large_vpc_again_and_again_waits_and_nobody_else_does": Without("SECONDS_A_DPU is 0"),
    f"{_FLOOD}test_slow_bodies_hold_nobody_up": Without(
        "each thread reads the body that it answers",
        f"{_FLOOD}test_slow_bodies_hold_everybody_up_without_a_server_that_reads_them_beforehand",
    ),
    "tests/attacks/test_join_neighbour.py::test_a_request_in_the_clear_is_refused": _IN_THE_CLEAR,
    f"{_FRONT}test_an_absolute_address_asks_this_host_and_no_other": _IN_THE_CLEAR,
    f"{_FRONT}test_a_head_that_is_too_large_is_refused": Without(
        "large_client_header_buffers are 64 of 64 KB",
        f"{_FRONT}test_a_head_of_any_size_is_taken_without_the_bound_of_a_head",
    ),
    f"{_FRONT}test_what_is_no_request_of_ours_is_not_passed_on": Without(
        "nginx is not there", f"{_FRONT}test_what_is_no_request_of_ours_is_passed_on_without_the_front"
    ),
    f"{_FRONT}test_what_is_logged_of_a_hostile_request_is_one_line": Without(
        "nginx escapes nothing", f"{_FRONT}test_what_is_logged_names_another_client_without_the_escapes"
    ),
    f"{_AUTHORITIES}test_an_old_image_is_told_nothing_by_a_new_authority_whose_announcement_is_not_believed": Without(
        "signature, time or first line are not looked at",
        f"{_AUTHORITIES}test_an_announcement_is_believed_without_the_look_at_who_has_signed_it_for_what_and_until_when",
    ),
    f"{_AUTHORITIES}test_who_knows_neither_authority_is_not_moved_by_the_chain": Without(
        "certificates are not verified",
        f"{_AUTHORITIES}test_a_strangers_chain_is_believed_without_the_look_at_its_certificates",
    ),
    "tests/boot/test_controller.py::test_a_renewed_lease_forbids_what_a_refused_join_asks_for": Without(
        "_lived_at is never",
        "tests/boot/test_decide.py::test_a_refused_join_has_its_node_reset_without_the_look_at_when_that_was_heard",
    ),
    "tests/day2/test_restore.py::"
    "test_a_used_token_that_comes_back_is_listed_and_worth_nothing_once_it_is_deleted": Without(
        "the token is not deleted yet"
    ),
    "tests/attacks/test_old_certificate.py::test_nodes_that_no_server_of_ours_has_joined_are_left_alone": Without(
        "a server that has not joined is listed",
        "tests/attacks/test_old_certificate.py::"
        "test_a_node_that_others_run_is_out_without_the_look_at_whether_its_server_has_joined",
    ),
    **{
        test: Without(taken_away, twin)
        for twin, family in FAMILIES.items()
        for taken_away, tests in family.items()
        for test in tests
    },
    **{test: Without(defence.taken_away, twin_of(test)) for test, defence in DEFENCES.items()},
}
