"""The join service's authority is exchanged, by images with both, and without a new image: by a chain that the old one
has signed, or by a document that the image key has.

The agent is a process of its own, against real TLS servers. docs/rotation.md.
"""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from provisioner.boot.tls import issue
from provisioner.boot.tls.announcement import render_announcement
from provisioner.boot.tls.files import ServerFiles
from provisioner.image.finished.sign import SecretKey
from provisioner.node.image import authorities as node_authorities
from provisioner.node.image.authorities import FIRST_LINE, Authorities, read_document
from provisioner.node.join import NoProver, fetch_configuration
from provisioner.node.machine.boot_facts import read_boot_facts
from tests.node.fake_join_server import Answer, Authority, FakeJoinServer
from tests.node.machine import CONFIGURATION, boot_machine, install_agent, start_agent

pytestmark = pytest.mark.programs

SECONDS = 180.0


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_agent(tmp_path_factory.mktemp("image"))


@pytest.fixture
def boot_service() -> Iterator[FakeJoinServer]:
    with FakeJoinServer([Answer(204, {})]) as server:
        yield server


@pytest.fixture(scope="module")
def authorities() -> tuple[Authority, Authority]:
    """The old one and the new one. Their names differ: of two of one name without key identifiers the first one in
    the file would be tried alone."""
    return Authority.create("join CA"), Authority.create("join CA, the second")


@pytest.mark.parametrize("of_the_service", [0, 1], ids=["the old certificate", "the new certificate"])
def test_an_image_with_both_authorities_joins_before_and_after_the_certificate_is_exchanged(
    python: Path,
    tmp_path: Path,
    boot_service: FakeJoinServer,
    authorities: tuple[Authority, Authority],
    of_the_service: int,
) -> None:
    both = "".join(each.pem() for each in authorities)
    with FakeJoinServer([Answer(200, CONFIGURATION)], authorities[of_the_service].server_context(tmp_path)) as service:
        root = boot_machine(tmp_path / "root", join_port=service.port, boot_port=boot_service.port, ca=both)
        agent = start_agent(python, "join", "--root", str(root))
        printed, _ = agent.communicate(timeout=SECONDS)
    assert agent.returncode == 0, printed
    assert (root / "run/provisioner/kubelet/bootstrap.kubeconfig").exists()


def test_an_image_without_the_old_authority_tells_a_service_of_it_nothing(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, authorities: tuple[Authority, Authority]
) -> None:
    old, new = authorities
    with FakeJoinServer([Answer(200, CONFIGURATION)], old.server_context(tmp_path)) as service:
        root = boot_machine(tmp_path / "root", join_port=service.port, boot_port=boot_service.port, ca=new.pem())
        assert "JOIN REFUSED" in first_words(start_agent(python, "join", "--root", str(root)))
    assert (service.asked, service.reported) == ([], []), "no request key, no facts: nothing"
    assert not (root / "run/provisioner/kubelet/bootstrap.kubeconfig").exists()


NOW = datetime.now(UTC)
KEY = SecretKey.generate()


