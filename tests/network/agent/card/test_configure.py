"""A card is brought to what was declared, and said to be so only once it says so itself; with the fake tools."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from provisioner.api.network.card import CardConfiguration, CardSetting, HostAccess
from provisioner.network.agent.card.configure import CardReport, configure
from provisioner.network.agent.card.tools import Tools
from tests.network.agent.card.fake_mst_tools import DEVICE, SWITCHES, FakeCard

pytestmark = pytest.mark.programs

DELAY = CardSetting(name="DELAY_HOST_OS_INIT", value="1")
SET = f"mstconfig -d {DEVICE} -y set DELAY_HOST_OS_INIT=1"
RESTRICT = f"mstprivhost -d {DEVICE} r --disable_rshim --disable_tracer --disable_counter_rd --disable_port_owner"


def wanted(*settings: CardSetting, host_access: HostAccess | None = None) -> CardConfiguration:
    return CardConfiguration(server="r01-u01", host_access=host_access, settings=settings)


def bring(card: FakeCard, wish: CardConfiguration, patience_seconds: float = 60.0) -> CardReport:
    return configure(wish, Tools(card.path, patience_seconds), card.bus)


def states(card: FakeCard, wish: CardConfiguration) -> list[str]:
    """Before and after a power cycle."""
    before = bring(card, wish).status.state
    card.power_cycle()
    return [before, bring(card, wish).status.state]


def test_a_setting_is_stored_and_waits_for_a_power_cycle_that_nobody_here_makes(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    report = bring(card, wanted(DELAY))
    assert (report.status.state, card.stored("DELAY_HOST_OS_INIT"), card.told()) == ("NeedsPowerCycle", 1, [SET])
    (difference,) = report.status.differences
    assert (difference.wanted, difference.stored, difference.in_force) == ("1", "ENABLE(1)", "DEVICE_DEFAULT(0)")
    for words in (
        f"DELAY_HOST_OS_INIT of {DEVICE} shall be 1, is DEVICE_DEFAULT(0), and ENABLE(1) is stored",
        "kubectl provision power-cycle r01-u01",
        f"`mstconfig -d {DEVICE} -e q DELAY_HOST_OS_INIT` shows it",
    ):
        assert words in report.message


def test_after_the_power_cycle_it_is_applied_and_nothing_more_is_told(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    assert states(card, wanted(DELAY)) == ["NeedsPowerCycle", "Applied"]
    report = bring(card, wanted(DELAY))
    assert (report.has_acted, card.told(), report.status.differences) == (False, [SET], ())
    assert report.message == f"in force on BlueField-3 {DEVICE}: DELAY_HOST_OS_INIT=1"


def test_what_is_in_force_already_is_told_nothing(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    report = bring(card, wanted(CardSetting(name="NUM_OF_VFS", value="0"), CardSetting(name="SRIOV_EN", value="FALSE")))
    assert (report.status.state, card.told()) == ("Applied", [])


def test_a_host_is_restricted_with_all_that_can_be_taken_from_it(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    assert states(card, wanted(host_access="Restricted")) == ["NeedsPowerCycle", "Applied"]
    assert card.told() == [RESTRICT]
    assert all(card.stored(name) == 1 for name in ("HOST_PRIV_LEVEL", *SWITCHES.values()))


def test_a_restricted_host_gets_its_privileges_back_when_that_is_declared_and_not_before(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    states(card, wanted(host_access="Restricted"))
    bring(card, wanted(DELAY))
    assert card.stored("HOST_PRIV_LEVEL") == 1
    assert states(card, wanted(host_access="Privileged")) == ["NeedsPowerCycle", "Applied"]
    assert card.told()[-1] == f"mstprivhost -d {DEVICE} p"


def test_what_somebody_else_has_changed_is_found_and_changed_back(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    states(card, wanted(DELAY, host_access="Restricted"))
    card.change("DELAY_HOST_OS_INIT", 2)
    card.change("HOST_DISABLE_RSHIM", 0)
    assert bring(card, wanted(DELAY, host_access="Restricted")).status.state == "Applied"
    assert card.told() == [RESTRICT, SET, RESTRICT, SET]


def test_a_command_that_ends_well_and_changes_nothing_is_a_failure(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    card.breaks("mstconfig", "set", "forgets")
    report = bring(card, wanted(DELAY))
    assert (report.status.state, report.has_acted) == ("Failed", True)
    words = f"`{SET}` ended well, and the card has not kept it (DELAY_HOST_OS_INIT is DEVICE_DEFAULT(0))"
    assert words in report.message
    assert [each.name for each in report.status.differences] == ["DELAY_HOST_OS_INIT"]


@pytest.mark.parametrize(
    ("tool", "verb", "how", "words"),
    [
        ("mstconfig", "q", "fails", "-e q DELAY_HOST_OS_INIT` ended with status 1 and printed: -E- Failed to open"),
        ("mstconfig", "set", "fails", f"`{SET}` ended with status 1 and printed: -E- Failed to open device"),
        ("mstconfig", "q", "prints nonsense", "where a value in each of the columns Next Boot was expected"),
        ("mstconfig", "q", "floods", "printed more than"),
        ("mstprivhost", "q", "fails", f"`mstprivhost -d {DEVICE} q` ended with status 1"),
        ("mstprivhost", "q", "prints nonsense", "mstprivhost printed no disable_rshim"),
        ("mstprivhost", "r", "fails", f"`{RESTRICT}` ended with status 1"),
        ("mstprivhost", "r", "forgets", f"`{RESTRICT}` ended well, and the card has not kept it"),
    ],
)
def test_what_fails_is_told_with_its_command_and_never_called_applied(
    tmp_path: Path, tool: str, verb: str, how: str, words: str
) -> None:
    card = FakeCard(tmp_path)
    card.breaks(tool, verb, how)
    report = bring(card, wanted(DELAY, host_access="Restricted"))
    assert report.status.state == "Failed"
    assert words in report.message


def test_what_hangs_is_given_up_and_keeps_nothing_else_of_the_card(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    card.breaks("mstprivhost", "q", "hangs")
    report = bring(card, wanted(DELAY, host_access="Restricted"), patience_seconds=5.0)
    assert report.status.state == "Failed"
    assert f"`mstprivhost -d {DEVICE} q` did not end within 5 s and was killed" in report.message
    assert card.stored("DELAY_HOST_OS_INIT") == 1


def test_a_setting_that_the_card_does_not_know_leaves_its_host_restricted(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    report = bring(card, wanted(CardSetting(name="KEEP_LINK_UP_ON_BOOT_P2", value="1"), host_access="Restricted"))
    assert report.status.state == "Failed"
    assert "-E- Unknown Parameter: KEEP_LINK_UP_ON_BOOT_P2" in report.message
    assert card.told() == [RESTRICT]


def test_a_card_that_does_not_say_what_is_in_force_is_never_called_applied(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    card.breaks("mstconfig", "q", "keeps secret")
    assert states(card, wanted(DELAY, host_access="Restricted")) == ["NeedsPowerCycle", "NeedsPowerCycle"]
    assert "is not said to be anything" in bring(card, wanted(DELAY)).message


def test_a_firmware_whose_mstconfig_knows_nothing_of_the_hosts_access_is_restricted_and_not_called_so(
    tmp_path: Path,
) -> None:
    card = FakeCard(tmp_path)
    card.breaks("mstconfig", "q", "fails")
    assert states(card, wanted(host_access="Restricted")) == ["NeedsPowerCycle", "NeedsPowerCycle"]
    assert card.told() == [RESTRICT]


def test_a_machine_without_a_bluefield_is_told_nothing(tmp_path: Path) -> None:
    card = FakeCard(tmp_path, device_id="0x1021")
    report = bring(card, wanted(DELAY, host_access="Restricted"))
    assert (report.status.state, card.commands(), report.has_acted) == ("NotApplicable", [], False)
    assert "no PCI device of this machine is a BlueField (0x15b3:0xa2d6, 0x15b3:0xa2dc)" in report.message


def test_a_card_without_its_tools_is_a_failure_that_names_them(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    report = configure(wanted(DELAY), Tools(str(tmp_path)), card.bus)
    assert report.status.state == "Failed"
    assert "the program mstconfig is not installed" in report.message


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("INTERNAL_CPU_OFFLOAD_ENGINE", "1", "is '1', where this agent expects ENABLED (0)"),
        ("INTERNAL_CPU_OFFLOAD_ENGINE", "DISABLED", "is 'DISABLED', where this agent expects"),
        ("INTERNAL_CPU_MODEL", "0", "is '0', where this agent expects"),
        ("HOST_PRIV_LEVEL", "0", "setting 'HOST_PRIV_LEVEL' is none that this agent gives to a card"),
        ("HOST_PRIV_FLASH_ACCESS", "ENABLE", "is none that this agent gives to a card"),
        ("--with_default", "1", "setting '--with_default' is none"),
        ("NUM_OF_VFS", "1 SRIOV_EN=0", "is '1 SRIOV_EN=0', where"),
        ("NUM_OF_VFS", "1\n", "where this agent expects a whole number up to 127"),
    ],
)
def test_what_the_api_server_would_have_refused_is_not_given_to_a_card_either(
    tmp_path: Path, name: str, value: str, words: str
) -> None:
    """No setting of the list is, and the host is restricted all the same."""
    card = FakeCard(tmp_path)
    report = bring(card, wanted(DELAY, CardSetting(name=name, value=value), host_access="Restricted"))
    assert (report.status.state, card.told()) == ("Failed", [RESTRICT])
    assert words in report.message
    assert "take it out of spec.dpu.settings of the DPU, or update the DPU's image" in report.message


def test_an_access_that_a_newer_program_knows_is_not_taken_for_any_other(tmp_path: Path) -> None:
    card = FakeCard(tmp_path)
    report = bring(card, wanted(DELAY, host_access=cast(HostAccess, "Blind")))
    assert (report.status.state, card.told()) == ("Failed", [SET])
    assert "hostAccess is 'Blind', which this agent does not know" in report.message


def test_an_agent_that_was_stopped_halfway_is_followed_by_one_that_ends_what_it_began(tmp_path: Path) -> None:
    """mstprivhost opens a card in order to restrict it anew: killed there, it leaves the card open."""
    card = FakeCard(tmp_path)
    states(card, wanted(host_access="Restricted"))
    card.change("HOST_DISABLE_RSHIM", 0)
    card.breaks("mstprivhost", "r", "hangs halfway")
    report = bring(card, wanted(host_access="Restricted"), patience_seconds=5.0)
    assert (report.status.state, report.has_acted, card.stored("HOST_PRIV_LEVEL")) == ("Failed", True, 0)
    card.breaks("mstprivhost", "r", "works")
    assert states(card, wanted(host_access="Restricted")) == ["Applied", "Applied"]
    assert all(card.stored(name) == 1 for name in ("HOST_PRIV_LEVEL", *SWITCHES.values()))


def test_each_of_two_cards_is_told_by_its_own_address(tmp_path: Path) -> None:
    """The fake has the settings of one card for both."""
    card = FakeCard(tmp_path)
    card.plug("0000:83:00.0", "0x15b3", "0xa2d6")
    bring(card, wanted(DELAY))
    assert [each.split()[2] for each in card.commands()] == [DEVICE, DEVICE, DEVICE, "0000:83:00.0"]
