"""What somebody might do with a stolen account: each power as the request by which it would be tried.

Requests are dry runs: rights and policies decide as ever, and nothing is written.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from provisioner.api import Server
from provisioner.api.crd import all_crds
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.errors import Conflict
from provisioner.api.machinery.meta import rfc3339
from provisioner.cli.service.groups import GROUPS, account_of
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import (
    ACCESS_REVIEWS,
    ATTESTATION_SECRETS,
    BMC_SECRETS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CSRS,
    EVENTS,
    JOBS,
    LEASES,
    NODE_LEASES,
    NODES,
    PODS,
    SECRETS,
    SLURM_SECRETS,
    SYSTEM,
    ResourceType,
)
from provisioner.join.challenge_keys import SECRET_NAME
from provisioner.network.control.grants import binding_of, role_of
from tests.api import bad_attestation, objects
from tests.join.world import certificate_pem
from tests.network.control import objects as networks

BINDINGS = ResourceType("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings")
ACCOUNTS = ResourceType("", "v1", "ServiceAccount", "serviceaccounts", namespaced=True)
OURS = "/apis/provisioner.dev/v1alpha1"
NOWHERE = {"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "00000000-0000-4000-8000-000000000000"}
VERIFICATION = "provisioner.dev/verification"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Power:
    """Had by who may make one of `requests`. refused_to_all: an administrator may not, either."""

    section: str
    words: str
    requests: tuple[Callable[[Cluster], object], ...]
    refused_to_all: bool = False


@dataclass
class Scene:
    """Objects to do it to, all named after `unique`."""

    admin: Cluster
    unique: str
    csrs: dict[str, dict[str, Any]] = field(default_factory=dict)
    block: str = ""

    @property
    def server(self) -> str:
        return self.unique

    @property
    def bare(self) -> str:
        """A Node of the Server's kind without taints of ours."""
        return f"{self.unique}-bare"

    @property
    def foreign(self) -> str:
        """A Node that no Server has."""
        return f"{self.unique}-foreign"


def sent(
    method: str, path: str, body: Any = None, content_type: str = "application/json", **query: str
) -> Callable[[Cluster], object]:
    """A request; one that would write is a dry run."""
    asked = query if method == "GET" else {"dryRun": "All", **query}

    def send(cluster: Cluster) -> object:
        what = f"TRY {method} {path}"
        return cluster._transport.request(
            method, path, what=what, query=asked, body=copy.deepcopy(body), content_type=content_type
        )

    return send


def acting_as(user: str) -> Callable[[Cluster], object]:
    return lambda cluster: cluster.acting_as(user).ask_who_i_am()


def powers(scene: Scene) -> Iterator[Power]:
    """All of them, in the order of the table."""
    yield from _certificates(scene)
    yield from _secrets(scene)
    yield from _nodes(scene)
    yield from _jobs(scene)
    yield from _inventory(scene)
    yield from _maintenances(scene)
    yield from _networks(scene)
    yield from _status(scene)
    yield from _the_rest(scene)


