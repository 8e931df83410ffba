"""The container images: what is in them, what is not, and that they run as a cluster runs them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from artefacts.archive import MANIFEST_TYPE, archive
from artefacts.build import Built, Ingredients, build
from artefacts.sbom import render_sbom
from artefacts.wheel import build_wheel
from artefacts.wheels import wheel_of
from lab.control_plane.plane import ControlPlane
from provisioner import __version__
from provisioner.api.machinery.errors import NotFound
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import LEASES
from tests.image.registry.real_registry import real_registry
from tests.packaging.container import Container, blob, manifest_of, read_archive
from tests.packaging.made import BOOT, CHECKOUT, CONTROLLER, EPOCH
from tests.packaging.pushing import push
from tests.people import kubeconfig_of, of_account
from tests.tools import CACHE

BOTH = (CONTROLLER, BOOT)


def members(layer: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(layer), mode="r:gz") as tar:
        return tar.getmembers()


@pytest.mark.parametrize("name", BOTH)
def test_an_archive_is_an_oci_layout_whose_digests_are_right(built: Callable[[str], Built], name: str) -> None:
    image = built(name).image
    files = read_archive(archive(image))
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    for path, content in files.items():
        if path.startswith("blobs/sha256/"):
            assert path.removeprefix("blobs/sha256/") == hashlib.sha256(content).hexdigest()
    manifest = manifest_of(files)
    config = json.loads(blob(files, manifest["config"]))
    assert (config["os"], config["architecture"]) == ("linux", image.machine)
    assert config["config"]["Entrypoint"] == ["/usr/bin/provisioner"]
    for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        assert "sha256:" + hashlib.sha256(gzip.decompress(blob(files, layer))).hexdigest() == diff_id


@pytest.mark.parametrize("name", BOTH)
def test_no_file_is_privileged_or_somebody_elses_or_of_this_machine(built: Callable[[str], Built], name: str) -> None:
    seen: dict[str, tarfile.TarInfo] = {}
    for layer in built(name).image.layers:
        for member in members(layer.content):
            assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
            assert member.isfile() or member.issym() or member.isdir(), member.name
            assert not member.mode & 0o6000, member.name
            assert not member.mode & 0o022 or member.issym() or member.name == "tmp", member.name
            assert member.mtime == 1_767_225_600
            assert member.name not in seen or member.isdir(), f"{member.name} is in two layers"
            seen[member.name] = member
            if member.name.endswith(".pyc"):
                assert not member.issym()
    files = read_archive(archive(built(name).image))
    for path, content in files.items():
        if path.startswith("blobs/") and not content.startswith(b"\x1f\x8b"):
            assert str(CHECKOUT).encode() not in content


@pytest.mark.parametrize("name", BOTH)
def test_byte_code_names_the_files_of_the_image_and_not_of_the_build(
    container: Callable[[str], Container], name: str
) -> None:
    root = container(name).root
    found = list(root.rglob("*.pyc"))
    assert len(found) > 1000
    for file in found:
        assert b"/tmp/provisioner-image" not in file.read_bytes(), file


def test_the_controllers_image_has_neither_shell_nor_package_manager(container: Callable[[str], Container]) -> None:
    image = container(CONTROLLER)
    programs = {file.name for folder in ("usr/bin", "usr/sbin") for file in (image.root / folder).iterdir()}
    assert programs == {"provisioner", "python3.13"}
    assert image.config["User"] == "65532:65532"
    assert not (image.root / "usr/lib/python3.13/ensurepip").exists()
    assert not list(image.root.rglob("pip"))


def test_the_boot_image_has_what_the_boot_service_starts_and_no_more(container: Callable[[str], Container]) -> None:
    image = container(BOOT)
    programs = {file.name for folder in ("usr/bin", "usr/sbin") for file in (image.root / folder).iterdir()}
    assert programs == {"provisioner", "python3.13", "dash", "sh", "ip", "setpriv", "dnsmasq", "nginx"}
    for word in ("/usr/sbin/nginx -v", "/usr/sbin/dnsmasq --version", "/usr/bin/setpriv --version", "/usr/bin/ip -V"):
        assert image.run(*word.split()).returncode == 0


@pytest.mark.parametrize("name", BOTH)
def test_it_says_its_version_and_prints_the_manifests(container: Callable[[str], Container], name: str) -> None:
    image = container(name)
    assert image.run("--version").stdout.split()[-1] == __version__
    assert "kind: CustomResourceDefinition" in image.run("manifests").stdout


LOOK = """
import importlib, json, pkgutil, os, provisioner
failed = {}
for module in pkgutil.walk_packages(provisioner.__path__, "provisioner."):
    if not module.name.endswith("__main__") and not module.name.startswith("provisioner.network.agent."):
        try:
            importlib.import_module(module.name)
        except BaseException as error:
            failed[module.name] = repr(error)
import kubernetes.client, kubernetes.config, sushy.main, pyghmi.ipmi.command, ssl, zoneinfo
try:
    open("/etc/written", "w")
    written = True
except OSError:
    written = False
