"""`provisioner boot` serves, as it always did; with a command as its first word it does that instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from provisioner.cli.boot.group import BOOT_COMMANDS
from provisioner.cli.main import provisioner
from provisioner.cli.service import boot as service_module

NEEDED = ("--address", "--state", "--image-store", "--tls-certificate", "--tls-key", "--api-server")


def run(*arguments: str, **environment: str) -> Result:
    nothing = {f"PROVISIONER_BOOT_{name}": None for name in ("ADDRESS", "STATE", "IMAGE_STORE")}
    return CliRunner().invoke(
        provisioner, ["boot", *arguments], env={**nothing, **environment}, auto_envvar_prefix="PROVISIONER"
    )


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options with which the service would have been run."""
    served: list[dict[str, Any]] = []
    monkeypatch.setattr(service_module.boot, "callback", lambda **options: served.append(options))
    return served


def options(folder: Path) -> dict[str, str]:
    (folder / "pem").write_text("")
    values = ("10.80.0.1", str(folder), str(folder), str(folder / "pem"), str(folder / "pem"), "https://10.80.0.1:6443")
    return dict(zip(NEEDED, values, strict=True))


def test_with_options_alone_it_serves(served: list[dict[str, Any]], tmp_path: Path) -> None:
    result = run(*(word for pair in options(tmp_path).items() for word in pair), "--no-dhcp", "--interface", "eth0")
    assert result.exit_code == 0, result.output
    assert [(each["address"], each["dhcp"], each["interfaces"]) for each in served] == [("10.80.0.1", False, ("eth0",))]


def test_with_the_environment_of_its_unit_it_serves(served: list[dict[str, Any]], tmp_path: Path) -> None:
    named = {f"PROVISIONER_BOOT_{k[2:].upper().replace('-', '_')}": v for k, v in options(tmp_path).items()}
    result = run(**named)
    assert result.exit_code == 0, result.output
    assert [each["address"] for each in served] == ["10.80.0.1"]


@pytest.mark.parametrize("lacking", NEEDED)
def test_what_it_needs_to_serve_is_asked_for(served: list[dict[str, Any]], tmp_path: Path, lacking: str) -> None:
    given = {name: value for name, value in options(tmp_path).items() if name != lacking}
    result = run(*(word for pair in given.items() for word in pair))
    assert (result.exit_code, served) == (2, [])
    assert f"Missing option '{lacking}'" in result.output


@pytest.mark.parametrize("command", BOOT_COMMANDS)
def test_a_command_needs_nothing_of_that_and_serves_nothing(served: list[dict[str, Any]], command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0, result.output
    assert f"boot {command}" in result.output
    assert served == []


def test_help_tells_of_both(served: list[dict[str, Any]]) -> None:
    told = run("--help").output
    assert all(name in told for name in (*NEEDED, *BOOT_COMMANDS))
    assert served == []


def test_a_word_that_is_no_command_is_refused(served: list[dict[str, Any]], tmp_path: Path) -> None:
    result = run(*(word for pair in options(tmp_path).items() for word in pair), "explian")
    assert (result.exit_code, served) == (2, [])
    assert "No such command 'explian'" in result.output
