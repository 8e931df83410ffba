"""The units of the agent, held against what the agent is."""

from __future__ import annotations

from provisioner.image.recipe import read_recipe
from provisioner.node.__main__ import main
from provisioner.node.join_files import KUBELET_FOLDER
from tests.image.samples import CPU, enabled_units
from tests.image.test_join_cleanup import unit


def test_the_daemon_starts_when_the_kubelet_has_its_certificate_and_again_when_it_failed() -> None:
    assert unit("provisioner-node.path")["Path"]["PathExists"] == f"{KUBELET_FOLDER}/kubeconfig"
    service = unit("provisioner-node.service")["Service"]
    assert service["ExecStart"] == "/usr/bin/python3 -I -m provisioner.node run"
    assert service["Restart"] == "on-failure"
    root = read_recipe(CPU).root
    assert ("multi-user.target", "provisioner-node.path") in enabled_units(root)
    assert {"signify-openbsd", "kexec-tools"} <= set(root.packages)


def test_jobs_and_the_kubelet_go_first() -> None:
    service = unit("provisioner-node.service")["Service"]
    assert int(service["Nice"]) > 0
    assert service["IOSchedulingClass"] == "idle"
    assert int(service["OOMScoreAdjust"]) > 0
    assert service["MemoryMax"].endswith("%")


def test_words_that_are_no_command_are_answered_with_the_usage() -> None:
    for words in ([], ["dance"], ["run", "--root"], ["stage"], ["join", "me"]):
        assert main(words) == 2
