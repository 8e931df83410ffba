"""What is not to be declared of a card, each with the words that its author reads, and a good twin."""

from __future__ import annotations

from tests.api.bad_row import Row
from tests.api.objects import dpu, dpu_network


def _setting(mistake: str, bad: dict[str, str], good: dict[str, str], *words: str) -> Row:
    vtep = {"vtepAddress": "10.100.0.11"}
    return Row(mistake, dpu(card=vtep | {"settings": [bad]}), dpu(card=vtep | {"settings": [good]}), words)


CARDS = (
    _setting(
        "a setting that takes the card out of DPU mode",
        {"name": "INTERNAL_CPU_OFFLOAD_ENGINE", "value": "1"},
        {"name": "INTERNAL_CPU_OFFLOAD_ENGINE", "value": "0"},
        "spec.dpu.settings[0].value",
        "setting INTERNAL_CPU_OFFLOAD_ENGINE is '1': write ENABLED (0); with another value the card leaves DPU mode",
    ),
    _setting(
        "the same by its word",
        {"name": "INTERNAL_CPU_OFFLOAD_ENGINE", "value": "DISABLED"},
        {"name": "INTERNAL_CPU_OFFLOAD_ENGINE", "value": "ENABLED"},
        "setting INTERNAL_CPU_OFFLOAD_ENGINE is 'DISABLED'",
    ),
    _setting(
        "a setting that gives the card's switch to the host",
        {"name": "INTERNAL_CPU_ESWITCH_MANAGER", "value": "EXT_HOST_PF"},
        {"name": "INTERNAL_CPU_ESWITCH_MANAGER", "value": "ECPF"},
        "write ECPF (0); with another value the card leaves DPU mode, or its switch becomes that of the host",
    ),
    _setting(
        "what hostAccess says as a setting",
        {"name": "HOST_DISABLE_RSHIM", "value": "0"},
        {"name": "KEEP_LINK_UP_ON_BOOT_P1", "value": "TRUE"},
        "spec.dpu.settings[0].name",
        "setting 'HOST_DISABLE_RSHIM' is none that is given to a card: write one of DELAY_HOST_OS_INIT, ",
        "what the host may do with the card is hostAccess, and others are set by hand on the DPU (mstconfig)",
    ),
    _setting(
        "a right of the host that newer cards have",
        {"name": "HOST_PRIV_FLASH_ACCESS", "value": "ENABLE"},
        {"name": "LINK_TYPE_P2", "value": "ETH"},
        "setting 'HOST_PRIV_FLASH_ACCESS' is none that is given to a card",
    ),
    _setting(
        "a setting that can damage the card",
        {"name": "ADVANCED_POWER_SETTINGS", "value": "1"},
        {"name": "EXP_ROM_UEFI_x86_ENABLE", "value": "1"},
        "setting 'ADVANCED_POWER_SETTINGS' is none that is given to a card",
    ),
    _setting(
        "a setting's name that is an option",
        {"name": "--with_default", "value": "1"},
        {"name": "DELAY_HOST_OS_INIT", "value": "ENABLE_USER"},
        "setting '--with_default' is none that is given to a card",
    ),
    _setting(
        "a value that is two settings",
        {"name": "NUM_OF_VFS", "value": "8 SRIOV_EN=0"},
        {"name": "NUM_OF_VFS", "value": "8"},
        "setting NUM_OF_VFS is '8 SRIOV_EN=0': write a whole number up to 127",
    ),
    _setting(
        "a value with needless zeros",
        {"name": "NUM_OF_VFS", "value": "08"},
        {"name": "NUM_OF_VFS", "value": "0"},
        "write a whole number up to 127",
    ),
    _setting(
        "more functions than a card has",
        {"name": "NUM_OF_VFS", "value": "128"},
        {"name": "NUM_OF_VFS", "value": "127"},
        "setting NUM_OF_VFS is '128': write a whole number up to 127",
    ),
    Row(
        "more settings than a card is told",
        dpu(card={"vtepAddress": "10.100.0.11", "settings": [{"name": f"NUM_{i}", "value": "1"} for i in range(65)]}),
        dpu(card={"vtepAddress": "10.100.0.11", "settings": [{"name": "SRIOV_EN", "value": "1"}]}),
        ("spec.dpu.settings", "must have at most 64 items"),
    ),
    Row(
        "a setting twice",
        dpu(card={"vtepAddress": "10.100.0.11", "settings": [{"name": "SRIOV_EN", "value": v} for v in "01"]}),
        dpu(card={"vtepAddress": "10.100.0.11", "settings": [{"name": "SRIOV_EN", "value": "0"}]}),
        ("spec.dpu.settings[1]", "Duplicate value"),
    ),
    Row(
        "what the card shall be, where nothing tells it",
        dpu(card={"hostAccess": "Restricted"}),
        dpu(card={"hostAccess": "Restricted", "vtepAddress": "10.100.0.11"}),
        ("spec.dpu", "set spec.dpu.vtepAddress as well"),
    ),
    Row(
        "settings, where nothing tells them",
        dpu(card={"settings": [{"name": "DELAY_HOST_OS_INIT", "value": "1"}]}),
        dpu(card={"settings": []}),
        ("set spec.dpu.vtepAddress as well",),
    ),
    Row(
        "an unknown access of the host",
        dpu(card={"hostAccess": "None", "vtepAddress": "10.100.0.11"}),
        dpu(card={"hostAccess": "Privileged", "vtepAddress": "10.100.0.11"}),
        ('supported values: "Restricted", "Privileged"',),
    ),
    Row(
        "a card that its own agent shall take out of DPU mode",
        dpu_network(card={"server": "r01-u01", "settings": [{"name": "INTERNAL_CPU_MODEL", "value": "0"}]}),
        dpu_network(card={"server": "r01-u01", "settings": [{"name": "INTERNAL_CPU_MODEL", "value": "1"}]}),
        ("spec.card.settings[0].value", "write EMBEDDED_CPU (1); with another value the card leaves DPU mode"),
    ),
)