def _certificates(scene: Scene) -> Iterator[Power]:
    section = "Certificates and tokens"

    def approved(which: str, type_: str = "Approved", **metadata: Any) -> Callable[[Cluster], object]:
        csr = scene.csrs[which] | {"metadata": scene.csrs[which]["metadata"] | metadata}
        moment = "2026-01-01T00:00:00Z"
        condition = {"type": type_, "status": "True", "reason": "Thief", "lastUpdateTime": moment}
        body = csr | {"status": {"conditions": [condition]}}
        return sent("PUT", CSRS.item(csr["metadata"]["name"], None, "approval"), body)

    yield Power(section, "ask for a certificate of any Node", (sent("POST", CSRS.path, csr_body(scene.foreign)),))
    yield Power(section, "approve one for any name, asked for by a bootstrap token of ours", (approved("token"),))
    yield Power(section, "approve one that a Node asks for: for its own name (NodeRestriction)", (approved("node"),))
    yield Power(section, "approve one that a person, an account or a token of others asks for", (
        approved("person"), approved("kubeadm"), approved("account"), approved("actor"),
    ))  # fmt: skip
    yield Power(section, "approve one for another use: any client of the API server", (
        approved("client"), approved("serving"), approved("uses"), approved("long"),
    ))  # fmt: skip
    yield Power(section, "deny a request of a kubelet of ours", (approved("token", "Denied"),))
    yield Power(section, "deny one for a kubelet's use that anybody else asks for", (
        approved("person", "Denied"), approved("kubeadm", "Denied"),
    ))  # fmt: skip
    yield Power(section, "deny one for another use", (approved("client", "Denied"),))
    yield Power(section, "write owners, finalizers or labels of a request, or that it has failed", (
        approved("token", "Denied", ownerReferences=[NOWHERE]), approved("token", finalizers=["example.com/mine"]),
        approved("token", labels={"example.com/mine": "x"}), approved("token", annotations={"example.com/mine": "x"}),
        approved("token", "Failed"),
    ))  # fmt: skip
    tokens = SECRETS.collection("kube-system")
    ours = token_body(f"bootstrap-token-{scene.unique[1:7]}", scene.server)
    theirs = token_body(f"bootstrap-token-{scene.unique[1:7]}", scene.server, group="system:bootstrappers:kubeadm")
    yield Power(section, "make a bootstrap token of ours", (sent("POST", tokens, ours),))
    yield Power(section, "make one of another group, such as kubeadm's", (sent("POST", tokens, theirs),))
    lasting = [ours | {"stringData": ours["stringData"] | {"expiration": until}} for until in ("", in_minutes(70))]
    signing = ours | {"stringData": ours["stringData"] | {"usage-bootstrap-signing": "true"}}
    kept = ours | {"metadata": ours["metadata"] | {"finalizers": ["example.com/mine"]}}
    yield Power(section, "make one that is good for more than an hour, or cannot be deleted, or signs", tuple(
        sent("POST", tokens, body) for body in (*lasting, signing, kept)
    ))  # fmt: skip
    yield Power(section, "read a bootstrap token", (sent("GET", f"{tokens}/bootstrap-token-{scene.unique[2:8]}"),))
    yield Power(section, "delete a bootstrap token of ours", (
        sent("DELETE", f"{tokens}/bootstrap-token-{scene.unique[2:8]}"),
    ))  # fmt: skip
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    yield Power(section, "make a token of another of these accounts", tuple(
        sent("POST", ACCOUNTS.item(f"provisioner-{name}", SYSTEM, "token"), token) for name in ("join", "maintenance")
    ))  # fmt: skip
    yield Power(section, "act as another of these accounts", tuple(
        acting_as(account_of(group)) for group in GROUPS
    ))  # fmt: skip
    body = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}}
    binding = {"apiVersion": BINDINGS.api_version, "kind": BINDINGS.kind, "metadata": {"name": scene.unique}} | body
    yield Power(section, "give itself rights", (sent("POST", BINDINGS.path, binding),))


def _secrets(scene: Scene) -> Iterator[Power]:
    section, name = "Secrets", f"{scene.unique}-secret"
    for namespace, words in (
        ("kube-system", "read a Secret of kube-system"),
        (SYSTEM, "read a Secret of provisioner-system, such as the token of an account"),
        (BMC_SECRETS, "read the password of a BMC"),
        (SLURM_SECRETS, "read the token of Slurm"),
    ):
        yield Power(section, words, (sent("GET", SECRETS.item(name, namespace)),))
    yield Power(section, "read the keys that seal challenges to TPMs", (
        sent("GET", SECRETS.item(SECRET_NAME, ATTESTATION_SECRETS)),
    ))  # fmt: skip
    yield Power(section, "list the Secrets of any of these namespaces", tuple(
        sent("GET", SECRETS.collection(namespace))
        for namespace in ("kube-system", SYSTEM, BMC_SECRETS, SLURM_SECRETS, ATTESTATION_SECRETS)
    ))  # fmt: skip
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{scene.unique}-made"}, "type": "Opaque"}
    yield Power(section, "make or change a Secret that is no bootstrap token", tuple(
        request
        for namespace in ("kube-system", SYSTEM, BMC_SECRETS, SLURM_SECRETS)
        for request in (
            sent("POST", SECRETS.collection(namespace), made),
            sent("PATCH", SECRETS.item(name, namespace), {"stringData": {"password": "mine"}}, MERGE),
        )
    ))  # fmt: skip
    yield Power(section, "delete a Secret that is no bootstrap token of ours", tuple(
        sent("DELETE", SECRETS.item(each, namespace))
        for namespace, each in (
            ("kube-system", name), (SYSTEM, name), (BMC_SECRETS, name),
            ("kube-system", f"bootstrap-token-{scene.unique[3:9]}"),
        )
    ))  # fmt: skip


