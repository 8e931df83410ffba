"""Ansible's way into a chroot in namespaces of its own, as ssh is to a host. Ansible loads it by its path."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = r"""
name: chroot_of
short_description: A chroot that a process holds
description: For tests.
options:
  enter:
    description: The command that enters it, followed by what shall run there.
    type: str
    vars: [{name: chroot_of_enter}]
"""


class Connection(ConnectionBase):
    transport = "chroot_of"
    has_pipelining = True

    def _connect(self) -> Any:
        self._connected = True
        return self

    def _enter(self, command: str, stdin: bytes | None) -> tuple[int, bytes, bytes]:
        words = [*shlex.split(self.get_option("enter")), "/bin/sh", "-c", command]
        ran = subprocess.run(words, input=stdin or b"", capture_output=True, check=False)
        return ran.returncode, ran.stdout, ran.stderr

    def exec_command(self, cmd: str, in_data: bytes | None = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        return self._enter(cmd, in_data)

    def put_file(self, in_path: str, out_path: str) -> None:
        super().put_file(in_path, out_path)
        code, _, stderr = self._enter(f"cat > {shlex.quote(out_path)}", Path(in_path).read_bytes())
        if code != 0:
            raise AnsibleConnectionFailure(f"{out_path} was not written: {stderr!r}")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        super().fetch_file(in_path, out_path)
        code, stdout, stderr = self._enter(f"cat {shlex.quote(in_path)}", None)
        if code != 0:
            raise AnsibleConnectionFailure(f"{in_path} was not read: {stderr!r}")
        Path(out_path).write_bytes(stdout)

    def close(self) -> None:
        self._connected = False
