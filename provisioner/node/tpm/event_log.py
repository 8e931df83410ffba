"""What the firmware says that it measured: the kernel's copy of its log, in the TCG's format."""

from __future__ import annotations

FOLDER = "/sys/kernel/security"
PATH = f"{FOLDER}/tpm0/binary_bios_measurements"
MAX_BYTES = 128 << 10
_MOUNT_SECONDS = 5.0


def read_event_log(root: str) -> tuple[bytes, str]:
    """The log, and why there is none (`""` where there is one). `root`: "" on a real machine.

    One that is longer than MAX_BYTES is left out: a part of a log explains no PCR. After a kexec there may be none.
    """
    for attempt in ("as it is", "mounted"):
        try:
            with open(root + PATH, "rb") as file:  # noqa: PTH123 (pathlib costs start-up time)
                log = file.read(MAX_BYTES + 1)
            break
        except FileNotFoundError as error:
            if root or attempt == "mounted" or not _mount():
                return b"", f"there is no event log of the firmware ({error.filename} is not there)"
        except OSError as error:
            return b"", f"the event log of the firmware cannot be read ({error})"
    if len(log) > MAX_BYTES:
        return b"", f"the event log of the firmware has more than {MAX_BYTES >> 10} KiB and is left out"
    return log, "" if log else "the event log of the firmware is empty"


def _mount() -> bool:
    """systemd mounts it on most systems."""
    import subprocess  # costs start-up time

    command = ["mount", "-t", "securityfs", "-o", "nosuid,nodev,noexec", "securityfs", FOLDER]
    try:
        return subprocess.run(command, capture_output=True, timeout=_MOUNT_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
