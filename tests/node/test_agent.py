"""The agent as a process of its own, in a Python that has nothing else, against a real TLS server."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.fake_join_server import Answer, Authority, FakeJoinServer
from tests.node.machine import BOOT_ID, CONFIGURATION, SYSTEM_UUID, TOKEN, boot_machine, install_agent, start_agent

pytestmark = pytest.mark.programs

SECONDS = 180.0
NO_CONTENT = Answer(204, {})
JOINED = Answer(200, CONFIGURATION)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_agent(tmp_path_factory.mktemp("image"))


@pytest.fixture
def boot_service() -> Iterator[FakeJoinServer]:
    with FakeJoinServer([NO_CONTENT]) as server:
        yield server


@pytest.fixture
def authority() -> Authority:
    return Authority.create()


def said_in_the_clear(boot_service: FakeJoinServer) -> list[str]:
    """What came to the port by which stage-1 asks."""
    return [*boot_service.fetched, *(each.path for each in (*boot_service.asked, *boot_service.reported))]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_booted_machine_gets_what_its_kubelet_starts_with(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, authority: Authority
) -> None:
    with FakeJoinServer([JOINED], authority.server_context(tmp_path)) as service:
        root = boot_machine(tmp_path / "root", join_port=service.port, boot_port=boot_service.port, ca=authority.pem())
        agent = start_agent(python, "join", "--root", str(root))
        printed, _ = agent.communicate(timeout=SECONDS)

    assert agent.returncode == 0, printed
    kubelet = root / "run/provisioner/kubelet"
    assert {path.name: mode(path) for path in kubelet.iterdir()} == {
        "bootstrap.kubeconfig": 0o600,
        "ca.crt": 0o644,
        "kubelet.env": 0o644,
        "kubelet.yaml": 0o644,
    }
    assert mode(kubelet) == 0o700
    kubeconfig = json.loads((kubelet / "bootstrap.kubeconfig").read_text())
    assert kubeconfig["users"][0]["user"] == {"token": TOKEN}
    assert kubeconfig["clusters"][0]["cluster"] == {
        "server": "https://10.80.0.1:6443",
        "certificate-authority": "/run/provisioner/kubelet/ca.crt",
    }
    assert (kubelet / "kubelet.env").read_text() == (
        'KUBELET_ARGS="--hostname-override=r01-u01 --node-ip=10.80.0.21"\n'
    )
    assert json.loads((kubelet / "kubelet.yaml").read_text()) == CONFIGURATION["kubeletConfiguration"]

    (asked,) = service.asked
    key = asked.body.pop("requestKey")
    assert key == (root / "run/provisioner/request-key").read_text().strip()
    assert len(bytes.fromhex(key)) == 32
    assert mode(root / "run/provisioner/request-key") == 0o600
    assert asked.path == "/v1/join"
    assert asked.body == {
        "macAddress": "52:54:00:12:34:56",
        "systemUUID": SYSTEM_UUID,
        "bootID": BOOT_ID,
        "imageDigest": "sha256:" + "9f" * 32,
        "evidence": {
            "type": "None",
            "why": "this machine has no TPM: neither its firmware nor its kernel names one",
        },
    }
    assert [request.body for request in service.reported] == [
        {"mac": "52:54:00:12:34:56", "stage": "Token", "bootID": BOOT_ID}
    ]
    assert said_in_the_clear(boot_service) == [], "what runs asks by TLS alone"
    for secret in (TOKEN, TOKEN.split(".")[1], key):
        assert secret not in printed


def test_it_speaks_from_the_address_that_stage_1_was_given(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, authority: Authority
) -> None:
    with FakeJoinServer([JOINED], authority.server_context(tmp_path)) as service:
        root = boot_machine(
            tmp_path / "root",
            join_port=service.port,
            boot_port=boot_service.port,
            ca=authority.pem(),
            address="127.0.0.77/8",
        )
        printed, _ = start_agent(python, "join", "--root", str(root)).communicate(timeout=SECONDS)
    assert [request.source for request in service.asked] == ["127.0.0.77"], printed
    assert [request.source for request in service.reported] == ["127.0.0.77"]


def test_it_asks_again_until_it_is_served_and_says_what_it_waits_for(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, authority: Authority
) -> None:
    answers = [
        Answer(503, {"reason": "Unavailable", "message": "the cluster does not answer now"}, {"Retry-After": "0"}),
        Answer(425, {"reason": "NotOrdered", "message": "nobody has ordered a boot", "retryAfterSeconds": 0.3}),
        Answer(409, {"reason": "Conflict", "message": "try again", "retryAfterSeconds": 0.3}),
        Answer(200, CONFIGURATION, cut=True),
        JOINED,
    ]
    with FakeJoinServer(answers, authority.server_context(tmp_path)) as service:
        root = boot_machine(tmp_path / "root", join_port=service.port, boot_port=boot_service.port, ca=authority.pem())
        agent = start_agent(python, "join", "--root", str(root))
        printed, _ = agent.communicate(timeout=SECONDS)
    assert agent.returncode == 0, printed
    assert len(service.asked) == 5
    assert len({request.body["requestKey"] for request in service.asked}) == 1
    assert "r01-u01 waits to join: NotOrdered: nobody has ordered a boot" in printed
    assert "NotOrdered: nobody has ordered a boot" in [request.body.get("message") for request in service.reported]


def test_a_restarted_agent_repeats_the_same_request(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, authority: Authority
) -> None:
    with FakeJoinServer([Answer(503, {}, {"Retry-After": "120"})], authority.server_context(tmp_path)) as service:
        root = boot_machine(tmp_path / "root", join_port=service.port, boot_port=boot_service.port, ca=authority.pem())
        first = start_agent(python, "join", "--root", str(root))
        assert service.answered.wait(SECONDS)
        first.kill()
        first.communicate(timeout=SECONDS)
        service.answers = [JOINED]
        second = start_agent(python, "join", "--root", str(root))
        printed, _ = second.communicate(timeout=SECONDS)
    assert second.returncode == 0, printed
    assert len(service.asked) == 2
    assert service.asked[0].body == service.asked[1].body


def test_a_service_that_another_authority_vouches_for_is_told_nothing(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, authority: Authority
) -> None:
    with FakeJoinServer([JOINED], Authority.create("somebody else").server_context(tmp_path)) as service:
        root = boot_machine(tmp_path / "root", join_port=service.port, boot_port=boot_service.port, ca=authority.pem())
        agent = start_agent(python, "join", "--root", str(root))
        assert agent.stderr is None
        assert agent.stdout is not None
        line = agent.stdout.readline()
        agent.kill()
        agent.communicate(timeout=SECONDS)
    assert "JOIN REFUSED for r01-u01: the join service's certificate is not the one that this image trusts" in line
    assert "No other authority is believed: join-authorities of the boot host" in line
    assert (service.asked, service.reported) == ([], [])
    assert said_in_the_clear(boot_service) == ["/images/join-authorities"], (
        "what is signed is asked for; nothing is told"
    )
    assert not (root / "run/provisioner/kubelet").exists()


def test_a_certificate_for_another_address_is_not_believed(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, authority: Authority
) -> None:
    with FakeJoinServer([JOINED], authority.server_context(tmp_path, "127.0.0.2")) as service:
        root = boot_machine(tmp_path / "root", join_port=service.port, boot_port=boot_service.port, ca=authority.pem())
        agent = start_agent(python, "join", "--root", str(root))
        assert agent.stdout is not None
        line = agent.stdout.readline()
        agent.kill()
        agent.communicate(timeout=SECONDS)
    assert "IP address mismatch" in line
    assert service.asked == []


def test_a_machine_that_has_joined_asks_for_nothing(
    python: Path, tmp_path: Path, boot_service: FakeJoinServer, authority: Authority
) -> None:
    with FakeJoinServer([JOINED], authority.server_context(tmp_path)) as service:
        root = boot_machine(tmp_path / "root", join_port=service.port, boot_port=boot_service.port, ca=authority.pem())
        kubelet = root / "run/provisioner/kubelet"
        kubelet.mkdir()
        (kubelet / "kubeconfig").touch()
        (kubelet / "bootstrap.kubeconfig").touch()
        agent = start_agent(python, "join", "--root", str(root))
        printed, _ = agent.communicate(timeout=SECONDS)
    assert agent.returncode == 0
    assert "has joined already" in printed
    assert service.asked == []
    assert not (kubelet / "bootstrap.kubeconfig").exists()


def test_a_system_that_stage_1_did_not_boot_is_told_so(python: Path, tmp_path: Path) -> None:
    agent = start_agent(python, "join", "--root", str(tmp_path))
    printed, _ = agent.communicate(timeout=SECONDS)
    assert agent.returncode == 1
    assert "boot.json is not what stage-1 writes" in printed
    assert "was this system booted by the provisioner?" in printed


def test_the_agent_imports_no_module_that_is_slow_to_start(python: Path) -> None:
    import subprocess

    listing = subprocess.run(
        [
            python,
            "-I",
            "-c",
            "import provisioner.node.join, provisioner.node.prover, sys; print(*sorted(sys.modules))",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert "provisioner.node.join" in listing
    for slow in (
        "http.client",
        "email",
        "urllib",
        "urllib.request",
        "argparse",
        "dataclasses",
        "inspect",
        "random",
        "typing",
    ):
        assert slow not in listing
