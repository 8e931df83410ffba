"""docs/threat-model.md names a test for each attack: they exist; and everybody who reads what nobody has proven."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "threat-model.md"


def test_every_test_that_the_threat_model_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", DOCUMENT.read_text())
    assert len(named) > 30
    missing = []
    for path, name in named:
        file = ROOT / path
        functions = ast.walk(ast.parse(file.read_text())) if file.exists() else ()
        if not any(isinstance(function, ast.FunctionDef) and function.name == name for function in functions):
            missing.append(f"{path}::{name}")
    assert missing == []


def test_every_reader_of_what_was_reported_is_in_the_threat_model() -> None:
    section = DOCUMENT.read_text().split("## What anybody can say of a boot")[1].split("\n## ")[0]
    told = {
        path for line in section.splitlines() if line.startswith("| `") for path in PATH.findall(line.split("|")[1])
    }
    package = ROOT / "provisioner"
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if reads_reports(path)}
    assert found == told


PATH = re.compile(r"`([\w/]+\.py)`")


def reads_reports(path: Path) -> bool:
    """Whether a module reads status.progress or status.bootStage, as objects or as JSON, or what is made of them."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Attribute(attr="stage_times" | "boot_stage"):
                return True
            case ast.Attribute(attr="progress", value=ast.Attribute(attr="status") | ast.Name(id="status" | "s")):
                return True
            case ast.Call(func=ast.Name(id="stage_moments" | "boot_timeline" | "current_stage")):
                return True
            case ast.Constant(value=str(text)) if text.split(".")[-1] in ("bootStage", "stageTimes"):
                return True
            case (
                ast.Subscript(slice=key)
                | ast.Call(func=ast.Attribute(attr="get"), args=[key, *_])
                | ast.Dict(keys=[key])
            ):
                if isinstance(key, ast.Constant) and key.value == "progress":
                    return True
    return False


def test_every_attack_is_in_the_threat_model() -> None:
    text = DOCUMENT.read_text()
    for path in sorted((ROOT / "tests" / "attacks").glob("test_*.py")):
        if path.name.startswith(
            ("test_join_", "test_csr_", "test_request_", "test_forged_", "test_boot_", "test_discovery_")
        ):
            assert f"tests/attacks/{path.name}::" in text