print(json.dumps({
    "failed": failed, "user": [os.getuid(), os.getgid(), os.getgroups()], "written": written,
    "authorities": ssl.create_default_context().cert_store_stats()["x509_ca"],
    "zone": str(zoneinfo.ZoneInfo("Asia/Tokyo")),
    "rights": [line.split()[1] for line in open("/proc/self/status") if line.startswith(("CapEff", "CapAmb"))],
}))
"""


@pytest.mark.parametrize(("name", "user"), [(CONTROLLER, 65532), (BOOT, 0)])
def test_every_module_is_imported_by_its_user_on_a_read_only_root(
    container: Callable[[str], Container], name: str, user: int
) -> None:
    """But for the agent of DPUs, which runs in their image and needs pyroute2."""
    said = json.loads(container(name).run("/usr/bin/python3.13", "-I", "-c", LOOK).stdout)
    assert said["failed"] == {}
    assert said["user"][:2] == [user, user]
    assert not said["written"]
    assert said["authorities"] > 100
    assert said["zone"] == "Asia/Tokyo"
    if user:
        assert said["rights"] == ["0" * 16] * 2


def holder_of(cluster: Cluster) -> str | None:
    try:
        lease = cluster.get(LEASES, "provisioner-controller", namespace="provisioner-system")
    except NotFound:
        return None
    return str(lease["spec"].get("holderIdentity"))


def test_the_controller_leads_as_a_nobody_from_its_image(
    container: Callable[[str], Container], control_plane: ControlPlane, cluster: Cluster, tmp_path: Path
) -> None:
    shared = Path("/tmp") / f"provisioner-test-{tmp_path.name}-{time.time_ns()}"
    shared.mkdir()
    try:
        file = kubeconfig_of(control_plane, shared, of_account("controller"))
        file.chmod(0o644)
        shared.chmod(0o755)
        command = container(CONTROLLER).command(
            "controller",
            shared=[shared],
            PROVISIONER_CONTROLLER_KUBECONFIG=str(file),
            PROVISIONER_CONTROLLER_BOOT_URL="http://192.0.2.1",
            PROVISIONER_CONTROLLER_IDENTITY="from-its-image",
        )
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 300
            while time.monotonic() < deadline and process.poll() is None:
                if holder_of(cluster) == "from-its-image":
                    break
                time.sleep(0.2)
            else:
                process.kill()
                pytest.fail(f"it does not lead: {process.communicate()[1][-3000:]}")
        finally:
            process.terminate()
            said = process.communicate(timeout=120)[1]
        assert process.returncode == 0, said[-3000:]
        json.loads(said.splitlines()[0])  # the image logs as JSON, for a collector
    finally:
        for file in shared.iterdir():
            file.unlink()
        shared.rmdir()


def test_two_builds_at_other_places_and_times_are_the_same_bytes(
    ingredients: Mapping[str, Ingredients], built: Callable[[str], Built], tmp_path: Path
) -> None:
    """The boot image has all that the other one has. Nothing comes from the cache but what was downloaded."""
    elsewhere = tmp_path / "another checkout"
    elsewhere.mkdir()
    listed = subprocess.run(["git", "-C", str(CHECKOUT), "ls-files", "-z"], capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (CHECKOUT / name).is_file():
            (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
            (elsewhere / name).write_bytes((CHECKOUT / name).read_bytes())
    own = wheel_of(build_wheel(elsewhere, tmp_path / "wheel"))
    first = ingredients[BOOT]
    assert own.file.read_bytes() == first.own.file.read_bytes()
    again = build(replace(first, own=own), EPOCH, None)
    assert archive(again.image) == archive(built(BOOT).image)
    assert render_sbom(again, EPOCH) == render_sbom(built(BOOT), EPOCH)


@pytest.mark.parametrize("name", BOTH)
def test_what_it_is_made_of_is_told_beside_it_and_in_it(
    built: Callable[[str], Built], container: Callable[[str], Container], name: str
) -> None:
    document = json.loads(render_sbom(built(name), EPOCH))
    told = {
        reference["referenceLocator"].split("?")[0]: element["checksums"][0]["checksumValue"]
        for element in document["packages"]
        for reference in element.get("externalRefs", [])
    }
    packages = {locator.split("/")[-1].split("@")[0] for locator in told}
    assert {"libc6", "python3.13-minimal", "ca-certificates", "click", "kubernetes", "provisioner"} <= packages
    assert "aiohttp" not in packages
    assert ("nginx" in packages) == (name == BOOT)
    assert document["packages"][0]["checksums"][0]["checksumValue"] == built(name).image.digest.removeprefix("sha256:")
    root = container(name).root
    for package in built(name).packages:
        assert (root / "var/lib/dpkg/status.d" / package.name).read_text().startswith("Package: ")
        assert (root / "usr/share/doc" / package.name / "copyright").is_file(), package.name


def test_the_layers_of_debian_and_wheels_do_not_change_with_the_product(
    ingredients: Mapping[str, Ingredients], built: Callable[[str], Built], tmp_path: Path
) -> None:
    """A node that has the former version fetches 4 MB."""
    first = ingredients[CONTROLLER]
    later = tmp_path / first.own.file.name.replace(__version__, "99.0.0")
    later.write_bytes(first.own.file.read_bytes())
    newer = build(replace(first, own=wheel_of(later)), EPOCH + 86400, CACHE).image
    before = built(CONTROLLER).image
    assert newer.version == "99.0.0"
    assert newer.digest != before.digest
    assert [layer.digest for layer in newer.layers[:2]] == [layer.digest for layer in before.layers[:2]]
    assert len(before.layers[2].content) < 8_000_000


def test_a_real_registry_takes_it_and_gives_it_back(built: Callable[[str], Built], tmp_path: Path) -> None:
    image = built(BOOT).image
    with real_registry(tmp_path / "registry", secured=False) as registry:
        push(image, f"oci://{registry.host}/site/{image.name}")
        there = requests.get(
            f"http://{registry.host}/v2/site/{image.name}/manifests/{__version__}",
            headers={"Accept": MANIFEST_TYPE},
            timeout=30,
        )
        assert there.headers["Docker-Content-Digest"] == image.digest
        assert there.headers["Content-Type"] == MANIFEST_TYPE
        assert there.content == image.manifest
        for layer in image.layers:
            assert registry.blob(layer.digest).read_bytes() == layer.content
