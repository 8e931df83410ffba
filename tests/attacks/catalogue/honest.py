"""Tests beside the attacks that are none: what must go on working, and what attacks and their catalogue stand on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HONEST: Final[Mapping[str, tuple[str, ...]]] = {
    "test_bmc_secrets": ("test_an_administrator_registers_with_bmc_secrets_again_and_with_another_password",),
    "test_break_glass": (
        "test_a_shell_is_on_record_before_it_opens",
        "test_the_plugin_opens_attaches_closes_and_tells_of_it",
        "test_a_shell_that_does_not_start_is_closed_and_says_why",
        "test_a_node_that_does_not_exist_is_named",
        "test_the_pod_can_be_looked_at_before",
        "test_the_document_names_tests_options_and_roles_that_exist",
    ),
    "test_check_labels": (
        "test_what_has_the_label_already_may_be_changed_otherwise_and_lose_it",
        "test_a_tenants_own_job_and_a_check_of_ours_with_its_pod_are_made",
    ),
    "test_csr_large": ("test_a_kubelets_request_is_held_whole_and_approved_by_the_copy",),
    "test_csr_undecided": (
        "test_the_nodes_of_other_servers_and_of_others_do_not_mind",
        "test_the_living_boot_renews_whatever_a_maintenance_is_about_before_the_order",
        "test_the_living_boot_renews_while_nothing_is_ordered_and_again_once_the_order_is_revoked",
    ),
    "test_expensive_slurm": (
        "test_wide_jobs_of_an_honest_slurm_are_seen_on_each_of_its_nodes",
        "test_an_honest_answer_is_read",
    ),
    "test_files_of_strangers": ("test_an_honest_list_is_read_with_its_aliases",),
    "test_firmware_names": (
        "test_a_profile_whose_name_a_person_has_chosen_may_have_any_content",
        "test_who_approves_a_profile_that_was_deleted_reads_that_it_is_written_again",
    ),
    "test_forgotten_proof": (
        "test_an_administrator_has_a_proof_forgotten_which_is_on_record_and_the_key_stays",
        "test_the_registered_key_goes_with_it_if_that_is_said",
    ),
    "test_hostile_bmc": ("test_a_redirect_within_the_bmc_is_followed",),
    "test_hostile_tenants": (
        "test_a_tenant_lifts_a_quarantine_of_its_own",
        "test_what_lies_behind_a_peers_host_is_reached",
        "test_a_peer_that_grows_into_addresses_of_nobody_stays_a_peer",
        "test_a_tenant_that_gives_functions_back_has_others_attached",
    ),
    "test_hung_slurm": ("test_a_slurmrestd_that_answers_has_its_pool_drained",),
    "test_join_attestation": ("test_the_next_ordered_boot_ends_it_and_a_late_request_contests_nothing",),
    "test_join_by_dpu": ("test_a_dpu_joins_for_itself_by_its_own_address",),
    "test_join_continuation": ("test_a_boot_that_got_no_certificate_waits_for_the_next_order_where_no_bmc_resets_it",),
    "test_join_kexec": (
        "test_the_new_boot_joins_once",
        "test_the_kernel_that_the_agent_loaded_joins_at_once",
        "test_a_machine_that_came_up_by_its_firmware_instead_joins_later",
        "test_a_node_whose_clock_is_wrong_keeps_nobody_out_for_longer",
    ),
    "test_refused_input": ("test_who_is_refused_while_it_still_sends_reads_why",),
    "test_leaks": (
        "test_a_secret_in_a_file_is_found_however_it_is_written",
        "test_base64_of_anything_around_a_secret_is_found",
        "test_a_secret_across_the_pieces_of_a_large_file_is_found",
        "test_a_secret_on_a_command_line_or_in_an_environment_is_found",
        "test_a_search_that_could_find_nothing_is_refused",
        "test_a_private_key_is_found_in_a_kubeconfig_and_another_one_is_not",
        "test_core_dumps_are_found_and_other_programs_are_not",
        "test_what_a_core_dump_may_have_is_read",
    ),
    "test_lies_about_joins": ("test_an_honest_join_service_records_refusals_and_hands_out_the_next_configuration",),
    "test_node_at_its_limit": ("test_a_kubelet_and_its_agent_have_room_enough",),
    "test_privileged_checks": (
        "test_a_check_that_needs_a_while_to_end_and_has_a_priority_of_the_site_is_started",
        "test_an_ordinary_check_is_started_and_its_pod_made",
    ),
    "test_request_policies": (
        "test_an_operator_asks_with_patience",
        "test_what_somebody_else_asked_for_now_does_not_keep_others_from_writing_their_own",
        "test_a_deadline_is_told_by_a_time_or_a_span",
        "test_an_operator_withdraws_and_holds",
        "test_who_may_write_nodes_is_not_held_to_requests",
        "test_the_controller_carries_conditions_over_without_a_user",
    ),
    "test_request_tricks": (
        "test_the_agent_goes_on_reporting",
        "test_everybody_may_number_those_of_its_own_server",
        "test_the_controller_numbers_as_it_must",
    ),
    "test_stolen_accounts": (
        "test_an_administrator_may_do_all_that_is_tried",
        "test_who_writes_what_in_the_architecture_is_what_the_table_says",
    ),
    "test_without_approver": ("test_the_request_is_denied_by_that_rule",),
    "test_without_attestation": ("test_the_attack_on_attestation_is_refused_by_that_defence",),
    "test_without_image_trust": ("test_the_image_is_refused_by_that_rule",),
    "test_without_defences": ("test_the_attack_is_refused_by_that_defence",),
}
"""By the module in tests/attacks."""
