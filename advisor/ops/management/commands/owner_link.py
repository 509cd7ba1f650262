"""`manage.py owner_link [EMAIL]`: a new one-time link to set a password, for who lost it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from advisor.accounts.models import User
from advisor.accounts.services import password_link
from advisor.ops.bootstrap import owner_account


class Command(BaseCommand):
    help = "Create the owner account if there is none and print a one-time set-password link."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("email", nargs="?", default=None)

    def handle(self, *args: Any, **options: Any) -> None:
        email = options["email"]
        if email is None:
            user, _org = owner_account()
        else:
            found = User.objects.filter(email=email.lower()).first()
            if found is None:
                user, _org = owner_account(email)
                if user.email != email.lower():
                    raise CommandError(f"There is no account {email}.")
            else:
                user = found
        self.stdout.write(password_link(user))
