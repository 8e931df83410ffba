"""What the daemon writes and does, step by step: a fake Node and a fake machine that record, no threads, no waiting."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.nodes.facts import BootIntent, BootReport
from provisioner.node.daemon import Daemon
from provisioner.node.ending import GOING_DOWN_SECONDS
from provisioner.node.image.manifest import ImageError
from provisioner.node.intent import FACTS_ANNOTATION, INTENT_ANNOTATION, REPORT_ANNOTATION
from tests.node.machine import BOOT_ID
from tests.node.made_machine import make_machine
from tests.node.test_facts import boot

pytestmark = pytest.mark.programs

KEXEC = ["stop kubelet", "not ready", "kexec"]
KEY_SHA256 = "sha256:" + "5e" * 32
HAND_OVER_SHA256 = "sha256:" + "14" * 32
DIGEST, OTHER_DIGEST = "sha256:" + "0a" * 32, "sha256:" + "1b" * 32


class FakeNode:
    """Annotations that the daemon sees as soon as they are written. `broken`: the API server does not answer.

    `breaks_after`: after how many reports it breaks by itself.
    """

    def __init__(self) -> None:
        self.annotations: dict[str, str] | None = {}
        self.broken = False
        self.breaks_after: int | None = None
        self.reports: list[tuple[str, str]] = []
        self.did: list[str] = []

    def annotate(self, annotations: dict[str, str | None]) -> None:
        if self.broken:
            raise ConnectionRefusedError("nobody listens")
        assert self.annotations is not None
        for key, value in annotations.items():
            assert value is not None
            self.annotations[key] = value
            if key == REPORT_ANNOTATION:
                self.reports.append((json.loads(value)["id"], json.loads(value)["state"]))
                self.broken = len(self.reports) == self.breaks_after

    def tell_not_ready(self, message: str) -> None:
        if self.broken:
            raise ConnectionRefusedError("nobody listens")
        self.did.append("not ready")

    def intend(self, action: str, name: str, *, digest: str = DIGEST, before: str = BOOT_ID) -> None:
        intent = BootIntent(
            id=name,
            action=action,  # type: ignore[arg-type]
            boot_id_before=before,
            image="gpu-2",
            image_digest=digest,
        )
        assert self.annotations is not None
        self.annotations[INTENT_ANNOTATION] = json.dumps(to_json(intent))

    def withdraw(self) -> None:
        assert self.annotations is not None
        del self.annotations[INTENT_ANNOTATION]

    @property
    def report(self) -> dict[str, Any]:
        assert self.annotations is not None
        return dict(json.loads(self.annotations[REPORT_ANNOTATION]))


class FakeMachine:
    """Records what is done to it; `result` is what the fetching has come to."""

    def __init__(self, root: Path, did: list[str]) -> None:
        self.did = did
        self.result: tuple[bool, str] | None = None
        self.short: str | None = None
        self.refuses = self.dies = False
        self._root = root

    def begin_staging(self, image_digest: str, arguments: Sequence[str]) -> None:
        self.did.append(f"fetch {image_digest[7:9]}")
        self.result = None

    def staging_result(self) -> tuple[bool, str] | None:
        return self.result

    def drop_staged(self) -> None:
        self.did.append("drop")

    def memory_is_short(self) -> str | None:
        return self.short

    def stop_kubelet(self) -> None:
        self.did.append("stop kubelet")

    def start_kubelet(self) -> None:
        self.did.append("start kubelet")

    def kexec(self) -> None:
        # What is written before the act is there when the power goes.
        assert (self._root / "run/provisioner/finished-intent").exists()
        self.did.append("kexec")
        if self.dies:
            raise SystemExit
        if self.refuses:
            raise ImageError("the loaded kernel was not started: no")

    def reboot(self) -> None:
        self.did.append("reboot")


class Agent:
    """A daemon with its Node and machine, and a clock that is turned by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.node, self.now = FakeNode(), 1000.0
        self.machine = FakeMachine(root, self.node.did)
        self.daemon = self.restart()

    def restart(self) -> Daemon:
        self.daemon = Daemon(boot(), str(self.root), self.node, self.machine, lambda _: None, lambda: self.now)
        return self.daemon

    def look(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.daemon.look()


def stage_record(agent: Agent, key_sha256: str) -> None:
    """What the fetching process leaves once the image is loaded."""
    folder = agent.root / "run/provisioner/next"
    folder.mkdir(exist_ok=True)
    record = {
        "imageDigest": DIGEST,
        "arguments": [],
        "requestKeySHA256": key_sha256,
        "handOverSHA256": HAND_OVER_SHA256,
    }
    (folder / "staged.json").write_text(json.dumps(record))


def ready_to_kexec(agent: Agent) -> None:
    """The image is staged, by the daemon before this one, and the executor wants it started."""
    stage_record(agent, KEY_SHA256)
    agent.restart()
    agent.node.intend("Kexec", "try-1")


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    root = make_machine(tmp_path)
    (root / "run/provisioner").mkdir(parents=True)
    return Agent(root)


def test_an_image_is_staged_while_jobs_run_and_started_when_the_executor_says_so(agent: Agent) -> None:
    agent.node.intend("Stage", "stage-1")
    agent.look()
    agent.look()
    stage_record(agent, KEY_SHA256)
    agent.machine.result = (True, "verified and loaded")
    agent.look()
    agent.node.intend("Kexec", "try-1")
    for _ in range(5):
        agent.look()
    assert agent.machine.did == ["fetch 0a", *KEXEC]
    assert agent.node.reports == [("stage-1", "Staging"), ("stage-1", "Staged"), ("try-1", "Rebooting")]
    assert agent.node.report["bootID"] == BOOT_ID


def test_a_kexec_that_finds_nothing_staged_fetches_first(agent: Agent) -> None:
    agent.node.intend("Kexec", "try-1")
    agent.look()
    stage_record(agent, KEY_SHA256)
    agent.machine.result = (True, "verified and loaded")
    agent.look()
    agent.look()
    assert agent.machine.did == ["fetch 0a", *KEXEC]
    assert [state for _, state in agent.node.reports] == ["Staging", "Rebooting"]


def test_a_kexec_that_comes_while_its_image_is_fetched_waits_for_it(agent: Agent) -> None:
    agent.node.intend("Stage", "stage-1")
    agent.look()
    agent.node.intend("Kexec", "try-1")
    agent.look()
    agent.machine.result = (False, "altered")
    agent.look()
    assert agent.machine.did == ["fetch 0a", "drop"]
    assert agent.node.reports[-1] == ("try-1", "Failed")
    assert agent.node.report["message"] == "altered"
    agent.look(1000.0)
    assert agent.machine.did == ["fetch 0a", "drop"], "the executor has gone on to the next path"


def test_a_staging_that_failed_is_told_and_tried_again_while_it_is_wanted(agent: Agent) -> None:
    agent.node.intend("Stage", "stage-1")
    agent.look()
    agent.machine.result = (False, "memory: 3 MiB available")
    agent.look()
    assert agent.node.report["state"] == "Failed"
    agent.look()
    assert agent.machine.did == ["fetch 0a", "drop"]
    agent.look(61.0)
    assert agent.machine.did == ["fetch 0a", "drop", "fetch 0a"]


def test_what_is_not_wanted_any_more_gives_its_memory_back(agent: Agent) -> None:
    agent.node.intend("Stage", "stage-1")
    agent.look()
    agent.node.withdraw()
    agent.look()
    agent.look()
    assert agent.machine.did == ["fetch 0a", "drop"]


def test_another_image_takes_the_place_of_the_one_before(agent: Agent) -> None:
    agent.node.intend("Stage", "stage-1")
    agent.look()
    agent.node.intend("Stage", "stage-2", digest=OTHER_DIGEST)
    agent.look()
    assert agent.machine.did == ["fetch 0a", "drop", "fetch 1b"]
    assert agent.node.reports[-1] == ("stage-2", "Staging")


def test_a_job_that_needs_the_memory_gets_it(agent: Agent) -> None:
    agent.node.intend("Stage", "stage-1")
    agent.look()
    stage_record(agent, KEY_SHA256)
    agent.machine.result = (True, "verified and loaded")
    agent.look()
    agent.machine.short = "given up while staged: memory: 10 MiB available"
    agent.look()
    assert agent.machine.did == ["fetch 0a", "drop"]
    assert agent.node.report["state"] == "Failed"
    assert "given up while staged" in agent.node.report["message"]


def test_a_reboot_by_the_firmware_forgets_a_loaded_kernel_first(agent: Agent) -> None:
    agent.node.intend("Reboot", "try-1")
    for _ in range(3):
        agent.look()
    assert agent.machine.did == ["drop", "reboot"]
    assert agent.node.reports == [("try-1", "Rebooting")]


@pytest.mark.parametrize("action", ["Stage", "Kexec", "Reboot"])
def test_an_intent_for_an_earlier_boot_is_left_alone(agent: Agent, action: str) -> None:
    agent.node.intend(action, "try-1", before="another boot")
    agent.look()
    assert (agent.machine.did, agent.node.reports) == ([], [])


def test_an_agent_that_was_restarted_after_the_act_does_not_act_again(agent: Agent) -> None:
    agent.node.intend("Reboot", "try-1")
    agent.look()
    agent.restart()
    agent.look()
    assert agent.machine.did == ["drop", "reboot", "start kubelet"]


def test_nothing_is_done_that_could_not_be_reported(agent: Agent) -> None:
    agent.node.intend("Reboot", "try-1")
    agent.node.broken = True
    agent.look()
    assert agent.machine.did == []
    agent.node.broken = False
    agent.look()
    assert agent.machine.did == ["drop", "reboot"]


def test_a_kernel_that_does_not_start_is_reported(agent: Agent) -> None:
    agent.machine.refuses = True
    agent.node.intend("Kexec", "try-1")
    agent.look()
    stage_record(agent, KEY_SHA256)
    agent.machine.result = (True, "verified and loaded")
    agent.look()
    assert agent.node.reports[-1] == ("try-1", "Failed")
    agent.look()
    assert agent.machine.did == ["fetch 0a", *KEXEC, "start kubelet"]


def test_a_system_that_does_not_go_down_is_reported(agent: Agent) -> None:
    agent.node.intend("Reboot", "try-1")
    agent.look()
    agent.look(GOING_DOWN_SECONDS + 1)
    assert agent.node.reports[-1] == ("try-1", "Failed")
    assert "did not go down" in agent.node.report["message"]
    assert agent.machine.did[-1] == "start kubelet"


def test_words_that_are_no_intent_are_answered_and_the_facts_are_written_all_the_same(agent: Agent) -> None:
    assert agent.node.annotations is not None
    agent.node.annotations[INTENT_ANNOTATION] = '{"id": "try-1", "action": "Explode"}'
    agent.look()
    assert agent.node.reports == [("try-1", "Failed")]
    assert FACTS_ANNOTATION in agent.node.annotations


def test_what_a_daemon_that_died_had_fetched_is_dropped_when_nobody_wants_it(agent: Agent) -> None:
    (agent.root / "run/provisioner/next").mkdir()
    agent.node.intend("Stage", "stage-1")
    agent.look()
    assert agent.machine.did == ["fetch 0a"], "it is wanted still, and gone on with"
    agent.node.withdraw()
    agent.look()
    (agent.root / "run/provisioner/next").rmdir()
    agent.look()
    assert agent.machine.did == ["fetch 0a", "drop"]
    (agent.root / "run/provisioner/next").mkdir()
    agent.restart()
    agent.look()
    assert agent.machine.did == ["fetch 0a", "drop", "drop"]


def test_an_image_staged_by_the_daemon_before_is_started(agent: Agent) -> None:
    stage_record(agent, KEY_SHA256)
    agent.restart()
    agent.node.intend("Kexec", "try-1")
    agent.look()
    assert agent.machine.did == KEXEC
    assert agent.node.report["nextRequestKeySHA256"] == KEY_SHA256


def test_whoever_started_the_next_system_says_by_which_key_it_is_known_and_what_was_measured(agent: Agent) -> None:
    """As the join service reads it. The report that the image is staged says nothing of it yet."""
    agent.node.intend("Stage", "stage-1")
    agent.look()
    stage_record(agent, KEY_SHA256)
    agent.machine.result = (True, "verified and loaded")
    agent.look()
    assert "nextRequestKeySHA256" not in agent.node.report
    agent.node.intend("Kexec", "try-1")
    agent.look()
    report = from_json(BootReport, agent.node.report)
    assert (report.id, report.state, report.next_request_key_sha256) == ("try-1", "Rebooting", KEY_SHA256)
    assert report.next_hand_over_sha256 == HAND_OVER_SHA256


def test_a_reboot_by_the_firmware_knows_of_no_key(agent: Agent) -> None:
    stage_record(agent, KEY_SHA256)
    agent.restart()
    agent.node.intend("Reboot", "try-1")
    agent.look()
    assert agent.node.report["state"] == "Rebooting"
    assert not {"nextRequestKeySHA256", "nextHandOverSHA256"} & set(agent.node.report)


def test_a_kexec_goes_on_when_the_node_cannot_be_told_not_ready(agent: Agent) -> None:
    ready_to_kexec(agent)
    agent.node.breaks_after = 1
    agent.look()
    assert agent.machine.did == ["stop kubelet", "kexec"]


def test_the_kubelet_comes_back_where_the_system_does_not_go_down_though_nobody_wants_it_any_more(agent: Agent) -> None:
    ready_to_kexec(agent)
    agent.look()
    agent.node.withdraw()
    agent.look(60.0)
    assert agent.machine.did == KEXEC, "while it may go down nothing is taken from it"
    agent.look(GOING_DOWN_SECONDS)
    assert agent.machine.did == [*KEXEC, "start kubelet", "drop"]
    assert agent.node.reports[-1] == ("try-1", "Failed")


def test_a_kexec_that_failed_is_told_until_it_could_be_written_and_keeps_its_key(agent: Agent) -> None:
    ready_to_kexec(agent)
    agent.machine.refuses = True
    agent.node.breaks_after = 1
    agent.look()
    assert agent.machine.did == ["stop kubelet", "kexec", "start kubelet"]
    assert agent.node.reports == [("try-1", "Rebooting")]
    agent.node.broken = False
    agent.look()
    agent.look()
    assert agent.node.reports == [("try-1", "Rebooting"), ("try-1", "Failed")]
    assert agent.node.report["nextRequestKeySHA256"] == KEY_SHA256, "nobody takes the old boot for a new one meanwhile"
    assert agent.machine.did.count("start kubelet") == 1


def test_an_agent_that_died_before_the_kernel_was_started_is_followed_by_one_that_says_so(agent: Agent) -> None:
    ready_to_kexec(agent)
    agent.machine.dies = True
    with pytest.raises(SystemExit):
        agent.look()
    agent.machine.dies = False
    agent.restart()
    agent.look()
    assert agent.machine.did == [*KEXEC, "start kubelet"]
    assert agent.node.reports == [("try-1", "Rebooting"), ("try-1", "Failed")]
    assert agent.node.report["nextRequestKeySHA256"] == KEY_SHA256


def test_a_kubelet_that_a_person_has_stopped_is_not_started(agent: Agent) -> None:
    agent.restart()
    agent.look()
    assert agent.machine.did == []


def test_what_is_loaded_with_a_key_that_nobody_knows_is_not_started(agent: Agent) -> None:
    agent.node.intend("Kexec", "try-1")
    agent.look()
    agent.machine.result = (True, "verified and loaded")
    agent.look()
    assert agent.machine.did == ["fetch 0a", "drop"]
    assert agent.node.reports[-1] == ("try-1", "Failed")
    assert "no readable record" in agent.node.report["message"]


def test_nothing_is_written_before_the_node_was_seen(agent: Agent) -> None:
    agent.node.annotations = None
    agent.look()
    agent.node.annotations = {}
    agent.look()
    assert list(agent.node.annotations) == [FACTS_ANNOTATION]
