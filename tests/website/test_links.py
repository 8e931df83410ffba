"""Links between files of the checkout become links between pages, and none is lost on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from website.links import BrokenLink, relink

PAGES = {
    "README.md": "index.md",
    "docs/jobs.md": "jobs.md",
    "docs/guide/deep.md": "guide/deep.md",
    "results/picture.svg": "figures/picture.svg",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (*PAGES, "Makefile"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("source", "written", "shown"),
    [
        ("README.md", "[jobs](docs/jobs.md)", "[jobs](jobs.md)"),
        ("README.md", "[jobs](docs/jobs.md#slurm)", "[jobs](jobs.md#slurm)"),
        ("docs/jobs.md", "[start](../README.md)", "[start](index.md)"),
        ("docs/guide/deep.md", "[start](../../README.md)", "[start](../index.md)"),
        ("docs/jobs.md", "![a picture](../results/picture.svg)", "![a picture](figures/picture.svg)"),
        ("docs/jobs.md", "[here](#slurm)", "[here](#slurm)"),
        ("docs/jobs.md", "[elsewhere](https://example.com/a.md)", "[elsewhere](https://example.com/a.md)"),
        ("docs/jobs.md", "[make](../Makefile)", "make (`Makefile` in the checkout)"),
        ("docs/jobs.md", "```\n[not](a-link.md)\n```", "```\n[not](a-link.md)\n```"),
        ("docs/jobs.md", "[`two`](guide/deep.md) and [jobs](jobs.md)", "[`two`](guide/deep.md) and [jobs](jobs.md)"),
    ],
)
def test_a_link_leads_to_the_page_of_its_file(checkout: Path, source: str, written: str, shown: str) -> None:
    assert relink(written, source=source, page=PAGES[source], pages=PAGES, checkout=checkout) == shown


@pytest.mark.parametrize("target", ["gone.md", "../../outside.md", "../docs/gone.md#place"])
def test_a_link_to_a_file_that_is_not_there_is_told_with_both_ends(checkout: Path, target: str) -> None:
    with pytest.raises(BrokenLink, match=r"docs/jobs\.md links to .*: mend the link"):
        relink(f"[x]({target})", source="docs/jobs.md", page="jobs.md", pages=PAGES, checkout=checkout)
