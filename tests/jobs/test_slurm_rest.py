"""slurmrestd's answers, the odd ones too: which version is spoken, what is believed, what is told a person."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import requests
from pytest_httpserver import URI_DEFAULT
from werkzeug import Request, Response

from provisioner.api.machinery.values import Secret
from provisioner.api.pools.pool_settings import JobSettings, SlurmJobs
from provisioner.jobs.slurm.answers import Dialect, SlurmFailed, choose_dialect, read_answer, read_offer
from provisioner.jobs.slurm.connections import CREDENTIALS_SECONDS
from provisioner.jobs.slurm.rest import SlurmAccess, SlurmRest
from provisioner.jobs.slurm.workloads import SlurmView, SlurmWorkloads
from provisioner.outbound.turns import Turn
from tests.boot import objects
from tests.http_peer import HttpPeer, target
from tests.maintenance.samples import NOON

STEPS = [{"name": "flags", "schema": {"enum": ["BATCH_JOB", "FULL_STEPS_ONLY"]}}]


def paths(*versions: str, **methods: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for version in versions:
        found[f"/slurm/{version}/node/{{node_name}}"] = methods or {"get": {}, "post": {}}
        found[f"/slurm/{version}/job/{{job_id}}"] = {"delete": {"parameters": STEPS}}
    return found


class FakeSlurmrestd(HttpPeer):
    """Answers what a test put into `answers`, by method and path; remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}
        self.raw: dict[tuple[str, str], bytes] = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.tokens: list[str | None] = []
        self.expect_request(URI_DEFAULT).respond_with_handler(self._answer)

    def _answer(self, request: Request) -> Response:
        key = request.method, target(request)
        self.asked.append((*key, json.loads(request.data) if request.data else None))
        self.tokens.append(request.headers.get("X-SLURM-USER-TOKEN"))
        if key in self.raw:
            return Response(self.raw[key])
        status, answer = self.answers.get(key, (404, {}))
        return Response(json.dumps(answer), status, {"Location": answer["to"]} if status == 302 else {})


@pytest.fixture
def fake() -> Iterator[FakeSlurmrestd]:
    with FakeSlurmrestd() as made:
        made.answers["GET", "/openapi/v3"] = (200, {"paths": paths("v0.0.41", "v0.0.42")})
        yield made


def connect(fake: FakeSlurmrestd, dialects: dict[str, Dialect] | None = None) -> SlurmRest:
    access = SlurmAccess(fake.url, "root", Secret("very-secret"), "provisioner-system/slurm")
    return SlurmRest(access, {} if dialects is None else dialects)


def chosen_of(document: dict[str, Any]) -> Dialect:
    return choose_dialect((read_offer(path, value) for path, value in document.items()), "http://slurm")


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (("v0.0.36", "v0.0.37", "v0.0.38"), "v0.0.38"),
        (("v0.0.40", "v0.0.41", "v0.0.42"), "v0.0.42"),
        (("v0.0.42", "v0.0.43"), "v0.0.43"),
        (("v0.0.44", "v0.0.45"), "v0.0.44"),
    ],
)
def test_the_newest_version_that_both_speak_is_spoken(offered: tuple[str, ...], chosen: str) -> None:
    assert chosen_of(paths(*offered)).version == chosen


def test_what_a_version_cannot_do_is_read_from_its_document() -> None:
    old = chosen_of({"/slurm/v0.0.38/node/{node_name}": {"get": {}}})
    assert old == Dialect("v0.0.38", updates_nodes=False, signals_steps=False)
    assert chosen_of(paths("v0.0.42")) == Dialect("v0.0.42", True, True)


def test_no_version_in_common_is_told_with_the_remedy() -> None:
    with pytest.raises(SlurmFailed, match=r"speaks v0\.0\.99, this program v0\.0\.38 to v0\.0\.44: load the plugin"):
        chosen_of(paths("v0.0.99"))


def test_a_slurm_that_cannot_drain_by_its_api_is_told_and_not_asked(fake: FakeSlurmrestd) -> None:
    fake.answers["GET", "/openapi/v3"] = (200, {"paths": {"/slurm/v0.0.38/node/{node_name}": {"get": {}}}})
    with pytest.raises(SlurmFailed, match=r"speaks only v0\.0\.38, which cannot drain a node: update Slurm to 23\.02"):
        connect(fake).update_node("r1", "DRAIN", "provisioner: r1-1")
    assert [method for method, _, _ in fake.asked] == ["GET"]


