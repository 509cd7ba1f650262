"""`/api/v1/studies/{id}/shares`: links that show a report without an account."""

from __future__ import annotations

from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from advisor.accounts.auth import actor_of, auth_of, org_of
from advisor.api.idempotency import once
from advisor.api.pagination import NewestFirst
from advisor.api.schema import IDEMPOTENCY, PAGING, operation
from advisor.api.serializers.base import respond
from advisor.api.serializers.shares import IssuedShare, SharePage, ShareRequest, share_answer
from advisor.api.wire_parser import parse_body
from advisor.studies.selectors import study_get
from advisor.studies.sharing import share_create, share_revoke


class StudyShares(APIView):
    @operation(
        "studies_shares_list",
        tag="studies",
        summary="Links to the report, newest first, ended ones too",
        response=SharePage,
        parameters=PAGING,
        errors=(400, 404),
    )
    def get(self, request: Request, study_id: UUID) -> Response:
        study = study_get(org=org_of(request), study_id=study_id)
        shares = study.shares.select_related("created_by")
        return NewestFirst().respond(request, shares, share_answer)

    @operation(
        "studies_shares_create",
        tag="studies",
        summary="Make a link that shows the report without an account",
        description="The address is in this answer and nowhere else.",
        request=ShareRequest,
        response=IssuedShare,
        status=201,
        parameters=(IDEMPOTENCY,),
        errors=(400, 404, 409, 422),
    )
    def post(self, request: Request, study_id: UUID) -> Response:
        study = study_get(org=org_of(request), study_id=study_id)
        wanted = parse_body(request, ShareRequest)

        def issue() -> Response:
            share, url = share_create(
                study=study,
                user=auth_of(request).membership.user,
                days=wanted.days,
                actor=actor_of(request),
            )
            return respond(
                IssuedShare(share=share_answer(share), url=url),
                status=201,
                headers={"Cache-Control": "no-store"},
            )

        return once(request, lambda: issue, never_stored=("url",))


class StudyShareDetail(APIView):
    @operation(
        "studies_shares_revoke",
        tag="studies",
        summary="Revoke a link, effective at once",
        response=None,
        status=204,
        errors=(404,),
    )
    def delete(self, request: Request, study_id: UUID, share_id: UUID) -> Response:
        study = study_get(org=org_of(request), study_id=study_id)
        share_revoke(study=study, share_id=share_id, actor=actor_of(request))
        return Response(status=204)
