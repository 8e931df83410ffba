"""The files that other programs read: the workflow of GitHub Actions, and the hooks of pre-commit."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from check_jsonschema.cli import main as check_jsonschema
from click.testing import CliRunner

ROOT: Final = Path(__file__).parents[1]
WORKFLOW: Final = ROOT / ".github/workflows/test.yaml"


@pytest.mark.parametrize("schema", ["vendor.github-workflows", "custom.github-workflows-require-timeout"])
def test_the_workflow_is_valid(schema: str) -> None:
    checked = CliRunner().invoke(check_jsonschema, ["--builtin-schema", schema, str(WORKFLOW)])
    assert checked.exit_code == 0, checked.output


def test_the_workflow_runs_make_test_with_read_access_and_pinned_actions() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text())
    (job,) = workflow["jobs"].values()
    assert (workflow["permissions"], "permissions" in job) == ({"contents": "read"}, False)
    assert [step["run"] for step in job["steps"] if step.get("run", "").startswith("make")] == ["make test"]
    used = re.findall(r"uses: (.*)", WORKFLOW.read_text())
    assert [line for line in used if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_the_hooks_of_pre_commit_run_the_tools_of_make_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (local,) = config["repos"]
    entries: dict[str, Any] = {hook["id"]: hook["entry"] for hook in local["hooks"]}
    assert (local["repo"], {hook["language"] for hook in local["hooks"]}) == ("local", {"system"})
    tools = {name: re.fullmatch(r"bash -c '(?:\w+=\S+ )?\"\$\(bin/setup --python\)/bin/([\w-]+)\"(.*)'", entry)
             for name, entry in entries.items()}  # fmt: skip
    assert [name for name, tool in tools.items() if not tool] == []
    assert [name for name, tool in tools.items() if tool and not Path(sys.executable).with_name(tool[1]).exists()] == []
    lint = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    assert [name for name, tool in tools.items() if tool and f"{tool[1]}{tool[2]}" not in lint] == []
