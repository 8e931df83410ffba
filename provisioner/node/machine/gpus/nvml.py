"""NVIDIA's management library by ctypes: the calls that the survey makes, their structures, their errors by name.

Source: nvml.h of driver 550 and later. What a call answers is read, never what the library's text says of an error.
"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_char, c_ubyte, c_uint, c_ulonglong, c_void_p

LIBRARY = "libnvidia-ml.so.1"

NOT_SUPPORTED, DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, GPU_IS_LOST, VERSION_MISMATCH = 3, 9, 13, 15, 18
ERRORS = {
    1: "UNINITIALIZED",
    2: "INVALID_ARGUMENT",
    NOT_SUPPORTED: "NOT_SUPPORTED",
    4: "NO_PERMISSION",
    6: "NOT_FOUND",
    7: "INSUFFICIENT_SIZE",
    8: "INSUFFICIENT_POWER",
    DRIVER_NOT_LOADED: "DRIVER_NOT_LOADED",
    10: "TIMEOUT",
    11: "IRQ_ISSUE",
    12: "LIBRARY_NOT_FOUND",
    FUNCTION_NOT_FOUND: "FUNCTION_NOT_FOUND",
    14: "CORRUPTED_INFOROM",
    GPU_IS_LOST: "GPU_IS_LOST",
    16: "RESET_REQUIRED",
    17: "OPERATING_SYSTEM",
    VERSION_MISMATCH: "LIB_RM_VERSION_MISMATCH",
    19: "IN_USE",
    20: "MEMORY",
    21: "NO_DATA",
    23: "INSUFFICIENT_RESOURCES",
    25: "ARGUMENT_VERSION_MISMATCH",
    26: "DEPRECATED",
    27: "NOT_READY",
    28: "GPU_NOT_FOUND",
    29: "INVALID_STATE",
    999: "UNKNOWN",
}
GPU_IS_BROKEN = frozenset((8, 11, GPU_IS_LOST, 16))
"""Errors that are about the GPU and not about the call: nothing else is asked of it."""

TEXT_BYTES = 96
"""The longest of NVML's buffers for names, UUIDs and versions."""


class NvmlError(Exception):
    """A call failed. `code`: NVML's; `name`: NVML's name of it, without NVML_ERROR_."""

    def __init__(self, function: str, code: int) -> None:
        self.function = function
        self.code = code
        self.name = ERRORS.get(code, str(code))
        super().__init__(f"{function}: NVML_ERROR_{self.name} ({code})")


class PciInfo(Structure):
    """nvmlPciInfo_t."""

    _fields_ = (
        ("bus_id_legacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pci_device_id", c_uint),
        ("pci_subsystem_id", c_uint),
        ("bus_id", c_char * 32),
    )


class Memory(Structure):
    """nvmlMemory_v2_t, in bytes. `used` is without what the driver reserves, as in nvidia-smi; that of v1 is not."""

    _fields_ = (
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    )


MEMORY_VERSION = ctypes.sizeof(Memory) | 2 << 24
"""NVML_STRUCT_VERSION(Memory, 2)."""


class Utilization(Structure):
    """nvmlUtilization_t, in percent."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class FabricInfo(Structure):
    """nvmlGpuFabricInfo_v2_t."""

    _fields_ = (
        ("version", c_uint),
        ("cluster_uuid", c_ubyte * 16),
        ("status", c_uint),
        ("clique_id", c_uint),
        ("state", c_ubyte),
        ("health_mask", c_uint),
    )


FABRIC_INFO_VERSION = ctypes.sizeof(FabricInfo) | 2 << 24
"""NVML_STRUCT_VERSION(GpuFabricInfo, 2)."""


class Nvml:
    """The library, loaded. Raises: OSError if it cannot be."""

    def __init__(self, path: str = LIBRARY) -> None:
        self._library = ctypes.CDLL(path)

    def call(self, function: str, *arguments: object) -> None:
        """Raises: NvmlError, with FUNCTION_NOT_FOUND where this library has no such function."""
        try:
            symbol = getattr(self._library, function)
        except AttributeError:
            raise NvmlError(function, FUNCTION_NOT_FOUND) from None
        if code := symbol(*arguments):
            raise NvmlError(function, code)

    def number(self, function: str, *arguments: object) -> int:
        """What the call writes into its last argument, an unsigned int or an enumeration."""
        value = c_uint()
        self.call(function, *arguments, ctypes.byref(value))
        return value.value

    def large_number(self, function: str, *arguments: object) -> int:
        """As `number`, of 64 bits."""
        value = c_ulonglong()
        self.call(function, *arguments, ctypes.byref(value))
        return value.value

    def numbers(self, function: str, count: int, *arguments: object) -> list[int]:
        """As `number`, of the last `count` arguments."""
        values = [c_uint() for _ in range(count)]
        self.call(function, *arguments, *(ctypes.byref(value) for value in values))
        return [value.value for value in values]

    def text(self, function: str, *arguments: object) -> str:
        """What the call writes into a buffer."""
        buffer = ctypes.create_string_buffer(TEXT_BYTES)
        self.call(function, *arguments, buffer, c_uint(TEXT_BYTES))
        return buffer.value.decode("utf-8", "replace")

    def handle(self, function: str, *arguments: object) -> c_void_p:
        """A device of `nvmlDeviceGetHandleByIndex_v2` and its like."""
        device = c_void_p()
        self.call(function, *arguments, ctypes.byref(device))
        return device

    def fill(self, function: str, device: c_void_p, into: Structure) -> None:
        """The structure that the call fills."""
        self.call(function, device, ctypes.byref(into))
