"""Prints what became of each task as a line of JSON; Ansible loads it by its path."""

from __future__ import annotations

import json
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: told
type: stdout
short_description: A line of JSON for each result
description: For tests.
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "told"

    def _tell(self, result: Any, state: str) -> None:
        name = result.task.get_name().rpartition(" : ")[2]
        body = {key: value for key, value in result.result.items() if key not in ("invocation", "_ansible_no_log")}
        line = {"host": result.host.get_name(), "task": name, "state": state, "result": body}
        self._display.display(json.dumps(line, default=str))

    def v2_runner_on_ok(self, result: Any) -> None:
        self._tell(result, "changed" if result.result.get("changed") else "ok")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._tell(result, "ignored" if ignore_errors else "failed")

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._tell(result, "skipped")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._tell(result, "unreachable")
