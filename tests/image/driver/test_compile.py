"""Modules compiled: replacements of source are exact, and the same bytes come out elsewhere and later."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.api.machinery.errors import NeedsHuman, Refused
from provisioner.image.driver.compile import replace
from provisioner.image.driver_recipe import Replacement
from provisioner.image.gates.read.kernel_module import read_module
from provisioner.image.recipe import read_recipe
from tests.image.samples import RECIPE

REPLACEMENT = Replacement("", "nv.c", "include/linux/pci.h", "int exclude_bars", "f(a)", "f(a, 0)")


def source(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "nv.c").write_text(text)
    return folder


def headers(folder: Path, text: str) -> Path:
    (folder / "include/linux").mkdir(parents=True)
    (folder / "include/linux/pci.h").write_text(text)
    return folder


def test_source_is_changed_for_a_kernel_that_needs_it_and_for_no_other(tmp_path: Path) -> None:
    code = source(tmp_path / "code", "r = f(a);\n")
    assert not replace(REPLACEMENT, code, headers(tmp_path / "old", "int f(int a);"))
    assert (code / "nv.c").read_text() == "r = f(a);\n"
    assert not replace(REPLACEMENT, code, tmp_path / "no-headers")
    assert replace(REPLACEMENT, code, headers(tmp_path / "new", "int f(int a, int exclude_bars);"))
    assert (code / "nv.c").read_text() == "r = f(a, 0);\n"


@pytest.mark.parametrize(("text", "count"), [("r = g(a);", 0), ("f(a); f(a);", 2)])
def test_a_replacement_that_does_not_match_once_is_refused(tmp_path: Path, text: str, count: int) -> None:
    code, new = source(tmp_path / "code", text), headers(tmp_path / "new", "int exclude_bars")
    with pytest.raises(NeedsHuman, match=f"nv.c of the driver has 'f.a.' {count} times, not once"):
        replace(REPLACEMENT, code, new)
    assert (code / "nv.c").read_text() == text


def test_the_recipes_replacement_is_the_one_that_this_kernel_needs() -> None:
    driver = read_recipe(RECIPE).driver
    assert driver is not None
    compiled = driver.source("debian").source
    assert compiled is not None
    (one,) = compiled.replace
    assert one.new == one.old.removesuffix(")") + ", 0)"


@pytest.mark.parametrize(
    "content", [b"", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 200, b"\x7fELF\x01\x01" * 30]
)
def test_what_is_no_module_says_nothing_of_itself(content: bytes) -> None:
    with pytest.raises(Refused, match="ELF file"):
        read_module(content)
