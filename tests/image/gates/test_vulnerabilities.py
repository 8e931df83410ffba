from __future__ import annotations

import datetime
import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.image.gates.packages.go_binary import GoBuild, GoModule
from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.packages.osv import base_score, debian_key, read_vulnerabilities, semantic_key
from provisioner.image.gates.vulnerabilities import Hit, OsvPackage, check_vulnerabilities, find_hits, parts_of
from tests.image.gates.samples import told
from tests.tools import installed

TODAY = datetime.date(2026, 11, 24)
HIGH = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:H/I:H/A:H"
LOW = "CVSS:3.1/AV:L/AC:H/PR:H/UI:R/S:U/C:L/I:N/A:N"


def record(name: str = "runc", ecosystem: str = "Debian:13", **more: Any) -> dict[str, Any]:
    """As OSV has Debian's: introduced with the first version, fixed with 1.1.15+ds1-3."""
    return {
        "id": "DEBIAN-CVE-2026-1",
        "upstream": ["CVE-2026-1"],
        "severity": [{"type": "CVSS_V3", "score": HIGH}],
        "affected": [
            {
                "package": {"ecosystem": ecosystem, "name": name},
                "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "1.1.15+ds1-3"}]}],
            }
        ],
    } | more


def hits(tmp_path: Path, *records: dict[str, Any], parts: tuple[OsvPackage, ...] | None = None) -> list[Hit]:
    (tmp_path / "list.json").write_text(json.dumps(records))
    own = parts or (OsvPackage("Debian:13", "runc", "1.1.15+ds1-2", "runc"),)
    return find_hits(own, read_vulnerabilities(tmp_path / "list.json"))


def with_events(*events: dict[str, str]) -> dict[str, Any]:
    changed = record()
    changed["affected"][0]["ranges"][0]["events"] = list(events)
    return changed


def test_a_vulnerability_that_has_a_fix_fails_with_the_version_that_has_it(tmp_path: Path) -> None:
    found = hits(tmp_path, record())
    assert told(check_vulnerabilities(found, {}, TODAY)) == [
        ("runc 1.1.15+ds1-2 in runc", "DEBIAN-CVE-2026-1, CVE-2026-1 (CVSS 9.8)")
    ]
    (failure,) = check_vulnerabilities(found, {}, TODAY)
    assert failure.expected == "1.1.15+ds1-3 or newer"


@pytest.mark.parametrize(
    "other",
    [
        record(name="crun"),
        record(ecosystem="Debian:12"),
        record(ecosystem="Ubuntu:24.04"),
        record(ecosystem="Debian:130"),
        record(withdrawn="2026-01-01T00:00:00Z"),
        with_events({"introduced": "0"}, {"fixed": "1.1.15+ds1-2"}),
        with_events({"introduced": "1.1.15+ds1-3"}),
        with_events({"introduced": "0"}, {"last_affected": "1.1.15+ds1-1"}),
        with_events({"introduced": "0"}, {"fixed": "1.1.14"}, {"introduced": "1.2"}, {"fixed": "1.3"}),
    ],
)
def test_what_the_image_does_not_have_is_no_hit(tmp_path: Path, other: dict[str, Any]) -> None:
    assert hits(tmp_path, other) == []


@pytest.mark.parametrize(
    ("events", "fix"),
    [
        ([{"introduced": "0"}], ""),
        ([{"introduced": "0"}, {"last_affected": "1.1.15+ds1-2"}], ""),
        ([{"fixed": "2.0"}, {"introduced": "1.1.15"}, {"fixed": "1.1.14"}, {"introduced": "0"}], "2.0"),
    ],
)
def test_ranges_are_read_in_the_order_of_their_versions(tmp_path: Path, events: list[dict[str, str]], fix: str) -> None:
    assert [hit.fix for hit in hits(tmp_path, with_events(*events))] == [fix]


def test_a_version_that_a_record_lists_is_affected(tmp_path: Path) -> None:
    changed = with_events({"introduced": "9"})
    changed["affected"][0]["versions"] = ["1.1.15+ds1-2"]
    assert [hit.fix for hit in hits(tmp_path, changed)] == [""]


def test_what_has_no_fix_or_is_not_severe_fails_no_build_and_what_nobody_rated_does(tmp_path: Path) -> None:
    assert told(check_vulnerabilities(hits(tmp_path, with_events({"introduced": "0"})), {}, TODAY)) == []
    low = record(severity=[{"type": "CVSS_V3", "score": LOW}])
    assert told(check_vulnerabilities(hits(tmp_path, low), {}, TODAY)) == []
    assert len(told(check_vulnerabilities(hits(tmp_path, low), {}, TODAY, least=1.0))) == 1
    unimportant = record()
    unimportant["affected"][0]["ecosystem_specific"] = {"urgency": "unimportant"}
    assert told(check_vulnerabilities(hits(tmp_path, unimportant), {}, TODAY)) == []
    ((_, observed),) = told(check_vulnerabilities(hits(tmp_path, record(severity=[])), {}, TODAY))
    assert "not rated" in observed


