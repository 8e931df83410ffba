"""Addresses of registries, the file with passwords, and what a registry asks a stranger."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.machinery.errors import NeedsHuman, NotFound, ProvisionerError, Refused
from provisioner.image.registry.access import open_access
from provisioner.image.registry.challenge import Basic, Bearer, choose_challenge, parse_challenges
from provisioner.image.registry.credentials import read_credentials
from provisioner.image.registry.reference import Repository, parse_reference, parse_repository

DIGEST = "sha256:" + "ab" * 32
SITE = Repository("registry.example.com:5000", "site/images")


@pytest.mark.parametrize(
    ("text", "host", "name", "digest"),
    [
        ("oci://registry.example.com/images", "registry.example.com", "images", None),
        ("oci://Registry.Example.com:5000/a/b-c_d.e", "registry.example.com:5000", "a/b-c_d.e", None),
        (f"oci://10.80.0.2:5000/images@{DIGEST}", "10.80.0.2:5000", "images", DIGEST),
        ("oci://[fd00::1]:5000/images", "[fd00::1]:5000", "images", None),
    ],
)
def test_an_address_has_a_host_a_repository_and_perhaps_a_digest(
    text: str, host: str, name: str, digest: str | None
) -> None:
    reference = parse_reference(text)
    assert (reference.repository, reference.digest) == (Repository(host, name), digest)
    if digest is None:
        assert str(parse_repository(text)) == text.lower()


@pytest.mark.parametrize(
    "text",
    [
        "", "registry/images", "https://registry/images", "oci://", "oci://registry", "oci:///images", "oci://registry/",
        "oci://registry/Images", "oci://registry/a//b", "oci://registry/../x", "oci://registry/images:latest",
        "oci://registry/images@sha256:12", f"oci://registry/images@{DIGEST.upper()}", "oci://registry:0/images",
        "oci://registry:99999/images", "oci://registry:x/images", "oci://-r/images", "oci://[::x]/images",
        "oci://[1.2.3.4]/images", "oci://registry/images?x=1", "oci://registry/images#x", "oci://re gistry/images",
        "oci://registry/" + "a" * 256,
    ],
)  # fmt: skip
def test_anything_else_is_no_address(text: str) -> None:
    with pytest.raises(Refused):
        parse_reference(text)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(Refused) as refused:
        parse_reference("oci://user:hunter-2@registry.example.com/images")
    assert "hunter-2" not in str(refused.value)
    assert "docker's configuration" in str(refused.value)


@given(st.text(max_size=60))
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    for candidate in (text, f"oci://{text}", f"oci://registry/{text}"):
        try:
            reference = parse_reference(candidate)
        except Refused:
            continue
        assert candidate.lower().startswith(str(reference.repository))


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost:5000", True), ("127.9.9.9", True), ("[::1]:5000", True), ("10.0.0.1", False),
     ("localhost.evil.com", False), ("127.0.0.1.evil.com", False)],
)  # fmt: skip
def test_plain_http_is_for_this_machine_alone_unless_a_person_says_otherwise(
    host: str, local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    repository = parse_repository(f"oci://{host}/x")
    assert open_access(repository).root.startswith("http://" if local else "https://")
    assert open_access(repository, plain_http=True).root.startswith("http://")
    assert open_access(repository, ca=tmp_path / "ca").root.startswith("https://")
    with pytest.raises(Refused, match="both"):
        open_access(repository, ca=tmp_path / "ca", plain_http=True)


def auth(user: str, password: str) -> str:
    return base64.b64encode(f"{user}:{password}".encode()).decode()


def written(tmp_path: Path, body: Any, mode: int = 0o600) -> Path:
    file = tmp_path / "docker.json"
    file.write_text(body if isinstance(body, str) else json.dumps(body))
    file.chmod(mode)
    return file


@pytest.mark.parametrize("key", ["registry.example.com:5000", "https://registry.example.com:5000/"])
def test_a_password_is_found_by_host_and_port(tmp_path: Path, key: str) -> None:
    file = written(
        tmp_path, {"auths": {key: {"auth": auth("u", "p:w")}, "registry.example.com": {"auth": auth("x", "y")}}}
    )
    found = read_credentials(SITE.host, file)
    assert found is not None
    assert (found.username, found.password.reveal()) == ("u", "p:w")
    assert "p:w" not in repr(found)
    assert read_credentials("other.example.com", file) is None


@pytest.mark.parametrize(
    "key",
    [
        "registry.example.com:5000",
        "Registry.Example.com:5000",
        "https://registry.example.com:5000",
        "https://registry.example.com:5000/v1/",
        "https://registry.example.com:5000/v2/",
        "http://registry.example.com:5000/",
        "registry.example.com:5000/ai",
        "registry.example.com:5000/ai/nodes",
        "https://registry.example.com:5000/v2/ai/nodes",
    ],
)
def test_every_form_of_a_key_is_found(tmp_path: Path, key: str) -> None:
    """docker and oras write hosts, of old with scheme and version; podman and skopeo also parts of a repository."""
    others = {"registry.example.com": "x", "registry.example.com:5000/other": "x", "registry.example.com:5000/a": "x"}
    entries = {each: {"auth": auth("u", "p")} for each in (*others, key)}
    entries[key] = {"auth": auth("u", "right")}
    found = read_credentials("registry.example.com:5000", written(tmp_path, {"auths": entries}), "ai/nodes/gpu")
    assert found is not None
    assert found.password.reveal() == "right"


def test_the_longest_part_of_a_repository_counts(tmp_path: Path) -> None:
    keys = ("registry.example.com:5000", "registry.example.com:5000/ai/nodes", "registry.example.com:5000/ai")
    file = written(tmp_path, {"auths": {key: {"auth": auth("u", key)} for key in keys}})
    for repository, key in (("ai/nodes/gpu", keys[1]), ("ai/other", keys[2]), ("air", keys[0]), ("", keys[0])):
        found = read_credentials("registry.example.com:5000", file, repository)
        assert found is not None
        assert found.password.reveal() == key


@pytest.mark.parametrize("host", ["docker.io", "index.docker.io", "registry-1.docker.io"])
def test_docker_hub_has_one_entry_for_all_its_names(tmp_path: Path, host: str) -> None:
    file = written(tmp_path, {"auths": {"https://index.docker.io/v1/": {"auth": auth("u", "p")}}})
    assert read_credentials(host, file, "library/nodes") is not None


def test_a_token_in_place_of_a_password_is_found(tmp_path: Path) -> None:
    found = read_credentials(
        SITE.host, written(tmp_path, {"auths": {SITE.host: {"username": "u", "identitytoken": "t"}}})
    )
    assert found is not None
    assert found.identity_token is not None
    assert found.identity_token.reveal() == "t"


@pytest.mark.parametrize(
    ("body", "mode", "error", "words"),
    [
        ({"auths": {SITE.host: {"auth": auth("u", "p-4711")}}}, 0o644, NeedsHuman, "can be read by others"),
        ({"auths": {SITE.host: {"auth": "p-4711!"}}}, 0o600, Refused, "no base64"),
        (
            {"auths": {SITE.host: {"auth": base64.b64encode(b"p-4711").decode()}}},
            0o600,
            Refused,
            "no name and password",
        ),
        ({"auths": {SITE.host: {"username": "p-4711"}}}, 0o600, Refused, "no name and password"),
        (
            {"auths": {"other": "p-4711"}, "credHelpers": {SITE.host: "pass"}},
            0o600,
            NeedsHuman,
            "docker-credential-pass",
        ),
        (
            {"auths": {SITE.host: {}, "other": "p-4711"}, "credsStore": "desktop"},
            0o600,
            NeedsHuman,
            "docker-credential-desktop",
        ),
        ('{"auths": "p-4711"', 0o600, Refused, "no JSON object"),
        ('["p-4711"]', 0o600, Refused, "no JSON object"),
        ("p-4711" + "[" * 100_000, 0o600, Refused, "no JSON object"),
        ("p-4711" * 400_000, 0o600, Refused, "no JSON object"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_and_shows_nothing(
    tmp_path: Path, body: Any, mode: int, error: type[ProvisionerError], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        read_credentials(SITE.host, written(tmp_path, body, mode))
    assert "4711" not in str(raised.value)


def test_dockers_own_file_need_not_be_there_and_one_that_was_named_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert read_credentials(SITE.host, None) is None
    written(tmp_path, {"auths": {SITE.host: {"auth": auth("u", "p")}}}).rename(tmp_path / "config.json")
    assert read_credentials(SITE.host, None) is not None
    with pytest.raises(NotFound):
        read_credentials(SITE.host, tmp_path / "no")


def test_challenges_are_read_whatever_their_order_and_quoting() -> None:
    header = 'Basic realm="a, \\"b\\"", Bearer realm="https://r/t",service=s , scope="x:y:z", Negotiate'
    assert parse_challenges(header) == [
        ("basic", {"realm": 'a, "b"'}),
        ("bearer", {"realm": "https://r/t", "service": "s", "scope": "x:y:z"}),
        ("negotiate", {}),
    ]


STARTS = st.sampled_from(["", "Basic ", "Bearer ", 'Bearer realm="https://registry.example.com/t", '])


@given(STARTS, st.text(max_size=200))
def test_whatever_a_registry_asks_is_read_or_refused(start: str, rest: str) -> None:
    parse_challenges(start + rest)
    try:
        chosen = choose_challenge(start + rest, SITE, actions="pull", plain_http=False)
    except Refused:
        return
    assert isinstance(chosen, Bearer if "realm" in start else Basic)


def choose(header: str, **more: Any) -> Bearer | Basic:
    return choose_challenge(header, SITE, **{"actions": "pull", "plain_http": False, **more})


def test_a_token_is_preferred_and_asked_for_with_a_scope_of_ours_alone() -> None:
    mine = 'Bearer realm="https://registry.example.com/t",service="s",scope="repository:site/images:pull,push"'
    assert choose(mine + ", Basic") == Bearer("https://registry.example.com/t", "s", "repository:site/images:pull,push")
    other = 'Bearer realm="https://registry.example.com/t",scope="repository:others:delete"'
    assert choose(other) == Bearer("https://registry.example.com/t", None, "repository:site/images:pull")
    bare = 'Bearer realm="https://registry.example.com/t",scope="delete"'
    assert choose(bare) == Bearer("https://registry.example.com/t", None, "repository:site/images:pull")
    assert choose('Basic realm="x"') == Basic()


@pytest.mark.parametrize(
    "realm",
    [
        "https://elsewhere.example.com/t", "http://registry.example.com/t", "https://registry.example.com.evil.com/t",
        "https://registry.example.com@evil.com/t", "https://u:p@registry.example.com/t", "//registry.example.com/t", "",
        "https://[", "https://registry.example.com:x/t", "file:///etc/passwd",
    ],
)  # fmt: skip
def test_a_realm_that_is_not_the_registrys_own_is_refused(realm: str) -> None:
    with pytest.raises(Refused):
        choose(f'Bearer realm="{realm}"')


def test_a_realm_that_a_person_named_is_given_the_password() -> None:
    realm = 'Bearer realm="https://auth.example.com/t"'
    assert isinstance(choose(realm, token_hosts=("Auth.example.com",)), Bearer)
    with pytest.raises(Refused, match=r"--registry-token-host auth\.example\.com"):
        choose(realm)