def test_a_node_that_slurm_does_not_know_is_none_though_it_says_200(fake: FakeSlurmrestd) -> None:
    error = {"description": "Failure to query node r1", "error_number": 0, "error": "No error"}
    fake.answers["GET", "/slurm/v0.0.42/node/r1"] = (200, {"errors": [error]})
    assert connect(fake).node("r1") is None


def test_without_its_controller_slurm_is_not_believed_to_know_no_node_and_no_job(fake: FakeSlurmrestd) -> None:
    error = {"description": "", "error_number": 1800, "error": "Unable to contact slurm controller (connect failure)"}
    fake.answers["GET", "/slurm/v0.0.42/node/r1"] = (502, {"errors": [error]})
    fake.answers["GET", "/slurm/v0.0.42/jobs"] = (200, {"jobs": [], "errors": [error]})
    with pytest.raises(SlurmFailed, match="Unable to contact slurm controller"):
        connect(fake).node("r1")
    with pytest.raises(SlurmFailed, match="Unable to contact slurm controller"):
        connect(fake).jobs()


@pytest.mark.parametrize(("status", "number"), [(401, None), (511, 1007), (500, 2002), (500, 2010), (500, 6000)])
def test_a_refused_token_is_told_with_the_remedy_and_not_shown(
    fake: FakeSlurmrestd, status: int, number: int | None
) -> None:
    errors = [{"description": "no", "error_number": number}] if number else []
    fake.answers["GET", "/slurm/v0.0.42/jobs"] = (status, {"errors": errors})
    with pytest.raises(SlurmFailed, match="put a token of one of Slurm's operators into Secret") as caught:
        connect(fake).jobs()
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "said", "is_refusal"),
    [
        (500, "Authentication does not apply to request", True),
        (500, "Authentication failure", True),
        (500, '{"errors": [{"error": "Unable to authenticate", "error_number": -1}]}', True),
        (500, "Unspecified error", False),
        (502, "Bad Gateway", False),
        (500, '{"errors": [{"error": "Unable to contact slurm controller", "error_number": 1800}]}', False),
        (200, '{"jobs": [], "meta": "authentication: auth/jwt", "errors": []}', False),
    ],
)
def test_a_refusal_of_the_token_is_known_by_its_words_where_the_status_does_not_say_it(
    status: int, said: str, is_refusal: bool
) -> None:
    answer = read_answer(status, [said.encode()], "jobs", lambda _name, item: item, Turn(lambda: 30.0))
    assert answer.is_refusal is is_refusal


def test_the_token_does_not_follow_a_redirect(fake: FakeSlurmrestd) -> None:
    fake.answers["GET", "/slurm/v0.0.42/jobs"] = (302, {"to": f"{fake.url}/elsewhere"})
    fake.answers["GET", "/elsewhere"] = (200, {"jobs": []})
    with pytest.raises(SlurmFailed, match="HTTP 302"):
        connect(fake, {fake.url: Dialect("v0.0.42", True, True)}).jobs()
    assert [path for _, path, _ in fake.asked] == ["/slurm/v0.0.42/jobs"]


def test_an_answer_without_jobs_is_not_an_idle_cluster(fake: FakeSlurmrestd) -> None:
    fake.answers["GET", "/slurm/v0.0.42/jobs"] = (200, {"greeting": "hello"})
    with pytest.raises(SlurmFailed, match="answered without jobs: is it slurmrestd"):
        connect(fake).jobs()


def test_the_version_is_asked_once_and_again_after_slurm_was_updated(fake: FakeSlurmrestd) -> None:
    dialects: dict[str, Dialect] = {}
    fake.answers["GET", "/slurm/v0.0.42/jobs"] = (200, {"jobs": [], "errors": []})
    connect(fake, dialects).jobs()
    connect(fake, dialects).jobs()
    assert [path for _, path, _ in fake.asked] == ["/openapi/v3", *["/slurm/v0.0.42/jobs"] * 2]
    fake.answers["GET", "/openapi/v3"] = (200, {"paths": paths("v0.0.43")})
    del fake.answers["GET", "/slurm/v0.0.42/jobs"]
    fake.answers["GET", "/slurm/v0.0.43/jobs"] = (200, {"jobs": []})
    with pytest.raises(SlurmFailed):
        connect(fake, dialects).jobs()
    assert connect(fake, dialects).jobs() == ()


