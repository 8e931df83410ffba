"""What each of the services' accounts can do in the hands of a thief: tried on a real API server, as shipped.

The table of docs/stolen-accounts.md is what came of it; GOLDEN=write writes it anew.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import (
    VPC,
    AddressBlock,
    DPUNetwork,
    FirmwareProfile,
    Image,
    Maintenance,
    NetworkClaim,
    NetworkPool,
    NodePool,
    Rack,
    SecurityGroup,
    Server,
    VPCAttachment,
)
from provisioner.api.machinery.errors import Refused
from provisioner.cli.service.groups import GROUPS, account_of
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import (
    ATTESTATION_SECRETS,
    BMC_SECRETS,
    CLUSTER_ROLES,
    CSRS,
    JOBS,
    LEASES,
    NODE_LEASES,
    NODES,
    PODS,
    SECRETS,
    SLURM_SECRETS,
    SYSTEM,
    of,
)
from provisioner.join.challenge_keys import SECRET_NAME
from provisioner.network.control.grants import grant_name, role_of
from tests.api import bad_attestation, objects
from tests.attacks.powers import CONDITIONS, CURRENT_ORDER, STATUS, Power, Scene, csr_body, job_body, powers, token_body
from tests.network.control import objects as networks
from tests.people import IN_FORCE_SECONDS, kubeconfig_of, until

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "stolen-accounts.md"
BEGIN, END = "<!-- begin of what the tests write -->\n", "<!-- end of what the tests write -->\n"
COLUMNS = ("boot", *GROUPS, "web", "controller")
Outcomes = dict[tuple[str, str], dict[str, bool]]
"""By section and words of the power: who has it."""


@pytest.fixture(scope="module")
def scene(control_plane: ControlPlane, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    made = Scene(cluster, f"t{os.urandom(4).hex()}")
    folder = tmp_path_factory.mktemp("thieves")
    _objects(made)
    _networks(made)
    _nodes_and_pods(made)
    for namespace in ("kube-system", SYSTEM, BMC_SECRETS, SLURM_SECRETS):
        body = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "stringData": {"password": "secret"}}
        cluster.create(SECRETS, body | {"metadata": {"name": f"{made.unique}-secret", "namespace": namespace}})
    if cluster.find(SECRETS, SECRET_NAME, namespace=ATTESTATION_SECRETS) is None:
        keys = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET_NAME}, "type": "Opaque"}
        cluster.create(SECRETS, keys, namespace=ATTESTATION_SECRETS)
    cluster.create(of(FirmwareProfile), bad_attestation.profile() | {"metadata": {"name": made.unique}})
    cluster.create(SECRETS, token_body(f"bootstrap-token-{made.unique[2:8]}", made.server))
    others = token_body(f"bootstrap-token-{made.unique[3:9]}", made.server)
    cluster.create(SECRETS, others | {"metadata": others["metadata"] | {"labels": {}}})
    cluster.create(JOBS, job_body(made, {}, {}) | {"metadata": {"name": f"{made.unique}-job"}}, namespace=CHECKS)
    if cluster.find(LEASES, "provisioner-controller", namespace=SYSTEM) is None:
        metadata = {"name": "provisioner-controller", "namespace": SYSTEM}
        cluster.create(LEASES, {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": {}})

    def impersonated(user: str, *groups: str) -> Cluster:
        return Cluster.connect(control_plane.kubeconfig, as_user=user, as_groups=groups)

    node = Cluster.connect(kubeconfig_of(control_plane, folder, f"system:node:{made.server}", group="system:nodes"))
    token = impersonated("system:bootstrap:abcdef", "system:bootstrappers:provisioner")
    serving, both = ["digital signature", "server auth"], ["digital signature", "client auth", "server auth"]
    for name, who, body in (
        ("token", token, None),
        ("serving", token, csr_body(made.foreign, signer="kubernetes.io/kubelet-serving", usages=serving)),
        ("uses", token, csr_body(made.foreign, usages=both)),
        ("long", token, csr_body(made.foreign, expirationSeconds=7 * 86400)),
        ("actor", impersonated(f"system:node:{made.server}", "system:nodes"), csr_body(made.server)),
        ("node", node, csr_body(made.server)),
        ("person", cluster, None),
        ("kubeadm", impersonated("system:bootstrap:abcdef", "system:bootstrappers:kubeadm", "system:masters"), None),
        ("account", impersonated("system:serviceaccount:default:default", *ACCOUNT_GROUPS), None),
        ("client", cluster, csr_body(made.foreign, signer="kubernetes.io/kube-apiserver-client")),
    ):
        made.csrs[name] = who.create(CSRS, body or csr_body(made.foreign))
    yield made
    _tidy_up(made)


CHECKS = "provisioner-checks"
ACCOUNT_GROUPS = ("system:masters", "system:bootstrappers:provisioner")


def _objects(scene: Scene) -> None:
    cluster, name = scene.admin, scene.unique
    octets = [int(name[n : n + 2], 16) for n in (1, 3, 5)]
    mac = "52:54:" + ":".join(f"{octet:02x}" for octet in (*octets, int(name[7:9], 16)))
    scene.block = f"10.{octets[0]}.{octets[1]}.0"
    cluster.create(of(Rack), objects.rack(name))
    cluster.create(of(Image), objects.image(name))
    cluster.create(of(NodePool), objects.node_pool(name, imageRef=name))
    cluster.create(of(Server), objects.server(name, rackRef=name, bootMACAddress=mac, acceptance="Accepted"))
    order = {"id": CURRENT_ORDER, "reason": "FirstBoot", "orderedTime": "2026-01-01T00:00:00Z", "attempt": 1}
    cluster.apply_status(Server, name, {"order": order}, manager="provisioner-boot-controller")
    other = mac.replace("52:54", "52:55")
    pending = objects.server(f"unknown-{name}", rackRef=name, bootMACAddress=other, acceptance="Pending")
    cluster.create(of(Server), pending)
    cluster.create(of(AddressBlock), objects.address_block(scene.block, claims={}))
    asked = objects.maintenance(f"{name}-1", serverRef=name, requestors=[{"name": "user-ada", "action": "Reboot"}])
    asked["metadata"]["finalizers"] = ["provisioner.dev/release"]
    cluster.create(of(Maintenance), asked)


def _networks(scene: Scene) -> None:
    cluster, name = scene.admin, scene.unique
    if cluster.find(of(NetworkPool), "default") is None:
        cluster.create(of(NetworkPool), networks.pool(10001, 20000))
    for kind, body in (
        (VPC, networks.vpc("default", name)),
        (VPCAttachment, networks.attachment("default", name, name)),
        (SecurityGroup, networks.group("default", name)),
        (NetworkClaim, networks.claim(f"port.{name}.pf0", "Port", f"{name}/pf0", "default", name)),
        (NetworkClaim, networks.claim(f"port.{name}.pf1", "Port", f"{name}/pf1", "default", name)),
        (DPUNetwork, {**networks.API_OBJECT, "kind": "DPUNetwork", "metadata": {"name": name},
                      "spec": {"vtepAddress": "10.255.255.1"}}),
    ):  # fmt: skip
        cluster.create(of(kind), body)
    released = {"releasedTime": "2026-01-01T00:00:00Z"}
    cluster.create(CLUSTER_ROLES, role_of(name))
    cluster.apply_status(NetworkClaim, f"port.{name}.pf1", released, manager="provisioner-network")


def _nodes_and_pods(scene: Scene) -> None:
    cluster = scene.admin
    marks = {"provisioner.dev/server-uid": str(cluster.read(Server, scene.server).metadata.uid)}
    taints = [
        {"key": "example.com/pool", "effect": "NoSchedule"},
        {"key": "provisioner.dev/verification", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/example", "effect": "NoSchedule"},
    ]
    for name, marked, spec in (
        (scene.server, marks, {"taints": taints}),
        (scene.bare, marks, {}),
        (scene.foreign, {}, {"taints": taints}),
    ):
        metadata = {"name": name, "annotations": marked}
        cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    asked = [
        {"type": f"provisioner.dev/{name}Requested", "status": "True", "reason": "WhenIdle", "message": "by a test"}
        for name in ("Drain", "VerificationRetry")
    ]
    cluster.strategic_patch(NODES, scene.server, {"status": {"conditions": asked}}, subresource="status")
    metadata = {"name": scene.server, "namespace": NODE_LEASES}
    cluster.create(LEASES, {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": metadata, "spec": {}})
    spec = {"containers": [{"name": "main", "image": "example.com/a"}], "nodeName": scene.server}
    for namespace in ("default", "kube-system"):
        metadata = {"name": scene.unique, "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        until(lambda body=body: _is_made(cluster, body))  # type: ignore[misc]


def _is_made(cluster: Cluster, pod: dict[str, Any]) -> bool:
    """A namespace that is new gets its ServiceAccount, without which no pod is made, a moment later."""
    try:
        cluster.create(PODS, pod)
    except Refused:
        return False
    return True


def _tidy_up(scene: Scene) -> None:
    cluster, name = scene.admin, scene.unique
    cluster.patch(of(Maintenance), f"{name}-1", {"metadata": {"finalizers": None}})
    for kind, names in (
        (Maintenance, (f"{name}-1",)),
        (Server, (name, f"unknown-{name}")),
        (NodePool, (name,)),
        (Image, (name,)),
        (Rack, (name,)),
        (AddressBlock, (scene.block,)),
        (NetworkClaim, (f"port.{name}.pf0", f"port.{name}.pf1")),
        (DPUNetwork, (name,)),
        (FirmwareProfile, (name,)),
    ):
        for each in names:
            cluster.delete(of(kind), each)
    cluster.delete(CLUSTER_ROLES, grant_name(name))
    for kind in (VPC, VPCAttachment, SecurityGroup):
        cluster.delete(of(kind), name, namespace="default")
    for each in (scene.server, scene.bare, scene.foreign):
        cluster.delete(NODES, each)
    for csr in scene.csrs.values():
        cluster.delete(CSRS, csr["metadata"]["name"])
    cluster.delete(LEASES, name, namespace=NODE_LEASES)
    cluster.delete(LEASES, "provisioner-controller", namespace=SYSTEM)
    cluster.delete(JOBS, f"{name}-job", namespace=CHECKS)
    for token in (name[2:8], name[3:9]):
        cluster.delete(SECRETS, f"bootstrap-token-{token}", namespace="kube-system")
    for namespace in ("kube-system", SYSTEM, BMC_SECRETS, SLURM_SECRETS):
        cluster.delete(SECRETS, f"{name}-secret", namespace=namespace)
    for namespace in ("default", "kube-system"):
        cluster.delete(PODS, name, namespace=namespace)


def has(cluster: Cluster, power: Power) -> bool:
    """Whether one of its requests is allowed. What is neither allowed nor refused is an error of the test."""
    for request in power.requests:
        try:
            request(cluster)
        except Refused:
            continue
        return True
    return False


@pytest.fixture(scope="module")
def thieves(control_plane: ControlPlane, account: Callable[[str], Cluster]) -> dict[str, Cluster]:
    return {name: account(name) for name in COLUMNS}


def outcomes_of(scene: Scene, thieves: dict[str, Cluster], told: Outcomes) -> Outcomes:
    """Try everything. What is refused and should not be, as `told`, is tried again for a while: rights that were just
    given are in force a moment later; all policies are by now."""
    found: Outcomes = {}
    deadline = time.monotonic() + IN_FORCE_SECONDS
    for power in powers(scene):
        key = (power.section, power.words)
        found[key] = {}
        for name, thief in thieves.items():
            found[key][name] = has(thief, power)
            while told.get(key, {}).get(name) and not found[key][name] and time.monotonic() < deadline:
                time.sleep(0.5)
                found[key][name] = has(thief, power)
    return found


def read_table(text: str) -> Outcomes:
    """What the document says."""
    told: Outcomes = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("| **"):
            section = line.split("**")[1]
        elif line.startswith("| ") and section:
            words, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            told[section, words.strip("`")] = {name: cell == "yes" for name, cell in zip(COLUMNS, cells, strict=True)}
    return told


def written(outcomes: Outcomes) -> str:
    """The table. The account of the process has what it has itself, and what those have as which it acts."""
    lines = ["| power | " + " | ".join(COLUMNS) + " |", "|---|" + "---|" * len(COLUMNS)]
    for section, rows in itertools.groupby(outcomes.items(), key=lambda item: item[0][0]):
        lines.append(f"| **{section}** |" + " |" * len(COLUMNS))
        for (_, words), who in rows:
            named = f"`{words}`" if section == STATUS and not words.startswith("condition") else words
            lines.append(f"| {named} | " + " | ".join(cell(who, name) for name in COLUMNS) + " |")
    return "\n".join(lines) + "\n"


def cell(who: dict[str, bool], name: str) -> str:
    if who[name]:
        return "yes"
    return next((f"as {group}" for group in GROUPS if who[group]), "") if name == "controller" else ""


def differences(found: Outcomes, told: Outcomes) -> list[str]:
    return [
        f"provisioner-{name} {'may' if can else 'may not'}: {words} ({section})"
        for (section, words), who in found.items()
        for name, can in who.items()
        if told.get((section, words), {}).get(name) != can
    ]


def test_the_table_says_what_each_stolen_account_can_do(scene: Scene, thieves: dict[str, Cluster]) -> None:
    head, _, rest = DOCUMENT.read_text().partition(BEGIN)
    table, _, tail = rest.partition(END)
    writes = os.environ.get("GOLDEN") == "write"
    found = outcomes_of(scene, thieves, {} if writes else read_table(table))
    if writes:
        DOCUMENT.write_text(head + BEGIN + written(found) + END + tail)
        return
    wrong = differences(found, read_table(table))
    assert not wrong, "\n".join(["docs/stolen-accounts.md says otherwise; if that is meant: GOLDEN=write", *wrong])
    assert written(found) == table, "docs/stolen-accounts.md differs; if that is meant: GOLDEN=write"


def test_an_administrator_may_do_all_that_is_tried(scene: Scene, cluster: Cluster) -> None:
    """Else a power would be refused for another reason than the thief's lack of it."""
    for power in powers(scene):
        if power.refused_to_all:
            continue
        for request in power.requests:
            try:
                request(cluster)
            except Refused as error:
                pytest.fail(f"{power.section}, {power.words}: {error}")


