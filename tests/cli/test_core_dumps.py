"""A process of ours that crashes leaves no memory behind, and shows it to no other of its user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.cli import core_dumps
from tests.tools import installed, need_root

NOBODY = 65534

SOURCE = """
import resource, sys
if sys.argv[1] == "ours":
    from provisioner.cli.core_dumps import forbid_core_dumps
    forbid_core_dumps()
print(resource.getrlimit(resource.RLIMIT_CORE)[0], __import__("ctypes").CDLL(None).prctl(3, 0, 0, 0, 0))
"""


def told(*words: str) -> str:
    ran = subprocess.run([sys.executable, "-c", SOURCE, *words], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_it_writes_no_core_and_is_not_dumpable() -> None:
    assert told("ours") == "0 0"


def test_without_that_it_is_dumpable() -> None:
    assert told("others").split()[1] == "1"


def test_each_command_forbids_them_before_it_reads_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    from provisioner.cli import main

    done: list[str] = []
    monkeypatch.setattr(main, "forbid_core_dumps", lambda: done.append("forbidden"))
    monkeypatch.setattr(main.click.Group, "main", lambda self, *args, **more: done.append(str(more["prog_name"])))
    main.main()
    main.kubectl_plugin()
    assert done == ["forbidden", "provisioner", "forbidden", "kubectl provision"]


def test_another_process_of_the_same_user_does_not_read_its_environment() -> None:
    """The system's Python, as a user who sees nothing of where this project lies."""
    need_root("act as two processes of one other user")
    python = installed("python3.11") if not Path("/usr/bin/python3").exists() else "/usr/bin/python3"
    waits = "import sys; exec(sys.argv[1]); print('up', flush=True); sys.stdin.read()"
    seen = {}
    for calls in ("forbid_core_dumps()", ""):
        source = f"{Path(core_dumps.__file__).read_text()}\n{calls}"
        command = [python, "-c", waits, source]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=NOBODY, cwd="/", env={}
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            asked = ["cat", f"/proc/{process.pid}/environ"]
            seen[calls] = subprocess.run(asked, capture_output=True, check=False, user=NOBODY, cwd="/").returncode == 0
            assert process.stdin is not None
            process.stdin.close()
    assert seen == {"forbid_core_dumps()": False, "": True}
