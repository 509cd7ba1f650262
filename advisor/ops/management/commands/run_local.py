"""`manage.py run_local`: a whole installation on this machine, until Ctrl-C. Keeps all data."""

from __future__ import annotations

import signal
import time
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from advisor.ops.local import Installation, local_config, running
from advisor.ops.stack import StackError


class Command(BaseCommand):
    help = "Run broker, web server, worker and agent on this machine."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, default=None, help="web port (default 8000)")

    def handle(self, *args: Any, **options: Any) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT is ignored in the background
            signal.signal(number, signal.default_int_handler)
        try:
            with running(local_config(options["port"]), self.stdout.write) as installation:
                self._welcome(installation)
                while True:
                    time.sleep(1)
                    for name in installation.stack.tend():
                        self.stdout.write(f"The {name} process had ended and was started again.")
        except KeyboardInterrupt:
            self.stdout.write("Stopped. All data is kept; `make run` starts again.")
        except StackError as error:
            raise CommandError(str(error)) from error

    def _welcome(self, installation: Installation) -> None:
        self.stdout.write(f"\nDashboard: {installation.url}")
        if installation.password_link:
            self.stdout.write(
                f"Sign in as {installation.user.email}. Set the password once, with this link:\n"
                f"  {installation.password_link}"
            )
        self.stdout.write(f"Agent: {installation.agent}")
        self.stdout.write(f"Logs: {installation.stack.config.log_dir}")
        self.stdout.write("Ctrl-C stops every process.\n")
