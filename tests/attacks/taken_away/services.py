"""Defences of the other services and of the commands, each by the test of the attack that it is for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.attacks.taken_away.defence import Defence, always, instead

DEFENCES: Final[Mapping[str, Defence]] = {
    "tests/health/test_controller.py::"
    "test_a_job_that_somebody_labelled_in_a_namespace_of_no_check_is_left_alone": Defence(
        "each namespace is one of checks",
        {"provisioner.health.controller:namespaces_of_checks": always(lambda namespace: True)},
        sees=r"assert [1-9]\d* == 0",
    ),
    "tests/attacks/test_terminal.py::test_the_progress_of_wait_gives_a_terminal_no_orders": Defence(
        "plain() is str()",
        {"provisioner.cli.kubectl.waiting:plain": instead(str)},
        sees="assert False",
    ),
    "tests/web/test_guard.py::test_another_sites_page_gets_nothing_by_a_persons_browser": Defence(
        "no page counts as another site's",
        {"provisioner.web.access.guard:is_foreign": always(False)},
        sees="assert (200|303) == 403",
    ),
    "tests/web/test_gate.py::test_who_sends_tokens_of_nobody_through_the_same_proxy_does_not_shut_viewers_out": Defence(
        "who was let in before counts as anybody",
        {"provisioner.web.access.gate:Gate._was_admitted": always(False)},
        sees="Retryable: too many tokens",
    ),
    "tests/web/test_gate.py::test_whose_token_was_revoked_does_not_keep_a_stream_by_sending_other_tokens": Defence(
        "who was let in before counts as anybody",
        {"provisioner.web.access.gate:Gate._was_admitted": always(False)},
        sees="assert not True",
    ),
}
