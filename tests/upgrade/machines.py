"""Machines that boot over loopback: firmware asks a boot host for its script, the agent of a release joins by it.

Each has an address of its own in 127.80.0.0/24, by which the join knows it. Kernel and kubelet are played: what a
Node's status and Lease say. A machine does what its Node's annotation tells it, once, and remembers every boot.
"""

from __future__ import annotations

import http.client
import json
import queue
import re
import secrets
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from provisioner.api import Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import BOOT_REPORT_ANNOTATION, NODE_FACTS_ANNOTATION
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES
from tests.benchmarks.fleet.agents import Agents, annotate, node_status, renew_lease
from tests.health.objects import good_facts, nic
from tests.join.samples import key_digest
from tests.upgrade.releases import HERE, Release

SECONDS: Final = 300
RENEW_SECONDS: Final = 8.0
_ARGUMENT: Final = re.compile(r"\bprovisioner\.(\w+)=(\S+)")


class AgentsOf:
    """The join of a release's agent, in a process with that release's code."""

    def __init__(self, release: Release, ca: Path) -> None:
        self.release, self._ca = release, ca
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "agent.py")],
            env=release.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._got: dict[str, queue.Queue[dict[str, Any]]] = {}
        self._writing = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def join(self, facts: dict[str, Any], key: str) -> dict[str, Any]:
        """Returns once the join configuration was handed out. Raises: queue.Empty if it never was."""
        ident = str(uuid.uuid4())
        self._got[ident] = queue.Queue()
        line = json.dumps({"id": ident, "facts": facts, "key": key, "ca": str(self._ca)})
        assert self._process.stdin is not None
        with self._writing:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return self._got[ident].get(timeout=SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._got[answer["id"]].put(answer)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Machines(Agents):
    """All machines of the fleet. boots: by server, the boot ids in order. hosts: who answers firmware, in turn."""

    def __init__(self, kubeconfig: Path, stop: threading.Event, hosts: list[tuple[str, int]]) -> None:
        super().__init__(kubeconfig, stop)
        self._own = Cluster.connect(kubeconfig, user_agent="machines")
        self.hosts = hosts
        self.agents: AgentsOf | None = None
        self.boots: dict[str, list[str]] = defaultdict(list)
        self._keys: dict[str, str] = {}
        self._alive: set[str] = set()
        threading.Thread(target=self._heartbeats, args=(stop,), daemon=True).start()

    def switch_on(self, name: str) -> None:
        """As a person does: what is first ordered of a machine without a BMC."""
        self._boot(self._own, name, secrets.token_hex(32))

    def _obey(self, cluster: Cluster, name: str, intent: dict[str, Any]) -> None:
        match intent["action"]:
            case "Stage":
                self._report(cluster, name, intent, "Staged")
            case "Kexec":
                self._alive.discard(name)
                self._keys[name] = key = secrets.token_hex(32)
                self._report(cluster, name, intent, "Rebooting", nextRequestKeySHA256=key_digest(key))
                gone = {"type": "Ready", "status": "False", "reason": "Kexec", "message": "starts it"}
                cluster.strategic_patch(NODES, name, {"status": {"conditions": [gone]}}, subresource="status")
                self._tell(name, {**intent, "action": "Boots"}, 1.0)
            case "Boots":
                self._boot(cluster, name, self._keys[name])
            case action:
                raise AssertionError(f"{name} was told to {action}; only kexec is allowed here")

    def _report(self, cluster: Cluster, name: str, intent: Mapping[str, Any], state: str, **more: str) -> None:
        said = {"id": intent["id"], "state": state, "imageDigest": intent["imageDigest"], "message": state}
        said |= {"bootID": intent["bootIDBefore"], "time": rfc3339(datetime.now(UTC)), **more}
        annotate(cluster, name, BOOT_REPORT_ANNOTATION, said)

    def _boot(self, cluster: Cluster, name: str, key: str) -> None:
        boot_id = str(uuid.uuid4())
        self.boots[name].append(boot_id)
        server = cluster.read(Server, name)
        arguments = self._script(server.spec.boot_mac_address, str(server.spec.boot_address))
        digest = arguments["image"].replace("-", ":")
        facts = {
            "server": name,
            "mac_address": server.spec.boot_mac_address,
            "progress_url": f"{arguments['url']}/v1/progress",
            "join_url": f"{arguments['join']}/v1/join",
            "image_digest": digest,
            "address": server.spec.boot_address,
            "boot_id": boot_id,
            "system_uuid": "",
        }
        assert self.agents is not None
        self.agents.join(facts, key)
        now = datetime.now(UTC)
        said = good_facts(
            nics=(nic(server.spec.boot_mac_address),),
            boot_id=boot_id,
            image_digest=digest,
            kexec_supported=True,
            time=rfc3339(now),
        )
        cluster.strategic_patch(NODES, name, {"status": node_status(boot_id, now)}, subresource="status")
        annotate(cluster, name, NODE_FACTS_ANNOTATION, to_json(said))
        renew_lease(cluster, name)
        self._alive.add(name)

    def _script(self, mac: str, address: str) -> dict[str, str]:
        """The kernel's arguments of the script that boots an image: firmware asks until there is one."""
        deadline, last = time.monotonic() + SECONDS, "nobody answered"
        for turn in range(1 << 20):
            host, port = self.hosts[turn % len(self.hosts)]
            connection = http.client.HTTPConnection(host, port, timeout=10, source_address=(address, 0))
            try:
                connection.request("GET", f"/ipxe/{mac.replace(':', '-')}.ipxe")
                last = connection.getresponse().read().decode()
            except (OSError, http.client.HTTPException) as error:
                last = repr(error)
            finally:
                connection.close()
            if found := dict(_ARGUMENT.findall(last)):
                return found
            assert time.monotonic() < deadline, f"{mac} got no script: {last}"
            time.sleep(0.3)
        raise AssertionError

    def _heartbeats(self, stop: threading.Event) -> None:
        while not stop.wait(RENEW_SECONDS):
            for name in sorted(self._alive):
                try:
                    renew_lease(self._own, name)
                except Exception as error:
                    self.errors.append(f"{name}: its Lease: {error!r}")
