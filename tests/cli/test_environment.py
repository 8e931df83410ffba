"""Options of services as environment variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from provisioner.cli.environment import SERVICES, name_variables, unknown_variables, variable_of
from provisioner.cli.main import COMMANDS, provisioner

THERE = tuple(service for service in SERVICES if service in COMMANDS)


def service() -> click.Command:
    """A command as those of services are; it says what it was given."""

    @click.command("boot")
    @click.option("--address", required=True)
    @click.option("--interface", "interfaces", multiple=True)
    @click.option("--firmware", multiple=True, type=click.Path(path_type=Path))
    @click.option("--dhcp/--no-dhcp", default=True)
    @click.option("--adopt", is_flag=True)
    @click.option("--http-port", default=80)
    def boot(**given: Any) -> None:
        for name, value in sorted(given.items()):
            click.echo(f"{name}={value!r}")

    name_variables(boot, "boot")
    return boot


def run(*arguments: str, **environment: str) -> list[str]:
    said = CliRunner().invoke(service(), arguments, env={f"PROVISIONER_BOOT_{k}": v for k, v in environment.items()})
    assert said.exit_code == 0, said.output
    return said.output.splitlines()


def commands_of(name: str) -> click.Command:
    command = provisioner.get_command(click.Context(provisioner), name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", THERE)
def test_every_option_of_a_service_has_the_variable_of_its_name_and_the_help_says_so(name: str) -> None:
    command = commands_of(name)
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert options
    said = CliRunner().invoke(provisioner, [name, "--help"], terminal_width=300).output
    for option in options:
        flag = next(flag for flag in option.opts if flag.startswith("--"))
        variable = f"PROVISIONER_{name}_{flag[2:]}".upper().replace("-", "_")
        assert option.envvar == variable
        assert option.hidden or f"env var: {variable}" in said


def test_all_services_that_there_are_have_variables_and_nothing_else_does() -> None:
    assert {"boot", "cache", "controller", "infiniband", "reflector"} <= set(THERE)
    others = [parameter for name in set(COMMANDS) - set(SERVICES) for parameter in commands_of(name).params]
    assert others
    assert all(parameter.envvar is None for parameter in others)


@pytest.mark.parametrize("name", THERE)
def test_no_option_of_a_service_is_a_secret_but_the_name_of_a_file(name: str) -> None:
    """What is in the environment, other processes of the user and crash reports show."""
    for option in commands_of(name).params:
        words = set(str(option.name).split("_"))
        if words & {"password", "secret", "token", "key", "credentials"} and "hosts" not in words:
            assert isinstance(option.type, click.Path), option.name


def test_variables_stand_for_options() -> None:
    assert run(ADDRESS="10.80.0.1", HTTP_PORT="8080", DHCP="no", ADOPT="yes") == [
        "address='10.80.0.1'",
        "adopt=True",
        "dhcp=False",
        "firmware=()",
        "http_port=8080",
        "interfaces=()",
    ]


def test_a_repeated_option_takes_words_with_blanks_between_paths_too() -> None:
    said = run(ADDRESS="a", INTERFACE="eth1  eth2", FIRMWARE="/one:1 /two")
    assert "interfaces=('eth1', 'eth2')" in said
    assert f"firmware={(Path('/one:1'), Path('/two'))!r}" in said


def test_the_command_line_comes_before_the_environment() -> None:
    said = run("--address=b", "--interface=eth9", ADDRESS="a", INTERFACE="eth1 eth2")
    assert said[0] == "address='b'"
    assert said[-1] == "interfaces=('eth9',)"


def test_an_empty_variable_is_none() -> None:
    assert run(ADDRESS="a", HTTP_PORT="", INTERFACE="", DHCP="") == run(ADDRESS="a")


def test_what_is_wrong_in_a_variable_is_told_by_its_name() -> None:
    said = CliRunner().invoke(service(), [], env={"PROVISIONER_BOOT_ADDRESS": "a", "PROVISIONER_BOOT_HTTP_PORT": "x"})
    assert said.exit_code == 2
    assert "PROVISIONER_BOOT_HTTP_PORT" in said.output


def test_a_variable_is_named_after_what_one_writes_and_not_after_the_code() -> None:
    interface = next(option for option in service().params if option.name == "interfaces")
    assert isinstance(interface, click.Option)
    assert variable_of(interface, "boot") == "PROVISIONER_BOOT_INTERFACE"


def test_a_misspelt_variable_is_told_and_what_kubernetes_says_of_services_is_not() -> None:
    found = unknown_variables(
        service(),
        "boot",
        environment={
            "PROVISIONER_BOOT_ADRESS": "10.80.0.1",
            "PROVISIONER_BOOT_ADDRESS": "10.80.0.1",
            "PROVISIONER_BOOT_SERVICE_HOST": "10.96.0.7",
            "PROVISIONER_BOOT_SERVICE_PORT_METRICS": "9465",
            "PROVISIONER_BOOT_PORT": "tcp://10.96.0.7:9465",
            "PROVISIONER_BOOT_PORT_9465_TCP_ADDR": "10.96.0.7",
            "PROVISIONER_CACHE_PORT": "80",
            "PROVISIONER_BOOTS": "1",
        },
    )
    assert found == ["PROVISIONER_BOOT_ADRESS"]


@pytest.mark.programs
def test_the_log_says_which_variable_is_misspelt_and_is_json_where_a_variable_says_so() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "provisioner.cli", "cache"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PROVISIONER_LOG_JSON": "yes", "PROVISIONER_CACHE_ADRESS": "10.80.1.5"},
    )
    assert said.returncode == 2, said.stderr
    # The service is refused for what it lacks, and the line before says why it lacks it.
    warning, *refusal = said.stderr.splitlines()
    assert json.loads(warning)["variable"] == "PROVISIONER_CACHE_ADRESS"
    assert "PROVISIONER_CACHE_ADDRESS" in refusal[-1]
