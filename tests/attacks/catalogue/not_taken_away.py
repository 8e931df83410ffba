"""Why no test takes a defence away, of those attacks of which none does: by the longest beginning of a test's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

KUBERNETES: Final = "Kubernetes' own (RBAC, NodeRestriction, PodSecurity, audit)"
KERNEL: Final = "the kernel's own, or another machine's program would have to be built anew"
FIRMWARE: Final = "the firmware's own"
BOUND: Final = "a bound of time or memory: without it the test would not end"
LIBRARY: Final = "a check of TLS by OpenSSL"
FAULT: Final = "a fault that it survives: nothing is forged, and no rule refuses it"
REFUSES: Final = "no single defence: the decision never reads what is forged"
SCHEMA: Final = "the schema of our kinds: each row of the tests has a good object beside the bad one"
OPEN: Final = "open: nothing refuses it"

NOT_TAKEN_AWAY: Final[Mapping[str, str]] = {
    "tests/attacks/test_bmc_secrets.py::test_an_operator": KUBERNETES,
    "tests/attacks/test_boot_reports.py": REFUSES,
    "tests/attacks/test_break_glass.py::test_the_right_to_open_shells": KUBERNETES,
    "tests/attacks/test_break_glass.py::test_what_a_shell_was_opened_for": KUBERNETES,
    "tests/attacks/test_break_glass.py::test_who_attaches": KUBERNETES,
    "tests/attacks/test_csr_large.py": BOUND,
    "tests/attacks/test_csr_stolen_certificate.py::test_it_does_not_t": KUBERNETES,
    "tests/attacks/test_expensive_slurm.py": BOUND,
    "tests/attacks/test_firmware_names.py::test_a_profile_that_is_exchanged": KUBERNETES,
    "tests/attacks/test_forged_boot.py": REFUSES,
    "tests/attacks/test_hostile_bmc.py": BOUND,
    "tests/attacks/test_http_front.py::test_no_host_that_a_machine_names": REFUSES,
    "tests/attacks/test_hostile_ipmi.py": BOUND,
    "tests/attacks/test_hung_slurm.py": BOUND,
    "tests/attacks/test_infiniband_accounts.py::test_it_reads_ufms": KUBERNETES,
    "tests/attacks/test_join_attestation.py::test_the_same_machine": "none: no attack",
    "tests/attacks/test_join_neighbour.py::test_open": OPEN,
    "tests/attacks/test_join_stolen_token.py::test_it_reads_and_writes_nothing": KUBERNETES,
    "tests/attacks/test_lies_about_joins.py::test_the_kernel_before": REFUSES,
    "tests/attacks/test_lies_about_joins.py::test_what_the_node_reports": REFUSES,
    "tests/attacks/test_mute_bmcs.py": BOUND,
    "tests/attacks/test_node_at_its_limit.py::test_a_machine_that_writes_its_node_without_pause": BOUND,
    "tests/attacks/test_node_at_its_limit.py::test_a_claim_that_is_refused": FAULT,
    "tests/attacks/test_node_at_its_limit.py::test_an_end_that_cannot_be_written": FAULT,
    "tests/attacks/test_old_certificate.py::test_open": OPEN,
    "tests/attacks/test_old_certificate.py::test_the_list_gives_a_node_no_right": KUBERNETES,
    "tests/attacks/test_privileged_checks.py::test_a_check_that_asks": KUBERNETES,
    "tests/attacks/test_reflector_account.py": KUBERNETES,
    "tests/attacks/test_refused_input.py": BOUND,
    "tests/attacks/test_request_policies.py::test_an_operator_writes_no_record": KUBERNETES,
    "tests/attacks/test_request_tricks.py::test_open": OPEN,
    "tests/attacks/test_stolen_accounts.py": KUBERNETES,
    "tests/attacks/test_tenant_networks.py::test_a_dpu_reads": KUBERNETES,
    "tests/attacks/test_tenant_networks.py::test_a_dpu_says": KUBERNETES,
    "tests/attacks/test_tenant_networks.py::test_a_server_reads": KUBERNETES,
    "tests/attacks/test_tenant_networks.py::test_a_tenant_makes": KUBERNETES,
    "tests/attacks/test_tenant_networks.py::test_what_a_host_may_do": KUBERNETES,
    "tests/api/": SCHEMA,
    "tests/attestation/test_structures.py": BOUND,
    "tests/boot/test_choose.py::test_what_machines_say": REFUSES,
    "tests/boot/test_requests.py::test_the_kernel_before": REFUSES,
    "tests/boot/cache/test_cache.py::test_an_answer_without_an_end": BOUND,
    "tests/boot/capture/test_capture.py::test_a_packet_dated_beyond": FAULT,
    "tests/boot/trace/test_tracer.py": FAULT,
    "tests/cli/test_rights.py": KUBERNETES,
    "tests/cli/test_former_rights.py": KUBERNETES,
    "tests/cluster/test_access.py": FAULT,
    "tests/cluster/test_bounded_json.py": BOUND,
    "tests/cluster/test_recent_events.py": BOUND,
    "tests/fuzz/": BOUND,
    "tests/health/faults/test_merge.py::test_a_fault_that_is_no_longer": REFUSES,
    "tests/health/faults/test_merge.py::test_a_flood": BOUND,
    "tests/health/test_controller.py::test_a_job_that_cannot_be_deleted": FAULT,
    "tests/image/test_hostile_mirror.py": KERNEL,
    "tests/image/test_ipv6.py": KERNEL,
    "tests/image/test_stage1_": KERNEL,
    "tests/image/uki/": FIRMWARE,
    "tests/inventory/test_forged_blocks.py::test_a_claim_names_a_server": SCHEMA,
    "tests/inventory/test_forged_blocks.py::test_a_claim_that_a_policy_refuses": FAULT,
    "tests/inventory/test_forged_blocks.py::test_an_administrator_of_servers": KUBERNETES,
    "tests/jobs/test_slurm_rest.py::test_an_answer_that_is_nested": BOUND,
    "tests/join/test_authorizer.py": BOUND,
    "tests/join/test_csr.py::test_the_approver": KUBERNETES,
    "tests/journey/": "the whole rack would have to boot a second time",
    "tests/network/agent/card/test_configure.py::test_an_agent_that_was_stopped": FAULT,
    "tests/network/agent/card/test_status.py::test_a_tool_that_hangs": BOUND,
    "tests/network/agent/card/test_tools.py::test_what_prints_without_end": BOUND,
    "tests/network/evpn/test_fabric.py::test_reflectors_that_are_away": FAULT,
    "tests/network/evpn/test_fabric.py::test_it_takes_one_that_nobody_has": OPEN,
    "tests/node/kernel_log/": REFUSES,
    "tests/node/test_agent.py::test_a_service_that_another_authority": LIBRARY,
    "tests/node/test_agent.py::test_a_certificate_for_another": LIBRARY,
    "tests/node/test_stage_by_tls.py": LIBRARY,
    "tests/outbound/": BOUND,
    "tests/power/test_decide.py": REFUSES,
    "tests/web/test_against_the_api_server.py": KUBERNETES,
    "tests/web/test_an_object_that_cannot_be_read.py": FAULT,
    "tests/web/test_service.py": BOUND,
}


def find_reason(test: str) -> str | None:
    """None where nothing is said."""
    known = [beginning for beginning in NOT_TAKEN_AWAY if test.startswith(beginning)]
    return NOT_TAKEN_AWAY[max(known, key=len)] if known else None
