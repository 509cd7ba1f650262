"""Run as a script beside the stack under test: database, pages, owner, tokens; prints JSON."""

from __future__ import annotations

import json
import os
import sys

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "advisor.settings"
django.setup()

from advisor.accounts.services import token_issue  # noqa: E402
from advisor.fleet.services import registration_token_issue  # noqa: E402
from advisor.ops import bootstrap  # noqa: E402

bootstrap.prepare_database()
user, org = bootstrap.owner_account()
_, api_token = token_issue(org=org, user=user, name="test", scope="write", days=1)
_, registration_token = registration_token_issue(org=org, user=user, actor="test")
json.dump({"api_token": api_token, "registration_token": registration_token}, sys.stdout)
