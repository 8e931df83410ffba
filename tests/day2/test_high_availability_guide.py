"""The configurations of keepalived and FRR that the guide prints are what the Ansible role writes."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment

from tests.day2.anycast_hosts import GUIDE, settings_of
from tests.day2.boot_hosts import TEMPLATES, write_rendered


def lines_of(text: str) -> list[str]:
    """Lines that mean something, without comments and indentation."""
    lines = [" ".join(line.partition("!")[0].partition("#")[0].split()) for line in text.splitlines()]
    return [line for line in lines if line]


def test_the_guide_prints_what_the_role_writes_for_keepalived() -> None:
    (printed,) = re.findall(r"^   ```\n(   vrrp_script .*?)^   ```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    template = Environment(trim_blocks=True, autoescape=False).from_string(  # noqa: S701 - no HTML
        (TEMPLATES / "keepalived.conf.j2").read_text()
    )
    written = template.render(
        boot_host_keepalived_name="boot1",
        boot_host_check_script="/usr/local/lib/provisioner/check-boot",
        boot_host_keepalived_interface="eth1",
        boot_host_keepalived_router_id=51,
        boot_host_keepalived_priority=100,
        boot_host_keepalived_source="10.80.0.2",
        boot_host_keepalived_peers=["10.80.0.3"],
        boot_host_virtual_address="10.80.0.1/24",
    )
    assert lines_of(printed) == lines_of(written[written.index("vrrp_script") :])


def test_the_guide_prints_what_the_role_writes_for_frr(tmp_path: Path) -> None:
    (printed,) = re.findall(r"^   ```\n(   frr defaults .*?)^   ```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    for name in ("first", "second"):
        write_rendered(tmp_path / "frr.conf", settings_of(name), 0o644)
        written = (tmp_path / "frr.conf").read_text()
        if name == "first":
            assert lines_of(printed) == lines_of(written)
            only_second = re.findall(r"! on the second: (.*)", printed)
        else:
            assert [line for line in lines_of(written) if "prepend" in line] == only_second
