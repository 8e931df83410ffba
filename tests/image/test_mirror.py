from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.api.errors import NotFound
from provisioner.image.mirror import Source, choose_archives, parse_deb822, parse_one_line, read_sources
from provisioner.image.recipe import read_recipe
from tests.image.samples import RECIPE

DEB822 = """\
Types: deb deb-src
# a comment within
URIs: http://mirror.example/debian/
Suites: bookworm
 bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main contrib

Enabled: no
Types: deb
URIs: http://disabled.example/debian
Suites: bookworm
Components: main
"""
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] https://vendor.example/apt stable tools
deb-src http://source.example/debian bookworm main
deb [ arch=amd64 ] http://one.example/ubuntu noble main universe # behind
"""


def test_stanzas_give_one_source_for_each_uri_and_suite() -> None:
    assert parse_deb822(DEB822) == [
        Source("http://mirror.example/debian/", "bookworm", ("main",)),
        Source("http://mirror.example/debian/", "bookworm-updates", ("main",)),
        Source("http://mirror.example/security", "bookworm-security", ("main", "contrib")),
    ]


def test_lines_are_read_without_options_and_comments() -> None:
    assert parse_one_line(ONE_LINE) == [
        Source("https://vendor.example/apt", "stable", ("tools",)),
        Source("http://one.example/ubuntu", "noble", ("main", "universe")),
    ]


def test_both_styles_are_read_from_their_places(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("deb http://first.example/debian bookworm main\n")
    (tmp_path / "sources.list.d/debian.sources").write_text(DEB822)
    (tmp_path / "sources.list.d/old.list.save").write_text(ONE_LINE)
    assert [source.uri for source in read_sources(tmp_path)][:2] == [
        "http://first.example/debian",
        "http://mirror.example/debian/",
    ]
    assert len(read_sources(tmp_path)) == 4
    assert read_sources(tmp_path / "none") == ()


def test_another_release_comes_from_the_archive_that_the_machine_uses_with_its_security_updates() -> None:
    debian = read_recipe(RECIPE).distribution("debian", "x86_64")
    sources = [*parse_one_line(ONE_LINE), *parse_deb822(DEB822)]
    assert choose_archives(debian, sources) == (
        Source("http://mirror.example/debian", "trixie", ("main",)),
        Source("http://mirror.example/debian", "trixie-updates", ("main",)),
        Source("http://mirror.example/security", "trixie-security", ("main",)),
    )


def test_a_named_mirror_is_the_only_one() -> None:
    debian = read_recipe(RECIPE).distribution("debian", "x86_64")
    assert choose_archives(debian, parse_deb822(DEB822), "http://mine.example/debian/") == (
        Source("http://mine.example/debian", "trixie", ("main",)),
        Source("http://mine.example/debian", "trixie-updates", ("main",)),
    )


def test_no_archive_is_guessed_for_a_distribution_that_the_machine_does_not_use() -> None:
    ubuntu = read_recipe(RECIPE).distribution(None, "x86_64")
    with pytest.raises(NotFound, match=r"no package archive of ubuntu-24.04 \(noble\) is known.*--mirror"):
        choose_archives(ubuntu, parse_deb822(DEB822))
    found = choose_archives(ubuntu, parse_one_line(ONE_LINE))
    assert [(source.uri, source.suite) for source in found] == [
        ("http://one.example/ubuntu", suite) for suite in ("noble", "noble-updates", "noble-security")
    ]
