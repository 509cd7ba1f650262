"""`manage.py demo`: from an empty folder to a verdict on this machine, through the REST API."""

from __future__ import annotations

import signal
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from advisor.accounts.models import TokenScope
from advisor.accounts.services import token_issue, token_revoke
from advisor.cli.api_client import ApiClient
from advisor.cli.errors import CliError
from advisor.cli.study import follow, show_study
from advisor.ops.demo_study import demo_spec
from advisor.ops.local import DEMO_MODEL, Installation, local_config, running
from advisor.ops.stack import StackError


class Command(BaseCommand):
    help = "Start everything, run one study on the demo model, print its verdict, stop."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=None, help="web port (default 8000)")

    def handle(self, *args: Any, **options: Any) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in the background
            signal.signal(number, signal.default_int_handler)
        console = Console()
        try:
            with running(local_config(options["port"]), console.print) as installation:
                self._study(installation, console)
        except KeyboardInterrupt:
            raise CommandError("Stopped. All data is kept.") from None
        except (StackError, CliError) as error:
            raise CommandError(str(error)) from error

    def _study(self, installation: Installation, console: Console) -> None:
        token, secret = token_issue(
            org=installation.org,
            user=installation.user,
            name="make demo",
            scope=TokenScope.WRITE,
            days=1,
        )
        try:
            client = ApiClient(installation.url, secret)
            study = client.post("studies", demo_spec(DEMO_MODEL, installation.agent))
            console.print(
                f"Study {study['number']} “{study['name']}”:"
                f" {study['progress']['trials_total']} trials, then verification."
            )
            study = follow(client, study["id"], console)
            show_study(client, study, console)
            folder = settings.DATA_DIR / "reports"
            folder.mkdir(exist_ok=True)
            for kind in ("html", "json"):
                content = client.get_bytes(f"studies/{study['id']}/report", format=kind)
                path = folder / f"study-{study['number']}.{kind}"
                path.write_bytes(content)
                console.print(f"Report: {path}", soft_wrap=True)
        finally:
            token_revoke(org=installation.org, token_id=token.pk, actor="make demo")
        console.print(
            f"Dashboard: {study['urls']['dashboard']} (`make run` keeps it up)", soft_wrap=True
        )
        # "Cannot tell" is an answer, on a busy machine often the right one; no measurement is none.
        if study["state"] != "finished" or not study["progress"]["trials_succeeded"]:
            raise CommandError("Nothing could be measured; the findings above say why.")