def _nodes(scene: Scene) -> Iterator[Power]:
    section = "Nodes"
    ours, foreign = NODES.item(scene.server), NODES.item(scene.foreign)
    marks = {"provisioner.dev/server-uid": "made-up", "provisioner.dev/prepared-order": "made-up"}

    def new(*, spec: Any = None, status: Any = None, **metadata: Any) -> Callable[[Cluster], object]:
        named = {"name": f"{scene.unique}-new", "annotations": marks} | metadata
        body = {"apiVersion": "v1", "kind": "Node", "metadata": named, "spec": spec or {}, "status": status or {}}
        return sent("POST", NODES.path, body)

    def born(type_: str, reason: str = "Thief") -> Callable[[Cluster], object]:
        condition = {"type": type_, "status": "True", "reason": reason, "message": ""}
        return new(status={"conditions": [condition]})

    def born_tainted(key: str, effect: str) -> Callable[[Cluster], object]:
        return new(spec={"taints": [{"key": key, "effect": effect}]})

    def taints(name: str, off: str = "", **on: str) -> Callable[[Cluster], object]:
        """All that are there, without the one of key `off`, and with one more."""

        def send(cluster: Cluster) -> object:
            there = scene.admin.get(NODES, name)["spec"].get("taints") or []
            wanted = [taint for taint in there if taint["key"] != off] + ([on] if on else [])
            return sent("PATCH", NODES.item(name), {"spec": {"taints": wanted}}, MERGE)(cluster)

        return send

    def tainted(name: str, key: str, effect: str = "NoSchedule") -> Callable[[Cluster], object]:
        return taints(name, key=key, effect=effect)

    def untainted(key: str) -> Callable[[Cluster], object]:
        return taints(scene.server, off=key)

    def said(type_: str, status: str, reason: str = "Thief") -> Callable[[Cluster], object]:
        condition = {"type": type_, "status": status, "reason": reason, "message": ""}
        return sent("PATCH", f"{ours}/status", {"status": {"conditions": [condition]}}, STRATEGIC)

    def changed(path: str, **metadata: Any) -> tuple[Callable[[Cluster], object], ...]:
        """A write of the status can change these, too."""
        return tuple(sent("PATCH", f"{path}{end}", {"metadata": metadata}, MERGE) for end in ("", "/status"))

    yield Power(section, "make a Node of a name that no Server has, marked as if it were one's", (new(),))
    yield Power(section, "make a Node without that mark, of a generated name, or with the role of a control plane", (
        new(annotations={}), new(name="", generateName="any-"),
        *(new(labels={f"node-role.kubernetes.io/{role}": ""}) for role in ("control-plane", "etcd")),
    ))  # fmt: skip
    yield Power(section, "make a Node with owners or finalizers", (
        new(ownerReferences=[NOWHERE]), new(finalizers=["example.com/mine"]),
    ))  # fmt: skip
    yield Power(section, "delete a Node", (sent("DELETE", ours), sent("DELETE", foreign)))
    yield Power(section, "have a Node deleted, by an owner that is not there", changed(ours, ownerReferences=[NOWHERE]))
    yield Power(section, "keep a Node from being deleted, by a finalizer", changed(ours, finalizers=["example.com/m"]))
    yield Power(section, "change a Node that was not made for a Server", (
        *(tainted(scene.foreign, f"provisioner.dev/{key}") for key in ("maintenance", "hold", "verification")),
        tainted(scene.foreign, "example.com/mine"),
        *changed(foreign, annotations=marks), *changed(foreign, annotations={"provisioner.dev/boot-intent": "{}"}),
        *changed(foreign, labels={"example.com/mine": "x"}),
    ))  # fmt: skip
    yield Power(section, "cordon or uncordon", (
        sent("PATCH", ours, {"spec": {"unschedulable": True}}, MERGE), new(spec={"unschedulable": True}),
    ))  # fmt: skip
    yield Power(section, "put the taint provisioner.dev/verification on, which ends pods", (
        tainted(scene.bare, VERIFICATION, "NoExecute"),
    ))  # fmt: skip
    yield Power(section, "take that off, and so let a node be used", (untainted(VERIFICATION),))
    for key in ("hold", "maintenance"):
        yield Power(section, f"put the taint provisioner.dev/{key} on", (
            tainted(scene.server, f"provisioner.dev/{key}"), born_tainted(f"provisioner.dev/{key}", "NoSchedule"),
        ))  # fmt: skip
    yield Power(section, "put one of these on with the effect NoExecute, which ends pods", tuple(
        request
        for key in ("provisioner.dev/hold", "provisioner.dev/maintenance")
        for request in (tainted(scene.server, key, "NoExecute"), born_tainted(key, "NoExecute"))
    ))  # fmt: skip
    yield Power(section, "put on or take off taints of the pool and of others", (
        tainted(scene.server, "example.com/mine", "NoExecute"), untainted("example.com/pool"),
    ))  # fmt: skip
    yield Power(section, "put on or take off taints of Kubernetes, such as out-of-service", (
        tainted(scene.server, "node.kubernetes.io/out-of-service", "NoExecute"),
        born_tainted("node.kubernetes.io/out-of-service", "NoExecute"),
        untainted("node.kubernetes.io/example"),
    ))  # fmt: skip
    yield Power(section, "write labels", changed(ours, labels={"example.com/mine": "x"}))
    yield Power(section, "write the label of a control plane", tuple(
        request
        for role in ("control-plane", "master", "etcd")
        for request in changed(ours, labels={f"node-role.kubernetes.io/{role}": ""})
    ))  # fmt: skip
    for key in ("boot-intent", "prepared-order", "server-uid", "node-facts", "boot-report"):
        yield Power(section, f"write the annotation provisioner.dev/{key}", changed(
            ours, annotations={f"provisioner.dev/{key}": "{}"}
        ))  # fmt: skip
    yield Power(section, "write annotations of others", (
        *changed(ours, annotations={"example.com/mine": "x"}), new(annotations=marks | {"example.com/mine": "x"}),
    ))  # fmt: skip
    yield Power(section, "say that a Node is Ready or not", (said("Ready", "False"), born("Ready")))
    yield Power(section, "say of a Node that it drains or is in maintenance", (
        said("DrainInProgress", "True"), born("MaintenanceInProgress"),
    ))  # fmt: skip
    yield Power(section, "ask for a reboot under Now by a condition", (
        said("provisioner.dev/RebootRequested", "True", "Now"), born("provisioner.dev/DrainRequested", "WhenIdle"),
    ))  # fmt: skip
    yield Power(section, "ask for a release from verification by a condition", (
        said("provisioner.dev/VerificationReleaseRequested", "True"),
        born("provisioner.dev/VerificationReleaseRequested"),
    ))  # fmt: skip
    yield Power(section, "answer a request for a reboot", (said("provisioner.dev/RebootRequested", "False"),))
    yield Power(section, "answer a request for a verification", (
        said("provisioner.dev/VerificationRetryRequested", "False"),
    ))  # fmt: skip
    yield Power(section, "write the rest of a Node's status: addresses, capacity, images", (
        new(status={"nodeInfo": {"bootID": "mine"}}),
        new(status={"addresses": [{"type": "InternalIP", "address": "10.80.0.99"}]}),
        new(status={"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}),
        sent("PATCH", f"{ours}/status", {"status": {"capacity": {"cpu": "1000"}}}, MERGE),
        sent("PATCH", f"{ours}/status", {"status": {"nodeInfo": {"bootID": "mine"}}}, MERGE),
    ))  # fmt: skip
    lease = LEASES.item(scene.server, NODE_LEASES)
    yield Power(section, "renew a Node's Lease", (sent("PATCH", lease, {"spec": {"holderIdentity": "x"}}, MERGE),))


def _jobs(scene: Scene) -> Iterator[Power]:
    section, checks = "Pods and Jobs", JOBS.collection("provisioner-checks")

    def job(path: str = checks, pod: dict[str, Any] | None = None, **spec: Any) -> Callable[[Cluster], object]:
        return sent("POST", path, job_body(scene, pod or {}, spec))

    def of_container(**more: Any) -> Callable[[Cluster], object]:
        return job(pod={"containers": [{"name": "check", "image": "busybox"} | more]})

    host = {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}
    anywhere = job_body(scene, {}, {}, server=scene.foreign)
    yield Power(section, "run a container on any node, a Server's or not, at the PodSecurity level baseline", (
        sent("POST", checks, anywhere),
    ))  # fmt: skip
    unconfined = {"seccompProfile": {"type": "Unconfined"}}
    yield Power(section, "run one with the host's files, processes or network in provisioner-checks", (
        job(pod=host), job(pod={"hostPID": True}), job(pod={"hostNetwork": True}),
        job(pod={"securityContext": unconfined}), of_container(securityContext=unconfined),
        of_container(ports=[{"containerPort": 80, "hostPort": 10250}]),
        of_container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
    ), refused_to_all=True)  # fmt: skip
    yield Power(section, "run one with the host's files anywhere else", tuple(
        job(JOBS.collection(namespace), host) for namespace in ("default", "kube-system", SYSTEM)
    ))  # fmt: skip
    yield Power(section, "run many at once, on nodes that it does not name", (
        job(parallelism=500, completions=500), job(pod={"affinity": {}}), job(pod={"nodeName": scene.foreign}),
    ))  # fmt: skip
    yield Power(section, "run one again and again, without its labels, or one that an owner or nothing deletes", (
        job(backoffLimit=5), job(pod={"restartPolicy": "OnFailure"}), job(completionMode="Indexed"),
        job(template={"metadata": {}, "spec": job_body(scene, {}, {})["spec"]["template"]["spec"]}),
        *(
            sent("POST", checks, body | {"metadata": body["metadata"] | kept})
            for body in (job_body(scene, {}, {}),)
            for kept in ({"ownerReferences": [NOWHERE]}, {"finalizers": ["example.com/mine"]})
        ),
    ))  # fmt: skip
    ignored = {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [0]}}]}
    yield Power(section, "run one for longer than a day, or that does not end when it is to", (
        job(activeDeadlineSeconds=None), job(activeDeadlineSeconds=2**31 - 1), job(podFailurePolicy=ignored),
        job(pod={"terminationGracePeriodSeconds": 10**9}), job(ttlSecondsAfterFinished=2**31 - 1),
    ))  # fmt: skip
    yield Power(section, "run one for which others are ended, of a priority of the system's", tuple(
        job(pod={"priorityClassName": f"system-{what}-critical"}) for what in ("node", "cluster")
    ))  # fmt: skip
    yield Power(section, "delete a Job of provisioner-checks", (sent("DELETE", f"{checks}/{scene.unique}-job"),))
    pod = {"containers": [{"name": "main", "image": "example.com/a"}]}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{scene.unique}-new"}, "spec": pod}
    yield Power(section, "make a pod", tuple(
        sent("POST", PODS.collection(namespace), made) for namespace in ("default", "provisioner-checks")
    ))  # fmt: skip
    default = PODS.item(scene.unique, "default")
    yield Power(section, "delete a pod", (sent("DELETE", default),))
    for namespace, words in (("default", "evict a pod"), ("kube-system", "evict a pod of kube-system")):
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": scene.unique, "namespace": namespace},
            "deleteOptions": {"dryRun": ["All"]},
        }
        yield Power(section, words, (sent("POST", PODS.item(scene.unique, namespace, "eviction"), body),))
        at_once = body | {"deleteOptions": {"dryRun": ["All"], "gracePeriodSeconds": 0}}
        yield Power(section, f"{words}, at once: without the time that it has to end", (
            sent("POST", PODS.item(scene.unique, namespace, "eviction"), at_once),
        ))  # fmt: skip
    image = {"spec": {"containers": [{"name": "main", "image": "example.com/evil"}]}}
    yield Power(section, "change a pod", (
        sent("PATCH", default, image, STRATEGIC),
        sent("PATCH", default, {"metadata": {"labels": {"app": "mine"}}}, MERGE),
        sent("PATCH", default, {"metadata": {"ownerReferences": [NOWHERE]}}, MERGE),
    ))  # fmt: skip

    def annotated(name: str, value: str) -> Callable[[Cluster], object]:
        return sent("PATCH", default, {"metadata": {"annotations": {name: value}}}, MERGE)

    deadline = "provisioner.dev/maintenance-deadline"
    yield Power(section, "warn a pod", (annotated(deadline, "2027-01-01T00:00:00Z"),))
    yield Power(section, "write other annotations of a pod, or long ones", (
        annotated("provisioner.dev/mine", "x"), annotated("example.com/mine", "x"), annotated(deadline, "x" * 1000),
    ))  # fmt: skip


