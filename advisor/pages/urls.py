"""Addresses of the dashboard. Every route has an entry in the two-tenant test."""

from django.urls import path
from django.views.generic import RedirectView

from advisor.pages.views import (
    agents,
    model,
    organisation,
    rules,
    shares,
    studies,
    study_new,
    traces,
    trials,
)

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="studies"), name="home"),
    path("studies/", studies.study_list, name="studies"),
    path("studies/new/", study_new.study_new, name="study-new"),
    path("studies/sample/", studies.study_sample, name="study-sample"),
    path("studies/new/plan/", study_new.study_preview_view, name="study-preview"),
    path("studies/<uuid:study_id>/", studies.study_detail, name="study"),
    path("studies/<uuid:study_id>/live/", studies.study_live, name="study-live"),
    path("studies/<uuid:study_id>/what-if/", studies.study_what_if, name="study-what-if"),
    path("studies/<uuid:study_id>/cancel/", studies.study_cancel_view, name="study-cancel"),
    path(
        "studies/<uuid:study_id>/report.<slug:suffix>",
        studies.study_report_view,
        name="study-report",
    ),
    path("studies/<uuid:study_id>/shares/", shares.share_add, name="share-add"),
    path(
        "studies/<uuid:study_id>/shares/<uuid:share_id>/revoke/",
        shares.share_revoke_view,
        name="share-revoke",
    ),
    path("r/<str:token>/", shares.shared_report, name="shared-report"),
    path("trials/<uuid:trial_id>/", trials.trial_detail, name="trial"),
    path("model/", model.model_page, name="model"),
    path("traces/", traces.trace_list, name="traces"),
    path("traces/upload/", traces.trace_upload, name="trace-upload"),
    path("traces/<uuid:trace_id>/", traces.trace_detail, name="trace"),
    path("traces/<uuid:trace_id>/compare/", traces.trace_compare_view, name="trace-compare"),
    path("traces/<uuid:trace_id>/delete/", traces.trace_delete_view, name="trace-delete"),
    path("agents/", agents.agent_list, name="agents"),
    path("agents/add/", agents.agent_add, name="agent-add"),
    path("agents/<slug:slug>/drain/", agents.agent_drain_view, name="agent-drain"),
    path("agents/<slug:slug>/resume/", agents.agent_resume_view, name="agent-resume"),
    path("agents/<slug:slug>/remove/", agents.agent_remove_view, name="agent-remove"),
    path("rules/", rules.rule_list, name="rules"),
    path("rules/<slug:rule_id>/", rules.rule_detail, name="rule"),
    path("organisation/", organisation.organisation, name="organisation"),
    path("organisation/tokens/", organisation.token_add, name="token-add"),
    path(
        "organisation/tokens/<uuid:token_id>/revoke/",
        organisation.token_revoke,
        name="token-revoke",
    ),
    path("organisation/prices/", organisation.price_change, name="price-change"),
    path("organisation/members/", organisation.member_add, name="member-add"),
    path(
        "organisation/members/<int:membership_id>/role/",
        organisation.member_role,
        name="member-role",
    ),
    path(
        "organisation/members/<int:membership_id>/remove/",
        organisation.member_remove,
        name="member-remove",
    ),
    path(
        "organisation/members/<int:membership_id>/link/",
        organisation.member_link,
        name="member-link",
    ),
]
