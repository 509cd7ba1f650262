"""The Model page: what a model needs, whether it fits, how fast, at what cost. Runs nothing."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from advisor.errors import InvalidInput
from advisor.fleet.selectors import agents_of
from advisor.pages.access import asking
from advisor.pages.forms.estimate import EstimateForm
from advisor.pages.present.model import ModelPage, model_view
from advisor.studies.estimating import answer


@asking
def model_page(request: HttpRequest) -> HttpResponse:
    sent = request.POST if request.method == "POST" else request.GET
    form = EstimateForm(sent or None, agents=agents_of(request.org))
    page = _page(request, form)
    status = 400 if form.is_bound and page is None else 200
    context = {"form": form, "page": page, "link": _link(form) if page else None}
    return render(request, "pages/model.html", context, status=status)


def _page(request: HttpRequest, form: EstimateForm) -> ModelPage | None:
    query = form.query()
    if query is None:
        return None
    try:
        found = answer(org=request.org, query=query)
    except InvalidInput as error:
        form.refuse(error)
        return None
    return model_view(found, query)


def _link(form: EstimateForm) -> str | None:
    """The address of this answer; None for a pasted config."""
    if form.own_config:
        return None
    values = {
        name: value
        for name in form.fields
        if name != "config_text" and (value := form[name].value())
    }
    return f"{reverse('model')}?{urlencode(values)}"