def _inventory(scene: Scene) -> Iterator[Power]:
    section, server = "Inventory", f"{OURS}/servers/{scene.server}"
    yield Power(section, "register a Server that is accepted, or has a BMC", (
        sent("POST", f"{OURS}/servers", objects.server(f"{scene.unique}-made", acceptance="Accepted")),
        sent("POST", f"{OURS}/servers", objects.server(f"unknown-{scene.unique}-a", acceptance="Accepted")),
        sent("POST", f"{OURS}/servers", objects.server(f"unknown-{scene.unique}-b", bmc=objects.bmc())),
    ))  # fmt: skip
    pending = objects.server(f"unknown-{scene.unique}-c", acceptance="Pending", bootMACAddress="52:54:00:0e:0e:0e")
    yield Power(
        section, "make an unknown machine, which waits for a person", (sent("POST", f"{OURS}/servers", pending),)
    )
    learned = bad_attestation.profile() | {"metadata": {"name": f"learned-{scene.unique}"}}
    approved = bad_attestation.profile(approved=True)
    yield Power(section, "write down firmware that was learned, which nobody has approved", (
        sent("POST", f"{OURS}/firmwareprofiles", learned),
    ))  # fmt: skip
    profile = f"{OURS}/firmwareprofiles/{scene.unique}"
    yield Power(section, "approve firmware, or change or delete a FirmwareProfile", (
        sent("POST", f"{OURS}/firmwareprofiles", approved | {"metadata": {"name": f"learned-{scene.unique}-a"}}),
        sent("POST", f"{OURS}/firmwareprofiles", learned | {"metadata": {"name": f"{scene.unique}-b"}}),
        sent("PATCH", profile, {"spec": {"approved": True}}, MERGE),
        sent("DELETE", profile),
    ))  # fmt: skip
    yield Power(section, "accept, move, switch off or change a Server", (
        sent("PATCH", server, {"spec": {"powerState": "Off"}}, MERGE),
        sent("PATCH", f"{OURS}/servers/unknown-{scene.unique}", {"spec": {"acceptance": "Accepted"}}, MERGE),
    ))  # fmt: skip
    yield Power(section, "have a Server deleted, by an owner that is not there", (
        sent("PATCH", server, {"metadata": {"ownerReferences": [NOWHERE]}}, MERGE),
    ))  # fmt: skip
    yield Power(section, "delete a Server", (sent("DELETE", server),))
    yield Power(section, "delete an unknown machine that nobody touched", (
        sent("DELETE", f"{OURS}/servers/unknown-{scene.unique}"),
    ))  # fmt: skip
    name, text = scene.unique, {"metadata": {"annotations": {"example.com/mine": "x"}}}
    yield Power(section, "change or delete a Rack, NodePool or Image", tuple(
        request
        for kind in ("racks", "nodepools", "images")
        for request in (sent("PATCH", f"{OURS}/{kind}/{name}", text, MERGE), sent("DELETE", f"{OURS}/{kind}/{name}"))
    ))  # fmt: skip
    yield Power(section, "claim addresses", (
        sent("PATCH", f"{OURS}/addressblocks/{scene.block}", {"spec": {"claims": {"10.80.0.99": scene.server}}}, MERGE),
    ))  # fmt: skip
    yield Power(section, "say that a rack's cache is good", (
        applied("Rack", name, {"conditions": [condition("CacheAvailable")]}),
        applied("Rack", name, {"cacheReports": [{"host": "thief", "time": "2026-01-01T00:00:00Z"}]}),
    ))  # fmt: skip
    ready = {"conditions": [condition("Ready")]}
    for kind, *statuses in (
        ("Rack", ready),
        ("NodePool", ready),
        ("Image", {"conditions": [condition("Available")]}, {"lackingHost": "thief"}),
    ):
        yield Power(section, f"say that {kind}s are ready or available", tuple(
            applied(kind, name, status) for status in statuses
        ))  # fmt: skip
    verified = {"conditions": [condition("Verified")]}
    yield Power(section, "say that Images are signed by who is believed", (applied("Image", name, verified),))
    name, path = "provisioner-image-trust", "/api/v1/namespaces/provisioner-system/configmaps"
    believed = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"image.pub": "mine"}}
    yield Power(section, "say whose Images are believed, and which are revoked", (
        sent("POST", path, believed),
        sent("PATCH", f"{path}/{name}", believed, APPLY, fieldManager="thief", force="true"),
    ))  # fmt: skip


