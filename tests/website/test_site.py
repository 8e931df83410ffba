"""The site is built, complete, and asks no other host for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from website.hooks import CHECKOUT, generated_pages

CONFIG = CHECKOUT / "website/mkdocs.yml"


class _Fetched(HTMLParser):
    """What a browser fetches for a page by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        if tag in ("script", "img", "iframe", "source"):
            self.urls.append(named.get("src") or "")
        elif tag == "link" and named.get("rel") not in ("canonical", "next", "prev"):
            self.urls.append(named.get("href") or "")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it: every warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", CONFIG, "--site-dir", folder],
        cwd=CHECKOUT,
        env={"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_every_page_of_the_documentation_is_in_the_menu() -> None:
    listed = set(_leaves(yaml.safe_load(CONFIG.read_text())["nav"]))
    written = {str(path.relative_to(CHECKOUT / "docs")) for path in (CHECKOUT / "docs").rglob("*.md")}
    assert written <= listed
    assert listed <= written | set(generated_pages()) | {
        *("index.md", "architecture.md", "contributing.md", "security.md", "changelog.md", "figures/index.md")
    }


@pytest.mark.programs
def test_every_page_is_built_with_its_text(site: Path) -> None:
    assert "Racks of servers without an operating system" in (site / "index.html").read_text()
    assert "bootMACAddress" in (site / "reference/api/server.html").read_text()
    assert "kubectl provision reimage" in (site / "reference/commands/kubectl-provision.html").read_text()
    assert 'href="operator-guide.html"' in (site / "index.html").read_text()


@pytest.mark.programs
def test_a_reader_without_a_way_out_sees_all_of_it(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        fetched = _Fetched()
        fetched.feed(page.read_text())
        assert [url for url in fetched.urls if re.match(r"(https?:)?//", url)] == [], page.name


def _leaves(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [leaf for each in (nav.values() if isinstance(nav, dict) else nav) for leaf in _leaves(each)]
