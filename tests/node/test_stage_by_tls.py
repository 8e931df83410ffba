"""Staging beside running jobs asks the boot host by TLS; a rack's cache in the clear, as what it gives is checked."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from provisioner.boot.tls import issue
from provisioner.boot.tls.announcement import render_announcement
from provisioner.boot.tls.files import ServerFiles
from provisioner.node.image.authorities import JOIN_CA
from provisioner.node.image.command_line import image_sources
from provisioner.node.image.stage import stage
from tests.node.fake_image_store import FakeImageStore
from tests.node.made_machine import write
from tests.node.staged import IMAGE, KERNEL, KEY, FakeKexec, in_store, refusal

NOW = datetime.now(UTC)
BOOT = "provisioner.server=r01-u01 provisioner.url=http://10.80.0.1 provisioner.join=https://10.80.0.1:8443"


@pytest.mark.parametrize(
    ("words", "sources"),
    [
        ("provisioner.images=http://10.80.0.1/images", ["https://10.80.0.1:8443/images"]),
        (
            "provisioner.images=http://10.80.0.9/images",
            ["http://10.80.0.9/images", "https://10.80.0.1:8443/images"],
        ),
        (
            "provisioner.images=http://10.80.0.1/images provisioner.nextimages=http://10.80.0.9/images",
            ["https://10.80.0.1:8443/images", "http://10.80.0.9/images"],
        ),
    ],
    ids=["no cache", "a cache first", "a cache next"],
)
def test_the_boot_host_is_asked_by_tls_and_a_cache_as_it_is(words: str, sources: list[str]) -> None:
    assert image_sources(f"{BOOT} {words}\n") == sources


@pytest.fixture(scope="module")
def authority() -> issue.Authority:
    return issue.make_authority("join CA", issue.generate_key("ec"), 30, NOW)


def context(folder: Path, authority: issue.Authority) -> ssl.SSLContext:
    key = issue.generate_key("ec")
    files = ServerFiles(folder / "tls")
    files.write(issue.to_pem(issue.issue_server_certificate(authority, key, ["127.0.0.1"], 7, NOW)), key)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(files.certificate, files.key)
    return made


@pytest.fixture
def by_tls(tmp_path: Path, authority: issue.Authority) -> Iterator[FakeImageStore]:
    with FakeImageStore(in_store(IMAGE), tls=context(tmp_path, authority)) as running:
        yield running


def boot_from(root: Path, plain: FakeImageStore, encrypted: FakeImageStore, ca: str) -> None:
    write(
        root,
        "proc/cmdline",
        f"provisioner.server=r01-u01 provisioner.url={plain.url} provisioner.join={encrypted.url} "
        f"provisioner.images={plain.url}/images provisioner.image=sha256-{'0a' * 32}\n",
    )
    write(root, JOIN_CA[1:], ca)


@pytest.mark.programs
def test_an_image_is_staged_by_tls_and_nothing_is_asked_in_the_clear(
    root: Path, store: FakeImageStore, by_tls: FakeImageStore, authority: issue.Authority
) -> None:
    boot_from(root, store, by_tls, authority.pem)
    store.files = in_store(IMAGE)
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.kernel == KERNEL
    assert store.asked == []
    assert sorted(path for path, _ in by_tls.asked) == sorted(by_tls.files)


def test_who_plays_the_boot_host_is_asked_for_nothing(
    root: Path, store: FakeImageStore, by_tls: FakeImageStore
) -> None:
    stranger = issue.make_authority("join CA", issue.generate_key("ec"), 30, NOW)
    boot_from(root, store, by_tls, stranger.pem)
    assert "certificate verify failed" in refusal(root, IMAGE.digest)
    assert by_tls.asked == []


@pytest.mark.programs
def test_a_running_system_goes_over_to_an_announced_authority(
    root: Path, store: FakeImageStore, by_tls: FakeImageStore, authority: issue.Authority
) -> None:
    former = issue.make_authority("join CA", issue.generate_key("ec"), 30, NOW)
    boot_from(root, store, by_tls, former.pem)
    text = render_announcement([authority.certificate], 30, NOW).encode()
    store.files = {"/images/join-authorities": text, "/images/join-authorities.sig": KEY.sign(text).encode()}
    kexec = FakeKexec()
    stage(str(root), IMAGE.digest, [], kexec.load)
    assert kexec.kernel == KERNEL
    assert {path for path, _ in store.asked} == set(store.files), "the announcement alone comes in the clear"


def test_an_image_without_certificates_stages_nothing_and_says_so(
    root: Path, store: FakeImageStore, by_tls: FakeImageStore
) -> None:
    boot_from(root, store, by_tls, "")
    (root / JOIN_CA[1:]).unlink()
    assert "build the running image again" in refusal(root, IMAGE.digest)
