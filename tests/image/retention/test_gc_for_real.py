"""Garbage collection as its commands do it, against a real API server, by an account that has no other right."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.nodes.maintenance import MaintenanceSpec, Requestor
from provisioner.api.pools.node_pool import NodePoolSpec
from provisioner.cluster.client import Cluster, ListResult
from provisioner.cluster.resources import NODES, ResourceType, of
from provisioner.image.finished.publish import publish_image
from provisioner.image.finished.sign import SecretKey
from provisioner.image.retention.collect import collect, make_plan
from provisioner.image.retention.decide import RetentionRules
from tests.image.made_images import LAYERED, write_layered
from tests.people import bind, kubeconfig_of

KEY = SecretKey.generate(lambda size: b"g" * size)
RULES = RetentionRules(keep=1, grace=timedelta(hours=24))
SITES = ("free", "pool", "maintenance", "assigned", "node", "labelled", "newest")


class OneRecipe:
    """The cluster with the Images of one recipe alone, as other tests have theirs; it counts what is asked."""

    def __init__(self, cluster: Cluster, recipe: str) -> None:
        self._cluster, self._recipe = cluster, recipe
        self.calls: list[str] = []

    def list(
        self,
        type: ResourceType,  # noqa: A002
        *,
        trim: Callable[[dict[str, Any]], dict[str, Any] | None],
    ) -> ListResult:
        self.calls.append(f"LIST {type.kind}")

        def ours(body: dict[str, Any]) -> dict[str, Any] | None:
            return trim(body) if type.kind != "Image" or body["spec"]["recipe"] == self._recipe else None

        return self._cluster.list(type, trim=ours)

    def delete(self, type: ResourceType, name: str, *, uid: str, resource_version: str) -> bool:  # noqa: A002
        self.calls.append(f"DELETE {name}")
        return self._cluster.delete(type, name, uid=uid, resource_version=resource_version)


@pytest.fixture
def collector(control_plane: ControlPlane, cluster: Cluster, tmp_path: Path, unique: str) -> Cluster:
    """Somebody with the role provisioner-image-collector and no other."""
    bind(cluster, "provisioner-image-collector", f"{unique}-collector")
    return Cluster.connect(kubeconfig_of(control_plane, tmp_path, f"{unique}-collector"))


@pytest.fixture
def names(cluster: Cluster, tmp_path: Path, unique: str) -> dict[str, str]:
    """Images by what holds them, with all that does."""
    store, published = tmp_path / "store", {}
    for site in SITES:
        folder = write_layered(store, KEY, {**LAYERED, "layer.site": site.encode()}, recipe=unique)
        published[site] = publish_image(folder, store, KEY.public, cluster).name
    digests = {site: cluster.read(Image, name).spec.digest for site, name in published.items()}
    for folder in (store, *store.rglob("*")):
        os.utime(folder, (0, 0))
    pool = NodePool(metadata=ObjectMeta(name=unique), spec=NodePoolSpec(image_ref=published["pool"]))
    cluster.apply(encode(pool), manager="tests")
    requestor = Requestor(name="tests", user="tests", action="Reimage", image_ref=published["maintenance"])
    maintenance = Maintenance(
        metadata=ObjectMeta(name=f"{unique}-1"), spec=MaintenanceSpec(server_ref=unique, requestors=(requestor,))
    )
    cluster.apply(encode(maintenance), manager="tests")
    mac = "52:54:00:" + ":".join(base64.b16encode(os.urandom(3)).decode().lower()[n : n + 2] for n in (0, 2, 4))
    spec = {"bootMACAddress": mac, "nodePoolRef": unique}
    server = {"apiVersion": of(Server).api_version, "kind": "Server", "metadata": {"name": unique}, "spec": spec}
    cluster.apply(server, manager="tests")
    cluster.apply_status(Server, unique, {"assignedImageRef": published["assigned"]}, manager="tests")
    annotations = {"provisioner.dev/node-facts": f'{{"imageDigest": "{digests["node"]}"}}'}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique, "annotations": annotations}}
    cluster.apply(node, manager="tests")
    label = {"metadata": {"labels": {"provisioner.dev/keep": ""}}}
    cluster.patch(of(Image), published["labelled"], label)
    # Of the same second: the newest is told by its name.
    return published


def later() -> datetime:
    return datetime.now(UTC) + timedelta(days=30)


def test_what_any_object_names_stays_and_what_nothing_names_goes(
    cluster: Cluster, collector: Cluster, names: dict[str, str], tmp_path: Path, unique: str
) -> None:
    store, asked = tmp_path / "store", OneRecipe(collector, unique)
    plan = make_plan(asked, store, RULES, later())
    fates = {fate.label: fate for fate in plan.fates}
    held = {site: names[site] for site in ("pool", "maintenance", "assigned", "node", "labelled")}
    assert all(not fates[name].goes for name in held.values()), fates
    assert fates[held["pool"]].why == f"named by NodePool spec.imageRef of {unique}"
    assert fates[held["maintenance"]].why == f"named by Maintenance spec.requestors.imageRef of {unique}-1"
    assert fates[held["assigned"]].why == f"named by Server status.assignedImageRef of {unique}"
    assert fates[held["node"]].why == f"named by Node annotation provisioner.dev/node-facts of {unique}"
    going = {fate.label for fate in plan.fates if fate.goes}
    assert len(asked.calls) == 5, "each list once"
    asked.calls.clear()
    collect(asked, store, RULES, later)
    left = {image.name for image in cluster.read_all(Image) if image.spec.recipe == unique}
    assert left == set(names.values()) - going
    assert set(held.values()) <= left
    assert going
    assert asked.calls.count("LIST Server") == 1
    assert len(asked.calls) == 5 + 2 + len(going)
    assert len(list(store.glob("sha256-*"))) == len(left)
    cluster.delete(NODES, unique)


def test_an_image_that_is_another_one_by_now_is_not_deleted(
    cluster: Cluster, collector: Cluster, names: dict[str, str], tmp_path: Path, unique: str
) -> None:
    store, asked = tmp_path / "store", OneRecipe(collector, unique)
    plan = make_plan(asked, store, RULES, later())
    going = sorted(fate.label for fate in plan.fates if fate.goes)

    def write(_: Any) -> None:
        for name in going:
            cluster.patch(of(Image), name, {"metadata": {"labels": {"somebody": "was-here"}}})

    told: list[str] = []
    collect(asked, store, RULES, later, show=write, tell=told.append)
    assert told == [f"Image {name} stays: it was written to since it was looked at; run this again" for name in going]
    assert all(cluster.read(Image, name) for name in going)
    assert len(list(store.glob("sha256-*"))) == len(SITES)
    cluster.delete(NODES, unique)


def test_the_command_says_why_each_image_stays_and_deletes_nothing_young(
    cluster: Cluster, control_plane: ControlPlane, names: dict[str, str], tmp_path: Path, unique: str
) -> None:
    bind(cluster, "provisioner-image-collector", f"{unique}-collector")
    kubeconfig = kubeconfig_of(control_plane, tmp_path, f"{unique}-collector")

    def gc(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "provisioner.cli", "image", "gc", "--store", str(tmp_path / "store")]
        return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)

    said = gc("--kubeconfig", str(kubeconfig), "--dry-run", "--keep", "0")
    assert said.returncode == 0, said.stderr
    line = next(line for line in said.stdout.splitlines() if names["free"] in line)
    assert line.startswith("stays")
    assert "old, younger than 24.0 h" in line
    assert said.stdout.splitlines()[-1].startswith("nothing was deleted (--dry-run)")
    broken = tmp_path / "broken.kubeconfig"
    broken.write_text(kubeconfig.read_text().replace(control_plane.server_url, "https://127.0.0.1:1"))
    refused = gc("--kubeconfig", str(broken))
    assert refused.returncode == 1
    assert "error: " in refused.stderr
    assert len(list((tmp_path / "store").glob("sha256-*"))) == len(SITES)
    cluster.delete(NODES, unique)


def test_who_may_not_read_all_of_it_deletes_nothing(
    cluster: Cluster, control_plane: ControlPlane, names: dict[str, str], tmp_path: Path, unique: str
) -> None:
    bind(cluster, "provisioner-inventory-editor", f"{unique}-editor")
    editor = Cluster.connect(kubeconfig_of(control_plane, tmp_path, f"{unique}-editor"))
    with pytest.raises(Refused):
        collect(OneRecipe(editor, unique), tmp_path / "store", RULES, later)
    assert len(list((tmp_path / "store").glob("sha256-*"))) == len(SITES)
    cluster.delete(NODES, unique)
