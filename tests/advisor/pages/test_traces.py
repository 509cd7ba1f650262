from __future__ import annotations

import json
import re
from datetime import timedelta

from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from advisor.accounts.models import Org
from advisor.charts.trace_timeline import timeline_figure, timeline_svg
from advisor.pages.present.traces import class_keys, split_sentence, trace_page
from advisor.traces.models import Trace
from advisor.traces.services import stored_path, traces_expire
from tests import factories
from tests.advisor.pages.conftest import MARKUP
from tests.gpuagent.traces.make import Kineto, launch_bound


def test_an_upload_leads_to_its_page(member: Client, org: Org) -> None:
    content = json.dumps(launch_bound().document()).encode()
    response = member.post("/traces/upload/", {"file": SimpleUploadedFile("run.json", content)})
    trace = Trace.objects.get(org=org)
    assert response["Location"] == f"/traces/{trace.pk}/"
    html = member.get(response["Location"]).content.decode()
    assert "Launch-bound" in html
    assert "Launch kernels in one go" in html
    assert "Host launches late" in html
    assert f"/traces/{trace.pk}/" in html
    assert 'id="fig-timeline"' in html
    assert "run.json" in member.get("/traces/").content.decode()


def test_a_refused_file_is_explained_beside_the_form(member: Client) -> None:
    file = SimpleUploadedFile("run.nsys-rep", b"x")
    response = member.post("/traces/upload/", {"file": file})
    assert response.status_code == 400
    assert "nsys export --type sqlite" in response.content.decode()
    assert member.post("/traces/upload/", {}).status_code == 400


def test_viewers_read_and_change_nothing(viewer: Client, org: Org) -> None:
    trace = factories.create_trace(org)
    html = viewer.get(f"/traces/{trace.pk}/").content.decode()
    assert "Upload a trace" not in html
    assert "Delete for good" not in html
    assert viewer.post(f"/traces/{trace.pk}/delete/").status_code == 403


def test_a_deleted_trace_takes_its_file_along(
    member: Client, org: Org, django_capture_on_commit_callbacks: object
) -> None:
    trace = factories.create_trace(org)
    path = stored_path(trace)
    assert path.is_file()
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        member.post(f"/traces/{trace.pk}/delete/")
    assert not path.exists()
    assert not Trace.objects.exists()


def test_old_traces_are_removed(
    org: Org, settings: object, django_capture_on_commit_callbacks: object
) -> None:
    old, new = factories.create_trace(org), factories.create_trace(org)
    Trace.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=31))
    path = stored_path(old)
    with django_capture_on_commit_callbacks(execute=True):  # type: ignore[operator]
        assert traces_expire() == 1
    assert list(Trace.objects.all()) == [new]
    assert not path.exists()
    settings.TRACE_KEEP_DAYS = 0  # type: ignore[attr-defined]
    Trace.objects.update(created_at=timezone.now() - timedelta(days=3000))
    assert traces_expire() == 0


def test_names_with_markup_are_only_text(browser: Client, org: Org) -> None:
    trace = Kineto(gpu=MARKUP)
    for index in range(30):
        start = 1000.0 + index * 100
        trace.step(index, start - 20, 100.0)
        trace.launched(f"kernel{MARKUP}</script>", start, 20.0, call=start - 10)
    row = factories.create_trace(org, trace.document(), name=f"{MARKUP}.json")
    for url in (f"/traces/{row.pk}/", "/traces/", f"/traces/{row.pk}/compare/?before={row.pk}"):
        response = browser.get(url)
        html = response.content.decode()
        assert response.status_code == 200
        assert MARKUP not in html
        assert not re.search(r"\son\w+=|\sstyle=", html)
        assert "script-src 'self'" in response["Content-Security-Policy"]
    figure = timeline_figure(row.report["timeline"], class_keys(row.report), {})
    assert all("<script" not in text for trace in figure["data"] for text in trace["text"])
    lane = row.report["timeline"]
    lane["bars"][0]["lane"] = MARKUP
    assert MARKUP not in timeline_svg(lane, {}, MARKUP)


def test_a_trace_without_gpu_work_shows_operators_and_no_shares(browser: Client, org: Org) -> None:
    trace = Kineto()
    for index in range(20):
        trace.event("cpu_op", "aten::mm", index * 100.0, 80.0)
    row = factories.create_trace(org, trace.document())
    html = browser.get(f"/traces/{row.pk}/").content.decode()
    assert "Cannot tell" in html
    assert "CPU operators" in html
    assert "aten::mm" in html
    assert "Where the time goes" not in html


def test_bars_add_up_and_colours_are_distinct(org: Org) -> None:
    page = trace_page(factories.create_trace(org))
    assert abs(sum(piece.frac for piece in page.time_slices) - 1) < 0.01
    keys = [piece.key for piece in page.class_slices]
    assert len(keys) == len(set(keys))
    assert max(piece.relative for piece in page.time_slices) == 100


def test_the_headline_is_the_first_sentence_and_nothing_is_lost() -> None:
    title, rest = split_sentence("GPU idle 86 % of 1 s: late (3 calls; 2 s). Use graphs.")
    assert title == "GPU idle 86 % of 1 s: late"
    assert rest == "3 calls; 2 s. Use graphs."
    assert split_sentence("Only one.") == ("Only one", "")


def test_more_than_six_findings_are_folded_not_lost(viewer: Client, org: Org) -> None:
    trace = factories.create_trace(org)
    (row, *_) = trace.report_json["findings"]
    trace.report_json["findings"] = [{**row, "title": f"Finding {n}"} for n in range(8)]
    trace.save(update_fields=["report_json"])
    html = viewer.get(f"/traces/{trace.pk}/").content.decode()
    assert "2 more, with less to win back" in html
    assert "Finding 7" in html
