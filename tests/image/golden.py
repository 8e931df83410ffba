"""Compares a whole text with its golden file; GOLDEN=write writes it instead."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "golden" / "image"


def assert_golden(name: str, text: str) -> None:
    path = FOLDER / name
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text, f"{path.name} differs; if that is meant: GOLDEN=write"
