"""What the planner of rollouts is told, as part of a kind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import pytest

from provisioner.api.crd import crd_of
from provisioner.api.machinery.meta import ObjectMeta, Resource
from provisioner.api.machinery.schema import Kind, described
from provisioner.api.pools.upgrade_strategy import UpgradeStrategy

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster


@dataclass(frozen=True, kw_only=True)
class TrialSpec:
    """Holds a strategy."""

    upgrade_strategy: UpgradeStrategy | None = described("How it is updated.", default=None)


@dataclass(frozen=True, kw_only=True)
class TrialStatus:
    """Nothing."""


@dataclass(frozen=True, kw_only=True)
class Trial(Resource):
    KIND: ClassVar[Kind] = Kind(kind="Trial", short="trial", description="A kind with a strategy.")
    metadata: ObjectMeta
    spec: TrialSpec
    status: TrialStatus = TrialStatus()


def test_the_api_server_can_afford_its_rules(cluster: Cluster) -> None:
    assert cluster.apply(crd_of(Trial), manager="tests", dry_run=True)["kind"] == "CustomResourceDefinition"


@pytest.mark.parametrize("good", ["0", "2", "100000", "0%", "7%", "25%", "100%"])
def test_an_amount_is_a_count_or_a_share(good: str) -> None:
    assert re.search(_pattern(), good)


@pytest.mark.parametrize("bad", ["", "-1", "01", "101%", "5 %", "many", "2.5", "10%%", "1000000"])
def test_nothing_else_is_an_amount(bad: str) -> None:
    assert not re.search(_pattern(), bad)


def _pattern() -> str:
    version = crd_of(Trial)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    found = version["properties"]["upgradeStrategy"]["properties"]["maxParallel"]
    assert found["x-kubernetes-int-or-string"] is True
    assert found["minimum"] == 0
    return str(found["pattern"])
