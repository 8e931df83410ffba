"""From the first try to the proof, as a table: what is there, and what is done next. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.facts import BootReport
from provisioner.api.pools.pool_settings import VerificationSettings
from provisioner.api.servers.server import CheckResult, PowerStatus, Verification
from provisioner.jobs.model.work import Work
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.steps import NeedId, SetIntent, SetTaint, Step, Wait, WriteStatus
from provisioner.maintenance.phases.rebooting import decide_rebooting
from provisioner.maintenance.phases.verifying import decide_verifying
from provisioner.maintenance.status.verdict import read_verdict
from provisioner.power.preflight import what_differs
from provisioner.rules.bootability import find_without_image
from provisioner.rules.stage_timeouts import method_timeout_seconds
from tests.boot import objects
from tests.maintenance.fake_jobs import job
from tests.maintenance.samples import NOON, requestor
from tests.maintenance.situations import (
    BOOT,
    DIGEST,
    NEW_BOOT,
    NODE,
    OTHER_DIGEST,
    attempt,
    facts,
    later,
    node,
    pool,
    server,
)

NAME = f"{NODE}-1"
ENDED = rfc3339(later(30))


def trying(method: Any = "Kexec", *, phase: Any = "Rebooting", number: int = 1, **changes: Any) -> MaintenanceFacts:
    """The attempt is written down, its order given and prepared; the agent knows nothing yet."""
    tries = changes.pop("tries", ())
    ended = changes.pop("ended", {})
    current = attempt(method, number=number, **ended)
    status = {"phase": phase, "reboot": current, "boot_id_before": BOOT, "action": "Reboot", "attempts": tries}
    given = {
        "server": server(order="o2", request=current.id, joined=None),
        "node": node(taint=NAME, prepared="o2"),
        **changes,
    }
    return facts(status=status, **given)


def told(given: MaintenanceFacts, **changes: Any) -> MaintenanceFacts:
    """The agent was told what the executor would tell it."""
    step = decide_rebooting(given, later(10))
    assert isinstance(step, SetIntent)
    return replace(given, node=node(**{"taint": NAME, "prepared": "o2", "intent": step.intent, **changes}))


def deleted(given: MaintenanceFacts) -> MaintenanceFacts:
    meta = replace(given.maintenance.metadata, deletion_timestamp=rfc3339(NOON))
    return replace(given, maintenance=replace(given.maintenance, metadata=meta))


def says(state: Any, of: str = "try-1") -> BootReport:
    return BootReport(id=of, state=state, image_digest=DIGEST, boot_id=BOOT, message="in words", time=rfc3339(NOON))


def words(step: Step) -> str:
    """The step in one word, with what it writes."""
    match step:
        case SetIntent(intent=None):
            return "takes back what the agent was told"
        case SetIntent(intent=intent) if intent is not None:
            return f"tells the agent: {intent.action}"
        case SetTaint():
            return "closes it"
        case NeedId(then=then):
            reboot = then("new").status.reboot
            return f"tries {reboot.method}" if reboot is not None else "tries nothing"
        case Wait():
            return "waits"
        case WriteStatus(status=status):
            verdict = read_verdict(status)
            if verdict is not None:
                return f"ends: {verdict.cause}"
            if status.boot_id_after is not None:
                return f"stays {status.phase}"
            if status.blockers:
                return f"says: {status.blockers[0].message}"
            return f"{status.reboot.outcome}, {status.phase}" if status.reboot is not None else "writes"
    return type(step).__name__


GONE = objects.image(available="False")
DOWN = node(taint=NAME, ready="False")
GONE_WORDS, MISSING_WORDS = (
    find_without_image(server(), "gpu-node-abababababab", image).words  # type: ignore[union-attr]
    + f"; to give up: kubectl delete maintenance {NAME}"
    for image in (GONE, None)
)
REBOOTING: dict[str, tuple[MaintenanceFacts, float, str]] = {
    "without a boot order nobody is told": (
        trying(server=server(order="o1")),
        10,
        "says: the boot controller has not ordered the boot yet",
    ),
    "before the Node is prepared nobody is told": (
        trying(node=node(taint=NAME, prepared="o1")),
        10,
        "says: the join controller has not prepared the Node for boot order o2 yet",
    ),
    "without an attempt on record nothing is begun": (facts(status={"phase": "Rebooting"}), 10, "waits"),
    "where there is no Node a boot is awaited": (trying(node=None), 10, "says: a boot is awaited"),
    "a Server that is gone is no sign that its BMC has acted": (
        trying("Reset", server=None, work=Work(jobs=(job(),))),
        10,
        "ends: JobStarted",
    ),
    "once both are done the agent is told": (trying(), 10, "tells the agent: Kexec"),
    "a reboot by the firmware is the agent's, too": (trying("Reboot"), 10, "tells the agent: Reboot"),
    "a reset is not": (trying("Reset"), 10, "says: a boot by the BMC is awaited"),
    "what the agent was told before is taken back first": (
        trying("Reset", node=told(trying()).node),
        10,
        "takes back what the agent was told",
    ),
    "a taint that somebody took off is put on again": (trying(node=node(prepared="o2")), 10, "closes it"),
    "a job that slipped in is not interrupted": (trying(work=Work(jobs=(job(),))), 10, "ends: JobStarted"),
    "nor is one that slipped in before the BMC has acted": (
        trying("Reset", work=Work(jobs=(job(),))),
        10,
        "ends: JobStarted",
    ),
    "also where the BMC has carried out an order before": (
        trying(
            "Reset",
            server=server(order="o1", joined=None, power=PowerStatus(order_id="o1", state="On")),
            work=Work(jobs=(job(),)),
        ),
        10,
        "ends: JobStarted",
    ),
    "once it has, nobody saves the job by saying so": (
        trying(
            "Reset",
            server=server(order="o2", request="try-1", joined=None, power=PowerStatus(order_id="o2", state="On")),
            work=Work(jobs=(job(),)),
        ),
        10,
        "says: a boot by the BMC is awaited",
    ),
    "nor while the machine shuts down for it": (
        trying(
            "PowerCycle",
            server=server(
                order="o2", request="try-1", joined=None, power=PowerStatus(state="On", shutdown_time=rfc3339(NOON))
            ),
            work=Work(jobs=(job(),)),
        ),
        10,
        "says: a boot by the BMC is awaited",
    ),
    "an agent that was told has its time": (
        told(trying()),
        100,
        "says: the agent was told, and has not answered",
    ),
    "what it says is said": (told(trying(), report=says("Rebooting")), 100, "says: the agent says Rebooting: in words"),
    "an agent that cannot hands over": (told(trying(), report=says("Failed")), 20, "Failed, Rebooting"),
    "what it said of another try does not count": (
        told(trying(), report=says("Failed", "try-0")),
        20,
        "says: the agent was told, and has not answered",
    ),
    "a boot that was seen late is what was asked for: no other is begun": (
        trying(
            ended={"outcome": "TimedOut"},
            server=server(order="o2", request="try-1", joined=NEW_BOOT),
            node=node(NEW_BOOT, taint=NAME, prepared="o2"),
        ),
        200,
        "Booted, Verifying",
    ),
    "a try has its time and no more": (told(trying()), 180, "TimedOut, Rebooting"),
    "a new boot id of the Node is a boot": (trying(node=node(NEW_BOOT, taint=NAME)), 20, "Booted, Verifying"),
    "so is the join of the order, before the kubelet reports": (
        trying(server=server(order="o2", request="try-1", joined=NEW_BOOT), node=node(ready="Unknown", taint=NAME)),
        20,
        "Booted, Verifying",
    ),
    "a join is none while the boot before it is seen to run": (
        told(trying(server=server(order="o2", request="try-1", joined=NEW_BOOT))),
        20,
        "says: the agent was told, and has not answered",
    ),
    "the join of another try's order is not": (
        trying(server=server(order="o2", request="try-0", joined=NEW_BOOT)),
        20,
        "says: the boot controller has not ordered the boot yet",
    ),
    "a boot that is seen at the last moment counts": (
        trying(node=node(NEW_BOOT, taint=NAME)),
        10_000,
        "Booted, Verifying",
    ),
    "a Node that is gone is waited for": (trying("Reset", node=None), 20, "says: a boot by the BMC is awaited"),
    "an Image that goes before anybody was told sends it back to waiting": (
        trying("Reset", server=server(order="o1"), image=None),
        10,
        "ends: ImageUnavailable",
    ),
    "also where no system was running": (
        trying("Reset", server=server(order="o1"), node=DOWN, image=GONE),
        10_000,
        "ends: ImageUnavailable",
    ),
    "once the BMC may act it is not let go: jobs would come, and the reset": (
        trying("Reset", image=GONE),
        100,
        "says: a boot by the BMC is awaited",
    ),
    "it has its time then, and no more": (trying("Reset", image=GONE), 180, "TimedOut, Rebooting"),
    "so it does before the agent was told": (trying(image=GONE), 10, "ends: ImageUnavailable"),
    "an agent that was told has its time, for it may have staged the Image": (
        replace(told(trying()), image=GONE),
        100,
        "says: the agent was told, and has not answered",
    ),
    "and no more of it, as long as the old boot runs": (
        replace(told(trying()), image=GONE),
        180,
        "TimedOut, Rebooting",
    ),
    "what it was told is taken back then": (
        trying(ended={"outcome": "TimedOut"}, node=told(trying()).node, image=GONE),
        200,
        "takes back what the agent was told",
    ),
    "and it waits again, in use, instead of going through all methods": (
        trying(ended={"outcome": "TimedOut"}, tries=(attempt("Kexec", outcome="TimedOut"),), image=GONE),
        200,
        "ends: ImageUnavailable",
    ),
    "a machine that is down for it is waited for, however long": (
        trying("Reset", node=DOWN, image=GONE),
        10_000,
        f"says: {GONE_WORDS}",
    ),
    "so is one whose Node is gone": (trying("Reset", node=None, image=None), 10_000, f"says: {MISSING_WORDS}"),
    "so is one that an attempt brought down before this one": (
        trying(
            "Reset",
            server=server(order="o1"),
            node=DOWN,
            tries=(attempt("Kexec", outcome="TimedOut"),),
            image=GONE,
        ),
        10_000,
        f"says: {GONE_WORDS}",
    ),
    "and between the two": (
        trying(
            ended={"outcome": "TimedOut"},
            node=DOWN,
            tries=(attempt("Kexec", outcome="TimedOut"),),
            image=GONE,
        ),
        10_000,
        f"says: {GONE_WORDS}",
    ),
    "but not for its own sake": (
        replace(trying("Reset", node=DOWN, image=GONE), wanted=None),
        180,
        "TimedOut, Rebooting",
    ),
    "nor where its Maintenance was deleted": (
        deleted(trying("Reset", node=DOWN, image=GONE)),
        180,
        "TimedOut, Rebooting",
    ),
    "nor for those who want it out of use alone": (
        replace(
            trying("Reset", node=DOWN, image=GONE),
            wanted=facts(requestor(action="Drain")).wanted,
        ),
        180,
        "TimedOut, Rebooting",
    ),
    "nor for an Image that its pool does not want any more": (
        trying("Reset", node=DOWN, image=None, pool=objects.pool(image_ref="newer")),
        180,
        "TimedOut, Rebooting",
    ),
    "it waits again then, for the other one": (
        trying(
            ended={"outcome": "TimedOut"},
            node=DOWN,
            tries=(attempt("Kexec", outcome="TimedOut"),),
            image=None,
            pool=objects.pool(image_ref="newer"),
        ),
        200,
        "ends: ImageUnavailable",
    ),
    "nobody is told of a boot that nobody asks for into an Image that is gone": (
        replace(
            trying(
                "Reboot",
                server=server(order="o1"),
                node=DOWN,
                tries=(attempt("Kexec", outcome="TimedOut"),),
                image=GONE,
            ),
            wanted=None,
        ),
        10,
        "Failed, Rebooting",
    ),
    "one whose agent was told, and whose Node was deleted since, is down for it": (
        trying("Reboot", node=None, image=GONE),
        100,
        f"says: {GONE_WORDS}",
    ),
    "a machine that the BMC has just reset is not released because its Node was not missed yet": (
        trying(
            "Reset",
            ended={"outcome": "TimedOut"},
            server=server(order="o2", request="try-1", joined=None, power=PowerStatus(order_id="o2", state="On")),
            tries=(attempt("Reset", outcome="TimedOut"),),
            image=GONE,
        ),
        200,
        f"says: {GONE_WORDS}",
    ),
    "a boot that comes while the next method waits for the Image counts": (
        trying(
            ended={"outcome": "TimedOut"},
            node=node(NEW_BOOT, taint=NAME),
            tries=(attempt("Kexec", outcome="TimedOut"),),
            image=GONE,
        ),
        500,
        "Booted, Verifying",
    ),
    "then it ends": (
        deleted(
            trying(
                ended={"outcome": "TimedOut"},
                node=DOWN,
                tries=(attempt("Kexec", outcome="TimedOut"),),
                image=GONE,
            )
        ),
        200,
        "ends: RebootFailed",
    ),
    "and where no method is left": (
        trying(
            "PowerCycle",
            ended={"outcome": "TimedOut"},
            node=DOWN,
            tries=tuple(attempt(m, outcome="TimedOut") for m in ("Kexec", "Reboot", "Reset", "PowerCycle")),
            image=GONE,
        ),
        200,
        "ends: RebootFailed",
    ),
    "one that runs something else is not kept for it": (
        trying(
            ended={"outcome": "WrongImage"},
            node=node(NEW_BOOT, taint=NAME),
            tries=(attempt("Kexec", outcome="WrongImage"),),
            image=GONE,
        ),
        200,
        "ends: WrongImage",
    ),
    "a boot that is seen counts, whatever became of the Image": (
        trying(node=node(NEW_BOOT, taint=NAME), image=None),
        20,
        "Booted, Verifying",
    ),
    "after a try that failed the next method is tried": (
        trying(ended={"outcome": "TimedOut", "ended_time": ENDED}, tries=(attempt("Kexec", outcome="TimedOut"),)),
        200,
        "tries Reboot",
    ),
    "after the last path it ends": (
        trying(
            "PowerCycle",
            ended={"outcome": "TimedOut"},
            tries=tuple(attempt(m, outcome="TimedOut") for m in ("Kexec", "Reboot", "Reset", "PowerCycle")),
        ),
        200,
        "ends: RebootFailed",
    ),
    "a second wrong image ends it": (
        trying(
            "Reboot",
            ended={"outcome": "WrongImage"},
            tries=tuple(attempt(m, outcome="WrongImage") for m in ("Kexec", "Reboot")),
        ),
        200,
        "ends: WrongImage",
    ),
    "between two tries nobody obeys the one before": (
        trying(ended={"outcome": "TimedOut"}, node=told(trying()).node),
        200,
        "takes back what the agent was told",
    ),
    "a job that came between two tries is not interrupted": (
        trying(ended={"outcome": "TimedOut"}, work=Work(jobs=(job(),))),
        200,
        "ends: JobStarted",
    ),
    "nor is it where the agent, which has ended the kubelet for a kexec, says that the kexec failed": (
        trying(
            ended={"outcome": "Failed"},
            node=node(taint=NAME, prepared="o2", ready="False", report=says("Failed")),
            work=Work(jobs=(job(),)),
        ),
        200,
        "ends: JobStarted",
    ),
    "a machine for which nobody answers any more is rebooted by the next method, whatever ran there": (
        trying(
            ended={"outcome": "TimedOut"},
            node=node(taint=NAME, prepared="o2", ready="False", report=says("Rebooting")),
            work=Work(jobs=(job(),)),
            tries=(attempt("Kexec", outcome="TimedOut"),),
        ),
        200,
        "tries Reboot",
    ),
}


@pytest.mark.parametrize("sentence", REBOOTING)
def test_while_it_reboots(sentence: str) -> None:
    given, seconds, expected = REBOOTING[sentence]
    assert words(decide_rebooting(given, later(seconds))) == expected


def checked(result: Any = "Failed", *, attempt: int = 2, finished: bool = True, released: str | None = None) -> Any:
    return Verification(
        boot_id=NEW_BOOT,
        image_digest=DIGEST,
        attempt=attempt,
        started_time=rfc3339(NOON),
        finished_time=rfc3339(NOON) if finished else None,
        released_by=released,
        checks=(CheckResult(name="Disks", result=result, reason="Found", message="too small"),),
    )


def back(**changes: Any) -> MaintenanceFacts:
    """The machine is back in the boot that was ordered, Ready, verified."""
    said: dict[str, Any] = {"order": "o2", "request": "try-1", "joined": NEW_BOOT, **changes.pop("said", {})}
    given = {"server": server(**said), "node": node(NEW_BOOT, taint=NAME), **changes}
    return trying(phase="Verifying", ended={"outcome": "Booted", "ended_time": ENDED}, **given)


UNVERIFIED = {"verified": "Unknown"}
VERIFYING: dict[str, tuple[MaintenanceFacts, float, str]] = {
    "boot, image, Ready and checks are the proof": (back(), 60, "ends: Booted"),
    "who keeps it drained has it drained": (
        replace(back(), wanted=facts(requestor(), requestor("user-bob", "Drain")).wanted),
        60,
        "stays Drained",
    ),
    "what the agent was told is of the boot before, and goes with the taint": (
        back(node=node(NEW_BOOT, taint=NAME, intent=told(trying()).node.intent)),  # type: ignore[union-attr]
        60,
        "ends: Booted",
    ),
    "the old boot that is Ready proves nothing": (
        back(node=node(BOOT, taint=NAME)),
        60,
        "says: the kubelet of the new boot has not reported to Node 'r01-u01'",
    ),
    "a later order that has not joined proves nothing": (
        back(said={"order": "o3", "joined": None}),
        60,
        "says: boot order o3 has not joined yet: another boot may follow",
    ),
    "another image is booted once more": (back(node=node(NEW_BOOT, digest=OTHER_DIGEST)), 60, "WrongImage, Rebooting"),
    "what ran there before is no proof of the image, where nothing in the new boot says which one it is": (
        back(node=node(NEW_BOOT, taint=NAME, digest=None), said={"image_digest": OTHER_DIGEST}),
        60,
        f"says: it is not known to run {DIGEST}, but {OTHER_DIGEST}",
    ),
    "an image that nobody names is not the wanted one": (
        back(node=node(NEW_BOOT, taint=NAME, digest=None), said={"image_digest": None}),
        60,
        f"says: it is not known to run {DIGEST}, but an unknown image",
    ),
    "an image that nobody names in time ends it": (
        back(node=node(NEW_BOOT, taint=NAME, digest=None), said={"image_digest": None}),
        1831,
        "ends: WrongImage",
    ),
    "what the checks of the new boot found is a proof of the image, too": (
        back(
            node=node(NEW_BOOT, taint=NAME, digest=None),
            said={"image_digest": OTHER_DIGEST, "verification": checked("Passed")},
        ),
        60,
        "ends: Booted",
    ),
    "a Server that is gone is waited for": (back(server=None), 60, "says: its Server is gone"),
    "checks of another boot that failed for good end nothing": (
        back(said={"verified": "False", "verification": replace(checked(), boot_id=BOOT)}),
        60,
        "says: the checks of boot boot-2 have not passed",
    ),
    "a Node that is not Ready is waited for": (
        back(node=node(NEW_BOOT, ready="False")),
        60,
        "says: Node 'r01-u01' is not Ready",
    ),
    "checks that run are waited for": (
        back(said=UNVERIFIED),
        60,
        "says: the checks of boot boot-2 have not passed: as the checks say",
    ),
    "the checks of another boot prove nothing": (
        back(said={"verification": replace(checked("Passed"), boot_id=BOOT)}),
        60,
        "says: the checks of boot boot-2 have not passed",
    ),
    "checks that are not over in their time end it": (back(said=UNVERIFIED), 1831, "ends: NotVerified"),
    "a Node that is not Ready in its time ends it": (
        back(node=node(NEW_BOOT, ready="False")),
        1831,
        "ends: NodeNotReady",
    ),
    "a round that failed is followed by another": (
        back(said={"verified": "False", "verification": checked(attempt=1)}),
        60,
        "says: the checks of boot boot-2 have not passed: as the checks say",
    ),
    "a round under way is waited for, though an earlier one failed": (
        back(said={"verified": "Unknown", "verification": checked("Running", finished=False)}),
        60,
        "says: the checks of boot boot-2 have not passed: as the checks say",
    ),
    "checks that have failed for good end it at once": (
        back(said={"verified": "False", "verification": checked()}),
        60,
        "ends: NotVerified",
    ),
    "so they do where the Node is not Ready": (
        back(said={"verified": "False", "verification": checked()}, node=node(NEW_BOOT, ready="False")),
        60,
        "ends: NotVerified",
    ),
    "how many rounds there are is the pool's to say": (
        back(
            said={"verified": "False", "verification": checked()},
            pool=replace(pool(), spec=replace(pool().spec, verification=VerificationSettings(attempts=3))),
        ),
        60,
        "says: the checks of boot boot-2 have not passed: as the checks say",
    ),
    "without an attempt on record nothing is proved": (facts(status={"phase": "Verifying"}), 60, "waits"),
    "a person's word lets it in": (back(said={"verification": checked(released="alice")}), 60, "ends: Booted"),
    "checks of a boot that another order follows are not the last word": (
        back(said={"order": "o3", "joined": None, "verified": "False", "verification": checked()}),
        60,
        "says: boot order o3 has not joined yet: another boot may follow",
    ),
}


@pytest.mark.parametrize("sentence", VERIFYING)
def test_while_it_is_verified(sentence: str) -> None:
    given, seconds, expected = VERIFYING[sentence]
    assert words(decide_verifying(given, later(seconds))) == expected


def test_a_clock_that_is_set_back_opens_no_path_a_second_time() -> None:
    tries = (attempt("Kexec", began=-7200, outcome="TimedOut"),)
    given = trying(ended={"outcome": "TimedOut"}, tries=tries)
    claimed = replace(given.maintenance.status, claimed_time=rfc3339(NOON))
    given = replace(given, maintenance=replace(given.maintenance, status=claimed))
    assert words(decide_rebooting(given, later(-7000))) == "tries Reboot"


def test_the_image_of_the_first_try_is_kept_by_the_next_ones() -> None:
    given = trying(
        ended={"outcome": "TimedOut"},
        tries=(attempt("Kexec", outcome="TimedOut"),),
        image=objects.image(digest=OTHER_DIGEST),
    )
    step = decide_rebooting(given, later(200))
    assert isinstance(step, NeedId)
    reboot = step.then("new").status.reboot
    assert reboot is not None
    assert (reboot.id, reboot.image_digest) == ("new", DIGEST)


def test_an_attempt_has_half_of_its_time_at_least_once_its_image_is_back() -> None:
    """Whenever the Image comes back: also in the last second of the attempt."""
    given = trying("Reset", node=node(taint=NAME, ready="False", prepared="o2"), image=GONE)
    for seconds in (0, 60, 179, 180, 500, 5000):
        step = decide_rebooting(given, later(seconds))
        if isinstance(step, WriteStatus):
            given = replace(given, maintenance=replace(given.maintenance, status=step.status))
        assert [(b.kind, b.name) for b in given.maintenance.status.blockers] == [("Image", "gpu-node-abababababab")]
        back_again = replace(given, image=objects.image())
        half = 0.5 * method_timeout_seconds("Reset", given.pool)
        assert words(decide_rebooting(back_again, later(seconds + half - 1))) == "says: a boot by the BMC is awaited"
    assert words(decide_rebooting(back_again, later(seconds + 2 * half))) == "TimedOut, Rebooting"


def test_who_goes_back_to_waiting_has_no_attempt_that_a_bmc_may_still_carry_out() -> None:
    given = trying("Reset", work=Work(jobs=(job(),)))
    assert given.server is not None
    order = given.server.status.order
    assert order is not None
    order = replace(order, method="Reset", maintenance_ref=given.maintenance.name)
    assert what_differs(given.maintenance, NODE, order) is None
    step = decide_rebooting(given, later(10))
    assert isinstance(step, WriteStatus)
    judged = replace(given.maintenance, status=step.status)
    assert what_differs(judged, NODE, order) == "its attempt try-1 has ended"
    assert step.status.attempts == ()  # its method stays open


def test_a_look_at_a_missing_image_writes_nothing_twice() -> None:
    given = trying("Reset", node=None, image=None)
    step = decide_rebooting(given, later(10))
    assert isinstance(step, WriteStatus)
    again = replace(given, maintenance=replace(given.maintenance, status=step.status))
    assert isinstance(decide_rebooting(again, later(20)), Wait)
