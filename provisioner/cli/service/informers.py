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


class SharedInformers:
    """Each is made when it is first asked for: a process that runs a part of the controllers needs no right to read
    what the others follow."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.made: list[Informer] = []

    def start(self, stop: threading.Event) -> None:
        for informer in self.made:
            informer.start(stop)

    def wait_for_sync(self, timeout_seconds: float) -> bool:
        """Whether each of them was in sync within `timeout_seconds` of its own."""
        return all(informer.wait_for_sync(timeout_seconds) for informer in self.made)

    # Who owns which field is asked of Nodes (labels) and Leases alone; of the others it would be half of the memory.

    @cached_property
    def servers(self) -> Informer:
        return self._make(of(Server), trim=without_managed_fields)

    @cached_property
    def pools(self) -> Informer:
        return self._make(of(NodePool))

    @cached_property
    def racks(self) -> Informer:
        return self._make(of(Rack))

    @cached_property
    def images(self) -> Informer:
        return self._make(of(Image))

    @cached_property
    def maintenances(self) -> Informer:
        return self._make(of(Maintenance), trim=without_managed_fields)

    @cached_property
    def blocks(self) -> Informer:
        return self._make(of(AddressBlock), trim=without_managed_fields)

    @cached_property
    def nodes(self) -> Informer:
        return self._make(NODES, trim=trim_node)

    @cached_property
    def leases(self) -> Informer:
        """Those by which kubelets say that they live."""
        # Small, and renewed all the time.
        return self._make(LEASES, namespace=NODE_LEASES, shares_strings=False, trim=trim_lease)

    @cached_property
    def csrs(self) -> Joined:
        """Those for kubelets; of one that is too large, no more than that it is there."""
        signers = (f"spec.signerName={each}" for each in (CLIENT_SIGNER, SERVING_SIGNER))
        return Joined(*(self._make(CSRS, field_selector=each, trim=trim_request) for each in signers))

    @cached_property
    def credential_roles(self) -> Informer:
        """The list of the certificates that count."""
        return self._make(ROLES, namespace=CREDENTIALS, trim=without_managed_fields)

    @cached_property
    def credential_bindings(self) -> Informer:
        return self._make(ROLE_BINDINGS, namespace=CREDENTIALS, trim=without_managed_fields)

    @cached_property
    def pods(self) -> Informer:
        """Those that are not over."""
        return self._make(PODS, field_selector=NOT_OVER, trim=trim_pod)

    @cached_property
    def ended_pods(self) -> Informer:
        """Those that are over, until they are deleted."""
        return self._make(PODS, field_selector=OVER, trim=trim_ended_pod)

    @cached_property
    def check_jobs(self) -> Informer:
        return self._make(JOBS, label_selector=CHECK_LABEL, trim=outcome.trim_job)

    @cached_property
    def check_pods(self) -> Informer:
        return self._make(PODS, label_selector=CHECK_LABEL, trim=outcome.trim_pod)

    @cached_property
    def vpcs(self) -> Informer:
        return self._make(of(VPC), trim=without_metadata)

    @cached_property
    def attachments(self) -> Informer:
        return self._make(of(VPCAttachment), trim=without_metadata)

    @cached_property
    def security_groups(self) -> Informer:
        return self._make(of(SecurityGroup), trim=trim_group)

    @cached_property
    def network_pools(self) -> Informer:
        return self._make(of(NetworkPool), trim=without_managed_fields)

    @cached_property
    def network_claims(self) -> Informer:
        return self._make(of(NetworkClaim), trim=without_managed_fields)

    @cached_property
    def dpu_networks(self) -> Informer:
        return self._make(of(DPUNetwork), trim=without_managed_fields)

    @cached_property
    def dpu_roles(self) -> Informer:
        """Those by which DPUs read their own DPUNetwork."""
        return self._make(CLUSTER_ROLES, label_selector=DPU_LABEL, trim=without_managed_fields)

    @cached_property
    def dpu_bindings(self) -> Informer:
        return self._make(CLUSTER_ROLE_BINDINGS, label_selector=DPU_LABEL, trim=without_managed_fields)

    @cached_property
    def infiniband_fabrics(self) -> Informer:
        return self._make(of(InfiniBandFabric), trim=without_managed_fields)

    @cached_property
    def infiniband_networks(self) -> Informer:
        return self._make(of(InfiniBandNetwork), trim=without_managed_fields)

    def _make(self, type_: ResourceType, **settings: Any) -> Informer:
        informer = Informer(self._cluster, type_, **settings)
        self.made.append(informer)
        return informer
