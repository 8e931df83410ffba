"""What `provisioner boot tls` makes, as openssl and Python's ssl judge it."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from provisioner.api.machinery.errors import NeedsHuman, Refused
from provisioner.boot.tls import issue
from provisioner.boot.tls.announcement import render_announcement
from provisioner.boot.tls.files import ServerFiles, read_authority_of
from provisioner.cli.boot.tls_command import tls
from provisioner.cli.service.boot import boot
from provisioner.image.finished.sign import SecretKey, write_keys
from provisioner.node.image.authorities import AuthoritiesError, read_document

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
SECONDS = 120


@pytest.fixture(scope="module")
def authorities() -> tuple[issue.Authority, issue.Authority]:
    """The old one, and the one that takes its place, of other keys."""
    old = issue.make_authority("join CA 2026", issue.generate_key("ec"), 365, NOW)
    return old, issue.make_authority("join CA 2027", issue.generate_key("rsa"), 730, NOW)


def verifies(folder: Path, trusted: str, chain: str, at: datetime) -> bool:
    """Whether openssl believes a server's chain at a moment."""
    first, *behind = issue.read_certificates(chain, "chain")
    files = {"ca.pem": trusted, "server.pem": issue.to_pem(first), "behind.pem": issue.to_pem(*behind) or trusted}
    for name, content in files.items():
        (folder / name).write_text(content)
    command = ["openssl", "verify", "-x509_strict", "-purpose", "sslserver", "-attime", str(int(at.timestamp())),
               "-verify_ip", "10.80.0.1", "-CAfile", "ca.pem", "-untrusted", "behind.pem", "server.pem"]  # fmt: skip
    return subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=SECONDS).returncode == 0


def server(by: issue.Authority, days: int = 90) -> str:
    key = issue.generate_key("ec")
    return issue.to_pem(issue.issue_server_certificate(by, key, ["10.80.0.1", "boot1.example"], days, NOW))


@pytest.mark.programs
@pytest.mark.parametrize("which", [0, 1], ids=["ec", "rsa"])
def test_a_servers_certificate_is_believed_by_who_knows_its_authority_until_it_ends(
    tmp_path: Path, authorities: tuple[issue.Authority, issue.Authority], which: int
) -> None:
    own, other = authorities[which], authorities[1 - which]
    chain = server(own)
    assert verifies(tmp_path, own.pem, chain, NOW)
    assert not verifies(tmp_path, other.pem, chain, NOW)
    assert not verifies(tmp_path, own.pem, chain, NOW + timedelta(days=91))


@pytest.mark.programs
def test_the_cross_signed_chain_is_believed_from_both_ends_until_the_old_one_ends(
    tmp_path: Path, authorities: tuple[issue.Authority, issue.Authority]
) -> None:
    old, new = authorities
    chain = server(new, 390) + issue.to_pem(issue.cross_sign(old, new.certificate, NOW))
    assert verifies(tmp_path, old.pem, chain, NOW + timedelta(days=364))
    assert not verifies(tmp_path, old.pem, chain, NOW + timedelta(days=366))
    assert verifies(tmp_path, new.pem, chain, NOW + timedelta(days=366))


def test_what_cannot_be_cross_signed_is_refused(authorities: tuple[issue.Authority, issue.Authority]) -> None:
    old, new = authorities
    leaf = issue.read_certificates(server(old), "server")[0]
    with pytest.raises(Refused, match="is the old one"):
        issue.cross_sign(old, old.certificate, NOW)
    with pytest.raises(Refused, match="is no authority's"):
        issue.cross_sign(old, leaf, NOW)
    with pytest.raises(Refused, match="ended at"):
        issue.cross_sign(old, new.certificate, NOW + timedelta(days=400))


@pytest.mark.parametrize(
    ("days", "addresses", "says"),
    [(0, ["10.80.0.1"], "lifetime"), (398, ["10.80.0.1"], "lifetime"), (370, ["10.80.0.1"], "after its authority"),
     (30, [], "addresses"), (30, ["10.80.0.1"] * 17, "addresses"), (30, ["höst"], "neither")],
)  # fmt: skip
def test_a_certificate_that_would_not_do_is_refused(
    authorities: tuple[issue.Authority, issue.Authority], days: int, addresses: list[str], says: str
) -> None:
    with pytest.raises(Refused, match=says):
        issue.issue_server_certificate(authorities[0], issue.generate_key("ec"), addresses, days, NOW)


def test_a_key_of_another_authority_is_refused_and_never_shown(
    authorities: tuple[issue.Authority, issue.Authority],
) -> None:
    old, new = authorities
    with pytest.raises(Refused, match="not that of the authority"):
        issue.read_authority(old.pem, new.key_pem)
    assert old.key_pem.reveal() not in repr(old)
    with pytest.raises(Refused, match="private key in it"):
        issue.read_certificates(old.pem + old.key_pem.reveal(), "authority")


def test_ipxe_is_given_rsa_alone(authorities: tuple[issue.Authority, issue.Authority]) -> None:
    old, new = authorities
    rsa = issue.issue_server_certificate(new, issue.generate_key("rsa"), ["10.80.0.1"], 90, NOW)
    issue.require_chain_for_ipxe([rsa, new.certificate])
    for chain in (
        [issue.issue_server_certificate(new, issue.generate_key("ec"), ["10.80.0.1"], 90, NOW)],
        [issue.issue_server_certificate(old, issue.generate_key("rsa"), ["10.80.0.1"], 90, NOW)],
        [rsa, issue.cross_sign(old, new.certificate, NOW)],
    ):
        with pytest.raises(Refused, match="iPXE cannot check"):
            issue.require_chain_for_ipxe(chain)


