"""One attempt of stage-1, run by a shell on this machine with everything before the handover left out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.image.samples import NODE

pytestmark = pytest.mark.programs

LIBRARY = NODE / "stage1/lib/stage1"
LAYER = f"{'ab' * 32} 4096 /dev/loop0"
LEFT_OUT = {
    "arguments.sh": "read_arguments() { server=r01-u01 mac=52:54:00:00:00:21 address=10.80.0.21/24; }\n",
    "network.sh": "bring_up_network() { :; }\n",
    "manifest.sh": "image_sources=one\nfetch_manifest() { :; }\nmanifest=@/run/stage1/manifest\n",
    "layers.sh": f"fetch_root() {{ :; }}\nmount_root() {{ echo {LAYER} >@/run/stage1/mounted; }}\n",
}


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder in the place of `/`, with the attempt and its library in it."""
    for folder in ("lib/stage1", "run/stage1", "sysroot/etc"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("attempt", "say.sh", "fetch.sh", "handover.sh", *LEFT_OUT):
        text = LEFT_OUT.get(name) or (LIBRARY / name).read_text()
        for path in ("/sysroot", "/run/", "/lib/stage1/", "/staged/"):
            text = text.replace(path, f"@{path}")
        (tmp_path / "lib/stage1" / name).write_text(text.replace("@@", "@").replace("@", str(tmp_path)))
    (tmp_path / "run/stage1/manifest").touch()
    return tmp_path


def attempt(machine: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", machine / "lib/stage1/attempt"], capture_output=True, text=True, timeout=60, check=False
    )


def test_what_is_handed_over_is_written_and_nothing_is_complained_of(machine: Path) -> None:
    done = attempt(machine)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (machine / "sysroot/etc/hostname").read_text() == "r01-u01\n"
    assert '"server": "r01-u01"' in (machine / "run/provisioner/boot.json").read_text()
    assert (machine / "run/provisioner/layers").read_text() == f"{LAYER}\n"
    assert (machine / "run/stage1/stage").read_text() == "System\n"


def test_a_request_key_that_was_staged_is_kept_for_the_agent_and_nowhere_else(machine: Path) -> None:
    (machine / "staged").mkdir()
    (machine / "staged/request-key").write_text("key\n")
    (machine / "staged/request-key").chmod(0o600)
    assert attempt(machine).returncode == 0
    kept = machine / "run/provisioner/request-key"
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("key\n", 0o600)
    assert not (machine / "staged/request-key").exists()


def test_a_boot_that_was_not_staged_gets_no_request_key(machine: Path) -> None:
    attempt(machine)
    assert not (machine / "run/provisioner/request-key").exists()


def test_a_handover_that_fails_is_complained_of(machine: Path) -> None:
    (machine / "sysroot/etc").rmdir()
    done = attempt(machine)
    assert done.returncode == 1
    title, *fields = done.stdout.splitlines()
    assert title == "stage-1: not booted"
    said = {field.split()[0]: field.split(maxsplit=1)[1] for field in fields}
    assert said["object"] == "files for the system of this boot"
    assert "/sysroot/etc/hostname" in said["observed"]
    assert "boot.json" in said["expected"]
    assert "more memory" in said["remedy"]
    assert (machine / "run/stage1/stage").read_text() == "Stage1\n", "the stage System has not begun"
