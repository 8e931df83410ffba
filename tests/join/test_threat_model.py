"""docs/threat-model.md names a test for each attack: they exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

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


def test_every_attack_is_in_the_threat_model() -> None:
    text = DOCUMENT.read_text()
    for path in sorted((ROOT / "tests" / "attacks").glob("test_*.py")):
        if path.name.startswith(("test_join_", "test_csr_", "test_request_")):
            assert f"tests/attacks/{path.name}::" in text
