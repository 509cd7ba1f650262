from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from advisor.accounts.models import AuditEvent, Org
from advisor.fleet.models import Agent
from advisor.studies.models import Study
from advisor.studies.states import StudyState, TrialState
from gpuagent.wire import StudySpec
from tests import builders, factories

Body = Callable[..., dict[str, Any]]
STUDIES = "/api/v1/studies"


def post(client: Client, data: Any, url: str = STUDIES, **kwargs: Any) -> Any:
    return client.post(url, data, content_type="application/json", **kwargs)


# --- submit ------------------------------------------------------------------------------------


def test_a_submitted_study_is_created_and_says_where_it_is(api: Client, body: Body) -> None:
    response = post(api, body())
    assert response.status_code == 201, response.json()
    study = Study.objects.get()
    answer = response.json()
    assert response["Location"].endswith(f"{STUDIES}/{study.pk}")
    assert answer["id"] == str(study.pk)
    assert answer["number"] == 1
    assert answer["created_by"] == "alice@example.org"
    assert answer["progress"]["trials_total"] == study.trials.count()
    assert answer["spec"]["targets"] == [{"metric": "ttft_s", "statistic": "p95", "limit": 0.2}]
    assert api.get(response["Location"]).json()["id"] == answer["id"]


def test_the_audit_trail_names_the_person_and_the_token(api: Client, body: Body) -> None:
    post(api, body())
    event = AuditEvent.objects.get(action="study.create")
    assert event.actor.startswith("alice@example.org (ta_")


def test_a_viewer_may_not_submit(reader: Client, body: Body) -> None:
    response = post(reader, body())
    assert response.status_code == 403
    assert not Study.objects.exists()


def test_another_organisations_agent_does_not_exist(
    stranger: Client, body: Body, agent: Agent
) -> None:
    response = post(stranger, body())
    assert response.status_code == 400
    assert list(response.json()["fields"]) == ["agent"]
    assert agent.slug not in str(response.json()["fields"])


def _with(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        *parents, leaf = path.split(".")
        target: Any = body
        for part in parents:
            target = target[int(part)] if part.isdigit() else target[part]
        target[int(leaf) if leaf.isdigit() else leaf] = value

    return change


CONFIG = {"kind": "config", "name": "mine", "config": builders.SMOLLM2_CONFIG}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (_with("targets.0.limit", 0), "targets.0.limit"),
        (_with("targets.0.limit", -1), "targets.0.limit"),
        (_with("targets.0.limit", float("nan")), "targets.0.limit"),
        (_with("targets.0.limit", float("inf")), "targets.0.limit"),
        (_with("targets.0.limit", "soon"), "targets.0.limit"),
        (_with("targets.0.metric", "speed"), "targets.0.metric"),
        (_with("targets.0.statistic", "peak"), "targets.0"),
        (_with("workload.request_rate_per_s", -3), "workload.request_rate_per_s"),
        (_with("workload.input_tokens.mean", 1.5), "workload.input_tokens.mean"),
        (_with("workload.preset", "gaming"), "workload.preset"),
        (_with("name", ""), "name"),
        (_with("name", "x" * 121), "name"),
        (_with("name", "nul \x00 byte"), "name"),
        (_with("name", "half a surrogate \ud800"), "name"),
        (_with("surprise", 1), "surprise"),
        (_with("agent", "not-here"), "agent"),
        (_with("budget_s", 0), "budget_s"),
        (_with("model", {"kind": "local", "name": "unknown"}), "model.name"),
        (_with("model", {"kind": "local", "name": "pickled"}), "model.name"),
        (_with("model", {"kind": "local", "name": "../../etc"}), "model.name"),
        (_with("model", {"kind": "hub", "id": "no-slash"}), "model.id"),
        (_with("model", {"kind": "hub", "id": "a/b#c"}), "model.id"),
        (_with("model", {"kind": "web", "id": "a/b"}), "model"),
        (_with("model", {"id": "a/b"}), "model"),
        (_with("model", {**CONFIG, "config": "{}"}), "model.config"),
        (_with("model", {**CONFIG, "config": {}}), "model.config"),
        (
            _with("model", {**CONFIG, "config": {**builders.SMOLLM2_CONFIG, "auto_map": {"a": 1}}}),
            "model.config",
        ),
        (
            _with("model", {**CONFIG, "config": {**builders.SMOLLM2_CONFIG, "x": float("nan")}}),
            "model.config.x",
        ),
    ],
)
def test_bad_input_names_the_field(
    api: Client, body: Body, change: Callable[[dict[str, Any]], None], field: str
) -> None:
    data = body()
    change(data)
    response = post(api, data)
    answer = response.json()
    assert response.status_code == 400, answer
    assert set(answer) == {"code", "message", "fields"}
    assert answer["code"] == "invalid"
    assert list(answer["fields"]) == [field]
    assert all(answer["fields"][field])
    assert not Study.objects.exists()


