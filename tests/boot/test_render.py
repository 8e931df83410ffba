"""The scripts as machines get them, whole."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.servers.server import BootOrder, ServerStatus
from provisioner.boot.script.choose import BootTarget, KeepWaiting, choose_boot_target
from provisioner.boot.script.render import console_lines, render_first_script, render_script
from provisioner.boot.script.renderer import STARTING
from tests.boot.objects import URLS, at, image, pool, rack, server
from tests.golden_files import assert_golden

SECOND_ATTEMPT = ServerStatus(
    address="10.80.0.21",
    subnet_name="boot",
    order=BootOrder(id="order-2", reason="TimedOut", ordered_time=at(0), attempt=2),
)
TARGETS: dict[str, BootTarget] = {
    "boot.ipxe": choose_boot_target(server(), pool(), image(), rack(), URLS),
    "boot-cache.ipxe": choose_boot_target(server(), pool(), image(), rack(cache_url="http://10.80.0.5"), URLS),
    "boot-second-attempt.ipxe": choose_boot_target(
        server(status=SECOND_ATTEMPT),
        pool(),
        image(),
        rack(cache_url="http://10.80.0.5", least_rate_bytes_per_second=1_000_000),
        URLS,
    ),
    "boot-arm64.ipxe": choose_boot_target(
        server(architecture="arm64"), pool(), image(architecture="arm64"), rack(), URLS
    ),
    "boot-https.ipxe": choose_boot_target(server(), pool(), image(), rack(), replace(URLS, ipxe_https=True)),
    "wait-pending.ipxe": choose_boot_target(server(acceptance="Pending"), pool(), image(), rack(), URLS),
    "wait-pool-missing.ipxe": choose_boot_target(server(), None, image(), rack(), URLS),
    "starting.ipxe": STARTING,
}


@pytest.mark.parametrize("name", TARGETS)
def test_a_targets_script_is_the_golden_one(name: str) -> None:
    assert_golden(f"boot/{name}", render_script(TARGETS[name]))


def test_the_first_script_is_the_golden_one() -> None:
    assert_golden("boot/first.ipxe", render_first_script(URLS))


def test_the_first_script_never_ends() -> None:
    """Every command that can fail is caught, and the last one jumps back."""
    lines = [line for line in render_first_script(URLS).splitlines() if line and not line.startswith(("#", ":"))]
    assert lines[-1].startswith("goto ")
    may_fail = [line for line in lines if not line.startswith(("echo", "goto", "set", "inc"))]
    assert may_fail
    assert all("||" in line for line in may_fail)
    assert not any(line.split()[0] in ("exit", "shell", "reboot", "sanboot") for line in lines)


def test_every_jump_has_its_label() -> None:
    for script in (render_first_script(URLS), *(render_script(target) for target in TARGETS.values())):
        labels = set(re.findall(r"^:(\w+)$", script, re.MULTILINE))
        assert set(re.findall(r"goto (\w+)", script)) <= labels


def test_no_script_holds_anything_secret() -> None:
    for target in TARGETS.values():
        assert not re.search(r"token|password|secret|-----BEGIN", render_script(target), re.IGNORECASE)


@given(st.text())
def test_no_text_of_an_object_becomes_a_command(text: str) -> None:
    script = render_script(KeepWaiting(reason="Any", message=text, remedy=text, server=None))
    for line in script.splitlines()[2:]:
        assert re.match(r"^(echo |sleep 15|exit 0|asking)", line), line
        words = line.split()
        assert "${" not in line
        assert not {";", "&&", "#"} & set(words)
        assert "||" not in words or line == "sleep 15 ||"
        assert not line.endswith("\\")


def test_long_messages_are_wrapped_for_the_console() -> None:
    lines = console_lines("word " * 40)
    assert len(lines) == 3
    assert all(len(line) <= 78 for line in lines)
