"""The join service's authority is exchanged: images with both, then the certificate, then images without the old one.

The agent is a process of its own, against real TLS servers. docs/rotation.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.fake_join_server import Answer, Authority, FakeJoinServer
from tests.node.machine import CONFIGURATION, boot_machine, install_agent, start_agent

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
        agent = start_agent(python, "join", "--root", str(root))
        try:
            assert boot_service.answered.wait(SECONDS), "it reports why it does not join"
        finally:
            agent.kill()
            agent.communicate(timeout=SECONDS)
    assert service.asked == [], "no request key, no facts: nothing"
    assert not (root / "run/provisioner/kubelet/bootstrap.kubeconfig").exists()
