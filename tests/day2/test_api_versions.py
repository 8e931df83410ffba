"""A new version of the API beside the old one, objects rewritten, the old one taken away, with a real API server.

The version v1beta1 is this test's own; the CustomResourceDefinitions are made by the code that makes the shipped ones.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from lab.binaries.etcd_tools import EtcdTools
from lab.control_plane.plane import ControlPlane
from provisioner.api import KINDS, VPC, Rack, Server
from provisioner.api.crd import VERSIONS, ApiVersion, crd_of
from provisioner.api.machinery.errors import NeedsHuman, Refused, Retryable
from provisioner.api.machinery.meta import Resource
from provisioner.api.machinery.schema import GROUP, VERSION
from provisioner.cli.service.manifests import crds
from provisioner.cluster.client import Cluster, Object
from provisioner.cluster.resources import CRDS, NAMESPACES, ResourceType, of
from provisioner.cluster.storage_migration import BEGUN, MigrationProgress, migrate
from tests.api.objects import rack, server, subnet, vpc
from tests.people import BOOT, kubeconfig_of, until

NEW = "v1beta1"
OLD_ALONE = (ApiVersion(VERSION),)
NEW_SERVED = (ApiVersion(NEW, storage=False), ApiVersion(VERSION))
NEW_STORED = (ApiVersion(NEW), ApiVersion(VERSION, storage=False, deprecation=f"{GROUP}/{VERSION}: use {NEW}"))
OLD_UNSERVED = (ApiVersion(NEW), ApiVersion(VERSION, served=False, storage=False))
NEW_ALONE = (ApiVersion(NEW),)

Etcd = Callable[[ResourceType, str], Object]


@pytest.fixture
def in_etcd(own_plane: ControlPlane, etcd_tools: EtcdTools) -> Etcd:
    """What etcd holds of an object."""

    def read(type_: ResourceType, name: str) -> Object:
        key = f"/registry/{type_.group}/{type_.plural}/{name}"
        command = [str(etcd_tools.etcdctl), *own_plane.etcd_client, "get", key, "--print-value-only"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
        loaded: Object = json.loads(found)
        return loaded

    return read


@pytest.fixture
def kinds_as_shipped(admin: Cluster) -> Iterator[None]:
    """Afterwards the kinds are what other tests know, with no object stored otherwise."""
    yield
    for kind in (Rack, Server, VPC):
        crd = admin.get(CRDS, f"{kind.KIND.plural}.{GROUP}")
        if [each["name"] for each in crd["spec"]["versions"]] == [NEW]:
            serve(admin, kind, NEW_STORED)
        serve(admin, kind, NEW_SERVED)
        migrate(admin, crd["metadata"]["name"], settle_seconds=1, pause_seconds=0, sleep=time.sleep)
        serve(admin, kind, OLD_ALONE)


def serve(admin: Cluster, kind: type[Resource], versions: tuple[ApiVersion, ...]) -> None:
    """Apply the CRD with these versions, as `provisioner manifests` of a release would; they are served."""
    admin.apply(crd_of(kind, versions), manager="tests")
    for version in versions:
        if version.served:
            until(lambda version=version: is_served(admin, at(kind, version.name)))  # type: ignore[misc]


def is_served(admin: Cluster, type_: ResourceType) -> bool:
    try:
        admin.list(type_)
    except (NeedsHuman, Retryable):
        return False
    return True


def at(kind: type[Resource], version: str) -> ResourceType:
    found = of(kind)
    return ResourceType(found.group, version, found.kind, found.plural, found.namespaced)


def content(body: Object) -> Object:
    """All that an administrator or a controller wrote, and who it is."""
    return {
        **{key: value for key, value in body.items() if key not in ("apiVersion", "metadata")},
        "metadata": {
            key: value for key, value in body["metadata"].items() if key not in ("resourceVersion", "managedFields")
        },
    }


def migrate_now(admin: Cluster, kind: type[Resource], **changes: Any) -> MigrationProgress:
    arguments: dict[str, Any] = {"settle_seconds": 1.0, "pause_seconds": 0.0, "sleep": time.sleep} | changes
    return migrate(admin, f"{kind.KIND.plural}.{GROUP}", **arguments)


def test_the_shipped_kinds_have_one_version_and_store_it() -> None:
    assert [version.name for version in VERSIONS if version.storage] == [VERSION]
    for kind in KINDS:
        assert crd_of(kind)["spec"].get("conversion", {"strategy": "None"}) == {"strategy": "None"}


def test_a_kind_that_stores_two_versions_or_none_is_not_made() -> None:
    for versions in ((ApiVersion(NEW), ApiVersion(VERSION)), (ApiVersion(NEW, storage=False),)):
        with pytest.raises(ValueError, match="one version is stored"):
            crd_of(Rack, versions)


def test_objects_pass_from_one_version_to_the_next_and_none_is_lost(
    admin: Cluster, unique: str, in_etcd: Etcd, kinds_as_shipped: None
) -> None:
    names = [f"{unique}-{number:02d}" for number in range(12)]
    for number, name in enumerate(names):
        admin.apply(
            rack(name, subnets=[subnet(cidr=f"10.{number}.7.0/24", gateway=f"10.{number}.7.1")]), manager="tests"
        )
        if number % 2:
            admin.apply_status(Rack, name, {"servers": number}, manager="tests")
    before = {name: admin.get(of(Rack), name) for name in names}

    serve(admin, Rack, NEW_SERVED)
    for name in names:
        assert content(admin.get(at(Rack, NEW), name)) == content(before[name])
    serve(admin, Rack, NEW_STORED)
    assert in_etcd(of(Rack), names[0])["apiVersion"] == f"{GROUP}/{VERSION}", "nothing was rewritten yet"
    with pytest.raises(Refused, match="storedVersions"):
        admin.apply(crd_of(Rack, NEW_ALONE), manager="tests")

    done = migrate_now(admin, Rack)
    assert done.written >= len(names)
    assert {in_etcd(of(Rack), name)["apiVersion"] for name in names} == {f"{GROUP}/{NEW}"}
    crd = admin.get(CRDS, f"racks.{GROUP}")
    assert (crd["status"]["storedVersions"], BEGUN in crd["metadata"].get("annotations", {})) == ([NEW], False)
    for name in names:
        old, new = admin.get(of(Rack), name), admin.get(at(Rack, NEW), name)
        assert content(old) == content(new) == content(before[name])
    assert migrate_now(admin, Rack).total == 0, "a second run finds nothing to do"

    serve(admin, Rack, OLD_UNSERVED)
    serve(admin, Rack, NEW_ALONE)
    assert {name: content(admin.get(at(Rack, NEW), name)) for name in names} == {
        name: content(body) for name, body in before.items()
    }
    until(lambda: not is_served(admin, of(Rack)))


def test_who_was_interrupted_goes_on_with_the_rest_alone(
    admin: Cluster, unique: str, in_etcd: Etcd, kinds_as_shipped: None
) -> None:
    names = [f"{unique}-{number}" for number in range(8)]
    for number, name in enumerate(names):
        admin.apply(
            rack(name, subnets=[subnet(cidr=f"10.{number}.8.0/24", gateway=f"10.{number}.8.1")]), manager="tests"
        )
    serve(admin, Rack, NEW_SERVED)
    serve(admin, Rack, NEW_STORED)

    def power_fails(progress: MigrationProgress) -> None:
        # Racks of other tests, if there are any, may come first.
        if [in_etcd(of(Rack), name)["apiVersion"] for name in names].count(f"{GROUP}/{NEW}") == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate_now(admin, Rack, report=power_fails)
    stored = [in_etcd(of(Rack), name)["apiVersion"] for name in names]
    assert {f"{GROUP}/{VERSION}", f"{GROUP}/{NEW}"} == set(stored), "some are done and some are not"
    assert set(admin.get(CRDS, f"racks.{GROUP}")["status"]["storedVersions"]) == {VERSION, NEW}
    written = [name for name, version in zip(names, stored, strict=True) if version.endswith(NEW)]
    unchanged = {name: admin.get(of(Rack), name)["metadata"]["resourceVersion"] for name in written}
    # An administrator writes one meanwhile, and adds another: both are stored anew, and need no rewriting.
    waiting = next(name for name in names if name not in written)
    admin.patch(of(Rack), waiting, {"metadata": {"labels": {"row": "7"}}})
    admin.apply(rack(f"{unique}-late", subnets=[subnet(cidr="10.9.8.0/24", gateway="10.9.8.1")]), manager="tests")

    migrate_now(admin, Rack, settle_seconds=1e9)  # which is not waited for again
    assert {name: admin.get(of(Rack), name)["metadata"]["resourceVersion"] for name in written} == unchanged
    assert {in_etcd(of(Rack), name)["apiVersion"] for name in [*names, f"{unique}-late"]} == {f"{GROUP}/{NEW}"}
    assert admin.get(CRDS, f"racks.{GROUP}")["status"]["storedVersions"] == [NEW]
    assert admin.get(of(Rack), waiting)["metadata"]["labels"] == {"row": "7"}


def test_policies_hold_for_who_writes_by_the_new_version(
    own_plane: ControlPlane, admin: Cluster, unique: str, tmp_path: Any, kinds_as_shipped: None
) -> None:
    boot = Cluster.connect(kubeconfig_of(own_plane, tmp_path, BOOT))
    serve(admin, Server, NEW_STORED)
    refusals = []
    for type_ in (of(Server), at(Server, NEW)):
        body = server(
            f"{unique}-{type_.version}", rackRef=unique, bootMACAddress="52:54:00:12:34:56", acceptance="Accepted"
        )
        with pytest.raises(Refused) as refused:
            boot.create(type_, body | {"apiVersion": type_.api_version})
        refusals.append(str(refused.value))
    assert ["provisioner-boot-limits" in each for each in refusals] == [True, True], refusals
    pending = server("unknown-525400123457", rackRef=None, bootMACAddress="52:54:00:12:34:57", acceptance="Pending")
    boot.create(at(Server, NEW), pending | {"apiVersion": f"{GROUP}/{NEW}"})  # the honest twin


def test_kinds_in_namespaces_are_rewritten_where_they_are(
    admin: Cluster, unique: str, in_etcd: Etcd, kinds_as_shipped: None
) -> None:
    for namespace in (f"{unique}-a", f"{unique}-b"):
        admin.create(NAMESPACES, {"metadata": {"name": namespace}})
        body = vpc()
        body["metadata"]["namespace"] = namespace
        admin.create(of(VPC), body)
    serve(admin, VPC, NEW_SERVED)
    serve(admin, VPC, NEW_STORED)
    assert migrate_now(admin, VPC).written == 2
    for namespace in (f"{unique}-a", f"{unique}-b"):
        assert in_etcd(of(VPC), f"{namespace}/main")["apiVersion"] == f"{GROUP}/{NEW}"


def test_the_command_says_what_is_stored_and_writes_it(
    own_plane: ControlPlane, admin: Cluster, unique: str, kinds_as_shipped: None
) -> None:
    admin.apply(rack(unique, subnets=[subnet(cidr="10.1.9.0/24", gateway="10.1.9.1")]), manager="tests")
    serve(admin, Rack, NEW_SERVED)
    serve(admin, Rack, NEW_STORED)
    asked = ["migrate", "--kubeconfig", str(own_plane.kubeconfig), f"racks.{GROUP}", f"images.{GROUP}"]
    said = CliRunner().invoke(crds, [*asked, "--dry-run"])
    assert said.output.splitlines() == [
        f"racks.{GROUP}: stored as {VERSION}, {NEW}; to be written as {NEW}",
        f"images.{GROUP}: stored as {VERSION} alone",
    ]
    done = CliRunner().invoke(crds, [*asked, "--settle", "1", "--per-second", "1000"])
    assert done.exit_code == 0
    assert f"objects written as {NEW}, 0 by others meanwhile, 0 gone" in done.output
    again = CliRunner().invoke(crds, asked)
    assert again.output.splitlines() == [
        f"racks.{GROUP}: stored as {NEW} alone",
        f"images.{GROUP}: stored as {VERSION} alone",
    ]


def test_an_object_that_is_not_taken_is_named_and_the_old_version_stays(
    admin: Cluster, unique: str, kinds_as_shipped: None
) -> None:
    admin.apply(rack(unique, subnets=[subnet(cidr="10.1.10.0/24", gateway="10.1.10.1")]), manager="tests")
    serve(admin, Rack, NEW_SERVED)
    serve(admin, Rack, NEW_STORED)

    class Refusing:
        """The administrator's door, but for one object."""

        def __getattr__(self, name: str) -> Any:
            return getattr(admin, name)

        def patch(self, type_: ResourceType, name: str, *args: Any, **more: Any) -> Object:
            if name == unique:
                raise Refused("spec is not valid any more", hint="correct it")
            return admin.patch(type_, name, *args, **more)

    with pytest.raises(NeedsHuman, match=rf"1 of \d+ objects of racks.{GROUP}.*{unique}: spec is not valid any more"):
        migrate_now(Refusing(), Rack)  # type: ignore[arg-type]
    assert VERSION in admin.get(CRDS, f"racks.{GROUP}")["status"]["storedVersions"]
