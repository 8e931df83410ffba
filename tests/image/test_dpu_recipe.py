"""The DPU's recipe and tree, held against what the network agent is."""

from __future__ import annotations

import configparser
import shlex
import subprocess
import sys
from pathlib import Path

import pyroute2
import pytest

import provisioner
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.recipe import read_recipe
from provisioner.image.root import agent_files, install_agents
from provisioner.image.tools.tables import names_of
from provisioner.network.agent.__main__ import main
from provisioner.node.join_files import KUBELET_FOLDER
from tests.image.samples import DPU, NODE, RECIPE, enabled_units

PACKAGE = Path(provisioner.__file__).parent
UNITS = DPU / "tree/etc/systemd/system"


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNITS / name)
    return parser


def test_a_dpu_has_what_all_nodes_have_and_its_own_drivers_and_agent() -> None:
    dpu, gpu_node = read_recipe(DPU), read_recipe(RECIPE)
    assert dpu.folders == (NODE, DPU)
    assert dpu.trees("tree") == (NODE / "tree", DPU / "tree")
    assert dpu.trees("stage1") == gpu_node.trees("stage1") == (NODE / "stage1",)
    assert set(dpu.root.packages) - set(gpu_node.root.packages) == {"mstflint", "python3-pyroute2"}
    assert {"rdma-core", "nvme-cli"} <= set(gpu_node.root.packages) - set(dpu.root.packages)
    assert dpu.driver is None
    assert {"mlx5_core", "mlxbf_gige", "vrf", "vxlan"} <= set(dpu.root.modules)
    assert {"mlx5_core", "mlxbf_gige", "mlxbf_tmfifo"} <= set(dpu.stage1_modules)
    assert "mlxbf_gige" not in gpu_node.root.modules


def test_it_is_for_arm64_alone_with_the_bluefield_kernel_or_debians_whole_one() -> None:
    recipe = read_recipe(DPU)
    assert recipe.distribution(None, "arm64").kernel == {"arm64": "linux-bluefield"}
    assert recipe.distribution("debian", "arm64").kernel == {"arm64": "linux-image-arm64"}
    assert all(set(each.architectures) == {"arm64"} for each in recipe.distributions.values())


def test_a_boot_hangs_by_no_console_that_another_card_lacks() -> None:
    arguments = read_recipe(DPU).kernel_arguments
    assert [each for each in arguments if each.startswith("console=")] == ["console=hvc0", "console=ttyAMA0"]
    assert not any(each.startswith("earlycon") for each in arguments)


def test_the_network_agent_starts_when_the_kubelet_has_its_certificate_and_again_whenever_it_ends() -> None:
    assert unit("provisioner-network.path")["Path"]["PathExists"] == f"{KUBELET_FOLDER}/kubeconfig"
    service = unit("provisioner-network.service")["Service"]
    assert service["Restart"] == "always"
    assert service["ExecStart"] == "/usr/bin/python3 -I -m provisioner.network.agent run $PORTS"
    assert ("multi-user.target", "provisioner-network.path") in enabled_units(read_recipe(DPU).root)
    assert "nftables" in read_recipe(DPU).root.packages


def test_the_ports_of_the_image_are_words_that_the_agent_takes(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (DPU / "tree/etc/provisioner/network.env").read_text().splitlines()
    (ports,) = [line.removeprefix("PORTS=") for line in lines if line.startswith("PORTS=")]
    with pytest.raises(SystemExit) as ended:
        main(["run", *shlex.split(ports), "--help"])
    assert ended.value.code == 0
    with pytest.raises(SystemExit) as refused:
        main(["run", *shlex.split(ports.replace("=", ":")), "--help"])
    assert refused.value.code == 2


@pytest.mark.programs
def test_the_agent_of_the_image_needs_nothing_that_the_image_has_not(tmp_path: Path) -> None:
    """With pyroute2 and what the recipe leaves of the standard library, isolated from what is installed here."""
    root = read_recipe(DPU).root
    install_agents(PACKAGE, names_of(root.agents), tmp_path)
    (tmp_path / "pyroute2").symlink_to(Path(pyroute2.__file__).parent)
    removed = set(names_of(root.drop)) - set(names_of(root.keep))
    gone = [Path(each).name.partition(".")[0] for each in removed if "/python3*/" in each]
    assert "idlelib" in gone
    look = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.modules.update(dict.fromkeys({gone})); import runpy; "
    )
    look += "sys.argv = ['agent', 'run', '--help']; runpy.run_module('provisioner.network.agent', run_name='__main__')"
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", look], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "below it lie the kubelet's files" in ran.stdout
    assert not (tmp_path / "provisioner/network/control").exists()


def test_an_agent_that_is_not_there_is_named() -> None:
    with pytest.raises(NeedsHuman, match="names the agent 'network/dancer'"):
        agent_files(PACKAGE, ["node", "network/dancer"])
