"""The ports' own P_Key tables, read over the fabric by the programs of infiniband-diags and one of our own.

What a subnet manager means to have written is not asked: each host port answers for itself. What else stands in the
programs' output, such as the description that each node gives of itself, is skipped.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman, Retryable
from provisioner.api.machinery.wording import quantity
from provisioner.network.infiniband.model.verify import FabricView, PortKeys
from provisioner.network.infiniband.opensm import pkey_tables

DISCOVER_SECONDS: Final = 120.0
QUERY_SECONDS: Final = 10.0
MAX_OUTPUT_BYTES: Final = 64 * 1024 * 1024
"""A line of ibnetdiscover has about 100 bytes, and each link has two."""
_WORDS: Final = 200

_PORT: Final = re.compile(r"CA +([0-9]{1,5}) +[0-9]{1,3} 0x([0-9a-f]{16}) ", re.ASCII)
_TABLE: Final = re.compile(r"([0-9]{1,5}) (0x[0-9a-f]{16}|-)((?: [0-9a-f]{4})*)", re.ASCII)
_MASTER: Final = re.compile(r"sminfo: .*\bsm guid 0x([0-9a-f]{1,16}),.* SMINFO_MASTER\b", re.ASCII)
_LOCAL: Final = re.compile(r"0x([0-9a-f]{16})", re.ASCII)
_UNUSED_LIDS: Final = frozenset((0, 0xFFFF))
"""Of ports that the subnet manager has not set up yet: they send and receive nothing."""


class ReadBackFailed(Retryable):
    """The fabric did not answer, or what it answered cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Diagnostics:
    """The programs, with `environment` beside nothing but PATH and, of `prefix`, what they are run by."""

    prefix: Sequence[str] = ()
    environment: Mapping[str, str] | None = None

    def master(self) -> str:
        """GUID of the port of the subnet manager that is in charge. Raises: ReadBackFailed, NeedsHuman."""
        said = self._run(["sminfo"], QUERY_SECONDS)
        found = _MASTER.search(said)
        if found is None:
            raise ReadBackFailed(f"no subnet manager is in charge: {_printable(said)}", after_seconds=2.0)
        return f"0x{int(found[1], 16):016x}"

    def local_ports(self) -> frozenset[str]:
        """GUIDs of this host's own ports. Raises: ReadBackFailed, NeedsHuman."""
        said = self._run(["ibstat", "-p"], QUERY_SECONDS)
        return frozenset(f"0x{found[1]}" for line in said.splitlines() if (found := _LOCAL.fullmatch(line.strip())))

    def read(self, master: str) -> FabricView:
        """The tables of all host ports that are up. Raises: ReadBackFailed, NeedsHuman."""
        return self._tables(read_ports(self._run(["ibnetdiscover", "-p"], DISCOVER_SECONDS)), master)

    def reread(self, before: FabricView, guids: Collection[str], master: str) -> FabricView:
        """`before`, with the tables of `guids` as they are now; without those that have gone since."""
        ports = read_ports(self._run(["ibnetdiscover", "-p"], DISCOVER_SECONDS))
        now = self._tables(
            {guid: lid for guid, lid in ports.items() if guid in guids or guid not in before.ports}, master
        )
        kept = {guid: keys for guid, keys in before.ports.items() if guid in ports and guid not in now.ports}
        return replace(before, ports={**kept, **now.ports})

    def _tables(self, ports: Mapping[str, int], master: str) -> FabricView:
        if not ports:
            return FabricView(ports={})
        lids = "".join(f"{lid}\n" for lid in ports.values())
        said = self._run([sys.executable, "-I", pkey_tables.__file__], DISCOVER_SECONDS, given=lids)
        tables = read_tables(said, ports)
        return FabricView(
            ports={
                guid: PortKeys(keys=keys, kind="SubnetManager" if guid == master else "Host")
                for guid, keys in tables.items()
            }
        )

    def _run(self, command: Sequence[str], seconds: float, *, given: str = "") -> str:
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                done = subprocess.run(
                    [*self.prefix, *command],
                    input=given.encode(),
                    stdout=out,
                    stderr=err,
                    timeout=seconds,
                    check=False,
                    env=environment | dict(self.environment or {}),
                )
            except FileNotFoundError as error:
                raise NeedsHuman(f"{command[0]} is not installed", hint="apt-get install infiniband-diags") from error
            except subprocess.TimeoutExpired as error:
                raise ReadBackFailed(f"{command[0]} was not done after {seconds:g} s", after_seconds=5.0) from error
            out.seek(0)
            said = out.read(MAX_OUTPUT_BYTES + 1)
            err.seek(0)
            complaint = err.read(_WORDS * 4).decode(errors="replace")
        if done.returncode != 0:
            name = Path(command[-1]).name if given else " ".join(command)
            raise ReadBackFailed(f"{name} failed: {_printable(complaint)}", after_seconds=2.0)
        if len(said) > MAX_OUTPUT_BYTES:
            raise ReadBackFailed(f"{command[0]} said more than {MAX_OUTPUT_BYTES} bytes", after_seconds=60.0)
        return said.decode(errors="replace")


def read_ports(said: str) -> dict[str, int]:
    """Of `ibnetdiscover -p`: GUID and LID of each host port that is set up. Raises: ReadBackFailed.

    Two ports with one GUID are on the fabric where a card was given another's: then nobody can say whose table is read.
    """
    ports: dict[str, int] = {}
    for line in said.split("\n"):
        found = _PORT.match(line)
        if found is None or int(found[1]) in _UNUSED_LIDS:
            continue
        guid = f"0x{found[2]}"
        if ports.setdefault(guid, int(found[1])) != int(found[1]):
            raise ReadBackFailed(
                f"two ports of the fabric have GUID {guid}: find the card that was given another's (ibnetdiscover -p)",
                after_seconds=30.0,
            )
    return ports


def read_tables(said: str, ports: Mapping[str, int]) -> dict[str, frozenset[int]]:
    """Of `pkey_tables`, asked for `ports`: the entries of each that are in use. Raises: ReadBackFailed, if a port did
    not answer, or another one did in its place: LIDs are given anew when a fabric changes."""
    expected = {lid: guid for guid, lid in ports.items()}
    tables: dict[str, frozenset[int]] = {}
    for line in said.splitlines():
        found = _TABLE.fullmatch(line)
        guid = expected.get(int(found[1])) if found is not None else None
        if found is None or guid is None or found[2] != guid:
            what = "does not answer" if line.endswith(" -") else f"is not where it was ({_printable(line)})"
            raise ReadBackFailed(f"port {guid or 'of the fabric'} {what}", after_seconds=2.0)
        tables[guid] = frozenset(int(word, 16) for word in found[3].split())
    if missing := ports.keys() - tables.keys():
        raise ReadBackFailed(
            f"{quantity(len(missing), 'port was', 'ports were')} not read, {min(missing)} the first", after_seconds=2.0
        )
    return tables


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text[:_WORDS]).strip()
