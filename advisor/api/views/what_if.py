"""`/api/v1/studies/{id}/what-if`: other targets or another price, from stored evidence."""

from __future__ import annotations

from uuid import UUID

from pydantic import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import org_of
from advisor.api.errors import invalid_fields
from advisor.api.schema import operation
from advisor.api.serializers.base import respond
from advisor.api.serializers.what_if import WhatIfAnswer, what_if_answer
from advisor.api.wire_parser import parse_body
from advisor.studies.evidence import build_evidence
from advisor.studies.selectors import study_get
from advisor.what_if import WhatIfQuery, what_if
from advisor.wire_errors import fields_from_validation_error


class StudyWhatIf(APIView):
    changes_nothing = True

    @operation(
        "studies_what_if",
        tag="studies",
        summary="Verdict and ranking under other targets",
        description="Recomputed from the evidence the study has; no trial is run, nothing is"
        " stored.",
        request=WhatIfQuery,
        response=WhatIfAnswer,
        errors=(400, 404, 413),
    )
    def post(self, request: Request, study_id: UUID) -> Response:
        study = study_get(org=org_of(request), study_id=study_id)
        query = parse_body(request, WhatIfQuery)
        try:
            found = what_if(build_evidence(study), query)
        except ValidationError as error:
            raise invalid_fields(fields_from_validation_error(error)) from None
        return respond(what_if_answer(found))