def _maintenances(scene: Scene) -> Iterator[Power]:
    section, path = "Maintenances", f"{OURS}/maintenances"
    entry = {"name": "condition-reboot", "action": "Reboot", "policy": "Now"}
    body = objects.maintenance(f"{scene.unique}-2", serverRef=scene.server, requestors=[entry])
    yield Power(section, "ask for a reboot under Now, which ends jobs", (sent("POST", path, body),))
    for words, policy, name, action in (
        ("ask for an Image as a rollout does, once jobs have ended", "WhenIdle", "rollout", "Reimage"),
        ("ask as a rollout for something else", "WhenIdle", "rollout", "PowerCycle"),
        ("ask in the name of a group of its own", "WhenIdle", "mine", "Reimage"),
    ):
        yield Power(section, words, (_asked(scene, policy, name, action),))
    existing = f"{path}/{scene.unique}-1"
    yield Power(
        section, "take out what others ask for", (sent("PATCH", existing, {"spec": {"requestors": []}}, MERGE),)
    )
    yield Power(section, "delete a Maintenance", (sent("DELETE", existing),))
    yield Power(section, "take off the finalizer that has the node released", (
        sent("PATCH", existing, {"metadata": {"finalizers": None}}, MERGE),
    ))  # fmt: skip
    yield Power(section, "write the status of a Maintenance", (
        applied("Maintenance", f"{scene.unique}-1", {"phase": "Rebooting"}),
    ))  # fmt: skip


