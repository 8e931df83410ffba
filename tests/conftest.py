"""One real control plane a test run, shared by all tests; each test keeps to its own names (`unique`).

And what holds for all tests: none is skipped in CI, none configures the logging of another, all properties are tried
with the same examples in each run, and which tests are fast.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import structlog
from hypothesis import HealthCheck, settings

from lab.binaries.obtain import Binaries, find_binaries
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.machinery.schema import API_VERSION
from tests.tools import CACHE, IN_CI, missing

if TYPE_CHECKING:
    from lab.control_plane.plane import ControlPlane
    from provisioner.cluster.client import Cluster
    from tests.http_peer import HttpPeer


pytest_plugins = ("tests.attacks.taken_away.plugin", "tests.no_programs", "tests.suite.recorder")

# A failure is due to the change, and not to dice or to a busy machine: how long an example takes decides nothing.
settings.register_profile(
    "repeatable", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("random", settings.get_profile("repeatable"), derandomize=False, print_blob=True)
settings.load_profile("repeatable")

HERE: Final = Path(__file__).parent
ANSWER_SECONDS: Final = 180.0
"""For which a shared API server may be silent: the machine under it has been seen to stand still for 45 s."""
REAL_PARTS: Final = frozenset(
    {"binaries", "tools", "programs", "network", "namespace", "browser", "booted_machine", "other_machine"}
)
"""Fixtures that start real programs, or need root."""
REAL_HELPERS: Final = frozenset(
    {
        "need_root",
        "lab_tools",
        "installed",
        "namespaces",
        "fake_server",
        "ipmi_sim",
        "real_registry",
        "serve_behind_nginx",
    }
)
"""Functions that do; a module that has one is about real parts as a whole."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test is `fast` if it needs no real parts, starts no program and is not slow, as the chaos harness is.

    tests/no_programs.py fails a `fast` test that starts one.
    """
    for item in items:
        fixtures, module = getattr(item, "fixturenames", ()), getattr(item, "module", None)
        needs_real_parts = not REAL_PARTS.isdisjoint(fixtures) or not REAL_HELPERS.isdisjoint(vars(module or object))
        is_marked = any(item.get_closest_marker(name) is not None for name in ("programs", "slow"))
        if not needs_real_parts and "quiet_logs" not in fixtures and not is_marked:
            item.add_marker("fast")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    return _failed_if_skipped((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[None]:
    return _failed_if_skipped((yield))


def _failed_if_skipped(report: Any) -> Any:
    """In CI every part is there: a skip, for whatever reason, is a failure."""
    if IN_CI and report.outcome == "skipped" and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped with CI=true: {report.longrepr}"
    return report


@pytest.fixture(scope="session", autouse=True)
def _loggers_are_not_cached() -> Iterator[None]:
    """A logger that was cached outlives the configuration of the test that used it first."""
    configure = structlog.configure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structlog, "configure", lambda **more: configure(**more | {"cache_logger_on_first_use": False}))
        yield


@pytest.fixture(autouse=True)
def _logging_is_configured_as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def make_httpserver() -> Iterator[HttpPeer]:
    """The server behind pytest-httpserver's fixture `httpserver`; the default one has no threads."""
    from tests.http_peer import HttpPeer  # a guest of the lab that runs tests has no pytest-httpserver

    with HttpPeer() as server:
        yield server


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The Kubernetes programs."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    try:
        # What takes minutes is done before: tests/prepare.py.
        return find_binaries(
            assets=Path(assets) if assets else None, cache=CACHE, allow_download=False, allow_build=False
        )
    except NeedsHuman as error:
        missing(f"a control plane ({error})")


@pytest.fixture(scope="session")
def control_plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running control plane with the project's manifests in it. It shares two cores with emulated machines: whoever
    connects to it is more patient than with a real one."""
    from lab.control_plane.plane import ControlPlane
    from provisioner.cluster import transport
    from provisioner.cluster.client import Cluster

    with (
        pytest.MonkeyPatch.context() as patch,
        ControlPlane(tmp_path_factory.mktemp("control-plane"), binaries, node_grace="1h") as plane,
    ):
        patch.setattr(transport, "CONNECT_SECONDS", 30.0)
        install(Cluster.connect(plane.kubeconfig))
        yield plane


def install(cluster: Cluster, *, without: str | None = None) -> None:
    """Apply what `provisioner manifests` prints, so that every test runs against the CRDs, roles and policies of users.
    Tried again while a new API server does not answer in time.

    without: a kind that is left out, by who shows what it is for.
    """
    from provisioner.api.machinery.errors import Retryable

    deadline = time.monotonic() + 300
    while True:
        try:
            return _install(cluster, without)
        except Retryable:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def _install(cluster: Cluster, without: str | None) -> None:
    from provisioner.cli.service.manifests import all_manifests
    from provisioner.cluster.failures import Busy
    from provisioner.cluster.resources import CRDS, KNOWN
    from tests.people import wait_for_all_policies

    def is_served(manifest: dict[str, Any]) -> bool:
        conditions = (cluster.get(CRDS, manifest["metadata"]["name"]).get("status") or {}).get("conditions") or ()
        if not any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            return False
        with suppress(Busy):  # for a second after that
            cluster.list(KNOWN[API_VERSION, manifest["spec"]["names"]["kind"]])
            return True
        return False

    crds = [manifest for manifest in all_manifests() if manifest["kind"] == "CustomResourceDefinition"]
    for manifest in crds:
        cluster.apply(manifest, manager="tests")
    deadline = time.monotonic() + 180
    while not all(is_served(manifest) for manifest in crds):
        assert time.monotonic() < deadline, "the CRDs are not served"
        time.sleep(0.05)
    for manifest in all_manifests():
        if manifest not in crds and manifest["kind"] != without:
            cluster.apply(manifest, manager="tests")
    wait_for_all_policies(cluster)


@pytest.fixture(scope="session")
def cluster(control_plane: ControlPlane) -> Cluster:
    """The administrator's door to the shared control plane."""
    from provisioner.cluster.client import Cluster

    return Cluster.connect(control_plane.kubeconfig, user_agent="provisioner-tests").with_timeout(ANSWER_SECONDS)


@pytest.fixture(scope="session")
def account(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Cluster]:
    """The cluster as `provisioner-<name>` sees it: with the shipped rights and policies, and no more."""
    from provisioner.cluster.client import Cluster
    from tests.people import kubeconfig_of, of_account, until

    folder = tmp_path_factory.mktemp("accounts")

    @cache
    def connect(name: str) -> Cluster:
        kubeconfig = kubeconfig_of(control_plane, folder, of_account(name))
        found = Cluster.connect(kubeconfig, user_agent="provisioner-tests").with_timeout(ANSWER_SECONDS)
        until(lambda: may_begin(found))
        return found

    return connect


@pytest.fixture(scope="session")
def controller_account(account: Callable[[str], Cluster]) -> Cluster:
    """The account by which all controllers run; a stage's folder has that of its own controller in its place."""
    return account("controller")


def may_begin(account: Cluster) -> bool:
    """Rights are in force a moment after they were applied."""
    from provisioner.api import Server
    from provisioner.api.machinery.errors import Refused
    from provisioner.cluster.resources import of

    try:
        account.list(of(Server))
    except Refused:
        return False
    return True


@pytest.fixture
def unique() -> str:
    """A name that no other test uses: a DNS label of 9 characters, to be used as a prefix."""
    return f"t{uuid.uuid4().hex[:8]}"
