"""What an administrator mistypes is told at once, before anything is enforced."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.network.agent import __main__ as command
from provisioner.network.agent.__main__ import main
from provisioner.network.agent.enforce import Enforcer
from provisioner.network.agent.observe import Observed


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("address", ["0.0.0.1", "127.0.0.1", "169.254.1.1", "224.0.0.1", "255.255.255.255"])
def test_an_address_that_no_server_can_have_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"{address} is an address that no server can have" in told(capsys, "--boot-host", address)
    assert f"{address} is an address that no server can have" in told(capsys, "--api-server", f"{address}:6443")


@pytest.mark.parametrize(
    ("api_server", "why"),
    [
        ("10.80.0.1:8443", "where the boot host takes joins"),
        ("10.80.0.5:80", "where the boot plane answers HTTP"),
        ("10.80.0.5:65536", "has no port such as 6443"),
        ("api.example:6443", "is no IPv4 address"),
    ],
)
def test_an_api_server_that_cannot_be_passed_on_to_is_refused(
    api_server: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why in told(capsys, "--boot-host", "10.80.0.1", "--api-server", api_server)


@pytest.mark.parametrize("said", ["-1", "4G", "", "1e9"])
def test_a_size_of_the_cache_is_a_number_of_bytes(said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no number of bytes" in told(capsys, f"--cache-bytes={said}")


def test_what_is_right_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    right = ("--boot-host", "10.80.0.1", "--api-server", "10.80.0.5:8443", "--cache-bytes", "0")
    assert "--port" in told(capsys, *right, "--port", "no port"), "only the last is told of"


@pytest.fixture
def signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_networks_are_enforced_though_there_is_no_room_for_images(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    followed: list[Any] = []
    monkeypatch.setattr(command, "follow", lambda *arguments, **_: followed.extend(arguments))
    (tmp_path / "taken").touch()
    services = ("--boot-host", "10.80.0.1", "--api-server", "10.80.0.5:6443")
    assert main(["run", *services, "--root", str(tmp_path), "--cache", str(tmp_path / "taken/cache")]) == 0
    assert followed
    assert "taken/cache" in capsys.readouterr().out


@pytest.mark.parametrize(("gone", "status"), [(0, 0), (3, 0), (1000, 2)])
def test_show_looks_again_where_an_agent_removes_a_namespace_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], gone: int, status: int
) -> None:
    looks = iter(range(gone))

    def observe(_: Enforcer) -> Observed:
        for _number in looks:
            raise FileNotFoundError(2, "No such file or directory", "/run/netns/vpc-10473")
        return Observed({})

    monkeypatch.setattr(Enforcer, "observe", observe)
    assert main(["show", "--port", "pf0=pf0hpf"]) == status
    assert ("vpc-10473" in capsys.readouterr().err) == (status == 2)