def test_the_account_of_the_process_acts_as_the_others_and_as_nobody_else(thieves: dict[str, Cluster]) -> None:
    for group in GROUPS:
        assert thieves["controller"].acting_as(account_of(group)).ask_who_i_am() == account_of(group)
    for other in ("system:serviceaccount:kube-system:default", account_of("boot"), account_of("controller"), "ada"):
        with pytest.raises(Refused, match="cannot impersonate"):
            thieves["controller"].acting_as(other).ask_who_i_am()
    for name, thief in thieves.items():
        for group in set(GROUPS) if name != "controller" else ():
            with pytest.raises(Refused, match="cannot impersonate"):
                thief.acting_as(account_of(group)).ask_who_i_am()


def test_who_writes_what_in_the_architecture_is_what_the_table_says() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    rows = [line for line in text.split("## Who writes what")[1].split("\n## ")[0].splitlines() if "Server:" in line]
    said: dict[str, set[str]] = {}
    for row in rows:
        account, writes = (cell.strip() for cell in row.strip("|").split("|")[1:3])
        of_server = writes.split("Server:")[1].split(";")[0]
        fields = {field.removeprefix("status.") for field in re.findall(r"`([\w.]+)`", of_server)}
        fields |= {f"condition {word}" for word in re.findall(r"\b[A-Z]\w+", of_server) if word in CONDITIONS}
        for field in fields:
            said.setdefault(field, set()).add(account.strip("`").removeprefix("provisioner-"))
    told = read_table(DOCUMENT.read_text())
    tried = {words: {n for n in who if who[n]} for (section, words), who in told.items() if section == STATUS}
    assert said == tried