def test_a_name_is_text_in_any_language(api: Client, body: Body) -> None:
    name = "чат & “quotes” 聊天 דו־שיח"
    assert post(api, body(name=name)).json()["name"] == name


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "a\x07b", "a\u202eb"])
def test_a_name_with_markup_is_refused(api: Client, body: Body, name: str) -> None:
    answer = post(api, body(name=name, model={**CONFIG, "name": name}))
    assert answer.status_code == 400
    assert answer.json()["fields"] == {
        "name": ["Leave out < and > and control characters."],
        "model.name": ["Leave out < and > and control characters."],
    }


def test_a_bare_config_of_a_known_family_is_accepted(api: Client, body: Body) -> None:
    assert post(api, body(model=CONFIG)).status_code == 201


@pytest.mark.parametrize(
    ("raw", "code", "status"),
    [
        (b"{", "parse_error", 400),
        (b"", "invalid", 400),
        (b"\xff\xfe", "parse_error", 400),
        (b"[" * 100_000, "parse_error", 400),
        (b"1" * 5000, "parse_error", 400),
        (b"[]", "invalid", 400),
        (b'"text"', "invalid", 400),
        (b"null", "invalid", 400),
        (b" " * 10_000_000, "too_large", 413),
    ],
)
def test_a_body_that_is_no_json_object_is_refused(
    api: Client, raw: bytes, code: str, status: int
) -> None:
    response = api.generic("POST", STUDIES, raw, content_type="application/json")
    assert response.status_code == status, response.content
    assert response.json()["code"] == code
    assert "Traceback" not in response.content.decode()


def test_a_config_that_nests_too_deeply_is_a_field_error(api: Client, body: Body) -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    config = {**builders.SMOLLM2_CONFIG, "deep": deep}
    response = post(api, body(model={**CONFIG, "config": config}))
    assert response.status_code == 400
    (field,) = response.json()["fields"]
    assert field.startswith("model.config.deep.a")


def test_a_chunked_body_is_refused_in_words_instead_of_being_taken_for_empty(api: Client) -> None:
    response = api.post(STUDIES, headers={"Transfer-Encoding": "chunked", "Content-Length": ""})
    assert response.status_code == 400
    assert "Content-Length" in response.json()["message"]


@pytest.mark.parametrize("content_type", ["text/plain", "multipart/form-data; boundary=x"])
def test_another_content_type_is_415(api: Client, content_type: str) -> None:
    response = api.generic("POST", STUDIES, b"x", content_type=content_type)
    assert response.status_code == 415
    assert response.json()["code"] == "unsupported_media_type"


# --- list --------------------------------------------------------------------------------------


def test_the_list_is_the_organisations_own_newest_first(
    api: Client, org: Org, stranger: Client
) -> None:
    for name in ("first", "second", "third"):
        factories.create_study(org, name=name)
    names = [study["name"] for study in api.get(STUDIES).json()["results"]]
    assert names == ["third", "second", "first"]
    assert stranger.get(STUDIES).json() == {"next": None, "previous": None, "results": []}


def test_pages_follow_each_other_without_gap_or_repeat_while_rows_are_added(
    api: Client, org: Org
) -> None:
    same_moment = timezone.now()
    for number in range(7):
        factories.create_study(org, name=f"s{number}", created_at=same_moment)
    seen, url = [], f"{STUDIES}?limit=3"
    while url:
        page = api.get(url).json()
        seen += [study["name"] for study in page["results"]]
        url = page["next"]
        factories.create_study(org, name="late", created_at=same_moment)
    assert sorted(seen) == [f"s{number}" for number in range(7)]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=many", "limit"),
        ("cursor=nonsense", "cursor"),
        ("cursor=cD1ub3QtYS1udW1iZXI=", "cursor"),
        ("state=sleeping", "state"),
        ("preset=gaming", "preset"),
        ("name=%00", "name"),
    ],
)
def test_a_bad_query_names_the_parameter(api: Client, org: Org, query: str, field: str) -> None:
    factories.create_study(org)
    response = api.get(f"{STUDIES}?{query}")
    assert response.status_code == 400, response.json()
    assert list(response.json()["fields"]) == [field]


