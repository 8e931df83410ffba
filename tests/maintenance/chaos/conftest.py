"""The story of a failure is enough: thousands of histories would drown it in log lines."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.maintenance.chaos.replay import SEED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"chaos: CHAOS_SEED={SEED} chose its histories")


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)
