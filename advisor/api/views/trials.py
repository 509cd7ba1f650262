"""Trials of a study, and one trial with its full result."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import actor_of, org_of
from advisor.api.idempotency import once
from advisor.api.pagination import InOrder
from advisor.api.schema import IDEMPOTENCY, PAGING, operation
from advisor.api.serializers.base import respond
from advisor.api.serializers.trials import TrialAnswer, TrialPage, trial_answer
from advisor.studies.selectors import study_get, trial_get, trials_of
from advisor.studies.services import trial_cancel

FULL = OpenApiParameter("full", bool, description="1 to have every raw sample in `result`.")


class StudyTrials(APIView):
    @operation(
        "studies_trials",
        tag="trials",
        summary="Trials of a study in the order of the plan",
        response=TrialPage,
        parameters=(FULL, *PAGING),
        errors=(400, 404),
    )
    def get(self, request: Request, study_id: UUID) -> Response:
        study = study_get(org=org_of(request), study_id=study_id)
        full = request.query_params.get("full") in ("1", "true")
        return InOrder().respond(request, trials_of(study), partial(trial_answer, full=full))


class TrialDetail(APIView):
    @operation(
        "trials_read",
        tag="trials",
        summary="One trial with its full result",
        response=TrialAnswer,
        errors=(404,),
    )
    def get(self, request: Request, trial_id: UUID) -> Response:
        trial = trial_get(org=org_of(request), trial_id=trial_id)
        return respond(trial_answer(trial, full=True))


class TrialCancel(APIView):
    @operation(
        "trials_cancel",
        tag="trials",
        summary="Cancel one trial; its study goes on without it",
        description="A waiting trial ends at once, a running one when its agent hears of it: until"
        " then `cancel_requested` is true. Cancelling again changes nothing.",
        response=TrialAnswer,
        parameters=(IDEMPOTENCY,),
        errors=(404, 409, 422),
    )
    def post(self, request: Request, trial_id: UUID) -> Response:
        trial = trial_get(org=org_of(request), trial_id=trial_id)

        def cancel() -> Response:
            trial_cancel(trial=trial, actor=actor_of(request))
            return respond(trial_answer(trial, full=False))

        return once(request, lambda: cancel)
