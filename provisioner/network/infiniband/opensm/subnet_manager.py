"""Effects on a subnet manager's host: its partitions file is replaced in one step, and OpenSM is told to read it."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman, Retryable
from provisioner.network.infiniband.opensm.partitions_file import MAX_BYTES

PROGRAM = "opensm"


class NotRunning(Retryable):
    """There is no OpenSM on this host that could be told."""


def read_file(path: Path) -> str | None:
    """The file's text, what is no UTF-8 in it replaced; None if there is none. Raises: NeedsHuman."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NeedsHuman(f"{path} cannot be read: {error.strerror}", hint="name OpenSM's partitions file") from error
    if len(content) > MAX_BYTES:
        raise NeedsHuman(f"{path} has more than {MAX_BYTES} bytes", hint="name OpenSM's partitions file")
    return content.decode(errors="replace")


def replace_file(path: Path, text: str) -> None:
    """Whoever reads `path` sees the old text or the new one, also after a power failure. Raises: NeedsHuman.

    A half of a file would be worse than none: OpenSM would make all ports full members of the default partition.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise NeedsHuman(
            f"{path} cannot be written: {error.strerror}", hint="run this as root on the subnet manager's host"
        ) from error


def tell_to_read(pid_file: Path | None, *, proc: Path = Path("/proc")) -> int:
    """Have OpenSM sweep heavily, in which it reads its partitions file. Returns its process id.

    Without `pid_file` there must be one process named opensm. Raises: NotRunning; NeedsHuman.
    """
    pid = _named(pid_file) if pid_file is not None else _only(proc)
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        raise NotRunning(f"process {pid} of OpenSM is gone", after_seconds=2.0) from error
    try:
        # The number may be another process's by now: the descriptor is of the one that is looked at here.
        if _name_of(proc / str(pid)) != PROGRAM:
            raise NotRunning(f"process {pid} is not OpenSM", after_seconds=2.0)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGHUP)
        except ProcessLookupError as error:
            raise NotRunning(f"process {pid} of OpenSM is gone", after_seconds=2.0) from error
        except PermissionError as error:
            raise NeedsHuman(f"OpenSM, process {pid}, may not be signalled", hint="run this as its user") from error
    finally:
        os.close(descriptor)
    return pid


def _named(pid_file: Path) -> int:
    try:
        text = pid_file.read_bytes()[:32].decode("ascii").strip()
        return int(text)
    except OSError as error:
        raise NotRunning(f"{pid_file}: {error.strerror}: OpenSM does not run", after_seconds=2.0) from error
    except ValueError as error:
        raise NeedsHuman(f"{pid_file} holds no process id", hint="name the pid file of OpenSM, or none") from error


def _only(proc: Path) -> int:
    found = [int(each.name) for each in proc.iterdir() if each.name.isdigit() and _name_of(each) == PROGRAM]
    if not found:
        raise NotRunning("no process named opensm runs here", after_seconds=2.0)
    if len(found) > 1:
        raise NeedsHuman(
            f"{len(found)} processes named opensm run here", hint="say which one manages this fabric: --pid-file"
        )
    return found[0]


def _name_of(process: Path) -> str | None:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return None