def test_filters_narrow_the_list(api: Client, org: Org, agent: Agent) -> None:
    edge = builders.make_study_spec(workload=builders.make_workload(preset="edge"))
    factories.create_study(org, name="Edge box", spec=edge, state=StudyState.FINISHED)
    factories.create_study(org, name="Chat", agent=agent)

    def names(query: str) -> list[str]:
        return [study["name"] for study in api.get(f"{STUDIES}?{query}").json()["results"]]

    assert names("preset=edge") == ["Edge box"]
    assert names("state=running") == ["Chat"]
    assert names("name=BOX") == ["Edge box"]
    assert names("agent=bench-1") == ["Chat"]
    assert names("preset=edge&state=running") == []


def test_the_number_of_queries_does_not_grow_with_the_list(api: Client, org: Org) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get(STUDIES).status_code == 200
        return len(captured)

    agent = factories.create_agent(org)
    factories.create_finished_study(org, agent=agent)
    queries()
    one = queries()
    for _ in range(5):
        factories.create_finished_study(org, agent=agent)
    assert queries() == one
    assert one <= 6


# --- one study ---------------------------------------------------------------------------------


def test_a_finished_study_carries_its_verdict_with_units(api: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    answer = api.get(f"{STUDIES}/{study.pk}").json()
    assert answer["state"] == "finished"
    assert answer["progress"] == {
        "trials_done": 2,
        "trials_succeeded": 2,
        "trials_total": 2,
        "current": None,
        "done_frac": 1.0,
        "remaining_s": 0.0,
    }
    verdict = answer["verdict"]
    assert verdict["sentence"]
    assert {t["metric"]: t["unit"] for t in verdict["targets"]} == {"ttft_s": "s", "itl_s": "s"}
    for target in verdict["targets"]:
        if target["value"] is not None:
            assert target["low"] <= target["value"] <= target["high"]
    assert StudySpec.model_validate(answer["spec"]) == study.spec
    assert answer["urls"]["dashboard"].endswith(f"/studies/{study.pk}/")


def test_a_running_study_says_what_runs_and_for_how_long(
    api: Client, org: Org, agent: Agent
) -> None:
    study = factories.create_study(org, agent=agent)
    factories.create_trial(
        study,
        builders.make_trial(state="running", title="bfloat16 today"),
        phase="measure",
        progress_text="request 5 of 20",
        done_frac=0.5,
        remaining_s=12.0,
        estimate_s=40.0,
    )
    factories.create_trial(study, estimate_s=60.0)
    progress = api.get(f"{STUDIES}/{study.pk}").json()["progress"]
    assert progress["current"]["title"] == "bfloat16 today"
    assert progress["current"]["text"] == "request 5 of 20"
    assert progress["trials_done"] == 0
    assert progress["done_frac"] == pytest.approx(0.2)
    assert progress["remaining_s"] == pytest.approx(72.0)


def test_a_study_without_an_agent_has_no_remaining_time(api: Client, org: Org) -> None:
    study = factories.create_study(org, state=StudyState.WAITING)
    assert api.get(f"{STUDIES}/{study.pk}").json()["progress"]["remaining_s"] is None


@pytest.mark.parametrize("tail", ["", "/trials", "/findings", "/report"])
def test_another_organisations_study_is_404(
    stranger: Client, api: Client, org: Org, tail: str
) -> None:
    study = factories.create_finished_study(org)
    foreign = stranger.get(f"{STUDIES}/{study.pk}{tail}")
    missing = api.get(f"{STUDIES}/{uuid.uuid4()}{tail}")
    assert foreign.status_code == missing.status_code == 404
    assert foreign.json() == missing.json()


def test_findings_come_ranked_and_whole(reader: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    factories.create_finding(study, rule_id="sla_missed", title="Second")
    results = reader.get(f"{STUDIES}/{study.pk}/findings").json()["results"]
    assert [finding["rule_id"] for finding in results] == ["dtype_slower", "sla_missed"]
    assert results[0]["evidence"][0]["value"] == 0.03


# --- cancel ------------------------------------------------------------------------------------


def test_cancelling_ends_what_waits_and_is_repeatable(
    api: Client, org: Org, agent: Agent, django_capture_on_commit_callbacks: Any
) -> None:
    study = factories.create_study(org, agent=agent)
    trial = factories.create_trial(study)
    with django_capture_on_commit_callbacks(execute=True):
        response = post(api, {}, f"{STUDIES}/{study.pk}/cancel")
    assert response.status_code == 200
    trial.refresh_from_db()
    assert trial.state == TrialState.CANCELLED
    again = post(api, {}, f"{STUDIES}/{study.pk}/cancel")
    assert again.status_code == 200
    assert again.json()["state"] == "cancelled"


def test_a_finished_study_cannot_be_cancelled(api: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    response = post(api, {}, f"{STUDIES}/{study.pk}/cancel")
    assert response.status_code == 409
    assert response.json()["code"] == "conflict"


def test_a_viewer_and_a_stranger_cannot_cancel(
    reader: Client, stranger: Client, org: Org, agent: Agent
) -> None:
    study = factories.create_study(org, agent=agent)
    assert post(reader, {}, f"{STUDIES}/{study.pk}/cancel").status_code == 403
    assert post(stranger, {}, f"{STUDIES}/{study.pk}/cancel").status_code == 404
    study.refresh_from_db()
    assert study.cancel_requested_at is None


# --- report ------------------------------------------------------------------------------------


def test_the_report_comes_as_json_and_as_html(reader: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    url = reverse("api-study-report", kwargs={"study_id": study.pk})
    plain = reader.get(url)
    assert plain["Content-Type"] == "application/json"
    assert plain.json()["study_id"] == str(study.pk)
    page = reader.get(url, {"format": "html"})
    assert page["Content-Type"].startswith("text/html")
    assert page["Content-Disposition"].startswith("attachment; filename=")
    assert page["X-Content-Type-Options"] == "nosniff"
    assert b"<html" in page.content


@pytest.mark.parametrize(
    ("fmt", "kind", "start"),
    [
        ("md", "text/markdown", b"LLM Tuning Advisor"),
        ("csv", "text/csv", b"study,study_name,trial,"),
        ("requests", "text/csv", b"study,trial,trial_id,"),
    ],
)
def test_the_report_comes_in_every_other_format(
    reader: Client, org: Org, fmt: str, kind: str, start: bytes
) -> None:
    study = factories.create_finished_study(org)
    response = reader.get(f"{STUDIES}/{study.pk}/report?format={fmt}")
    assert response["Content-Type"].startswith(kind)
    assert response.content.startswith(start)
    suffix = "requests.csv" if fmt == "requests" else fmt
    assert response["Content-Disposition"].endswith(f'.{suffix}"')


def test_a_pdf_without_a_browser_is_503_with_the_fix(
    reader: Client, org: Org, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADVISOR_CHROMIUM", "/nowhere/chromium")
    study = factories.create_finished_study(org)
    response = reader.get(f"{STUDIES}/{study.pk}/report?format=pdf")
    assert response.status_code == 503
    assert response.json()["code"] == "pdf_unavailable"
    assert "ADVISOR_CHROMIUM" in response.json()["message"]


def test_an_unknown_format_names_the_parameter(reader: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    response = reader.get(f"{STUDIES}/{study.pk}/report?format=docx")
    assert response.status_code == 400
    assert list(response.json()["fields"]) == ["format"]


# --- diagnosis ---------------------------------------------------------------------------------


def test_a_diagnosis_plans_the_parts_of_the_model(api: Client, body: Body) -> None:
    response = post(api, body(goal="diagnose", budget_s=3600))
    assert response.status_code == 201, response.json()
    planned = [t.spec.experiment for t in Study.objects.get().trials.order_by("ordinal")]
    assert {"calibrate", "kernels", "attention", "quantisation", "batching"} <= set(planned)


def test_an_agent_that_cannot_diagnose_is_refused_by_field(
    api: Client, body: Body, agent: Agent
) -> None:
    old = factories.make_hello(experiments=("baseline", "kv_cache", "verify"))
    agent.hello_json = old.model_dump(mode="json")
    agent.save()
    response = post(api, body(goal="diagnose"))
    assert response.status_code == 400
    assert "calibrate, kernels" in response.json()["fields"]["goal"][0]
    unknown = post(api, body(goal="guess"))
    assert unknown.status_code == 400
    assert "goal" in unknown.json()["fields"]
