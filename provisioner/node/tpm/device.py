"""One connection to the machine's TPM: a command out, an answer in, each with a deadline.

/dev/tpmrm0 is the kernel's resource manager: several programs may use it, and what one has loaded goes when it closes.
/dev/tpm0 is the TPM itself, for one program at a time. Both are opened non-blocking, and poll tells when an answer is
there; a blocking write would last as long as the TPM does.
"""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Callable

from provisioner.node.tpm import return_codes

PATHS = ("/dev/tpmrm0", "/dev/tpm0")
ANNOUNCEMENTS = ("/sys/firmware/acpi/tables/TPM2", "/sys/class/tpm/tpm0")
"""What is there before a driver has made the device: the firmware's table, the kernel's own entry."""
MAX_BYTES = 4096
"""Of a command, and of an answer: what TPMs and the kernel's driver take."""
COMMAND_SECONDS = 10.0
APPEAR_SECONDS = 5.0
_HEADER = struct.Struct(">HII")
_TAGS = (0x8001, 0x8002)
_TAG_OF_TPM_1 = 0x00C4
_BUSY = (return_codes.RETRY, return_codes.YIELDED, return_codes.TESTING)
_BUSY_SECONDS = 0.05


class TpmError(Exception):
    """What the TPM did not do, and why, in words. `code`: its response code, or None where it gave no answer."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class NoTpmError(TpmError):
    """The machine has none."""


class TpmDevice:
    """`descriptor` answers a written command by bytes to read; it is this object's, and closed with it."""

    def __init__(self, descriptor: int, name: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._name = name
        self._clock = clock
        self._limit: float | None = None

    @property
    def is_open(self) -> bool:
        return self._descriptor >= 0

    def limit(self, seconds: float) -> None:
        """So long may all calls from now on take together, beside each one's own deadline."""
        self._limit = self._clock() + seconds

    def call(self, what: str, command: bytes, seconds: float = COMMAND_SECONDS) -> bytes:
        """What follows the header of a successful answer. `what`: the command's name, for errors.

        A TPM that says that it is busy is asked again until the deadline. One that misses it is given up: the device is
        closed, and every later call fails at once. Raises: TpmError.
        """
        now = self._clock()
        if self._limit is not None:
            seconds = max(min(seconds, self._limit - now), 0.0)
        deadline = now + seconds
        while True:
            body, code = self._read_answer(what, self._transmit(what, command, deadline, seconds))
            if code == 0:
                return body
            if code not in _BUSY or self._clock() + _BUSY_SECONDS >= deadline:
                raise TpmError(f"{what}: {self._name} refused with {return_codes.describe(code)}", code)
            time.sleep(_BUSY_SECONDS)

    def close(self) -> None:
        """Give the device back. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _transmit(self, what: str, command: bytes, deadline: float, seconds: float) -> bytes:
        if not self.is_open:
            raise TpmError(f"{what}: {self._name} was given up before")
        if len(command) > MAX_BYTES:
            raise TpmError(f"{what}: the command has {len(command)} bytes, {MAX_BYTES} at most are taken")
        answer = b""
        try:
            self._wait(select.POLLOUT, deadline)
            if os.write(self._descriptor, command) != len(command):
                raise TpmError(f"{what}: {self._name} did not take the whole command")
            while len(answer) < self._wanted_bytes(what, answer):
                self._wait(select.POLLIN, deadline)
                piece = os.read(self._descriptor, MAX_BYTES + 1 - len(answer))
                if not piece:
                    raise TpmError(f"{what}: the answer of {self._name} was cut after {len(answer)} bytes")
                answer += piece
        except TimeoutError as error:
            self._abandon()
            raise TpmError(f"{what}: {self._name} gave no answer in {seconds:g} s") from error
        except OSError as error:
            self._abandon()
            raise TpmError(f"{what}: {self._name} failed ({type(error).__name__}: {error})") from error
        except TpmError:
            self._abandon()  # what it sends next would be taken for the answer to the next command
            raise
        return answer

    def _wait(self, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._descriptor, event)
        while True:
            left = deadline - self._clock()
            if left <= 0:
                raise TimeoutError
            if poll.poll(left * 1000):
                return

    def _wanted_bytes(self, what: str, answer: bytes) -> int:
        if len(answer) < _HEADER.size:
            return _HEADER.size
        size = int(_HEADER.unpack_from(answer)[1])
        if not _HEADER.size <= size <= MAX_BYTES or len(answer) > size:
            raise TpmError(f"{what}: {self._name} answers {len(answer)} bytes and says {size}, at most {MAX_BYTES}")
        return size

    def _read_answer(self, what: str, answer: bytes) -> tuple[bytes, int]:
        tag, _, code = _HEADER.unpack_from(answer)
        if tag == _TAG_OF_TPM_1:
            raise TpmError(f"{what}: {self._name} is a TPM 1.2; only TPM 2.0 attests here")
        if tag not in _TAGS:
            self._abandon()
            raise TpmError(f"{what}: {self._name} answers with the unknown tag {tag:#x}")
        return answer[_HEADER.size :], code

    def _abandon(self) -> None:
        """Close without waiting.

        Closing the last descriptor waits in the kernel for a command under way, minutes with some TPMs, and so does the
        end of the process. A child whose parent is gone has the last one, and waits in this process's place.
        """
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        closed, keep = os.pipe()
        try:
            child = os.fork()
        except OSError:
            child = -1
        if child == 0:
            if os.fork() == 0:
                _hold_alone(descriptor, closed)
            os._exit(0)
        if child > 0:
            os.waitpid(child, 0)
        os.close(descriptor)
        os.close(closed)
        os.close(keep)


def _hold_alone(descriptor: int, closed: int) -> None:
    """Hold no other descriptor, until everybody else has closed the other end of `closed`."""
    low, high = sorted((descriptor, closed))
    os.closerange(0, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, max(high + 1, 1 << 16))
    os.read(closed, 1)


def open_tpm(root: str, *, appear_seconds: float = APPEAR_SECONDS) -> TpmDevice:
    """The machine's TPM. `root`: "" on a real machine.

    Where the firmware or the kernel names one, its device is waited for: the driver may still be loading.
    Raises: NoTpmError; TpmError if there is one and it cannot be opened.
    """
    deadline = time.monotonic() + appear_seconds
    while True:
        for path in PATHS:
            if os.path.exists(root + path):  # noqa: PTH110 (pathlib costs start-up time)
                return _open(root + path)
        announced = next((path for path in ANNOUNCEMENTS if os.path.exists(root + path)), "")  # noqa: PTH110
        if not announced:
            raise NoTpmError("this machine has no TPM: neither its firmware nor its kernel names one")
        if time.monotonic() >= deadline:
            raise TpmError(
                f"{announced} names a TPM, but {PATHS[0]} did not appear in {appear_seconds:g} s; "
                "does the image have its driver?"
            )
        time.sleep(0.05)


def _open(path: str) -> TpmDevice:
    try:
        return TpmDevice(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC), path)
    except OSError as error:
        raise TpmError(f"{path} cannot be opened ({error.strerror}); does another program hold it?") from error
