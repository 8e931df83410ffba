"""Attacks that docs/threat-model.md tells in other words, or leaves to these tests: who, attack, tests."""

from __future__ import annotations

from typing import Final


def _of(module: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/attacks/test_{module}.py::test_{name}" for name in names)


_BOOT_HOST: Final = "The boot host itself"
_REPORTS: Final = "What anybody can say of a boot"
_TENANT: Final = "Tenant on a node"
_SHELL: Final = "Who gets a shell on a node"
_BMC: Final = "BMC network"
_SLURM: Final = "A slurmrestd that hangs, drips or floods"
_ASKS: Final = "Who asks for disturbances"
_NETWORKS: Final = "Tenants on one underlay"

MORE: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        _REPORTS,
        "reports, to have a server reset whose Node is alive",
        _of("boot_reports", "no_report_resets_a_server_whose_node_is_alive"),
    ),
    (
        _REPORTS,
        "reports, to have it shown Ready, joined or booted",
        _of(
            "boot_reports",
            "no_report_makes_a_server_ready_joined_or_booted",
            "a_kernel_id_that_somebody_guessed_is_not_readiness",
        ),
    ),
    (
        _REPORTS,
        "reports, to hurry or change a boot that was asked for",
        _of("boot_reports", "no_report_brings_a_requested_boot_forward", "no_report_changes_what_a_requested_boot_is"),
    ),
    (
        _REPORTS,
        "words that would be commands on another machine's console",
        _of("boot_reports", "no_word_of_a_machine_becomes_a_command_on_another_ones_console"),
    ),
    (
        _TENANT,
        "an old boot asks in the window of its own kexec, late, after one that failed, or by reports of its own",
        _of(
            "join_kexec",
            "the_old_boot_does_not_join_in_its_window",
            "nor_where_the_agent_acts_long_after_the_order_because_it_had_to_fetch_first",
            "nor_where_the_kexec_failed_and_the_kubelet_is_about_to_come_back",
            "what_another_report_says_lets_nobody_in_before_the_old_boot_is_over",
            "a_report_that_is_none_counts_as_none",
        ),
    ),
    (
        _TENANT,
        "uses the key of a kexec for another boot, an order for ever, or a reset without the BMC",
        _of(
            "join_kexec",
            "the_key_is_good_for_a_kexec_alone",
            "an_order_that_nobody_carried_out_expires",
            "a_reset_that_was_asked_for_is_armed_by_the_bmc_alone",
        ),
    ),
    (
        _SHELL,
        "rewrites what a shell was opened for",
        _of("break_glass", "what_a_shell_was_opened_for_is_not_rewritten"),
    ),
    (
        _SHELL,
        "uses the role for anything else, or has another role",
        _of(
            "break_glass",
            "the_right_to_open_shells_is_no_right_to_anything_else",
            "other_roles_do_not_have_it",
            "who_has_not_got_the_right_is_told_which_one",
            "a_reason_that_says_nothing_opens_nothing",
        ),
    ),
    (
        "Stolen certificate",
        "a node asks with what the approver cannot read",
        _of("csr_undecided", "a_node_that_asks_so_is_denied_and_goes_on_renewing"),
    ),
    (
        _BMC,
        "sends TLS tickets without end, answers of another shape, requests upon requests, cookies, or holds a session",
        _of(
            "hostile_bmc",
            "session_tickets_without_end_end_with_their_time",
            "who_sends_too_much_is_said_to_and_what_was_expected",
            "an_answer_of_another_shape_is_no_usable_answer",
            "a_list_of_systems_that_is_none_is_no_usable_answer",
            "one_call_leads_to_so_many_requests_and_no_more",
            "words_are_made_fit_to_be_shown",
            "cookies_are_neither_kept_nor_sent",
            "a_bmc_that_does_not_let_go_of_a_session_is_left",
        ),
    ),
    (
        _BMC,
        "is mute, and new, to hold up other new ones",
        _of("mute_bmcs", "a_mute_bmc_that_nobody_knows_yet_costs_the_new_ones_one_visit"),
    ),
    (
        _SLURM,
        "has more of an answer kept than its bound, or says anything at all",
        _of(
            "expensive_slurm",
            "no_more_is_kept_of_an_answer_than_its_bound",
            "whatever_stands_in_an_answer_it_is_one_or_none",
            "a_refused_token_says_that_slurm_answers",
        ),
    ),
    (
        _BOOT_HOST,
        "a stolen boot account reads or deletes Secrets, or touches tokens that are no server's",
        _of(
            "boot_account",
            "it_cannot_delete_anybody_elses_secret",
            "it_reads_no_secret",
            "it_neither_makes_nor_deletes_a_token_that_is_not_of_a_server",
        ),
    ),
    (
        _BOOT_HOST,
        "it asks for Maintenances, lets nodes into production, or touches Nodes",
        _of(
            "boot_account",
            "it_asks_for_no_maintenance_and_answers_for_none",
            "it_lets_no_node_into_production",
            "it_touches_no_node",
        ),
    ),
    (
        _BOOT_HOST,
        "it passes the kernel before the order for the ordered one",
        _of("lies_about_joins", "the_kernel_before_the_order_is_not_taken_for_the_ordered_one"),
    ),
    (_ASKS, "an operator writes a BMC's Secret", _of("bmc_secrets", "an_operator_writes_no_secret")),
    (
        _ASKS,
        "a check would end pods, or outstay its end",
        _of("privileged_checks", "a_check_that_would_end_pods_or_outstay_its_end_is_refused_with_words"),
    ),
    (
        _ASKS,
        "a request without a reason or a deadline",
        _of(
            "request_policies",
            "a_reason_that_says_nothing_is_refused_in_words",
            "a_deadline_that_is_not_told_is_refused_in_words",
        ),
    ),
    (
        _ASKS,
        "the right to ask renews what was asked for now",
        _of("request_tricks", "a_right_to_ask_does_not_renew_what_was_asked_for_now"),
    ),
    (
        _ASKS,
        "a Node keeps the end of a Maintenance from being written",
        _of(
            "node_at_its_limit",
            "an_end_that_cannot_be_written_to_the_node_holds_no_slot",
            "what_the_executor_says_does_not_keep_the_kubelet_from_reporting_nor_let_it_add_more",
        ),
    ),
    (
        _ASKS,
        "hides orders to a terminal in what is waited for, or in JSON",
        _of(
            "terminal",
            "the_progress_of_wait_gives_a_terminal_no_orders",
            "objects_as_json_and_yaml_give_a_terminal_no_orders",
        ),
    ),
    (
        _NETWORKS,
        "a tenant lifts a quarantine: by registering anew, or by another function",
        _of(
            "hostile_tenants",
            "who_registers_a_server_once_more_does_not_lift_its_quarantine",
            "a_quarantine_of_a_function_holds_for_its_tenant_and_for_no_other",
            "a_server_that_the_administrators_reject_is_isolated_whoever_has_it",
        ),
    ),
    (
        _NETWORKS,
        "a tenant never lets go of a VPC, to keep identifiers",
        _of("hostile_tenants", "a_vpc_that_a_tenant_never_lets_go_of_keeps_no_identifier"),
    ),
    (
        _NETWORKS,
        "a DPU with too many rights, or one that fills its object; a tenant that says what is enforced",
        _of(
            "tenant_networks",
            "a_dpu_with_too_many_rights_is_still_held_to_its_own",
            "a_dpu_cannot_fill_its_object_so_that_it_could_not_be_told_to_isolate",
            "a_tenant_says_nothing_of_what_is_enforced",
        ),
    ),
    (
        "Tenants on one InfiniBand fabric",
        "a stolen account of the fabric reads other passwords; a host of an OpenSM changes networks",
        _of(
            "infiniband_accounts",
            "it_reads_ufms_passwords_and_no_others_and_writes_no_server",
            "a_host_of_an_opensm_reads_and_acknowledges_networks_and_changes_none",
        ),
    ),
    (
        "Who asks for disturbances",
        "a reflector's host reads Secrets, writes networks, or speaks for another",
        ("tests/attacks/test_reflector_account.py",),
    ),
    (
        "What is protected",
        "reads a token or a request key in a log, an Event or a status",
        _of(
            "join_secrets",
            "no_log_event_or_status_holds_the_token_or_the_request_key",
            "a_token_cannot_be_pickled_or_formatted_into_a_message",
        ),
    ),
    (
        _TENANT,
        "an honest agent of the old boot takes the next boot's configuration",
        _of("join_tenant", "an_agent_of_the_old_boot_does_not_take_the_next_boots_configuration"),
    ),
    (
        _ASKS,
        "**an operator withdraws by a condition what an administrator asked for by one**",
        _of("request_tricks", "open_an_operator_withdraws_by_a_condition_what_an_administrator_asked_for"),
    ),
)
