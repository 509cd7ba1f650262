"""`/api/v1/studies`: submit, follow, cancel, read findings."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import django_filters
from django.db.models import Prefetch, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import actor_of, auth_of, org_of
from advisor.api.errors import invalid_fields
from advisor.api.idempotency import once
from advisor.api.pagination import HighestNumberFirst
from advisor.api.schema import IDEMPOTENCY, PAGING, operation
from advisor.api.serializers.base import respond, respond_list
from advisor.api.serializers.studies import (
    FindingPage,
    StudyAnswer,
    StudyPage,
    study_answer,
    study_summary,
)
from advisor.api.wire_parser import parse_body
from advisor.errors import Conflict
from advisor.studies import intake
from advisor.studies.models import Study, Trial
from advisor.studies.selectors import findings_of, studies_of, study_get, study_view
from advisor.studies.services import study_cancel, study_create
from advisor.studies.states import StudyState
from gpuagent.wire import StudySpec

PRESETS = ("chat", "api", "edge", "batch")

FILTERS = (
    OpenApiParameter("state", str, enum=[state.value for state in StudyState]),
    OpenApiParameter("preset", str, enum=list(PRESETS)),
    OpenApiParameter("name", str, description="Part of the name, in any case."),
    OpenApiParameter("agent", str, description="Slug of the agent."),
)


class StudyFilter(django_filters.FilterSet):
    state = django_filters.ChoiceFilter(choices=[(s.value, s.value) for s in StudyState])
    preset = django_filters.ChoiceFilter(
        field_name="spec_json__workload__preset", choices=[(p, p) for p in PRESETS]
    )
    name = django_filters.CharFilter(lookup_expr="icontains", max_length=120)
    agent = django_filters.CharFilter(field_name="agent__slug", max_length=64)

    class Meta:
        model = Study
        fields: list[str] = []


class StudyList(APIView):
    @operation(
        "studies_list",
        tag="studies",
        summary="Studies of the organisation, newest first",
        response=StudyPage,
        parameters=(*FILTERS, *PAGING),
        errors=(400,),
    )
    def get(self, request: Request) -> Response:
        return HighestNumberFirst().respond(request, _filtered(request), study_summary)

    @operation(
        "studies_create",
        tag="studies",
        summary="Submit a study",
        description="The trials are planned at once and start as soon as the agent is free."
        " Location is the new study.",
        request=StudySpec,
        response=StudyAnswer,
        status=201,
        parameters=(IDEMPOTENCY,),
        errors=(400, 409, 413, 422),
    )
    def post(self, request: Request) -> Response:
        org = org_of(request)

        def check() -> Callable[[], Response]:
            spec = parse_body(request, StudySpec)
            found = intake.check(org=org, spec=spec)
            return lambda: create(spec, found)

        def create(spec: StudySpec, found: intake.Intake) -> Response:
            study = study_create(
                org=org,
                user=auth_of(request).membership.user,
                spec=spec,
                actor=actor_of(request),
                found=found,
            )
            answer = _whole(study)
            return respond(answer, status=201, headers={"Location": answer.urls.self})

        return once(request, check)


class StudyDetail(APIView):
    @operation(
        "studies_read",
        tag="studies",
        summary="One study with its verdict",
        response=StudyAnswer,
        errors=(404,),
    )
    def get(self, request: Request, study_id: UUID) -> Response:
        return respond(_whole(study_get(org=org_of(request), study_id=study_id)))


class StudyCancel(APIView):
    @operation(
        "studies_cancel",
        tag="studies",
        summary="Cancel what has not finished",
        description="Finished trials and their findings stay. Cancelling again changes nothing.",
        response=StudyAnswer,
        parameters=(IDEMPOTENCY,),
        errors=(404, 409, 422),
    )
    def post(self, request: Request, study_id: UUID) -> Response:
        study = study_get(org=org_of(request), study_id=study_id)

        def cancel() -> Response:
            if study.state == StudyState.FINISHED:
                raise Conflict("The study has finished: there is nothing left to cancel.")
            study_cancel(study=study, actor=actor_of(request))
            return respond(_whole(study))

        return once(request, lambda: cancel)


class StudyFindings(APIView):
    @operation(
        "studies_findings",
        tag="studies",
        summary="Findings, the most useful first",
        response=FindingPage,
        errors=(404,),
    )
    def get(self, request: Request, study_id: UUID) -> Response:
        return respond_list(findings_of(study_get(org=org_of(request), study_id=study_id)))


def _filtered(request: Request) -> QuerySet[Study]:
    filters = StudyFilter(request.query_params, queryset=studies_of(org_of(request)))
    if not filters.is_valid():
        raise invalid_fields({k: [str(e) for e in v] for k, v in filters.form.errors.items()})
    light = Trial.objects.only(
        "study_id",
        "ordinal",
        "title",
        "state",
        "phase",
        "progress_text",
        "estimate_s",
        "done_frac",
        "remaining_s",
    ).order_by("ordinal")
    return filters.qs.prefetch_related(Prefetch("trials", queryset=light))


def _whole(study: Study) -> StudyAnswer:
    return study_answer(study_view(study), list(study.trials.order_by("ordinal")))
