"""What the daemon does to the machine that it runs on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from provisioner.node.image import kexec, stage
from provisioner.node.image.manifest import ImageError
from provisioner.node.tpm.device import TpmError
from provisioner.node.tpm.hand_over import measure

SYSTEMCTL_SECONDS = 15.0


class RealMachine:
    """This machine. `root` is "" but in tests."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._staging: subprocess.Popen[str] | None = None

    def begin_staging(self, image_digest: str, arguments: Sequence[str]) -> None:
        self._end_staging()
        root = ["--root", self._root] if self._root else []
        command = [sys.executable, "-I", "-m", "provisioner.node", "stage", *root, image_digest, *arguments]
        self._staging = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)

    def staging_result(self) -> tuple[bool, str] | None:
        process = self._staging
        if process is None or process.stdout is None:
            return False, "the staging was ended"
        if process.poll() is None:
            return None
        self._staging = None
        with process.stdout:
            said = process.stdout.read(4096).strip()
        if process.returncode == 0:
            return True, said
        return False, said or f"the staging ended with status {process.returncode}"

    def drop_staged(self) -> None:
        self._end_staging()
        if not self._root:
            try:
                kexec.unload()
            except ImageError as error:
                print(f"provisioner: {error}", file=sys.stderr, flush=True)
        stage.close_folder(self._root)

    def memory_is_short(self) -> str | None:
        try:
            stage.check_memory(self._root, 0)
        except ImageError as error:
            return f"given up while staged: {error}"
        return None

    def stop_kubelet(self) -> None:
        self._control("stop", "kubelet.service")

    def start_kubelet(self) -> None:
        self._control("start", "kubelet.service")

    def kexec(self) -> None:
        self._must_be_real()
        self._measure()
        kexec.start_loaded()

    def reboot(self) -> None:
        self._must_be_real()
        kexec.reboot()

    def _measure(self) -> None:
        """Extend the TPM by what is loaded: without that the next boot's proof is refused. Raises: ImageError."""
        record = stage.read_record(self._root)
        if record is None:
            raise ImageError(f"the loaded kernel was not started: {stage.FOLDER} has no record of what it is")
        try:
            measure(self._root, record["handOverSHA256"])
        except TpmError as error:
            raise ImageError(f"the loaded kernel was not started: the TPM did not measure it ({error})") from error

    def _control(self, verb: str, unit: str) -> None:
        """What systemd makes of it is seen in the Node; a kexec does not wait for it any longer."""
        if self._root:
            return
        try:
            subprocess.run(["systemctl", verb, unit], check=False, timeout=SYSTEMCTL_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            print(f"provisioner: {unit} did not {verb}: {error}", file=sys.stderr, flush=True)

    def _must_be_real(self) -> None:
        if self._root:
            raise ImageError(f"{self._root} is a folder, not a machine: it does not reboot")

    def _end_staging(self) -> None:
        if self._staging is not None:
            self._staging.kill()
            self._staging.communicate()
            self._staging = None
