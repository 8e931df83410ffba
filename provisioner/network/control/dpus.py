"""One DPUNetwork a DPU: compiled, and written if it says something new; with it the DPU's right to read it.

It is deleted only once the DPU itself is gone, asked for past every cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog

from provisioner.api import DPUNetwork, Server
from provisioner.api.machinery.errors import Refused
from provisioner.cluster.controller import RESYNC_SECONDS
from provisioner.cluster.own_writes import BEHIND_SECONDS, OwnWrites
from provisioner.cluster.reconciler import Reconciler
from provisioner.cluster.resources import ResourceType, of
from provisioner.cluster.source import Object, spec_of
from provisioner.network.control.compile.compile import compile_network, to_object
from provisioner.network.control.grants import Grants
from provisioner.network.control.records.informers import LEAVING_ANNOTATION, card_of, leaving_of
from provisioner.network.control.records.shared import NetworkParts
from provisioner.network.control.records.writes import MANAGER

log = structlog.get_logger(__name__)

WORKERS: Final = 4


class DPUs(Reconciler):
    """Reconciles one DPU at a time, by name. refused: those whose DPUNetwork the API server did not take."""

    def __init__(self, shared: NetworkParts) -> None:
        super().__init__(shared.facts.caches.servers, caches=shared.facts.caches.all, own=OwnWrites(shared.clock))
        self._cluster = shared.cluster
        self._facts = shared.facts
        self._events = shared.events
        self._compilations = shared.compilations
        self._generations = shared.generations
        self._grants = Grants(shared.cluster, shared.facts.caches, self.own)
        self.refused: set[str] = set()
        self._warned: dict[tuple[str, str], str] = {}
        self.controller = shared.controller("network-dpus", self.reconcile, workers=WORKERS)

    def leave(self, key: str, body: Object | None) -> float | None:
        if not self.shows_own_writes(key):
            return BEHIND_SECONDS
        return self.advance(key, body) if body is not None else self._remove(key)

    def advance(self, key: str, body: Object) -> float | None:
        """Write what the DPU shall enforce. Raises: Retryable, NeedsHuman."""
        with self._compilations.running():
            card, name = card_of(body), key
            if not card:
                return self._remove(name)
            vtep = card.get("vtepAddress")
            rival = self._facts.rival_of(name, vtep) if vtep is not None else None
            if rival is not None:
                words = f"DPU '{name}' and DPU '{rival}' both have spec.dpu.vtepAddress {vtep}: give one of "
                self._warn(body, "DuplicateVTEPAddress", f"{words}them its own")
            before = self._facts.caches.networks.get(name)
            if vtep is None or (rival is not None and spec_of(before).get("vtepAddress") != vtep):
                vtep = spec_of(before).get("vtepAddress")
            if vtep is None:
                return None
            views = self._facts.views_on(name)
            host = self._facts.host_boot_of(name), self._facts.card_configuration_of(name)
            compiled = compile_network(name, vtep, views, *host, evpn=self._facts.evpn())
            self._write(name, before, to_object(compiled))
            self._grants.give(name)  # after it: what a DPU is told, such as a quarantine, does not wait for rights
        return RESYNC_SECONDS

    def _write(self, name: str, before: Object | None, wanted: dict[str, Any]) -> None:
        if before is not None and (before["spec"] == wanted or canonical(before["spec"]) == canonical(wanted)):
            self.refused.discard(name)
            return
        type_ = of(DPUNetwork)
        metadata: dict[str, Any] = {"name": name}
        if before is not None:
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
            leaving = still_leaving(before, wanted)
            if leaving:
                metadata["annotations"] = {LEAVING_ANNOTATION: leaving}
        body = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": metadata, "spec": wanted}
        try:
            with self.own.written_on(name, type_, before or body):
                written = self._cluster.apply(body, manager=MANAGER)
        except Refused as error:
            self.refused.add(name)
            self._warn(self._facts.caches.servers.get(name) or body, "NotCompiled", f"DPUNetwork was refused: {error}")
            raise
        self.refused.discard(name)
        self.own.note(name, type_, written)
        self._compilations.note(name, written)
        generation = int(written["metadata"]["generation"])
        for function in changed_ports(before, wanted):
            self._generations.note(name, function, generation)
        log.info("network of a dpu was compiled", dpu=name, generation=generation, ports=len(wanted.get("ports", ())))

    def _warn(self, body: Object, reason: str, message: str) -> None:
        """Once for each change of the words."""
        key = str(body["metadata"]["uid"]), reason
        if self._warned.get(key) != message:
            self._warned[key] = message
            self._events.record(body, "Warning", reason, message)

    def _remove(self, name: str) -> float | None:
        """Of a DPU that is gone, or is none any more."""
        network = self._facts.caches.networks.get(name)
        if network is None:
            self._compilations.note(name, None)
        if network is None and not self._grants.are_there(name):
            return None
        if card_of(self._cluster.find(of(Server), name)):
            return BEHIND_SECONDS
        self._grants.take(name)
        if network is not None:
            self._cluster.delete(of(DPUNetwork), name, uid=network["metadata"]["uid"])
            self._compilations.note(name, None)
            log.info("network of a dpu that is gone was deleted", dpu=name)
        self._generations.forget(name)
        self.refused.discard(name)
        return None

    def look(self, key: str, type_: ResourceType, name: str) -> Object | None:
        caches = self._facts.caches
        return (caches.networks if type_ == of(DPUNetwork) else self._grants.source_of(type_)).get(name)


def still_leaving(before: Object, wanted: Mapping[str, Any]) -> str:
    """The annotation that goes with `wanted`: what leaves with it, and what has left and is not confirmed."""
    held, kept = _held(spec_of(before)), _held(wanted)
    generation = int(before["metadata"]["generation"]) + 1  # the API server counts each change of a spec
    left = leaving_of(before) | dict.fromkeys(held - kept, generation)
    return ",".join(f"{what}:{since}" for what, since in sorted(left.items()) if what not in kept)


def _held(spec: Mapping[str, Any]) -> set[str]:
    vnis = {f"vni-{each['vni']}" for each in spec.get("vpcs") or ()}
    return vnis | {str(each["function"]) for each in spec.get("ports") or ()}


def changed_ports(before: Object | None, wanted: Mapping[str, Any]) -> list[str]:
    """Functions of which `wanted` says something else."""
    had = {each["function"]: each for each in spec_of(before).get("ports") or ()}
    has = {each["function"]: each for each in wanted.get("ports") or ()}
    return [function for function in has if had.get(function) != has[function]]


def canonical(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A spec whose lists are in our order: the API server keeps what was applied in an order of its own."""
    domains = []
    for each in sorted(spec.get("vpcs") or (), key=lambda each: int(each["vni"])):
        remotes = [
            {"vtep": remote["vtep"], "prefixes": sorted(remote["prefixes"])}
            for remote in sorted(each.get("remotes") or (), key=lambda remote: str(remote["vtep"]))
        ]
        lists = {"remotes": remotes, "members": sorted(each.get("members") or ())}
        domains.append({**each, **{key: value for key, value in lists.items() if value}})
    ports = sorted(spec.get("ports") or (), key=lambda each: str(each["function"]))
    card = dict(spec.get("card") or {})
    if card.get("settings"):
        card["settings"] = sorted(card["settings"], key=lambda each: str(each["name"]))
    return {**spec, "vpcs": domains, "ports": ports, "card": card}