def test_an_exception_holds_until_its_day_by_any_of_its_names(tmp_path: Path) -> None:
    found = hits(tmp_path, record())
    for name in ("CVE-2026-1", "DEBIAN-CVE-2026-1"):
        assert told(check_vulnerabilities(found, {name: "until 2026-11-24: runc is not reached"}, TODAY)) == []
        ((_, observed),) = told(check_vulnerabilities(found, {name: "until 2026-11-23: runc is not reached"}, TODAY))
        assert "its exception ended on 2026-11-23" in observed
    assert len(told(check_vulnerabilities(found, {"CVE-2026-2": "until 2027-01-01: another"}, TODAY))) == 1


@pytest.mark.parametrize("reason", ["not reached", "until 2026-13-01: x", "until 2027-01-01:", "until soon: x"])
def test_an_exception_without_reason_or_end_is_a_failure_and_no_exception(tmp_path: Path, reason: str) -> None:
    found = told(check_vulnerabilities(hits(tmp_path, record()), {"CVE-2026-1": reason}, TODAY))
    assert [name for name, _ in found] == ["CVE-2026-1", "runc 1.1.15+ds1-2 in runc"]


def test_sources_of_packages_what_is_linked_into_them_and_go_modules_are_looked_up() -> None:
    packages = [
        InstalledPackage(
            name="linux-image-6.12.117+deb13-amd64", version="6.12.117-1", architecture="amd64",
            source="linux-signed-amd64", source_version="6.12.117+1",
        ),
        InstalledPackage(
            name="runc", version="1.1-2+b4", architecture="amd64", source="runc", source_version="1.1-2",
            built_using=("golang-1.24 1.24.4-1",),
        ),
    ]  # fmt: skip
    kubelet = GoBuild(
        "go1.26.8", "k", GoModule("k8s.io/kubernetes", "v1.36.3"), (GoModule("golang.org/x/net", "v1.0.0"),)
    )
    assert [(part.ecosystem, part.name, part.version) for part in parts_of("debian-13", packages, {"k": kubelet})] == [
        ("Debian:13", "golang-1.24", "1.24.4-1"),
        ("Debian:13", "linux", "6.12.117-1"),
        ("Debian:13", "runc", "1.1-2"),
        ("Go", "golang.org/x/net", "v1.0.0"),
        ("Go", "k8s.io/kubernetes", "v1.36.3"),
        ("Go", "stdlib", "1.26.8"),
    ]


def test_a_go_module_is_compared_as_go_does(tmp_path: Path) -> None:
    affected = {
        "package": {"ecosystem": "Go", "name": "golang.org/x/net"},
        "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": "0.38.0"}]}],
    }
    parts = tuple(
        OsvPackage("Go", "golang.org/x/net", version, "/k") for version in ("v0.37.0", "v0.38.0", "v0.38.0-rc.1")
    )
    found = hits(tmp_path, record(affected=[affected]), parts=parts)
    assert [hit.part.version for hit in found] == ["v0.37.0", "v0.38.0-rc.1"]
    assert (
        hits(tmp_path, record(affected=[affected]), parts=(OsvPackage("Go", "golang.org/x/net", "(devel)", "/k"),))
        == []
    )


def test_ubuntus_long_term_releases_have_a_word_behind_their_number(tmp_path: Path) -> None:
    parts = (OsvPackage("Ubuntu:24.04", "runc", "1.1.0", "runc"),)
    assert len(hits(tmp_path, record(ecosystem="Ubuntu:24.04:LTS"), parts=parts)) == 1


@pytest.mark.parametrize("form", ["object", "array", "lines", "archive"])
def test_a_list_comes_in_each_form_that_is_published(tmp_path: Path, form: str) -> None:
    file = tmp_path / "list"
    if form == "archive":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("DEBIAN-CVE-2026-1.json", json.dumps(record()))
            archive.writestr("README", "no record")
    else:
        text = {
            "object": json.dumps(record()),
            "array": json.dumps([record()]),
            "lines": f"{json.dumps(record())}\n" * 2,
        }
        file.write_text(text[form])
    assert {each.identifiers for each in read_vulnerabilities(file)} == {("DEBIAN-CVE-2026-1", "CVE-2026-1")}


BAD_EVENT = '{"id": "a", "affected": [{"ranges": [{"type": "SEMVER", "events": ["x"]}]}]}'


