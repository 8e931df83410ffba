"""What mstprivhost and mstconfig print is read as documented, and nothing of it is guessed.

Forms: MFT documentation, "mlxprivhost" (query) and "mlxconfig" (query with -e); Mellanox/mstflint, mstprivhost.py
(printConfOut), mlxcfg_ui.cpp (printOpening, printConfHeader, printSingleParam) and mstfwreset.py (getMlxconfigValue).
The samples are made after these: none was taken from a card.
"""

from __future__ import annotations

import pytest

from provisioner.network.agent.card.parse import (
    HostPrivileges,
    Setting,
    UnreadableOutput,
    Value,
    read_host_privileges,
    read_settings,
)

RESTRICTED = """\
Host configurations
-------------------
level                         : RESTRICTED

Port functions status:
-----------------------
disable_rshim                 : TRUE
disable_tracer                : TRUE
disable_port_owner            : FALSE
disable_counter_rd            : TRUE

"""
SETTINGS = """\

Device #1:
----------

Device type:        BlueField3
Name:               900-9D3B6-00CV-A_Ax
Description:        NVIDIA BlueField-3 B3220 P-Series FHHL DPU
Device:             0000:03:00.0

Configurations:                                         Default             Current             Next Boot
        DELAY_HOST_OS_INIT                              DEVICE_DEFAULT(0)   DEVICE_DEFAULT(0)   DEVICE_DEFAULT(0)
*       NUM_OF_VFS                                      16                  16                  8
*RO     SRIOV_EN                                        True(1)             N/A                 False(0)
The '*' shows parameters with next value different from default/current value.
"""
OLDER = """\

Device #1:
----------

Device type:    BlueField2
Device:         0000:03:00.0
Configurations:                                              Default         Current         Next Boot
*        INTERNAL_CPU_MODEL                          SEPARATED_HST(0)EMBEDDED_CPU(1) EMBEDDED_CPU(1)
"""


def test_the_level_and_each_switch_are_read() -> None:
    assert read_host_privileges(RESTRICTED) == HostPrivileges(
        "RESTRICTED",
        {"disable_rshim": True, "disable_tracer": True, "disable_port_owner": False, "disable_counter_rd": True},
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "printed no disable_rshim"),
        (RESTRICTED.replace("disable_tracer", "disable_trace"), "printed no disable_tracer"),
        (RESTRICTED.replace("RESTRICTED", "LIMITED"), "'LIMITED', not RESTRICTED or PRIVILEGED"),
        (RESTRICTED.replace("level", "tier "), "printed level ''"),
        (RESTRICTED.replace("RESTRICTED", "RESTRICTED   PRIVILEGED"), "'RESTRICTED   PRIVILEGED', not"),
        (RESTRICTED + RESTRICTED, "once"),
        (RESTRICTED.replace(": FALSE", ": MAYBE"), "'disable_port_owner            : MAYBE', where TRUE or FALSE"),
        (RESTRICTED + "x" * 1025, "a line of 1025 letters"),
        ("-E- Device '0000:03:00.0' is not supported, only BlueField devices are supported!", "no disable_rshim"),
    ],
)
def test_privileges_that_are_not_printed_as_documented_are_told_and_not_guessed(text: str, words: str) -> None:
    with pytest.raises(UnreadableOutput) as refusal:
        read_host_privileges(text)
    assert words in str(refusal.value)


def test_what_is_stored_and_what_is_in_force_are_read_by_their_columns() -> None:
    assert read_settings(SETTINGS, ["NUM_OF_VFS", "DELAY_HOST_OS_INIT", "SRIOV_EN"]) == {
        "NUM_OF_VFS": Setting(stored=Value("8"), in_force=Value("16")),
        "DELAY_HOST_OS_INIT": Setting(stored=Value("DEVICE_DEFAULT", "0"), in_force=Value("DEVICE_DEFAULT", "0")),
        "SRIOV_EN": Setting(stored=Value("False", "0"), in_force=None),
    }


def test_a_value_that_fills_its_column_is_told_from_the_next_one() -> None:
    assert read_settings(OLDER, ["INTERNAL_CPU_MODEL"]) == {
        "INTERNAL_CPU_MODEL": Setting(stored=Value("EMBEDDED_CPU", "1"), in_force=Value("EMBEDDED_CPU", "1"))
    }


def test_where_there_is_no_column_of_what_is_in_force_it_is_not_known() -> None:
    text = "Configurations:                                         Next Boot\n        NUM_OF_VFS       8\n"
    assert read_settings(text, ["NUM_OF_VFS"]) == {"NUM_OF_VFS": Setting(stored=Value("8"), in_force=None)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no line Configurations"),
        ("-E- Unknown Parameter: NUM_OF_VFS", "no line Configurations"),
        (SETTINGS.replace("NUM_OF_VFS", "NUM_OF_VF "), "no setting NUM_OF_VFS"),
        (SETTINGS.replace("16                  8", "8"), "a value in each of the columns Default, Current, Next Boot"),
        (SETTINGS.replace("16                  8", "16 8 8"), "where a value in each of the columns"),
        (SETTINGS + SETTINGS, "more than one card"),
        (SETTINGS + "        NUM_OF_VFS      16 16 8\n", "printed NUM_OF_VFS twice"),
        (SETTINGS.replace("Configurations:", "Settings:"), "a line Configurations: before"),
        (SETTINGS.replace("16                  8", "16                  (8"), "where a value in each of the columns"),
        (SETTINGS + " " * 1025, "a line of 1025 letters"),
    ],
)
def test_settings_that_are_not_printed_as_documented_are_told_and_not_guessed(text: str, words: str) -> None:
    with pytest.raises(UnreadableOutput) as refusal:
        read_settings(text, ["NUM_OF_VFS"])
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "wanted", "is_it"),
    [
        (Value("ENABLED", "0"), "ENABLED", True),
        (Value("ENABLED", "0"), "0", True),
        (Value("ENABLED", "0"), "1", False),
        (Value("DISABLED", "1"), "ENABLED", False),
        (Value("True", "1"), "TRUE", True),
        (Value("8"), "8", True),
        (Value("8"), "80", False),
        (Value("N/A"), "0", False),
    ],
)
def test_a_value_is_what_its_word_or_its_number_says(value: Value, wanted: str, is_it: bool) -> None:
    assert value.is_(wanted) == is_it