def test_what_is_announced_is_what_the_agent_reads(authorities: tuple[issue.Authority, issue.Authority]) -> None:
    text = render_announcement([each.certificate for each in authorities], 30, NOW).encode()
    assert read_document(text, NOW.timestamp()) == authorities[0].pem + authorities[1].pem
    assert read_document(text, (NOW + timedelta(days=30)).timestamp())
    with pytest.raises(AuthoritiesError, match="sign it anew"):
        read_document(text, (NOW + timedelta(days=30, seconds=1)).timestamp())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("authorities 1", "authorities 2"),
        lambda text: text.replace("until 2026-03", "until 2026-99"),
        lambda text: text.replace("until ", "since "),
        lambda text: text + "more\n",
        lambda text: text.partition("-----BEGIN")[0],
        lambda text: text + text[text.index("-----BEGIN") :] * 4,
        lambda text: text.replace("CERTIFICATE", "PRIVATE KEY"),
        lambda text: "",
        lambda text: "\udcff" * 40,
    ],
)
def test_the_agent_reads_nothing_else(authorities: tuple[issue.Authority, issue.Authority], change: object) -> None:
    text = render_announcement([authorities[0].certificate], 30, NOW)
    assert callable(change)
    with pytest.raises(AuthoritiesError):
        read_document(change(text).encode("utf-8", "surrogateescape"), NOW.timestamp())


def test_what_is_no_authority_or_has_ended_is_not_announced(
    authorities: tuple[issue.Authority, issue.Authority],
) -> None:
    old, _ = authorities
    leaf = issue.read_certificates(server(old), "server")[0]
    for certificates, now, says in (
        ([leaf], NOW, "no authority's"),
        ([old.certificate], NOW + timedelta(days=366), "ended"),
        ([], NOW, "0 authorities"),
        ([old.certificate] * 5, NOW, "5 authorities"),
    ):
        with pytest.raises(Refused, match=says):
            render_announcement(certificates, 30, now)
    with pytest.raises(Refused, match="398 days"):
        render_announcement([old.certificate], 398, NOW)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(tls, [str(each) for each in arguments])


def done(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


@pytest.mark.programs
def test_a_fleet_goes_over_to_another_authority_by_the_commands_of_the_documentation(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    old, new, out, store = (tmp_path / name for name in ("ca-2026", "ca-2027", "boot1", "images"))
    done("authority", old, "--name", "join CA 2026")
    done("certificate", "--authority", old, "--address", "10.80.0.1", "--output", out)
    files = ServerFiles(out)
    first = files.certificate.read_text()
    assert (files.key.stat().st_mode & 0o777, (old / "join-ca.key").stat().st_mode & 0o777) == (0o600, 0o600)
    assert verifies(tmp_path, (old / "join-ca.pem").read_text(), first, now)

    renew = ("certificate", "--authority", old, "--address", "10.80.0.1", "--output", out, "--renew-within", 30)
    assert "nothing was done" in done(*renew)
    assert files.certificate.read_text() == first
    done(*renew[:-1], 89 + 1)
    assert files.certificate.read_text() != first, "its time had come"

    done("authority", new, "--name", "join CA 2027")
    done("cross-sign", "--old", old, "--new", new / "join-ca.pem", "--output", tmp_path / "cross.pem")
    renew_by_new = ("certificate", "--authority", new, "--address", "10.80.0.1", "--output", out, "--renew-within", 30)
    done(*renew_by_new, "--cross", tmp_path / "cross.pem")
    for folder in (old, new):
        assert verifies(tmp_path, (folder / "join-ca.pem").read_text(), files.certificate.read_text(), now)

    secret, public = write_keys(tmp_path / "keys", SecretKey.generate())
    done("announce", new / "join-ca.pem", "--key", secret, "--store", store)
    text = (store / "join-authorities").read_bytes()
    assert read_document(text, now.timestamp()) == (new / "join-ca.pem").read_text()
    command = ["signify-openbsd", "-V", "-q", "-p", public, "-x", store / "join-authorities.sig", "-m",
               store / "join-authorities"]  # fmt: skip
    subprocess.run(command, check=True, timeout=SECONDS)


@pytest.mark.parametrize("key_type", ["ec", "rsa"])
def test_a_boot_host_whose_certificate_ipxe_cannot_check_does_not_start(tmp_path: Path, key_type: str) -> None:
    done("authority", tmp_path, "--name", "join CA", "--key-type", key_type)
    done("certificate", "--authority", tmp_path, "--address", "10.80.0.1", "--output", tmp_path)
    files = ServerFiles(tmp_path)
    arguments = ["--ipxe-https", "--address", "10.80.0.1", "--state", tmp_path, "--image-store", tmp_path,
                 "--api-server", "https://10.80.0.1:6443", "--kubeconfig", tmp_path / "none",
                 "--tls-certificate", files.certificate, "--tls-key", files.key]  # fmt: skip
    said = CliRunner().invoke(boot, [str(each) for each in arguments])
    assert isinstance(said.exception, NeedsHuman), said.output
    assert ("iPXE cannot check" in str(said.exception)) == (key_type == "ec"), said.exception


def test_an_authority_in_use_is_not_overwritten_and_its_key_is_its_owners(tmp_path: Path) -> None:
    done("authority", tmp_path, "--name", "join CA")
    again = run("authority", tmp_path, "--name", "join CA")
    assert isinstance(again.exception, Refused)
    assert "never overwritten" in str(again.exception)
    (tmp_path / "join-ca.key").chmod(0o640)
    with pytest.raises(NeedsHuman, match="chmod 600"):
        read_authority_of(tmp_path)
