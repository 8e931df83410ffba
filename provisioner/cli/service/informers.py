"""The caches that the controllers of one process share."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from provisioner.api import (
    VPC,
    AddressBlock,
    DPUNetwork,
    Image,
    InfiniBandFabric,
    InfiniBandNetwork,
    Maintenance,
    NetworkClaim,
    NetworkPool,
    NodePool,
    Rack,
    SecurityGroup,
    Server,
    VPCAttachment,
)
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CREDENTIALS,
    CSRS,
    JOBS,
    LEASES,
    NODE_LEASES,
    NODES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    ResourceType,
    of,
)
from provisioner.cluster.source import Joined
from provisioner.cluster.trim import without_managed_fields, without_metadata
from provisioner.health.jobs import outcome
from provisioner.health.jobs.manifest import CHECK_LABEL
from provisioner.jobs.ended_pods import trim_ended_pod
from provisioner.jobs.pods import NOT_OVER, OVER, trim_pod
from provisioner.join.certificates.approve import CLIENT_SIGNER, SERVING_SIGNER
from provisioner.join.certificates.request import trim_request
from provisioner.join.nodes.node_object import trim_node
from provisioner.network.control.grants import DPU_LABEL
from provisioner.network.control.records.informers import trim_group
from provisioner.rules.liveness import trim_lease


def _followed(type_: ResourceType, **settings: Any) -> cached_property[Informer]:
    return cached_property(lambda informers: informers.make(type_, **settings))


class SharedInformers:
    """Each is made when it is first asked for: a process that runs a part of the controllers needs no right to read
    what the others follow."""

    # Who owns which field is asked of Nodes (labels) and Leases alone; of the others it would be half of the memory.
    servers = _followed(of(Server), trim=without_managed_fields)
    pools = _followed(of(NodePool))
    racks = _followed(of(Rack))
    images = _followed(of(Image))
    maintenances = _followed(of(Maintenance), trim=without_managed_fields)
    blocks = _followed(of(AddressBlock), trim=without_managed_fields)
    nodes = _followed(NODES, trim=trim_node)
    # Those by which kubelets say that they live: small, and renewed all the time.
    leases = _followed(LEASES, namespace=NODE_LEASES, shares_strings=False, trim=trim_lease)
    # The list of the certificates that count.
    credential_roles = _followed(ROLES, namespace=CREDENTIALS, trim=without_managed_fields)
    credential_bindings = _followed(ROLE_BINDINGS, namespace=CREDENTIALS, trim=without_managed_fields)
    # Those that are not over, and those that are, until they are deleted.
    pods = _followed(PODS, field_selector=NOT_OVER, trim=trim_pod)
    ended_pods = _followed(PODS, field_selector=OVER, trim=trim_ended_pod)
    check_jobs = _followed(JOBS, label_selector=CHECK_LABEL, trim=outcome.trim_job)
    check_pods = _followed(PODS, label_selector=CHECK_LABEL, trim=outcome.trim_pod)
    vpcs = _followed(of(VPC), trim=without_metadata)
    attachments = _followed(of(VPCAttachment), trim=without_metadata)
    security_groups = _followed(of(SecurityGroup), trim=trim_group)
    network_pools = _followed(of(NetworkPool), trim=without_managed_fields)
    network_claims = _followed(of(NetworkClaim), trim=without_managed_fields)
    dpu_networks = _followed(of(DPUNetwork), trim=without_managed_fields)
    # Those by which DPUs read their own DPUNetwork.
    dpu_roles = _followed(CLUSTER_ROLES, label_selector=DPU_LABEL, trim=without_managed_fields)
    dpu_bindings = _followed(CLUSTER_ROLE_BINDINGS, label_selector=DPU_LABEL, trim=without_managed_fields)
    infiniband_fabrics = _followed(of(InfiniBandFabric), trim=without_managed_fields)
    infiniband_networks = _followed(of(InfiniBandNetwork), trim=without_managed_fields)

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.made: list[Informer] = []

    @cached_property
    def csrs(self) -> Joined:
        """Those for kubelets; of one that is too large, no more than that it is there."""
        signers = (f"spec.signerName={each}" for each in (CLIENT_SIGNER, SERVING_SIGNER))
        return Joined(*(self.make(CSRS, field_selector=each, trim=trim_request) for each in signers))

    def make(self, type_: ResourceType, **settings: Any) -> Informer:
        informer = Informer(self._cluster, type_, **settings)
        self.made.append(informer)
        return informer

    def start(self, stop: threading.Event) -> None:
        for informer in self.made:
            informer.start(stop)

    def wait_for_sync(self, timeout_seconds: float) -> bool:
        """Whether each of them was in sync within `timeout_seconds` of its own."""
        return all(informer.wait_for_sync(timeout_seconds) for informer in self.made)