def _asked(scene: Scene, policy: str, name: str, action: str) -> Callable[[Cluster], object]:
    """A Maintenance, in its own name."""

    def send(cluster: Cluster) -> object:
        entry = {"name": name, "action": action, "policy": policy, "user": cluster.ask_who_i_am()}
        body = objects.maintenance(f"{scene.unique}-2", serverRef=scene.server, requestors=[entry])
        return sent("POST", f"{OURS}/maintenances", body)(cluster)

    return send


def _networks(scene: Scene) -> Iterator[Power]:
    section, name = "Tenant networks", scene.unique
    text = {"metadata": {"annotations": {"example.com/mine": "x"}}}
    tenants = [
        (f"{OURS}/namespaces/default/{plural}", body)
        for plural, body in (
            ("vpcs", networks.vpc("default", f"{name}-new")),
            ("vpcattachments", networks.attachment("default", f"{name}-new", name)),
            ("securitygroups", networks.group("default", f"{name}-new")),
        )
    ]
    yield Power(section, "make, change or delete a tenant's VPC, attachment or security group", tuple(
        request
        for path, body in tenants
        for request in (sent("POST", path, body), sent("PATCH", f"{path}/{name}", text, MERGE),
                        sent("DELETE", f"{path}/{name}"))
    ))  # fmt: skip
    ready = {"conditions": [condition("Ready")]}
    yield Power(section, "say that a VPC, an attachment, a security group or the pool is ready", (
        applied("VPC", name, ready, namespace="default"), applied("VPCAttachment", name, ready, namespace="default"),
        applied("SecurityGroup", name, ready, namespace="default"), applied("NetworkPool", "default", ready),
    ))  # fmt: skip
    yield Power(section, "change the NetworkPool", (sent("PATCH", f"{OURS}/networkpools/default", text, MERGE),))
    claim = networks.claim("vni-16777215", "VNI", "16777215", "default", name)
    yield Power(section, "claim an identifier, an address or a port", (sent("POST", f"{OURS}/networkclaims", claim),))
    yield Power(section, "let go of one for others", (
        applied("NetworkClaim", f"port.{name}.pf0", {"releasedTime": "2026-01-01T00:00:00Z"}),
    ))  # fmt: skip
    yield Power(section, "free one that was let go of", (sent("DELETE", f"{OURS}/networkclaims/port.{name}.pf1"),))
    yield Power(section, "free one that is in use", (sent("DELETE", f"{OURS}/networkclaims/port.{name}.pf0"),))
    network = f"{OURS}/dpunetworks/{name}"
    yield Power(section, "read what a DPU enforces", (sent("GET", network),))
    yield Power(section, "write or delete what a DPU is to enforce", (
        sent("PATCH", network, text, MERGE), sent("DELETE", network),
    ))  # fmt: skip
    yield Power(section, "say in a DPU's name that it enforces something", (
        applied("DPUNetwork", name, {"observedGeneration": 1}),
    ))  # fmt: skip
    roles, bindings, new = CLUSTER_ROLES.path, CLUSTER_ROLE_BINDINGS.path, f"{name}-new"
    yield Power(section, "give a DPU the right to read what it enforces", (
        sent("POST", roles, role_of(new)), sent("POST", bindings, binding_of(name)),
    ))  # fmt: skip
    all_of_them = role_of(new)
    for each in all_of_them["rules"]:
        each.pop("resourceNames")
    thief = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "thief"}]
    stays = role_of(new)
    stays["metadata"]["finalizers"] = ["example.com/mine"]
    wider = role_of(new)
    wider["rules"] = [wider["rules"][0] | {"verbs": ["patch"]}]
    aggregated = role_of(new)
    aggregated["metadata"]["labels"] |= {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    yield Power(section, "give a DPU the right to read what others enforce, or somebody else what it enforces", (
        sent("POST", roles, all_of_them), sent("POST", roles, aggregated),
        sent("POST", roles, stays), sent("POST", roles, wider),
        sent("POST", bindings, binding_of(name) | {"subjects": thief}),
        sent("POST", bindings, binding_of(new) | {"roleRef": binding_of(name)["roleRef"]}),
    ))  # fmt: skip
    other = {"metadata": {"name": f"{name}-role"}}
    yield Power(section, "write another role or binding", (
        sent("POST", roles, role_of(name) | other), sent("POST", bindings, binding_of(name) | other),
        sent("PATCH", f"{roles}/view", text, MERGE), sent("DELETE", f"{roles}/view"),
        sent("DELETE", f"{bindings}/provisioner-network"),
    ))  # fmt: skip


STATUS = "Status of a Server"
CURRENT_ORDER = "order-1"
CONDITIONS = (
    "Discovered",
    "Accepted",
    "Booted",
    "Ready",
    "PoweredOn",
    "Joined",
    "NodePrepared",
    "Verified",
    "Attested",
    "CredentialContested",
)


def _status(scene: Scene) -> Iterator[Power]:
    (crd,) = (crd for crd in all_crds() if crd["spec"]["names"]["kind"] == "Server")
    properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    for name, schema in properties.items():
        if name == "conditions":
            for type_ in CONDITIONS:
                forged = {"conditions": [condition(type_)]}
                yield Power(STATUS, f"condition {type_}", (applied("Server", scene.server, forged),))
        elif name == "join":
            for part, inner in schema["properties"].items():
                # To which kernel it was handed out can be said once, and of the current order alone: boot_joins.yaml.
                current = {"orderID": CURRENT_ORDER} if part in ("orderID", "bootID") else {}
                forged = {"join": {part: example(inner)} | current}
                yield Power(STATUS, f"join.{part}", (applied("Server", scene.server, forged),))
        else:
            yield Power(STATUS, name, (applied("Server", scene.server, {name: example(schema)}),))


def _the_rest(scene: Scene) -> Iterator[Power]:
    section = "Services"
    order = scene.admin.read(Server, scene.server).status.order
    yield Power(section, "keep a boot order from being taken back, as one of its managers", (
        applied("Server", scene.server, {"order": to_json(order)}),
    ))  # fmt: skip
    yield Power(section, "make the Lease by which another group leads, before that does", (_anothers_lease,))
    held = {"spec": {"holderIdentity": "thief"}}
    lease = scene.admin.get(LEASES, "provisioner-controller", namespace=SYSTEM)
    yield Power(section, "take the Lease of the process that runs all controllers", (
        sent("PUT", LEASES.item("provisioner-controller", SYSTEM), lease | held),
    ))  # fmt: skip
    review = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "metadata": {"name": ""}}
    asked = {"user": "ada", "resourceAttributes": {"verb": "list", "resource": "secrets"}}
    yield Power(section, "ask whose a token is, and what somebody may do", (
        sent("POST", ACCESS_REVIEWS.collection(), review | {"spec": asked}),
    ))  # fmt: skip
    for namespace, words in (("default", "write Events"), ("kube-system", "write Events of pods")):
        involved = {"kind": "Pod", "namespace": namespace, "name": "x"}
        event = {"metadata": {"name": scene.unique}, "involvedObject": involved, "reason": "Thief", "type": "Normal"}
        yield Power(section, words, (sent("POST", EVENTS.collection(namespace), event),))


