"""The reference says of every field and every option what the code says of it."""

from __future__ import annotations

import click
import pytest

from provisioner.api.crd import all_crds
from provisioner.cli.main import kubectl, provisioner
from website.reference.commands import commands_page, contexts
from website.reference.kinds import kind_page, kinds_index, root_schema, sections
from website.reference.markdown import code, words

CRDS = all_crds()
NAMES = [crd["spec"]["names"]["kind"] for crd in CRDS]


def _row(page: str, first_cell: str) -> str:
    rows = [line for line in page.splitlines() if line.startswith(f"| {first_cell} |")]
    assert rows, f"no row begins with {first_cell}"
    return rows[0]


@pytest.mark.parametrize("crd", CRDS, ids=NAMES)
def test_every_field_of_a_kind_stands_in_its_section_with_its_words(crd: dict[str, object]) -> None:
    page = kind_page(crd)
    for section in sections(root_schema(crd)):
        _, _, rest = page.partition(f"\n## {words(section.path)}\n")
        assert rest, section.path
        below = rest.partition("\n## ")[0]
        for name, field in section.schema.get("properties", {}).items():
            assert words(field.get("description", "")) in _row(below, code(name))


def test_a_field_says_whether_it_is_required_what_it_may_be_and_what_is_refused() -> None:
    page = kind_page(next(crd for crd in CRDS if crd["spec"]["names"]["kind"] == "Server"))
    mac = _row(page, "`bootMACAddress`")
    assert "required" in mac
    assert "write it as 52:54:00:12:34:56" in mac
    architecture = _row(page, "`architecture`")
    assert "`x86_64` or `arm64`" in architecture
    assert "default `x86_64`" in architecture
    assert "not required" not in architecture


def test_the_index_links_to_the_page_of_each_kind() -> None:
    index = kinds_index(CRDS)
    for crd in CRDS:
        assert f"[{crd['spec']['names']['kind']}]({crd['spec']['names']['singular']}.md)" in index


@pytest.mark.parametrize(("group", "called"), [(provisioner, "provisioner"), (kubectl, "kubectl provision")])
def test_every_command_and_option_is_there(group: click.Group, called: str) -> None:
    page = commands_page(group, called)
    for context in contexts(group, called):
        assert f"\n{context.command_path}" in page
        for option in context.command.get_params(context):
            if isinstance(option, click.Option) and not option.hidden and "--help" not in option.opts:
                assert f"`{option.opts[0]}`" in page


def test_an_option_says_its_default_its_choices_and_its_environment_variable() -> None:
    @click.command("play")
    @click.option("--tune", type=click.Choice(["low", "high"]), default="low", show_default=True, help="Which [one].")
    @click.option("--name", required=True, multiple=True, envvar="PLAYER", show_envvar=True, help="Who | what.")
    @click.option("--secret-door", hidden=True)
    def play(**_: object) -> None:
        """Play a tune.

        \b
        as   it
        stands
        """

    group = click.Group("band", commands=[play])
    page = commands_page(group, "band")
    assert _row(page, "`--tune`") == "| `--tune` | `low` | Which \\[one\\]. One of `low`, `high`. |"
    assert _row(page, "`--name`") == "| `--name` |  | Who \\| what. Required. May be repeated. Also `PLAYER`. |"
    assert "secret-door" not in page
    assert "```\nas   it\nstands\n```" in page


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a_b *c* [d](e) <script>", r"a\_b \*c\* \[d\](e) \<script\>"),
        ("`x*y` and z*", r"`x*y` and z\*"),
        ("two\n  lines", "two lines"),
        ("# no heading | no cell", r"\# no heading \| no cell"),
    ],
)
def test_words_stand_for_themselves(said: str, shown: str) -> None:
    assert words(said) == shown
