"""The operator guide's commands, run as they stand there against a real API server, with the real kubectl."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab.binaries.obtain import Binaries
from lab.control_plane.plane import ControlPlane
from provisioner.api import NodePool
from provisioner.api.crd import all_crds
from provisioner.cli.main import KUBECTL_COMMANDS
from provisioner.cli.service.control_plane import AUDIT_POLICY
from provisioner.cli.service.manifests import all_manifests
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import SECRETS
from tests.cli.plugin_server import plugin_in_this_process
from tests.cli.rack_of_nodes import RackOfNodes
from tests.people import bind, kubeconfig_of, until
from tests.tools import installed

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "operator-guide.md").read_text()
NODE = "r01-u07"


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return [text for each, text in found if each == language]


@pytest.fixture
def site(cluster: Cluster, control_plane: ControlPlane, binaries: Binaries, unique: str) -> Iterator[RackOfNodes]:
    """One node."""
    rack = RackOfNodes(cluster, control_plane.kubeconfig, unique)
    rack.add_pool()
    rack.add()
    yield rack
    rack.remove()


def shell(script: str, rack: RackOfNodes, kubectl: Path, plugin: Path) -> subprocess.CompletedProcess[str]:
    """Run it as an operator would paste it, on this test's node and pool."""
    named = script.replace(NODE, rack.names[0]).replace("--pool gpu", f"--pool {rack.prefix}")
    named = named.replace("provisioner.dev/pool=gpu", f"provisioner.dev/pool={rack.prefix}")
    path = f"{plugin}:{kubectl.parent}:{os.environ['PATH']}"
    environment = os.environ | {"KUBECONFIG": str(rack.kubeconfig), "PATH": path}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", named],
        capture_output=True, text=True, check=False, env=environment, timeout=240,
    )  # fmt: skip


def test_the_guides_commands_do_what_they_say(site: RackOfNodes, binaries: Binaries, tmp_path: Path) -> None:
    scripts = blocks("sh")
    assert len(scripts) >= 7
    with plugin_in_this_process(tmp_path, site.run) as plugin:
        for script in scripts:
            ran = shell(script, site, binaries.kubectl, plugin)
            assert ran.returncode == 0, f"{script}\n{ran.stdout}\n{ran.stderr}"
    name = site.names[0]
    said = {
        type_: site.condition(name, f"provisioner.dev/{type_}Requested") for type_ in ("Reboot", "Reimage", "Drain")
    }
    assert {type_: c and (c["status"], c["reason"]) for type_, c in said.items()} == {
        "Reboot": ("True", "WhenIdle"),
        "Reimage": ("False", "Withdrawn"),
        "Drain": ("True", "WhenIdle"),
    }


def test_kubectl_finds_the_shipped_plugin(site: RackOfNodes, binaries: Binaries) -> None:
    name = site.names[0]
    ran = shell(f"kubectl provision status {name} -o name", site, binaries.kubectl, ROOT / "bin")
    assert (ran.returncode, ran.stdout) == (0, f"node/{name}\n")


def test_the_guides_maintenance_is_one_that_the_api_server_takes(site: RackOfNodes) -> None:
    (found,) = [b for b in blocks("yaml") if "kind: Maintenance" in b]
    body = yaml.safe_load(found.replace(NODE, site.names[0]))
    site.admin.apply(body, manager="rollout")
    assert [r.user for r in site.filed(site.names[0])[0].spec.requestors] == ["alice"]


def test_the_audit_log_says_who_set_a_condition(
    site: RackOfNodes, binaries: Binaries, control_plane: ControlPlane, tmp_path: Path
) -> None:
    installed("jq")
    bind(site.admin, "provisioner-operator", "carol")
    site.kubeconfig = kubeconfig_of(control_plane, tmp_path, "carol")
    patch = next(b for b in blocks("sh") if "--type=json" in b)
    until(lambda: shell(patch, site, binaries.kubectl, tmp_path).returncode == 0)
    (question,) = blocks("jq")
    question = question.replace("audit.log", str(control_plane.audit_log))

    def answers() -> list[str]:
        return shell(question, site, binaries.kubectl, tmp_path).stdout.splitlines()

    until(lambda: answers() != [])
    _, user, impersonated, request = answers()[0].split("\t")
    assert (user, impersonated) == ("carol", "-")
    assert "its clock is off" in request


