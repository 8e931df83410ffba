"""What a TPM's refusal means, in words. Source: TPM 2.0 Library, part 2, 6.6."""

from __future__ import annotations

RETRY, YIELDED, TESTING = 0x922, 0x908, 0x90A
HANDLE = 0x08B
"""As `base_code` gives it: there is nothing at this handle."""

NO_SUCH_ALGORITHM = (0x081, 0x083, 0x084, 0x08A, 0x092, 0x0A6)
"""As `base_code` gives them: the TPM cannot do what a template asks for."""

_FORMAT_ONE = 0x080
_OF_PARAMETER = 0x040

_WORDS = {
    0x100: "TPM_RC_INITIALIZE: the firmware did not start it",
    0x101: "TPM_RC_FAILURE: it is in failure mode; cut the machine's power",
    0x120: "TPM_RC_DISABLED: it is disabled; enable it in the firmware's setup",
    0x12D: "TPM_RC_UPGRADE: it waits for the end of a firmware upgrade",
    0x143: "TPM_RC_COMMAND_CODE: it does not know this command",
    0x149: "TPM_RC_NV_AUTHORIZATION: it may not be read like this",
    0x14A: "TPM_RC_NV_UNINITIALIZED: nothing was written there",
    0x902: "TPM_RC_OBJECT_MEMORY: no room for another key; somebody did not flush theirs",
    0x903: "TPM_RC_SESSION_MEMORY: no room for another session; somebody did not flush theirs",
    0x905: "TPM_RC_SESSION_HANDLES: no session handle is free",
    TESTING: "TPM_RC_TESTING: it tests itself",
    YIELDED: "TPM_RC_YIELDED: it was interrupted",
    0x921: "TPM_RC_LOCKOUT: it is locked, after wrong passwords; wait, or clear the lockout",
    RETRY: "TPM_RC_RETRY: it is busy",
    0x081: "TPM_RC_ASYMMETRIC: not an algorithm that it has",
    0x082: "TPM_RC_ATTRIBUTES: these attributes are inconsistent",
    0x083: "TPM_RC_HASH: not a hash that it has",
    0x084: "TPM_RC_VALUE: a value is out of range",
    0x085: "TPM_RC_HIERARCHY: the hierarchy is disabled; enable it in the firmware's setup",
    0x08A: "TPM_RC_TYPE: not a type of key that it has",
    HANDLE: "TPM_RC_HANDLE: nothing is there",
    0x08E: "TPM_RC_AUTH_FAIL: a password is set; clear the TPM in the firmware's setup",
    0x092: "TPM_RC_SCHEME: not a scheme that it has",
    0x095: "TPM_RC_SIZE: a field has the wrong size",
    0x09D: "TPM_RC_POLICY_FAIL: the key's policy was not met",
    0x09F: "TPM_RC_INTEGRITY: what came was made for another TPM or another key, or altered on the way",
    0x0A2: "TPM_RC_BAD_AUTH: a password is set; clear the TPM in the firmware's setup",
    0x0A6: "TPM_RC_CURVE: not a curve that it has",
}


def base_code(code: int) -> int:
    """`code` without which handle, parameter or session it is about."""
    if code & _FORMAT_ONE:
        return code & 0x0BF
    return code


def describe(code: int) -> str:
    """A response code in words: `0x18b (TPM_RC_HANDLE: nothing is there, handle 1)`."""
    words = _WORDS.get(base_code(code), "see the TPM 2.0 Library, part 2, 6.6")
    if code & _FORMAT_ONE:
        number = code >> 8 & 0xF
        if code & _OF_PARAMETER:
            words += f", parameter {number}"
        elif number:
            words += f", session {number - 8}" if number & 8 else f", handle {number}"
    return f"{code:#x} ({words})"
