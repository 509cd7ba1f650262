from __future__ import annotations

from django.test import Client
from django.urls import reverse

from advisor.accounts.models import Org
from advisor.studies.models import Study
from tests import factories


def address(study: Study) -> str:
    return reverse("study-what-if", kwargs={"study_id": study.pk})


def row(limit: str, index: int = 0, metric: str = "itl_s") -> dict[str, str]:
    names = {"metric": metric, "statistic": "p95", "limit": limit}
    return {f"t{index}-{name}": value for name, value in names.items()}


def test_the_study_page_offers_the_form_with_its_own_targets(viewer: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    page = viewer.get(reverse("study", kwargs={"study_id": study.pk})).content.decode()
    assert f'action="{address(study)}"' in page
    assert 'name="t1-limit" value="50"' in page


def test_other_targets_give_another_verdict(viewer: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    page = viewer.get(address(study), {**row("400"), "price": "2.5"})
    assert page.status_code == 200
    text = page.content.decode()
    assert page.context["page"].status[1] == "SLA met"
    assert "USD/M tok" in text
    assert 'value="400"' in text
    assert len(page.context["page"].ranking) == 2


def test_without_a_question_the_form_stands_alone(viewer: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    page = viewer.get(address(study))
    assert page.context["page"] is None
    more = viewer.get(address(study), {**row("400"), "action": "add_target"})
    assert more.context["page"] is None
    assert len(more.context["form"].rows) == 2
    fewer = viewer.get(address(study), {**row("400"), "action": "remove_target:0"})
    assert fewer.context["form"].rows == []


def test_bad_input_stays_beside_its_field(viewer: Client, org: Org) -> None:
    study = factories.create_finished_study(org)
    page = viewer.get(address(study), {**row("soon"), "price": "-1"})
    assert page.status_code == 400
    form = page.context["form"]
    assert form.rows[0].errors["limit"]
    assert form.price_errors
    twice = viewer.get(address(study), {**row("1"), **row("2", 1)})
    assert twice.status_code == 400
    assert twice.context["form"].errors