def test_the_guides_audit_rules_are_those_of_the_lab() -> None:
    (found,) = [b for b in blocks("yaml") if "userGroups: [system:nodes]" in b]
    rules = yaml.safe_load(found)
    assert rules
    assert all(rule in AUDIT_POLICY["rules"] for rule in rules)


def test_the_guide_tells_of_every_command() -> None:
    for command in KUBECTL_COMMANDS:
        assert re.search(rf"`{command}`|kubectl provision {command}\b", GUIDE), command


def test_every_setting_that_the_guide_names_exists() -> None:
    (crd,) = [c for c in all_crds() if c["spec"]["names"]["kind"] == NodePool.KIND.kind]
    settings = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"][
        "maintenance"
    ]
    section = GUIDE.split("Settings of a pool, `spec.maintenance`")[1].split("\n\n")[0]
    named = set(re.findall(r"`([a-z]+[A-Z]\w+|cordon)", section))
    assert len(named) >= 8
    assert named <= set(settings["properties"])


def test_every_role_and_policy_that_the_manuals_name_is_shipped() -> None:
    shipped = {m["metadata"]["name"] for m in all_manifests()}
    named = set(re.findall(r"`(provisioner-(?:viewer|operator|administrator|request\w*[-\w]*|controller-\w+))`", GUIDE))
    assert {"provisioner-operator", "provisioner-request-conditions"} <= named
    assert named <= shipped | {"provisioner-controller"}, json.dumps(sorted(named - shipped))


ON_A_COMMAND_LINE = re.compile(
    r"--token[= ]|--password[= ]|--from-literal=(password|token)|stringData|[a-z]+://[^/\s]+:[^/\s]+@"
    r"|\$\([^)]*create token"  # what is substituted becomes an argument
)


@pytest.mark.parametrize("manual", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_no_command_of_the_manuals_has_a_secret_among_its_arguments(manual: Path) -> None:
    """Arguments are read by every user of the machine, in /proc."""
    commands = re.findall(r"^ *```(?:sh|console)?\n(.*?)^ *```$", manual.read_text(), re.MULTILINE | re.DOTALL)
    commands += re.findall(r"`((?:kubectl|provisioner|scontrol) [^`]+)`", manual.read_text())
    assert [each for each in commands if ON_A_COMMAND_LINE.search(each)] == []


def test_the_guides_kubeconfig_of_an_account_works_and_no_argument_holds_its_token(
    site: RackOfNodes, binaries: Binaries, control_plane: ControlPlane, cluster: Cluster, tmp_path: Path
) -> None:
    (script,) = [b for b in blocks("") if "boot.kubeconfig" in b and "service-account-token" in b]
    arguments = tmp_path / "arguments"
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("kubectl", "cat", "base64"):
        real = binaries.kubectl if name == "kubectl" else installed(name)
        (programs / name).write_text(f'#!/bin/bash\necho {name} "$@" >>{arguments}\nexec {real} "$@"\n')
        (programs / name).chmod(0o755)
    here = f"cd {tmp_path}\n" + script.replace("https://10.80.0.1:6443", control_plane.server_url)
    ran = shell(here, site, programs / "kubectl", programs)
    assert ran.returncode == 0, ran.stderr
    written = tmp_path / "boot.kubeconfig"
    assert written.stat().st_mode & 0o077 == 0
    assert Cluster.connect(written).ask_who_i_am() == "system:serviceaccount:provisioner-system:provisioner-boot"
    token = yaml.safe_load(written.read_text())["users"][0]["user"]["token"]
    assert "get secret provisioner-boot-token" in arguments.read_text()
    assert token not in arguments.read_text()
    cluster.delete(SECRETS, "provisioner-boot-token", namespace="provisioner-system")
