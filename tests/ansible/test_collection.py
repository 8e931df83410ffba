"""The collection as a whole: its version, its documentation, its options beside the API's fields, its lint."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import provisioner
from provisioner.api.servers.rack import RackSpec
from provisioner.api.servers.server import ServerSpec
from tests.ansible.runs import ROOT, SOURCE, Installed

pytestmark = pytest.mark.programs

MODULES = sorted(path.stem for path in (SOURCE / "plugins/modules").glob("*.py"))
ROLES = sorted(path.name for path in (SOURCE / "roles").iterdir())


def test_it_is_of_the_packages_version() -> None:
    galaxy = yaml.safe_load((SOURCE / "galaxy.yml").read_text())
    assert galaxy["version"] == provisioner.__version__
    shared = (SOURCE / "plugins/module_utils/provisioner_module.py").read_text()
    assert f'VERSION = "{provisioner.__version__}"' in shared
    defaults = yaml.safe_load((SOURCE / "roles/boot_host/defaults/main.yml").read_text())
    assert defaults["boot_host_package"] == f"provisioner=={provisioner.__version__}"


def test_every_module_is_documented_and_in_the_action_group(collection: Installed) -> None:
    names = [f"provisioner.provisioner.{name}" for name in MODULES]
    told = collection.command("ansible-doc", "--json", "--type", "module", *names)
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)
    assert sorted(found) == names
    for name, of_one in found.items():
        assert of_one["examples"].strip(), name
        assert of_one["return"], name
        assert "kubeconfig" in of_one["doc"]["options"], name
        assert all(option["description"] for option in of_one["doc"]["options"].values()), name
        assert f"{name}:" in of_one["examples"], "an example without the whole name"
    runtime = yaml.safe_load((SOURCE / "meta/runtime.yml").read_text())
    assert runtime["action_groups"]["cluster"] == MODULES


def test_inventory_filter_and_roles_are_documented(collection: Installed) -> None:
    for kind, name in (("inventory", "servers"), ("filter", "netbox_packing_list")):
        told = collection.command("ansible-doc", "--type", kind, f"provisioner.provisioner.{name}")
        assert told.returncode == 0, told.stderr
        assert "EXAMPLES" in told.stdout
    names = [f"provisioner.provisioner.{role}" for role in ROLES]
    told = collection.command("ansible-doc", "--json", "--type", "role", *names)
    found = json.loads(told.stdout)
    for role, name in zip(ROLES, names, strict=True):
        options = found[name]["entry_points"]["main"]["options"]
        defaults = yaml.safe_load((SOURCE / f"roles/{role}/defaults/main.yml").read_text())
        assert defaults.keys() <= options.keys(), f"{role} has variables that its argument specs lack"
        stated = {key: option["default"] for key, option in options.items() if "default" in option}
        assert stated == {key: defaults.get(key) for key in stated}


@pytest.mark.parametrize(("module", "spec"), [("server", ServerSpec), ("rack", RackSpec)])
def test_every_field_of_the_api_is_an_option(module: str, spec: type) -> None:
    def options_of(options: dict[str, Any], cls: type) -> None:
        for field in dataclasses.fields(cls):
            assert field.name in options, f"{cls.__name__}.{field.name} is no option of module {module}"
            suboptions = options[field.name].get("suboptions")
            inner = next((cls for cls in _dataclasses_in(str(field.type)) if suboptions is not None), None)
            if inner is not None and suboptions is not None:
                options_of(suboptions, inner)

    text = (SOURCE / f"plugins/modules/{module}.py").read_text()
    documentation = text.partition('DOCUMENTATION = r"""')[2].partition('"""')[0]
    options_of(yaml.safe_load(documentation)["options"], spec)


def _dataclasses_in(annotation: str) -> list[type]:
    from provisioner.api.servers import dpu, rack, server

    named = {
        name: value for each in (server, rack, dpu) for name, value in vars(each).items() if isinstance(value, type)
    }
    words = annotation.replace("[", " ").replace("]", " ").replace(",", " ").split()
    return [named[word] for word in words if word in named and dataclasses.is_dataclass(named[word])]


def test_the_unit_that_it_carries_is_that_of_the_packages(collection: Installed) -> None:
    carried = "ansible_collections/provisioner/provisioner/roles/boot_host/files/provisioner-boot.service"
    file = collection.collections / carried
    assert not file.is_symlink()
    assert file.read_text() == (ROOT / "packaging/systemd/provisioner-boot.service").read_text()


@pytest.mark.long
def test_ansible_lint_finds_nothing_by_its_strictest_profile(collection: Installed, tmp_path: Path) -> None:
    checkout = tmp_path / "ansible_collections/provisioner/provisioner"
    shutil.copytree(SOURCE, checkout)
    ran = collection.command(
        "ansible-lint",
        "--offline",
        "--strict",
        "--profile",
        "production",
        "--nocolor",
        cwd=checkout,
        HOME=str(tmp_path),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
