from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.api.machinery.errors import NotFound
from provisioner.api.servers.server import Architecture
from provisioner.image.mirror import AptSource, choose_archives, parse_deb822, parse_one_line, read_sources
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
        AptSource("http://mirror.example/debian/", "bookworm", ("main",)),
        AptSource("http://mirror.example/debian/", "bookworm-updates", ("main",)),
        AptSource("http://mirror.example/security", "bookworm-security", ("main", "contrib")),
    ]


def test_lines_are_read_without_options_and_comments() -> None:
    assert parse_one_line(ONE_LINE) == [
        AptSource("https://vendor.example/apt", "stable", ("tools",)),
        AptSource("http://one.example/ubuntu", "noble", ("main", "universe")),
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
        AptSource("http://mirror.example/debian", "trixie", ("main",)),
        AptSource("http://mirror.example/debian", "trixie-updates", ("main",)),
        AptSource("http://mirror.example/security", "trixie-security", ("main",)),
    )


def test_a_named_mirror_is_the_only_one() -> None:
    debian = read_recipe(RECIPE).distribution("debian", "x86_64")
    assert choose_archives(debian, parse_deb822(DEB822), "http://mine.example/debian/") == (
        AptSource("http://mine.example/debian", "trixie", ("main",)),
        AptSource("http://mine.example/debian", "trixie-updates", ("main",)),
    )


def test_no_archive_is_guessed_for_a_distribution_that_the_machine_does_not_use() -> None:
    ubuntu = read_recipe(RECIPE).distribution(None, "x86_64")
    with pytest.raises(NotFound, match=r"no package archive of ubuntu-24.04 \(noble\) is known.*--mirror"):
        choose_archives(ubuntu, parse_deb822(DEB822))
    found = choose_archives(ubuntu, parse_one_line(ONE_LINE))
    assert [(source.uri, source.suite) for source in found] == [
        ("http://one.example/ubuntu", suite) for suite in ("noble", "noble-updates", "noble-security")
    ]


def chosen(
    text: str, distribution: str = "debian", architecture: Architecture = "x86_64", *, lines: bool = True
) -> str:
    sources = parse_one_line(text) if lines else parse_deb822(text)
    wanted = read_recipe(RECIPE).distribution(distribution, architecture)
    return choose_archives(wanted, sources, None, architecture)[0].uri


SUITE = read_recipe(RECIPE).distribution("debian", "x86_64").suite
GOOD = f"deb http://mirror.example/debian {SUITE} main\n"


@pytest.mark.parametrize(
    "before",
    [
        f"deb cdrom:[Debian GNU/Linux 13 _Trixie_ - DVD 1]/ {SUITE} main",
        f"deb file:/srv/mirror {SUITE} main",
        f"deb [trusted=yes] copy:/srv/mirror {SUITE} main",
        "deb http://old.example/debian bullseye main",
        f"deb [arch=arm64] http://other.example/debian {SUITE} main",
        f"deb http://security.example/debian-security {SUITE}-security main",
        f"deb-src http://source.example/debian {SUITE} main",
    ],
)
def test_an_entry_that_does_not_serve_the_build_is_passed_over(before: str) -> None:
    assert chosen(f"{before}\n{GOOD}") == "http://mirror.example/debian"


@pytest.mark.parametrize("word", ["no", "No", "FALSE", "0", "off", "disable", "without"])
def test_a_stanza_that_is_off_is_passed_over_as_apt_does(word: str) -> None:
    stanza = f"Types: deb\nURIs: http://{{}}.example/debian\nSuites: {SUITE}\nComponents: main\n"
    text = f"{stanza.format('off')}Enabled: {word}\n\n{stanza.format('mirror')}Enabled: yes\n"
    assert chosen(text, lines=False) == "http://mirror.example/debian"


def test_another_architectures_entry_of_debian_is_better_than_none() -> None:
    assert chosen(GOOD.replace("deb ", "deb [arch=amd64] "), architecture="arm64") == "http://mirror.example/debian"


@pytest.mark.parametrize(
    ("uri", "options", "serves"),
    [
        ("http://ports.ubuntu.com/ubuntu-ports", "", "arm64"),
        ("http://mirror.example/ubuntu-ports", "", "arm64"),
        ("http://de.archive.ubuntu.com/ubuntu", "", "x86_64"),
        ("http://mirror.example/ubuntu", "[arch=arm64]", "arm64"),
        ("http://mirror.example/ubuntu", "[arch=amd64,i386]", "x86_64"),
    ],
)
@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_each_of_ubuntus_archives_serves_its_architectures_alone(
    uri: str, options: str, serves: str, architecture: Architecture
) -> None:
    text = f"deb {options} {uri} noble main universe\n"
    if architecture == serves:
        assert chosen(text, "ubuntu", architecture) == uri
    else:
        with pytest.raises(NotFound, match=f"for {architecture} that is on and comes by HTTP"):
            chosen(text, "ubuntu", architecture)
