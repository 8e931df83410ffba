"""docs/verification.md: its sample is applied as it stands, and it names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from provisioner.api import NodePool
from provisioner.api.machinery.codec import decode
from provisioner.api.nodes.contract import (
    HOLD_REQUESTED,
    VERIFICATION_RELEASE_REQUESTED,
    VERIFICATION_RETRY_REQUESTED,
)
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import JOBS, of
from provisioner.health.jobs.manifest import render_job
from provisioner.health.look import look_at
from provisioner.health.situation import CheckInputs
from tests.boot.objects import image
from tests.health.objects import BOOT, booted, node, strict_pool
from tests.health.world import make_world

TEXT = (Path(__file__).parents[2] / "docs" / "verification.md").read_text()


def test_the_sample_check_is_accepted_by_the_api_server_and_so_is_its_job(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    (sample,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    body = yaml.safe_load(sample)
    body["metadata"]["name"] = f"{unique}-sample"
    pool = decode(NodePool, cluster.create(of(NodePool), body))
    cluster.delete(of(NodePool), pool.name)
    (check,) = pool.spec.verification.checks
    assert pool.spec.verification.expected.gpus is not None
    with make_world(cluster, controller_account, unique):
        job = cluster.create(JOBS, render_job(check, unique, BOOT, 1))
        assert job["spec"]["activeDeadlineSeconds"] == 120


def test_every_built_in_check_every_request_and_every_reason_is_told_of() -> None:
    situation = CheckInputs(server=booted(), pool=strict_pool(), image=image(), node=node(), clock_skew_seconds=0.0)
    everything = look_at(situation, strict_pool(), node())
    names = [f"`{each.name}`" for each in everything.findings]
    requests = (HOLD_REQUESTED, VERIFICATION_RELEASE_REQUESTED, VERIFICATION_RETRY_REQUESTED)
    sources = "".join(path.read_text() for path in (Path(__file__).parents[2] / "provisioner" / "health").glob("*.py"))
    reasons = re.findall(r'NoBoot\(\s*"(\w+)"', sources) + re.findall(r'"(Verification\w+)"', sources)
    assert len(names) == 20
    assert {"WaitsForBoot", "WaitsForNode", "WaitsForPool", "Adopted", "VerificationStarted"} <= set(reasons)
    assert [each for each in (*names, *requests, *reasons) if each not in TEXT] == []
