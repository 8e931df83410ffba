"""Where the control plane's programs come from, and what is said when they come from nowhere."""

from __future__ import annotations

import hashlib
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_httpserver import URI_DEFAULT
from werkzeug import Response

from lab.binaries import build as binaries_build
from lab.binaries import download as binaries_download
from lab.binaries import obtain as binaries
from lab.binaries.cache import NAMES, VERSION, architecture, fill, missing_in
from lab.binaries.kubelet import obtain_kubelet
from lab.binaries.obtain import cache_entries, find_binaries, find_etcd
from provisioner.api.machinery.errors import NeedsHuman
from tests.http_peer import HttpPeer, target

CONTENT = {name: f"#!/bin/sh\necho Kubernetes {VERSION}\n# {name}\n".encode() for name in NAMES}


def populate(directory: Path, *, without: str = "", version: str = VERSION) -> Path:
    directory.mkdir(parents=True)
    for name in (*NAMES, "etcd"):
        if name != without:
            (directory / name).write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
            (directory / name).chmod(0o755)
    return directory


def path_of(name: str) -> str:
    return f"/{VERSION}/bin/linux/{architecture()}/{name}"


class FakeReleaseHost(HttpPeer):
    """A fake of the official release host: it serves what it is given, over plain HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self.files = {path_of(name): content for name, content in CONTENT.items()}
        self.files |= {
            f"{path}.sha256": hashlib.sha256(content).hexdigest().encode() for path, content in self.files.items()
        }
        self.expect_request(URI_DEFAULT).respond_with_handler(
            lambda request: Response(self.files.get(request.path), 200 if request.path in self.files else 404)
        )


@pytest.fixture
def release_host() -> Iterator[FakeReleaseHost]:
    with FakeReleaseHost() as host:
        yield host


@pytest.fixture(autouse=True)
def etcd_on_path(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path_factory.mktemp("bin")
    (directory / "etcd").write_text("#!/bin/sh\n")
    (directory / "etcd").chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")


@pytest.mark.programs
def test_the_named_directory_comes_first(tmp_path: Path) -> None:
    assets = populate(tmp_path / "assets", version="v1.35.1")
    populate(binaries.cache_entries(tmp_path)[0])
    found = find_binaries(assets=assets, cache=tmp_path)
    assert found.kubelet == assets / "kubelet"
    assert found.version == "v1.35.1"
    assert found.etcd == (str(assets / "etcd"),)


def test_a_named_directory_that_lacks_a_program_is_passed_over_and_said_so(tmp_path: Path) -> None:
    assets = populate(tmp_path / "assets", without="kubelet")
    entry = populate(binaries.cache_entries(tmp_path)[0])
    said: list[str] = []
    found = find_binaries(assets=assets, cache=tmp_path, report=said.append)
    assert found.kubelet == entry / "kubelet"
    assert said == [f"KUBEBUILDER_ASSETS ({assets}) lacks kubelet"]


@pytest.mark.programs
def test_a_named_kubernetes_that_is_too_old_is_refused(tmp_path: Path) -> None:
    assets = populate(tmp_path / "assets", version="v1.33.9")
    with pytest.raises(NeedsHuman, match=r"is v1\.33\.9; name a directory with Kubernetes 1\.34 or newer"):
        find_binaries(assets=assets, cache=tmp_path)


@pytest.mark.programs
def test_the_scheduler_may_be_missing(tmp_path: Path) -> None:
    assets = populate(tmp_path / "assets", without="kube-scheduler")
    assert find_binaries(assets=assets, cache=tmp_path).kube_scheduler is None


def test_what_is_cached_is_not_asked_for_again(tmp_path: Path, release_host: FakeReleaseHost) -> None:
    first = find_binaries(cache=tmp_path, release_url=release_host.url, allow_build=False)
    asked = len(release_host.log)
    again = find_binaries(cache=tmp_path, release_url=release_host.url, allow_build=False)
    assert again.kubectl == first.kubectl
    assert first.kubectl.read_bytes() == CONTENT["kubectl"]
    assert len(release_host.log) == asked


def test_a_program_with_another_checksum_is_not_used_and_nothing_is_left(
    tmp_path: Path, release_host: FakeReleaseHost
) -> None:
    release_host.files[path_of("kubelet")] += b"altered"
    with pytest.raises(NeedsHuman, match=r"kubelet has SHA-256 [0-9a-f]{64}, published is [0-9a-f]{64}; do not use it"):
        binaries_download.download(tmp_path, report=print, release_url=release_host.url)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_checksum_that_is_none_is_not_believed(tmp_path: Path, release_host: FakeReleaseHost) -> None:
    release_host.files[path_of("kubelet") + ".sha256"] = b"<html>please log in</html>"
    with pytest.raises(NeedsHuman, match="holds no SHA-256 but '<html>please'"):
        binaries_download.download(tmp_path, report=print, release_url=release_host.url)


def test_a_host_that_does_not_answer_is_given_up_and_everything_tried_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries_download, "CONNECT_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NeedsHuman) as raised:
            find_binaries(assets=tmp_path, cache=tmp_path, release_url=url, allow_build=False)
    message = str(raised.value)
    assert f"KUBEBUILDER_ASSETS ({tmp_path}) lacks kube-apiserver, kube-controller-manager, kubelet, kubectl" in message
    assert f"nothing in the cache ({tmp_path})" in message
    assert f"{url}/{VERSION}/bin/linux/{architecture()}/kube-apiserver.sha256 not fetched" in message
    assert "make demo" in message


@pytest.mark.programs
def test_without_go_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("env", "etcd"):
        (tools / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(NeedsHuman, match=r"Go is not installed; install Go 1\.26 or newer"):
        binaries_build.build(tmp_path / "cache", report=print)
    assert not binaries_build.entry_of(tmp_path / "cache").exists()


@pytest.mark.parametrize("said", ["go version go1.19.8 linux/amd64", "go version go1.25.9 linux/amd64", "another"])
def test_a_go_that_is_too_old_is_named_with_its_remedy(said: str) -> None:
    with pytest.raises(NeedsHuman, match=r"too old for Kubernetes v1\.36\.3; install Go 1\.26\.0 or newer"):
        binaries_build.MODULE.require_go(said, "1.26.0")


@pytest.mark.parametrize("said", ["go version go1.26 linux/amd64", "go version go1.26.8 linux/arm64", "go2.0"])
def test_a_go_that_is_new_enough_is_fine(said: str) -> None:
    binaries_build.MODULE.require_go(said, "1.26.0")
    with pytest.raises(NeedsHuman, match="too old"):
        binaries_build.MODULE.require_go(said, "3.0")


def test_the_generated_module_takes_the_staging_modules_as_published() -> None:
    upstream = """module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require k8s.io/klog/v2 v2.140.0

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
"""
    assert binaries_build.render_go_mod(upstream).splitlines() == [
        "module provisioner.dev/lab/kubernetes",
        "",
        "go 1.26.0",
        "godebug default=go1.26",
        f"require k8s.io/kubernetes {VERSION}",
        "",
        "replace (",
        f"\tk8s.io/api => k8s.io/api {VERSION.replace('v1.', 'v0.')}",
        f"\tk8s.io/kubelet => k8s.io/kubelet {VERSION.replace('v1.', 'v0.')}",
        ")",
    ]


def test_another_recipe_has_another_place_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = binaries_build.entry_of(tmp_path)
    monkeypatch.setattr(binaries_build, "NAMES", NAMES[:4])
    assert binaries_build.entry_of(tmp_path) != before


def test_a_kubelet_for_another_architecture_is_made_alone_and_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[tuple[str, ...]] = []

    def build_into(directory: Path, work: Path, report: object, of: str, names: tuple[str, ...]) -> None:
        built.append((of, *names))
        (directory / "kubelet").write_text("made")
        (directory / "kubelet").chmod(0o755)

    monkeypatch.setattr(binaries_build, "build_into", build_into)
    for _ in range(2):
        kubelet = obtain_kubelet("arm64", tmp_path, allow_download=False)
        assert kubelet.read_text() == "made"
    assert built == [("arm64", "kubelet")]
    assert kubelet.parent.parent == tmp_path
    assert kubelet.parent not in cache_entries(tmp_path)
    command = binaries_build._build_command(Path("out"), "arm64", ("kubelet",))
    assert {"GOARCH=arm64", "CGO_ENABLED=0"} <= set(command)
    assert command[-1] == "k8s.io/kubernetes/cmd/kubelet"
    assert "etcd" not in binaries_build.main_go(("kubelet",))


def test_a_released_kubelet_for_another_architecture_is_fetched_with_its_checksum(
    tmp_path: Path, release_host: FakeReleaseHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/{VERSION}/bin/linux/arm64/kubelet"
    release_host.files |= {path: b"arm", f"{path}.sha256": hashlib.sha256(b"arm").hexdigest().encode()}
    entry = binaries_download.download(tmp_path, print, release_url=release_host.url, of="arm64", names=("kubelet",))
    assert [file.name for file in entry.iterdir()] == ["kubelet"]
    assert [target(request) for request, _ in release_host.log] == [f"{path}.sha256", path]
    assert obtain_kubelet("arm64", tmp_path).read_bytes() == b"arm", "what is there is not asked for again"


def test_two_processes_that_need_the_same_make_it_once(tmp_path: Path) -> None:
    entry = tmp_path / "entry"
    made: list[str] = []
    said: list[str] = []
    inside = threading.Event()
    waiting = threading.Event()

    def make(who: str) -> None:
        def report(line: str) -> None:
            said.append(line)
            waiting.set()

        with fill(entry, report) as directory:
            inside.set()
            if directory is not None:
                waiting.wait(180)
                made.append(who)
                shutil.copytree(populate(tmp_path / who), directory, dirs_exist_ok=True)

    first = threading.Thread(target=make, args=("first",))
    first.start()
    assert inside.wait(180)
    second = threading.Thread(target=make, args=("second",))
    second.start()
    first.join(180)
    second.join(180)
    assert made == ["first"]
    assert said == [f"waiting for another process that makes {entry}"]
    assert missing_in(entry) == []


def test_a_maker_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail_half_way() -> None:
        with fill(tmp_path / "entry", print) as directory:
            assert directory is not None
            (directory / "kubelet").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_an_etcd_in_a_chroot_runs_through_its_own_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for folder in ("usr/bin", "usr/lib64", "usr/lib/x86_64-linux-gnu"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "usr/bin/etcd").touch()
    (tmp_path / "usr/lib64/ld-linux-x86-64.so.2").touch()
    assert find_etcd(tmp_path, tmp_path) == (
        f"{tmp_path}/usr/lib64/ld-linux-x86-64.so.2",
        "--library-path",
        f"{tmp_path}/usr/lib/x86_64-linux-gnu",
        f"{tmp_path}/usr/bin/etcd",
    )


def test_without_etcd_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NeedsHuman, match="etcd not found on PATH; apt-get install --no-install-recommends etcd-server"):
        find_etcd(tmp_path, None)
