"""Members, API tokens, prices, audit log, and how to use the API from a script."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _

from advisor.accounts import services
from advisor.accounts.models import Role, TokenScope
from advisor.accounts.selectors import (
    audit_events_of,
    members_of,
    orgs_of,
    prices_of,
    token_get,
    tokens_of,
)
from advisor.catalog import price_basis
from advisor.errors import AdvisorError, Forbidden
from advisor.fleet.selectors import agents_of
from advisor.pages.access import actor_of, managing, member, reading
from advisor.pages.forms.organisation import MemberForm, PriceForm, TokenForm

AUDIT_ROWS = 30


@reading
def organisation(request: HttpRequest) -> HttpResponse:
    return _page(request)


@member
def token_add(request: HttpRequest) -> HttpResponse:
    """Issue a token; this answer is the only place that ever shows its secret."""
    form = TokenForm(request.POST)
    if not form.is_valid():
        return _page(request, token_form=form, status=400)
    data = form.cleaned_data
    if data["scope"] == TokenScope.WRITE and not request.membership.can_write:
        form.add_error("scope", _("Your role is viewer: choose read."))
        return _page(request, token_form=form, status=400)
    try:
        token, secret = services.token_issue(
            org=request.org, user=request.user, name=data["name"], scope=data["scope"],
            days=data["days"],
        )  # fmt: skip
    except AdvisorError as error:
        _refuse(form, error)
        return _page(request, token_form=form, status=400)
    return _page(request, issued=token, secret=secret)


@member
def token_revoke(request: HttpRequest, token_id: UUID) -> HttpResponse:
    """One's own token, or any token for an owner."""
    token = token_get(org=request.org, token_id=token_id)
    if token.user_id != request.user.pk and not request.membership.can_manage:
        raise Forbidden(_("Only an owner revokes the tokens of others."))
    services.token_revoke(org=request.org, token_id=token_id, actor=actor_of(request))
    messages.info(request, _("Token {name} is revoked.").format(name=token.name))
    return redirect("organisation")


@managing
def member_add(request: HttpRequest) -> HttpResponse:
    form = MemberForm(request.POST)
    if not form.is_valid():
        return _page(request, member_form=form, status=400)
    data = form.cleaned_data
    try:
        membership, link = services.member_invite(
            org=request.org, email=data["email"], role=data["role"], actor=actor_of(request)
        )
    except AdvisorError as error:
        _refuse(form, error)
        return _page(request, member_form=form, status=400)
    return _page(request, invited=membership, invite_link=link)


@managing
def member_role(request: HttpRequest, membership_id: int) -> HttpResponse:
    try:
        services.member_role_set(
            org=request.org,
            membership_id=membership_id,
            role=request.POST.get("role", ""),
            actor=actor_of(request),
        )
    except AdvisorError as error:
        return _told(request, error)
    return redirect("organisation")


@managing
def member_remove(request: HttpRequest, membership_id: int) -> HttpResponse:
    try:
        services.member_remove(
            org=request.org, membership_id=membership_id, actor=actor_of(request)
        )
    except AdvisorError as error:
        return _told(request, error)
    return redirect("organisation")


@managing
def member_link(request: HttpRequest, membership_id: int) -> HttpResponse:
    """A fresh one-time link for an invited person who has set no password yet."""
    try:
        link = services.member_password_link(org=request.org, membership_id=membership_id)
    except AdvisorError as error:
        return _told(request, error)
    return _page(request, invite_link=link)


@managing
def price_change(request: HttpRequest) -> HttpResponse:
    """Set the organisation's own price of a GPU, or go back to the list price."""
    form = PriceForm(request.POST)
    if not form.is_valid():
        return _page(request, price_form=form, status=400)
    data, actor = form.cleaned_data, actor_of(request)
    usd = data["usd_per_gpu_hour"]
    try:
        if usd is None:
            services.price_remove(org=request.org, gpu=data["gpu"], actor=actor)
        else:
            services.price_set(
                org=request.org,
                gpu=data["gpu"],
                usd_per_gpu_hour=usd,
                reason=data["reason"],
                actor=actor,
            )
    except AdvisorError as error:
        _refuse(form, error)
        return _page(request, price_form=form, status=400)
    return redirect(f"{reverse('organisation')}#h-price")


def _told(request: HttpRequest, error: AdvisorError) -> HttpResponse:
    if error.status == 404:
        raise error
    messages.error(request, error.message)
    return redirect("organisation")


def _refuse(form: TokenForm | MemberForm | PriceForm, error: AdvisorError) -> None:
    for field, texts in (error.fields or {"": [error.message]}).items():
        for text in texts:
            form.add_error(field if field in form.fields else None, text)


def _page(
    request: HttpRequest,
    *,
    token_form: TokenForm | None = None,
    member_form: MemberForm | None = None,
    price_form: PriceForm | None = None,
    status: int = 200,
    **shown: object,
) -> HttpResponse:
    org = request.org
    context = {
        "members": members_of(org),
        "tokens": tokens_of(org),
        "roles": Role.choices,
        "agents": agents_of(org).count(),
        "audit": audit_events_of(org)[:AUDIT_ROWS],
        "token_form": token_form or TokenForm(),
        "member_form": member_form or MemberForm(),
        "price_form": price_form or PriceForm(),
        "prices": [(price, price_basis(price.gpu)) for price in prices_of(org)],
        "orgs": orgs_of(request.user),
        **shown,
    }
    response = render(request, "pages/organisation.html", context, status=status)
    response["Cache-Control"] = "no-store"
    return response