def _anothers_lease(cluster: Cluster) -> object:
    """Of a group that the account is not. That it is there already says that it would have been allowed."""
    me = cluster.ask_who_i_am()
    name = next(f"provisioner-{group}" for group in GROUPS if account_of(group) != me)
    spec = {"holderIdentity": "thief", "leaseDurationSeconds": 2**31 - 1}
    body = {"apiVersion": LEASES.api_version, "kind": "Lease", "metadata": {"name": name}, "spec": spec}
    with suppress(Conflict):
        return sent("POST", LEASES.collection(SYSTEM), body)(cluster)
    return None


def example(schema: dict[str, Any]) -> Any:
    """Some value that the schema allows, other than any that the scene has."""
    if "enum" in schema:
        return schema["enum"][-1]
    match schema["type"]:
        case "object":
            wanted = schema.get("required") or list(schema["properties"])[:1]
            return {name: example(schema["properties"][name]) for name in wanted}
        case "array":
            return [example(schema["items"])]
        case "integer":
            return schema.get("minimum", 1)
        case "boolean":
            return True
    if schema.get("format") == "date-time":
        return "2026-01-01T00:00:00Z"
    pattern = schema.get("pattern", "")
    if pattern.startswith("^[A-Z]"):
        return "Forged"
    return "sha256:" + "ab" * 32 if "sha256" in pattern else "10.80.0.99" if pattern else "forged"


