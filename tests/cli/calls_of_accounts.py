"""Which requests the services make of the API server, read out of their source.

A call counts where a method of the client (`get`, `list`, `patch`…) is given a kind: a constant of
`provisioner.cluster.resources`, `of(Kind)` or a class of `provisioner.api`. A function that passes a kind on to such a
call counts as that call, and what a reconciler owns of a status (`owned_by`) as a write of it. What cannot be read so
is in OPAQUE.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import provisioner
from provisioner import api
from provisioner.api.machinery.meta import Resource
from provisioner.cli.service.groups import GROUPS, GroupContext
from provisioner.cli.service.informers import SharedInformers
from provisioner.cluster import resources
from provisioner.cluster.metrics import Meters
from provisioner.cluster.resources import KNOWN, ResourceType, of
from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.fake_events import FakeEvents

ROOT: Final = Path(provisioner.__file__).parent

VERBS: Final = {
    "get": ("get", ""),
    "find": ("get", ""),
    "read": ("get", ""),
    "list": ("list", ""),
    "read_all": ("list", ""),
    "create": ("create", ""),
    "replace": ("update", ""),
    "patch": ("patch", ""),
    "strategic_patch": ("patch", ""),
    "patch_seen": ("patch", ""),
    "apply": ("patch", ""),
    "apply_status": ("patch", "/status"),
    "delete": ("delete", ""),
    "evict": ("create", "/eviction"),
}
OPAQUE: Final[dict[str, set[tuple[str, str]]]] = {
    # By whichever of two kinds of patch it takes.
    "maintenance/effects.py": {("patch", "nodes/status")},
    # What is applied is made if it is not there.
    "network/infiniband/controller.py": {
        ("patch", "infinibandnetworks"),
        ("create", "infinibandnetworks"),
    },
    # The one call that names no kind, because there is only one.
    "jobs/pod_workloads.py": {("create", "pods/eviction")},
    # Bodies that are made elsewhere: what is applied is made if it is not there.
    "network/control/dpus.py": {("patch", "dpunetworks"), ("create", "dpunetworks")},
    "network/control/grants.py": {
        (verb, kind) for verb in ("patch", "create") for kind in ("clusterroles", "clusterrolebindings")
    },
    # Of whichever of two kinds the holder of a claim is.
    "network/control/claims/release.py": {("get", "vpcs"), ("get", "vpcattachments")},
}
NOT_BY_SERVICES: Final = {"inventory/registrar.py"}
"""Stages' modules that people's commands use."""
OF_GROUPS: Final = ("cluster/events.py", "cluster/leader.py")
"""Of each group of controllers: its Events, and its Lease where it runs alone."""
CODE: Final[dict[str, tuple[str, ...]]] = {
    "boot": (
        *("boot/dhcp/", "boot/host/", "boot/observe/", "boot/script/", "cluster/events.py"),
        *("join/admission/service.py", "join/admission/tpm/", "cli/service/join_service.py"),
    ),
    "controller": ("cli/service/controllers.py", "cli/service/controller.py", "cluster/leader.py"),
    "inventory": ("inventory/", *OF_GROUPS),
    "orders": ("boot/orders/", "image/trust/controller.py", *OF_GROUPS),
    "join": ("join/controller.py", "join/nodes/", *OF_GROUPS),
    "approver": ("join/certificates/", "join/credentials/controller.py", "join/tokens/stale_tokens.py", *OF_GROUPS),
    "health": ("health/", *OF_GROUPS),
    "maintenance": ("maintenance/", "rules/filing.py", "jobs/", *OF_GROUPS),
    "rollout": ("rollout/", "rules/filing.py", "jobs/slurm/", *OF_GROUPS),
    "power": ("power/", *OF_GROUPS),
    "network": ("network/control/", *OF_GROUPS),
    "infiniband": (
        *("network/infiniband/controller.py", "network/infiniband/pkey_controller.py", "network/infiniband/ufm/"),
        "cluster/leader.py",
    ),
    "web": ("web/", "cluster/leadership.py", "cluster/recent_events.py"),
    "authorizer": ("cli/service/authorizer.py",),
}
"""Files and folders by account."""

Right = tuple[str, str]
"""Verb and resource, with its subresource: ("patch", "servers/status")."""


def rights_needed(account: str) -> dict[Right, set[str]]:
    """What the code of `account` asks of the API server, and the files that ask."""
    wrappers = _wrappers()
    needed: dict[Right, set[str]] = {}
    for kind in _followed(account):
        for verb in ("list", "watch"):
            needed.setdefault((verb, kind.plural), set()).add("cli/service/groups.py")
    for name in _files(account):
        found = {*_calls(name, wrappers), *_owned(name)} | OPAQUE.get(name, set())
        for right in found:
            needed.setdefault(right, set()).add(name)
    return needed


def unreadable_calls(account: str) -> list[str]:
    """Calls of the client whose kind cannot be told, in files that OPAQUE does not name."""
    wrappers = _wrappers()
    return [
        f"{name}:{call.lineno} {ast.unparse(call)[:80]}"
        for name in _files(account)
        if name not in OPAQUE
        for function in _functions(name)
        for call in ast.walk(function.node)
        if isinstance(call, ast.Call) and _is_the_clients(call) and not _kinds(call, function.bound)
        if function.node.name not in wrappers.get(name, {}) and ast.unparse(call.func).rpartition(".")[2] in VERBS
    ]


@dataclass(frozen=True)
class _Function:
    """`bound`: names that a comprehension or an assignment gives kinds to."""

    node: ast.FunctionDef
    parameters: frozenset[str]
    bound: dict[str, list[ResourceType]]


def _followed(account: str) -> list[ResourceType]:
    """What the groups of controllers that read by `account` follow: all of them by that of the process."""
    cluster: Any = FakeCluster()
    informers = SharedInformers(cluster)
    shared = GroupContext(
        informers=informers,
        clock=lambda: datetime.now(UTC),
        boot_url="http://10.80.0.1",
        power_poll_seconds=10.0,
        meters=Meters(causes=(), checks=()),
        stop=threading.Event(),
    )
    for name, build in GROUPS.items():
        if account in ("controller", name):
            build(cluster, FakeEvents(), shared)
    return [informer._type for informer in informers.made]


def _files(account: str) -> Iterator[str]:
    for path in sorted(ROOT.rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name.startswith(CODE[account]) and name not in NOT_BY_SERVICES:
            yield name


@cache
def _functions(name: str) -> list[_Function]:
    """Read once: ten accounts are asked for."""
    tree = ast.parse((ROOT / name).read_text())
    return [
        _Function(node, frozenset(each.arg for each in (*node.args.args, *node.args.kwonlyargs)), _bound(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    ]


def _bound(function: ast.FunctionDef) -> dict[str, list[ResourceType]]:
    found: dict[str, list[ResourceType]] = {}
    for each in ast.walk(function):
        if isinstance(each, ast.GeneratorExp | ast.ListComp):
            for generator in each.generators:
                if isinstance(generator.target, ast.Name) and isinstance(generator.iter, ast.Tuple):
                    kinds = [kind for item in generator.iter.elts for kind in _kind(item, {})]
                    found.setdefault(generator.target.id, []).extend(kinds)
        if isinstance(each, ast.Assign):
            given = [(each.targets[0], each.value)]
            if isinstance(each.targets[0], ast.Tuple) and isinstance(each.value, ast.Tuple):
                given = list(zip(each.targets[0].elts, each.value.elts, strict=False))
            for target, value in given:
                if isinstance(target, ast.Name) and (kinds := _kind(value, {})):
                    found.setdefault(target.id, []).extend(kinds)
    return found


@cache
def _wrappers() -> dict[str, dict[str, set[tuple[str, str]]]]:
    """By file: functions that pass a parameter of theirs on as the kind, and the verbs that they amount to."""
    found: dict[str, dict[str, set[tuple[str, str]]]] = {}
    for path in ROOT.rglob("*.py"):
        name = str(path.relative_to(ROOT))
        functions, local = _functions(name), found.setdefault(name, {})
        for _ in range(3):  # one wrapper may call another
            for function in functions:
                for call in ast.walk(function.node):
                    if isinstance(call, ast.Call) and _passes_on(call, function.parameters):
                        verbs = _verbs(call, local)
                        if verbs:
                            local.setdefault(function.node.name, set()).update(verbs)
    return found


def _passes_on(call: ast.Call, parameters: frozenset[str]) -> bool:
    """Whether one of its first two arguments is a parameter that may be a kind, or `of` it."""
    for argument in call.args[:2]:
        inner = argument.args[0] if isinstance(argument, ast.Call) and _called(argument) == "of" else argument
        if isinstance(inner, ast.Name) and inner.id in parameters & {"type_", "type", "kind"}:
            return True
    return False


def _calls(name: str, wrappers: dict[str, dict[str, set[tuple[str, str]]]]) -> Iterator[Right]:
    for function in _functions(name):
        for call in ast.walk(function.node):
            if not isinstance(call, ast.Call):
                continue
            informs = _called(call) == "Informer"
            verbs = {("list", ""), ("watch", "")} if informs else _verbs(call, wrappers.get(name, {}))
            for kind in _kinds(call, function.bound) if verbs else ():
                for verb, subresource in verbs:
                    yield verb, kind.plural + (subresource or _subresource(call))


def _owned(name: str) -> Iterator[Right]:
    """Statuses of which a reconciler in the file owns a part: the frame writes them."""
    for call in ast.walk(ast.parse((ROOT / name).read_text())):
        if isinstance(call, ast.Call) and _called(call) == "owned_by":
            yield from (("patch", f"{kind.plural}/status") for kind in _kinds(call, {}))


def _verbs(call: ast.Call, local: dict[str, set[tuple[str, str]]]) -> set[tuple[str, str]]:
    called = _called(call)
    if isinstance(call.func, ast.Attribute) and called in VERBS:
        reads_a_cache = ast.unparse(call.func.value).endswith("caches")
        return set() if reads_a_cache else {VERBS[called]}
    return local.get(called, set())


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _is_the_clients(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in VERBS:
        return False
    return ast.unparse(call.func.value).rpartition(".")[2].lstrip("_") in ("cluster", "client")


def _subresource(call: ast.Call) -> str:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "subresource"]
    return f"/{given[0].value}" if given and isinstance(given[0], ast.Constant) else ""


def _kinds(call: ast.Call, bound: dict[str, list[ResourceType]]) -> list[ResourceType]:
    """The kind among its first three arguments; or of the body that is written there."""
    for argument in call.args[:3]:
        if found := _kind(argument, bound):
            return found
    if call.args and isinstance(call.args[0], ast.Dict):
        pairs = zip(call.args[0].keys, call.args[0].values, strict=True)
        words = {ast.literal_eval(k): ast.literal_eval(v) for k, v in pairs if k and isinstance(v, ast.Constant)}
        return [KNOWN[(words["apiVersion"], words["kind"])]] if {"apiVersion", "kind"} <= words.keys() else []
    return []


def _kind(node: ast.expr, bound: dict[str, list[ResourceType]]) -> list[ResourceType]:
    if isinstance(node, ast.Call) and _called(node) == "of" and node.args:
        return _kind(node.args[0], bound)
    if not isinstance(node, ast.Name):
        return []
    if node.id in bound:
        return bound[node.id]
    constant = getattr(resources, node.id, None)
    if isinstance(constant, ResourceType):
        return [constant]
    kind = getattr(api, node.id, None)
    return [of(kind)] if isinstance(kind, type) and issubclass(kind, Resource) and kind is not Resource else []
