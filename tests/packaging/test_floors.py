"""The least version of each dependency is one without a known vulnerability, and so is the one that is pinned."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT: Final = Path(__file__).parents[2]
ADVISORIES: Final[Mapping[str, Mapping[str, str]]] = {
    "ansible-core": {"CVE-2024-11079": "2.18.1"},
    "certifi": {"CVE-2024-39689": "2024.7.4"},
    "cryptography": {
        "CVE-2024-26130": "42.0.4",
        "CVE-2024-12797": "44.0.1",
        "CVE-2026-26007": "46.0.5",
        "CVE-2026-34073": "46.0.6",
        "CVE-2026-39892": "46.0.7",
        "CVE-2026-69247": "50.0.0",
    },
    "flask": {"CVE-2023-30861": "2.3.2", "CVE-2025-47278": "3.1.1", "CVE-2026-27205": "3.1.3"},
    "idna": {"CVE-2024-3651": "3.7"},
    "jinja2": {
        "CVE-2024-34064": "3.1.4",
        "CVE-2024-56201": "3.1.5",
        "CVE-2024-56326": "3.1.5",
        "CVE-2025-27516": "3.1.6",
    },
    "oauthlib": {"CVE-2022-36087": "3.2.1"},
    "protobuf": {"CVE-2025-4565": "6.31.1", "CVE-2026-0994": "6.33.5"},
    "pyyaml": {"CVE-2020-14343": "5.4"},
    "requests": {
        "CVE-2023-32681": "2.31.0",
        "CVE-2024-35195": "2.32.0",
        "CVE-2024-47081": "2.32.4",
        "CVE-2026-25645": "2.33.0",
    },
    "setuptools": {"CVE-2024-6345": "70.0.0", "CVE-2025-47273": "78.1.1"},
    "urllib3": {
        "CVE-2024-37891": "2.2.2",
        "CVE-2025-50181": "2.5.0",
        "CVE-2025-50182": "2.5.0",
        "CVE-2025-66418": "2.6.0",
        "CVE-2025-66471": "2.6.0",
        "CVE-2026-21441": "2.6.3",
        "CVE-2026-97687": "2.8.0",
        "CVE-2026-97688": "2.8.0",
        "CVE-2026-97689": "2.8.0",
    },
    "waitress": {"CVE-2024-49768": "3.0.1", "CVE-2024-49769": "3.0.1"},
    "werkzeug": {
        "CVE-2024-34069": "3.0.3",
        "CVE-2024-49766": "3.0.6",
        "CVE-2024-49767": "3.0.6",
        "CVE-2026-27199": "3.1.6",
    },
}
"""In which version each was fixed. Add one when it is published, and raise the floor in pyproject.toml."""
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FLOORS: Final = [
    Requirement(each)
    for each in [*PROJECT["dependencies"], *(e for extra in PROJECT["optional-dependencies"].values() for e in extra)]
]
PINS: Final = ("requirements/runtime.txt", "requirements/development.txt")


def floor_of(requirement: Requirement) -> Version | None:
    """The least version that it allows; None if it allows any."""
    least = [Version(each.version) for each in requirement.specifier if each.operator in (">=", "==", "~=")]
    return max(least, default=None)


def fixed(name: str) -> Version:
    """The first version in which all that is known is fixed."""
    return max(Version(each) for each in ADVISORIES.get(canonicalize_name(name), {}).values())


def pinned(file: str) -> dict[str, Version]:
    found = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", (ROOT / file).read_text(), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in found}


@pytest.mark.parametrize("requirement", FLOORS, ids=lambda each: each.name)
def test_the_least_version_of_a_dependency_has_no_known_vulnerability(requirement: Requirement) -> None:
    if canonicalize_name(requirement.name) in ADVISORIES:
        floor = floor_of(requirement)
        assert floor is not None, f"{requirement.name} has no floor"
        assert floor >= fixed(requirement.name), ADVISORIES[canonicalize_name(requirement.name)]


def test_each_dependency_that_is_installed_has_a_floor() -> None:
    assert [each for each in PROJECT["dependencies"] if floor_of(Requirement(each)) is None] == []


@pytest.mark.parametrize("file", PINS)
def test_what_is_pinned_has_no_known_vulnerability_and_is_not_below_its_floor(file: str) -> None:
    versions = pinned(file)
    assert {name: str(versions[name]) for name in ADVISORIES if name in versions and versions[name] < fixed(name)} == {}
    below = {each.name: str(versions[canonicalize_name(each.name)]) for each in FLOORS
             if canonicalize_name(each.name) in versions
             and not each.specifier.contains(versions[canonicalize_name(each.name)], prereleases=True)}  # fmt: skip
    assert below == {}


def test_a_floor_below_a_fix_is_noticed() -> None:
    assert floor_of(Requirement("waitress>=3")) == Version("3")
    assert floor_of(Requirement("waitress>=3")) < fixed("waitress")  # type: ignore[operator]
    assert floor_of(Requirement("waitress")) is None


def test_each_advisory_is_about_something_that_is_used() -> None:
    used = {canonicalize_name(each.name) for each in FLOORS}.union(*(pinned(file) for file in PINS))
    assert sorted(set(ADVISORIES) - used) == []