def condition(type_: str) -> dict[str, Any]:
    moment = "2026-01-01T00:00:00Z"
    return {"type": type_, "status": "True", "reason": "Forged", "message": "", "lastTransitionTime": moment}


def applied(
    kind: str, name: str, status: dict[str, Any], *, namespace: str | None = None
) -> Callable[[Cluster], object]:
    body = {"apiVersion": "provisioner.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "status": status}
    where = f"{OURS}/namespaces/{namespace}" if namespace else OURS
    path = f"{where}/{kind.lower()}s/{name}/status"
    return sent("PATCH", path, body, APPLY, fieldManager="thief", force="true")


def csr_body(node: str, *, signer: str = "kubernetes.io/kube-apiserver-client-kubelet", **more: Any) -> dict[str, Any]:
    """A request for the name of a Node, whoever asks."""
    pem = certificate_pem(ec.generate_private_key(ec.SECP256R1()), f"system:node:{node}")
    spec = {"request": base64.b64encode(pem).decode(), "signerName": signer}
    return {
        "apiVersion": CSRS.api_version,
        "kind": CSRS.kind,
        "metadata": {"generateName": "csr-"},
        "spec": spec | {"usages": ["digital signature", "client auth"]} | more,
    }


def token_body(name: str, server: str, *, group: str = "system:bootstrappers:provisioner") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"provisioner.dev/server": server}},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": name.removeprefix("bootstrap-token-"),
            "token-secret": "0123456789abcdef",
            "expiration": in_minutes(10),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": group,
        },
    }


def in_minutes(minutes: int) -> str:
    return rfc3339(datetime.now(UTC) + timedelta(minutes=minutes))


def job_body(scene: Scene, pod: dict[str, Any], spec: dict[str, Any], *, server: str = "") -> dict[str, Any]:
    """The Job of a check on the server, or on the Node `server`, with these changes."""
    name = server or scene.server
    labels = {"provisioner.dev/server": name, "provisioner.dev/check": "check"}
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}}
    inner = {
        "containers": [{"name": "check", "image": "busybox"}],
        "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists"}],
        "affinity": affinity,
    }
    whole = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 0,
        "activeDeadlineSeconds": 600,
        "ttlSecondsAfterFinished": 86400,
        "template": {"metadata": {"labels": labels}, "spec": inner | pod},
    }
    changed = {key: value for key, value in (whole | spec).items() if value is not None}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": f"{scene.unique}-new", "labels": labels},
        "spec": changed,
    }