@pytest.mark.parametrize(
    "text",
    ["", "<html>", "[1]", '[{"id": 7}]', "{}", '{"id": "a", "affected": 7}', "[" * 100_000, BAD_EVENT],
)
def test_what_is_no_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "list").write_text(text)
    with pytest.raises(Refused, match="no list of OSV records"):
        list(read_vulnerabilities(tmp_path / "list"))
    with pytest.raises(NotFound):
        list(read_vulnerabilities(tmp_path / "absent"))


def test_a_list_with_a_version_that_is_none_is_refused_by_the_records_name(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="DEBIAN-CVE-2026-1"):
        hits(tmp_path, with_events({"introduced": "0"}, {"fixed": "<end of life>"}))


@pytest.mark.parametrize(
    ("vector", "score"),
    [
        (HIGH, 9.8),
        ("CVSS:3.0/AV:N/AC:L/PR:N/UI:N/S:C/C:H/I:H/A:H", 10.0),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:R/S:C/C:L/I:L/A:N", 6.1),
        ("CVSS:3.1/AV:L/AC:L/PR:L/UI:N/S:U/C:H/I:H/A:H", 7.8),
        ("CVSS:3.1/AV:N/AC:H/PR:N/UI:N/S:U/C:N/I:N/A:H", 5.9),
        ("CVSS:3.1/AV:P/AC:H/PR:H/UI:R/S:U/C:N/I:N/A:N", 0.0),
        ("CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:N/I:N/A:H", 7.5),
        ("High", 8.9),
        ("CVSS:3.1/AV:N", None),
        ("CVSS:4.0/AV:N/AC:L/AT:N/PR:N/UI:N/VC:H/VI:H/VA:H/SC:N/SI:N/SA:N", None),
        ("", None),
    ],
)
def test_scores_are_those_that_the_nvd_publishes(vector: str, score: float | None) -> None:
    assert base_score(vector) == score


VERSIONS = st.from_regex(r"\A([0-9]{1,2}:)?[0-9][0-9a-c.+~]{0,8}(-[0-9a-c.+~]{1,5})?\Z")


@settings(max_examples=12)
@given(st.lists(VERSIONS, min_size=8, max_size=8))
def test_debian_versions_sort_as_dpkg_sorts_them(versions: list[str]) -> None:
    pairs = [(one, other) for one in versions for other in versions]
    said = dpkg_compares(pairs)
    for one, other in pairs:
        less, equal = debian_key(one) < debian_key(other), debian_key(one) == debian_key(other)
        assert said[one, other] == ("lt" if less else "eq" if equal else "gt"), (one, other)


def dpkg_compares(pairs: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """`lt`, `eq` or `gt` for each, as dpkg says. One shell for all."""
    script = """
        while read -r one other; do
            for word in lt eq gt; do
                if "$0" --compare-versions "$one" "$word" "$other"; then echo "$word"; break; fi
            done
        done
    """
    lines = "".join(f"{one} {other}\n" for one, other in pairs)
    done = subprocess.run(
        ["sh", "-c", script, installed("dpkg")], input=lines, capture_output=True, text=True, check=True
    )
    words = done.stdout.split()
    assert len(words) == len(pairs)
    return dict(zip(pairs, words, strict=True))


@pytest.mark.parametrize(
    ("one", "other"),
    [("1", "1~"), ("1.0", "1."), ("1-0", "1"), ("0:1", "1"), ("1.0~rc1-1", "1.0-1"), ("1a", "1+"), ("2-1", "2-1+b1"),
     ("1~~", "1~~a"), ("1:1", "2"), ("09", "9"), ("1.2-3-4", "1.2-3-5")],
)  # fmt: skip
def test_the_ways_in_which_versions_are_odd_are_dpkgs(one: str, other: str) -> None:
    said = dpkg_compares([(one, other), (other, one)])
    for left, right in said:
        less, equal = debian_key(left) < debian_key(right), debian_key(left) == debian_key(right)
        assert said[left, right] == ("lt" if less else "eq" if equal else "gt")


def test_semantic_versions_sort_as_the_standards_example_does() -> None:
    before = ["v1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"]
    order = [*before, "1.0.0-rc.1", "1.0.0", "1.0.1", "1.10", "2"]
    assert sorted(sorted(order), key=semantic_key) == order
    assert semantic_key("v1.0.0+incompatible") == semantic_key("1.0.0")
    assert semantic_key("v0.0.0-20240101000000-abcdef123456") < semantic_key("0.0.0")
    assert semantic_key("1.27rc1") < semantic_key("1.27.0")
    for wrong in ("(devel)", "", "1.x", "latest"):
        with pytest.raises(Refused):
            semantic_key(wrong)
