"""What the programs of infiniband-diags print, taken for what it says and for nothing more."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.network.infiniband.model.verify import FULL, FabricView, PortKeys, compare
from provisioner.network.infiniband.opensm.pkey_tables import read_table
from provisioner.network.infiniband.opensm.read_back import Diagnostics, ReadBackFailed, read_ports, read_tables
from provisioner.network.infiniband.opensm.subnet_manager import NotRunning, read_file, replace_file, tell_to_read
from tests.network.infiniband.site import guid, network, partition

PORTS = """\
CA     5  1 0x0000000000100007 4x SDR - SW     2  4 0x0000000000200000 ( 'H4' - 'S1' )
SW     2  8 0x0000000000200000 4x SDR                                    'S1'
SW     2  4 0x0000000000200000 4x SDR - CA     5  1 0x0000000000100007 ( 'S1' - 'CA     7  1 0x00000000001000ff 4x ' )
CA     0  1 0x0000000000100009 4x SDR - SW     2  5 0x0000000000200000 ( 'not set up' - 'S1' )
"""
ASKED = {"0x0000000000100003": 3, "0x0000000000100007": 5}
SAID = "3 0x0000000000100003 7fff 8101\n5 0x0000000000100007 7fff\n"


def test_host_ports_that_are_set_up_are_read_whatever_nodes_call_themselves() -> None:
    assert read_ports(PORTS) == {"0x0000000000100007": 5}


def test_two_ports_with_one_guid_are_a_failure_and_not_one_port() -> None:
    with pytest.raises(ReadBackFailed, match="two ports"):
        read_ports(PORTS + "CA     6  1 0x0000000000100007 4x SDR - SW     2  6 0x0000000000200000 ( 'H5' - 'S1' )\n")


def test_tables_are_of_the_ports_that_were_asked() -> None:
    assert read_tables(SAID, ASKED) == {"0x0000000000100003": {0x7FFF, 0x8101}, "0x0000000000100007": {0x7FFF}}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("", "2 ports were not read"),
        (SAID.splitlines()[0], "1 port was not read"),
        ("3 -\n", "0x0000000000100003 does not answer"),
        (SAID.replace("0x0000000000100007", "0x0000000000100009"), "is not where it was"),
        (SAID + "9 0x0000000000100009 7fff\n", "is not where it was"),
        ("Traceback\n", "is not where it was"),
    ],
)
def test_who_does_not_answer_or_another_in_its_place_is_a_failure(said: str, words: str) -> None:
    with pytest.raises(ReadBackFailed, match=words):
        read_tables(said, ASKED)


def test_a_table_of_several_blocks_is_read_whole_and_half_of_one_is_none() -> None:
    node = bytearray(64)
    node[20:28], node[28:30] = bytes.fromhex("506b4b0300a1b200"), (40).to_bytes(2, "big")
    blocks = {0: bytes.fromhex("7fff") + bytes(62), 1: bytes.fromhex("8101") + bytes(14) + bytes.fromhex("8102") * 24}

    def answers(_: int, attribute: int, modifier: int) -> bytes | None:
        return bytes(node) if attribute == 0x11 else blocks.get(modifier)

    found = read_table(answers, 3)
    assert found is not None
    assert (found[0], len(found[1]), set(found[1])) == ("0x506b4b0300a1b200", 40, {0, 0x7FFF, 0x8101})
    del blocks[1]
    assert read_table(answers, 3) is None


@pytest.mark.programs
def test_a_program_that_is_missing_fails_or_hangs_is_told_of() -> None:
    with pytest.raises(ReadBackFailed, match="sminfo failed"):
        Diagnostics(prefix=("/bin/false",)).master()
    with pytest.raises(ReadBackFailed, match="no subnet manager is in charge"):
        Diagnostics(prefix=("/bin/true",)).master()
    with pytest.raises(NeedsHuman, match="not installed"):
        Diagnostics(prefix=("/nowhere/at/all",)).master()


def test_ports_that_no_server_has_count_too() -> None:
    """A card that nobody registered, in a tenant's partition: somebody has put it there."""
    view = FabricView(
        ports={
            guid(1): PortKeys(keys=frozenset((0x7FFF, FULL | 0x101))),
            guid(7): PortKeys(keys=frozenset((0x7FFF, FULL | 0x101))),
        }
    )
    findings = compare(network(partition(0x101, guid(1))).spec, view)
    assert findings.surplus == ((guid(7), FULL | 0x101),)
    assert not findings.agrees


def test_a_limited_membership_is_not_the_full_one_that_is_wanted() -> None:
    view = FabricView(ports={guid(1): PortKeys(keys=frozenset((0x7FFF, 0x101)))})
    findings = compare(network(partition(0x101, guid(1))).spec, view)
    assert (findings.surplus, findings.lacking) == (((guid(1), 0x101),), ((guid(1), FULL | 0x101),))


def test_a_server_that_is_off_keeps_nothing_from_being_enforced() -> None:
    findings = compare(network(partition(0x101, guid(1))).spec, FabricView(ports={}))
    assert (findings.agrees, findings.absent, findings.default_limited) == (True, (guid(1),), "Unknown")


@pytest.mark.programs
def test_a_process_that_is_not_opensm_is_never_signalled(tmp_path: Path) -> None:
    """The number in a pid file that was left behind may be anybody's by now."""
    other = subprocess.Popen(["sleep", "60"])
    try:
        (tmp_path / "pid").write_text(str(other.pid))
        with pytest.raises(NotRunning, match="is not OpenSM"):
            tell_to_read(tmp_path / "pid")
        assert other.poll() is None
    finally:
        other.kill()
        assert other.wait() == -signal.SIGKILL
    with pytest.raises(NotRunning):
        tell_to_read(tmp_path / "pid")
    with pytest.raises(NotRunning):
        tell_to_read(tmp_path / "none")
    (tmp_path / "pid").write_text("many words")
    with pytest.raises(NeedsHuman):
        tell_to_read(tmp_path / "pid")


def test_without_a_pid_file_there_must_be_one_opensm(tmp_path: Path) -> None:
    for name in ("self", "12", "13"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "comm").write_text("bash\n")
    with pytest.raises(NotRunning, match="no process named opensm"):
        tell_to_read(None, proc=tmp_path)
    for name in ("12", "13"):
        (tmp_path / name / "comm").write_text("opensm\n")
    with pytest.raises(NeedsHuman, match="--pid-file"):
        tell_to_read(None, proc=tmp_path)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "partitions.conf"
    assert read_file(path) is None
    replace_file(path, "old\n")
    assert path.stat().st_mode & 0o777 == 0o644

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(NeedsHuman, match="No space left"):
        replace_file(path, "new\n")
    assert read_file(path) == "old\n"
    assert list(tmp_path.iterdir()) == [path]
