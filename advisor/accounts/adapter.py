"""How allauth behaves here: sign-up is closed unless the installation opens it.

allauth also limits the rate of sign-in (30 a minute per address, 5 failures in 5 minutes per
account), of password resets and of sign-ups, in the Django cache. Nothing else is needed for that,
but the cache must be shared between processes (`advisor.E002`).
"""

from __future__ import annotations

from allauth.account.adapter import DefaultAccountAdapter
from django.conf import settings
from django.db import transaction
from django.forms import BaseForm
from django.http import HttpRequest

from advisor.accounts.models import User
from advisor.accounts.services import org_create


class AccountAdapter(DefaultAccountAdapter):
    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return bool(settings.ADVISOR_OPEN_SIGNUP)

    @transaction.atomic
    def save_user(
        self, request: HttpRequest, user: User, form: BaseForm, commit: bool = True
    ) -> User:
        """A person who signs up gets an organisation of their own and joins nobody else's."""
        user = super().save_user(request, user, form, commit=commit)
        if commit:
            local_part = user.email.partition("@")[0]
            org_create(name=f"{local_part[:100]}'s organisation", owner=user)
        return user