def test_steps_are_signalled_only_where_the_version_can_leave_the_script_alone(fake: FakeSlurmrestd) -> None:
    from provisioner.jobs.slurm.objects import read_job

    job = read_job({"job_id": 7})
    assert not connect(fake, {fake.url: Dialect("v0.0.39", True, False)}).signal_job(job, "USR1")
    assert fake.asked == []
    url = "/slurm/v0.0.42/job/7?signal=USR1&flags=FULL_STEPS_ONLY"
    fake.answers["DELETE", url] = (200, {"errors": []})
    assert connect(fake, {fake.url: Dialect("v0.0.42", True, True)}).signal_job(job, "USR1")
    assert [path for _, path, _ in fake.asked] == [url]


def test_an_answer_that_is_no_json_is_a_failure(fake: FakeSlurmrestd) -> None:
    fake.answers["GET", "/slurm/v0.0.42/jobs"] = (500, {})
    with pytest.raises(SlurmFailed, match="HTTP 500"):
        connect(fake).jobs()


def test_an_answer_that_is_nested_without_end_is_a_failure(fake: FakeSlurmrestd) -> None:
    fake.raw["GET", "/slurm/v0.0.42/jobs"] = b'{"jobs":' + b"[" * 100_000
    with pytest.raises(SlurmFailed, match=r"answered what cannot be read .*nested without end"):
        connect(fake).jobs()


def test_the_name_of_a_job_may_be_any_bytes_and_hides_no_other_job(fake: FakeSlurmrestd) -> None:
    named = b'{"jobs": [{"job_id": 7, "name": "a\xff\xe9", "job_state": ["RUNNING"], "nodes": "r1"}, {"job_id": 8}]}'
    fake.raw["GET", "/slurm/v0.0.42/jobs"] = named
    first, second = connect(fake).jobs()
    assert (first.name, first.nodes, second.id) == ("a??", "r1", 8)


def test_nobody_guesses_the_encoding_of_an_answer(fake: FakeSlurmrestd, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes seconds of a processor where hundreds of megabytes are made for that."""

    def guess(_: object) -> str:
        raise AssertionError("its encoding was guessed")

    monkeypatch.setattr(requests.Response, "apparent_encoding", property(guess))
    fake.raw["GET", "/slurm/v0.0.42/jobs"] = bytes(range(128, 256)) * 1000
    with pytest.raises(SlurmFailed, match="answered what cannot be read"):
        connect(fake).jobs()


class CountingCluster:
    """An API server that has one Secret, and counts who asks for it."""

    def __init__(self) -> None:
        self.token, self.reads = "first", 0

    def get(self, type_: Any, name: str, *, namespace: str) -> dict[str, Any]:
        self.reads += 1
        data = {"username": "root", "token": self.token}
        return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}


class Looks:
    """Looks at one server, as the executor does at thousands."""

    def __init__(self, fake: FakeSlurmrestd) -> None:
        self.cluster, self.seconds = CountingCluster(), 0.0
        self._slurm = SlurmWorkloads(
            self.cluster,  # type: ignore[arg-type]
            namespace="provisioner-system",
            now=lambda: NOON,
            monotonic=lambda: self.seconds,
        )
        slurm = SlurmJobs(url=fake.url, credentials_name="slurm")
        self._pool = replace(objects.pool(), spec=replace(objects.pool().spec, jobs=JobSettings(slurm=slurm)))
        fake.answers["GET", "/slurm/v0.0.42/node/r1"] = (200, {"nodes": [{"name": "r1", "state": ["IDLE"]}]})
        fake.answers["GET", "/slurm/v0.0.42/jobs"] = (200, {"jobs": []})

    def look(self) -> SlurmView:
        return self._slurm.look("r1", self._pool)


def test_the_secret_is_not_read_for_each_look_and_a_rotated_one_counts_within_its_time(fake: FakeSlurmrestd) -> None:
    looks = Looks(fake)
    for looks.seconds in (0.0, 10.0, CREDENTIALS_SECONDS - 1):
        assert looks.look().unknown == ()
    assert looks.cluster.reads == 1
    looks.cluster.token = "rotated"
    looks.seconds = CREDENTIALS_SECONDS
    looks.look()
    assert looks.cluster.reads == 2
    assert fake.tokens[-1] == "rotated"


def test_a_token_that_slurm_refuses_is_read_again_at_the_next_look(fake: FakeSlurmrestd) -> None:
    looks = Looks(fake)
    looks.look()
    fake.answers["GET", "/slurm/v0.0.42/node/r1"] = (401, {})
    assert "refused user 'root'" in looks.look().unknown[0]
    looks.cluster.token = "rotated"
    looks.look()
    assert (looks.cluster.reads, fake.tokens[-1]) == (2, "rotated")