@dataclass(frozen=True)
class Exchange:
    """Two authorities as `provisioner boot tls` makes them, and a boot host's certificate of either."""

    old: issue.Authority
    new: issue.Authority

    def context(self, folder: Path, by: issue.Authority, *behind: x509.Certificate) -> ssl.SSLContext:
        key = issue.generate_key("ec")
        issued = issue.issue_server_certificate(by, key, ["127.0.0.1"], 7, NOW)
        files = ServerFiles(folder / "tls")
        files.write(issue.to_pem(issued, *behind), key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        return context


@pytest.fixture(scope="module")
def exchange() -> Exchange:
    """Of one name, which nobody is told not to give: their key identifiers tell them apart."""
    made = (issue.make_authority("join CA", issue.generate_key("ec"), 30, NOW) for _ in range(2))
    return Exchange(*made)


def outcome_of(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, ca: str, context: ssl.SSLContext
) -> tuple[str, FakeJoinServer]:
    """Whether an image that has `ca` joined, or what it said."""
    with FakeJoinServer([Answer(200, CONFIGURATION)], context) as service:
        root = boot_machine(tmp_path / "root", join_port=service.port, boot_port=boot_service.port, ca=ca)
        (root / "etc/provisioner/image.pub").write_text(KEY.public.encode())
        words = first_words(start_agent(python, "join", "--root", str(root)))
    joined = (root / "run/provisioner/kubelet/bootstrap.kubeconfig").exists()
    return "joined" if joined else words, service


def first_words(agent: subprocess.Popen[str]) -> str:
    """A refused one would ask for ever."""
    assert agent.stdout is not None
    line = agent.stdout.readline()
    if "has its join configuration" in line:
        agent.communicate(timeout=SECONDS)
        return line
    agent.kill()
    agent.communicate(timeout=SECONDS)
    return line


def test_an_old_image_joins_by_the_chain_that_the_old_authority_has_signed(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, exchange: Exchange
) -> None:
    bridge = issue.cross_sign(exchange.old, exchange.new.certificate, NOW)
    context = exchange.context(tmp_path, exchange.new, bridge)
    assert outcome_of(python, tmp_path, boot_service, exchange.old.pem, context)[0] == "joined"
    assert boot_service.fetched == [], "nothing was asked for in the clear"


def test_a_new_image_joins_by_the_same_chain(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, exchange: Exchange
) -> None:
    bridge = issue.cross_sign(exchange.old, exchange.new.certificate, NOW)
    context = exchange.context(tmp_path, exchange.new, bridge)
    assert outcome_of(python, tmp_path, boot_service, exchange.new.pem, context)[0] == "joined"


def test_who_knows_neither_authority_is_not_moved_by_the_chain(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, exchange: Exchange
) -> None:
    bridge = issue.cross_sign(exchange.old, exchange.new.certificate, NOW)
    stranger = issue.make_authority("join CA", issue.generate_key("ec"), 30, NOW)
    context = exchange.context(tmp_path, exchange.new, bridge)
    words, service = outcome_of(python, tmp_path, boot_service, stranger.pem, context)
    assert "JOIN REFUSED" in words
    assert (service.asked, service.reported) == ([], [])


def announce(boot_service: FakeJoinServer, text: str, key: SecretKey = KEY) -> None:
    boot_service.files = {
        "/images/join-authorities": text.encode(),
        "/images/join-authorities.sig": key.sign(text.encode()).encode(),
    }


def test_an_old_image_joins_by_an_authority_that_the_image_key_announces(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, exchange: Exchange
) -> None:
    announce(boot_service, render_announcement([exchange.new.certificate], 30, NOW))
    context = exchange.context(tmp_path, exchange.new)
    words, service = outcome_of(python, tmp_path, boot_service, exchange.old.pem, context)
    assert words == "joined"
    assert [each.path for each in service.asked] == ["/v1/join"]


@pytest.mark.parametrize(
    ("why", "says"),
    [
        ("nobody announced it", "HTTP 404"),
        ("another key has signed it", "not signed by a key of the running image"),
        ("its time is over", "it was valid until"),
        ("it was altered", "not signed by a key of the running image"),
        ("the key has signed something else, a manifest say", "expected 'provisioner-join-authorities 1'"),
        ("it names another authority", "names nobody else"),
    ],
)
def test_an_old_image_is_told_nothing_by_a_new_authority_whose_announcement_is_not_believed(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, exchange: Exchange, why: str, says: str
) -> None:
    announce_what_is_not_believed(boot_service, exchange, why)
    context = exchange.context(tmp_path, exchange.new)
    words, service = outcome_of(python, tmp_path, boot_service, exchange.old.pem, context)
    assert "JOIN REFUSED" in words
    assert says in words
    assert (service.asked, service.reported) == ([], [])


def announce_what_is_not_believed(boot_service: FakeJoinServer, exchange: Exchange, why: str) -> None:
    text = render_announcement([exchange.new.certificate], 30, NOW)
    match why:
        case "another key has signed it":
            announce(boot_service, text, SecretKey(KEY.number, SecretKey.generate().seed))
        case "its time is over":
            announce(boot_service, render_announcement([exchange.new.certificate], 1, NOW - timedelta(days=2)))
        case "it was altered":
            announce(boot_service, text)
            boot_service.files["/images/join-authorities"] = text.replace("until 20", "until 21").encode()
        case "the key has signed something else, a manifest say":
            announce(boot_service, text.replace("provisioner-join-authorities 1", "provisioner-image 2"))
        case "it names another authority":
            stranger = issue.make_authority("another", issue.generate_key("ec"), 30, NOW)
            announce(boot_service, render_announcement([stranger.certificate], 30, NOW))


def what_it_takes(tmp_path: Path, boot_service: FakeJoinServer, ca: str, context: ssl.SSLContext) -> object:
    """Of the agent's parts in this process, by an image that has `ca`: the configuration, or the word that it waits."""

    class Waits(Exception):
        pass

    def wait(_: float) -> None:
        raise Waits

    with FakeJoinServer([Answer(200, CONFIGURATION)], context) as service:
        root = boot_machine(tmp_path / "root", join_port=service.port, boot_port=boot_service.port, ca=ca)
        (root / "etc/provisioner/image.pub").write_text(KEY.public.encode())
        facts = read_boot_facts(str(root))
        believed = Authorities(str(root), facts.boot_url)
        try:
            return fetch_configuration(
                facts,
                "00" * 32,
                believed.context,
                say=lambda _: None,
                tell=lambda _: None,
                sleep=wait,
                chance=lambda: 1.0,
                prover=NoProver(),
                learn=believed.learn,
            )
        except Waits:
            return "it waits"


VERIFY, READ = "provisioner.node.image.manifest.verify_signature", "provisioner.node.image.authorities.read_document"
WITHOUT: Mapping[str, tuple[str, Callable[..., object]]] = {
    "another key has signed it": (VERIFY, lambda *_: None),
    "it was altered": (VERIFY, lambda *_: None),
    "its time is over": (READ, lambda content, _: read_document(content, 0.0)),
    "the key has signed something else, a manifest say": (
        READ,
        lambda content, now: read_document(content.replace(b"provisioner-image 2", FIRST_LINE.encode()), now),
    ),
}
"""What is patched, and what is there instead."""


@pytest.mark.parametrize("why", WITHOUT)
def test_an_announcement_is_believed_without_the_look_at_who_has_signed_it_for_what_and_until_when(
    tmp_path: Path, boot_service: FakeJoinServer, exchange: Exchange, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce_what_is_not_believed(boot_service, exchange, why)
    context = exchange.context(tmp_path, exchange.new)
    assert what_it_takes(tmp_path, boot_service, exchange.old.pem, context) == "it waits"
    monkeypatch.setattr(*WITHOUT[why])
    assert what_it_takes(tmp_path, boot_service, exchange.old.pem, context) == CONFIGURATION


def test_a_strangers_chain_is_believed_without_the_look_at_its_certificates(
    tmp_path: Path, boot_service: FakeJoinServer, exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = issue.cross_sign(exchange.old, exchange.new.certificate, NOW)
    stranger = issue.make_authority("join CA", issue.generate_key("ec"), 30, NOW)
    context = exchange.context(tmp_path, exchange.new, bridge)
    assert what_it_takes(tmp_path, boot_service, stranger.pem, context) == "it waits"
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    monkeypatch.setattr(node_authorities, "pinned_context", lambda _: anybody)
    assert what_it_takes(tmp_path, boot_service, stranger.pem, context) == CONFIGURATION


def test_a_site_gives_certificates_of_its_own_authority_with_an_intermediate(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, exchange: Exchange
) -> None:
    """Made with openssl, as a site's own would be; none of ours is in it."""
    folder = tmp_path / "site"
    folder.mkdir()
    for command in (
        "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=site-root -keyout root.key -out root.pem",
        "req -newkey rsa:2048 -nodes -subj /CN=site-issuing -keyout issuing.key -out issuing.csr",
        "x509 -req -in issuing.csr -CA root.pem -CAkey root.key -days 30 -extfile ca.cnf -out issuing.pem",
        "req -newkey rsa:2048 -nodes -subj /CN=boot1 -keyout boot.key -out boot.csr",
        "x509 -req -in boot.csr -CA issuing.pem -CAkey issuing.key -days 7 -extfile boot.cnf -out boot.pem",
    ):
        (folder / "ca.cnf").write_text("basicConstraints=critical,CA:TRUE\n")
        (folder / "boot.cnf").write_text("subjectAltName=IP:127.0.0.1\n")
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True, timeout=SECONDS)
    (folder / "chain.pem").write_text((folder / "boot.pem").read_text() + (folder / "issuing.pem").read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "chain.pem", folder / "boot.key")
    root = (folder / "root.pem").read_text()
    assert outcome_of(python, tmp_path, boot_service, root, context)[0] == "joined"
