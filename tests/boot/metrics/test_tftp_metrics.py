"""Lines of dnsmasq's log; the names in them are whatever a machine asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from provisioner.boot.metrics.meters import TftpMeter
from tests.boot.metrics.exposition import risen, samples

SIZES = {"snponly.efi": 1000}


def counted(line: str) -> tuple[bool, dict[str, float]]:
    registry = CollectorRegistry()
    meter = TftpMeter(registry, lambda name: SIZES.get(name, 0))
    before = samples(registry)
    heard = meter.heard(line)
    after = samples(registry)
    assert after.keys() == before.keys()
    return heard, {name.removeprefix("provisioner_tftp_"): n for name, n in risen(before, after).items()}


@pytest.mark.parametrize(
    ("said", "file", "result"),
    [
        ("sent /state/tftp/snponly.efi to 10.80.0.21", "snponly.efi", "sent"),
        ("failed sending /state/tftp/snponly.efi to 10.80.0.21", "snponly.efi", "failed"),
        ("file /state/tftp/nothing not found for 10.80.0.21", "other", "not_found"),
        ("file /state/tftp/snponly.efi to 10.0.0.1 not found for 10.80.0.21", "other", "not_found"),
        ("sent /state/tftp/a to b for c to 10.80.0.21", "other", "sent"),
    ],
)
def test_a_transfer_is_counted_by_its_file_and_its_end(said: str, file: str, result: str) -> None:
    heard, rose = counted(f"dnsmasq-tftp[17]: {said}")
    assert heard
    size = rose.pop(f'sent_bytes_total{{file="{file}"}}', 0)
    assert size == (SIZES.get(file, 0) if result == "sent" else 0)
    assert rose == {f'transfers_total{{file="{file}",result="{result}"}}': 1}


def test_what_the_host_fetches_itself_and_why_a_transfer_broke_off_are_no_transfers() -> None:
    assert counted("dnsmasq-tftp[17]: sent /state/tftp/probe to 10.80.0.1") == (True, {})
    assert counted("dnsmasq-tftp[17]: error 0 User aborted received from 10.80.0.21") == (True, {})


@pytest.mark.parametrize(
    "line",
    ["", "dnsmasq[17]: started, version 2.91", "dnsmasq-tftp[17]: TFTP root is /state/tftp", "sent a to 10.0.0.1",
     "dnsmasq-tftp[17]: cannot access /x: Permission denied", "dnsmasq-tftp[17]: sent snponly.efi to nobody"],
)  # fmt: skip
def test_other_lines_are_for_people(line: str) -> None:
    assert counted(line) == (False, {})


@given(st.text(max_size=80))
def test_whatever_a_machine_asks_for_there_are_no_more_series(name: str) -> None:
    counted(f"dnsmasq-tftp[17]: sent {name} to 10.80.0.21")
    counted(f"dnsmasq-tftp[17]: file {name} not found for 10.80.0.21")
