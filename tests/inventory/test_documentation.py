"""What docs/registration.md shows is what the programs take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from provisioner.inventory.lists.packing_list import read_packing_list
from provisioner.inventory.registrar import plan_registration

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster

TEXT = (Path(__file__).parents[2] / "docs" / "registration.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_its_csv_is_a_packing_list() -> None:
    (text,) = blocks("csv")
    packing_list = read_packing_list(text.encode(), "r01.csv", rack="r01", pool="gpu")
    assert [entry.name for entry in packing_list.entries] == ["r01-u12", "r01-u13"]
    assert packing_list.notes == ()


def test_its_yaml_is_registered_and_applied_alike(cluster: Cluster) -> None:
    short, whole = blocks("yaml")
    plan = plan_registration(cluster, read_packing_list(short.encode(), "r01.yaml"))
    assert [(step.action, step.name) for step in plan.steps] == [
        ("create", "r01"),
        ("create", "r01-u12"),
        ("create", "r01-u13"),
        ("create", "r01-u14"),
    ]
    for body in yaml.safe_load_all(whole):
        assert cluster.apply(body, manager="kubectl", dry_run=True)["metadata"]["name"] == body["metadata"]["name"]
