"""A person's own account: name, e-mail, password, tokens, organisations."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from advisor.accounts.middleware import SESSION_KEY
from advisor.accounts.selectors import membership_of, memberships_of, own_tokens
from advisor.accounts.services import user_rename
from advisor.errors import InvalidInput
from advisor.pages.forms.organisation import NameForm


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def account_page(request: HttpRequest) -> HttpResponse:
    """Also without an organisation. POST changes the name or the organisation that is shown."""
    if "org" in request.POST:
        found = membership_of(user=request.user, org_id=request.POST["org"])
        if found is not None:
            request.session[SESSION_KEY] = str(found.org_id)
        return redirect("account")
    form = NameForm(
        request.POST if request.method == "POST" else None, initial={"name": request.user.name}
    )
    status = 200
    if request.method == "POST":
        status = 400
        if form.is_valid():
            try:
                user_rename(user=request.user, name=form.cleaned_data["name"])
                messages.info(request, _("Your name is changed."))
                return redirect("account")
            except InvalidInput as error:
                for text in error.fields.get("name", [error.message]):
                    form.add_error("name", text)
    context = {
        "form": form,
        "memberships": memberships_of(request.user),
        "tokens": own_tokens(request.user),
    }
    return render(request, "pages/account.html", context, status=status)
