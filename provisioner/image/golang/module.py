"""A Go module of one checksum, and the commands that build from it. Which proxy serves it is Go's own setting."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman

GO_REMEDY: Final = "install Go {wanted} or newer (https://go.dev/dl)"

_GO_DIRECTIVE: Final = re.compile(r"^go (\d+\.\d+(?:\.\d+)?)$", re.MULTILINE)
_GO_VERSION: Final = re.compile(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?")


@dataclass(frozen=True)
class PublishedModule:
    """A published module. `checksum` is that of its content as go.sum has it; its own go.sum pins what it needs."""

    path: str
    version: str
    checksum: str
    called: str
    """What people call it."""
    remedy: str = GO_REMEDY
    """What helps where there is no Go, or too old a one; {wanted} is the version."""

    def fetch(self, work: Path) -> Fetched:
        """Download it, or find it downloaded. Raises: NeedsHuman if it cannot be had, or is another one."""
        found = json.loads(self.go(("mod", "download", "-json", f"{self.path}@{self.version}"), work))
        if found.get("Sum") != self.checksum:
            raise NeedsHuman(
                f"Go module {self.path} {self.version} has checksum {found.get('Sum')}, known is {self.checksum}",
                hint="do not use it; see what stands between this machine and the module proxy",
            )
        return Fetched(Path(found["Dir"]), Path(found["GoMod"]).read_text())

    def go_directive(self, go_mod: str) -> str:
        """The version of Go that its go.mod asks for. Raises: NeedsHuman if it names none."""
        found = _GO_DIRECTIVE.search(go_mod)
        if found is None:
            raise NeedsHuman(
                f"{self.path} {self.version} says no Go version", hint="its layout changed: adapt the recipe"
            )
        return found.group(1)

    def require_go(self, version_output: str, wanted: str) -> None:
        """Raises: NeedsHuman if `go version` said an older one than `wanted` (`1.26.0`)."""
        found = _GO_VERSION.search(version_output)
        have = tuple(int(part or 0) for part in found.groups()) if found else (0, 0, 0)
        numbers = [int(part) for part in wanted.split(".")]
        if have < tuple(numbers + [0] * (3 - len(numbers))):
            observed = ".".join(str(part) for part in have) if found else version_output.strip()
            raise NeedsHuman(
                f"Go {observed} is too old for {self.called} {self.version}", hint=self.remedy.format(wanted=wanted)
            )

    def go(self, arguments: Sequence[str], work: Path) -> str:
        """What `go` with these arguments prints in `work`. Raises: as `run`."""
        return self.run(("env", "GOWORK=off", "go", *arguments), work)

    def run(self, command: Sequence[str], work: Path) -> str:
        """What a command `env … go …` prints. Raises: NeedsHuman with the end of what it said if it fails."""
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        if done.returncode == 127:  # from env: no such program
            raise NeedsHuman("Go is not installed", hint=self.remedy.format(wanted="1.26"))
        if done.returncode != 0:
            shown = " ".join(command[command.index("go") :][:3])
            message = f"`{shown} …` ended with status {done.returncode}:\n{words}\n"
            raise NeedsHuman(message, hint="remedy that and try again")
        return done.stdout


@dataclass(frozen=True)
class Fetched:
    """A module on this machine: its read-only folder, and the text of its go.mod."""

    folder: Path
    go_mod: str
