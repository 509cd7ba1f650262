"""Brings a local installation up: what `make run` and `make demo` share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.conf import settings

from advisor.accounts.models import Org, User
from advisor.accounts.services import password_link
from advisor.ops import bootstrap
from advisor.ops.stack import REPO_DIR, Stack, StackConfig, StackError, free_port

DEMO_MODEL = "SmolLM2-135M-Instruct"
WEB_PORT = 8000


@dataclass(frozen=True, slots=True)
class Installation:
    """A running local installation."""

    stack: Stack
    user: User
    org: Org
    agent: str
    password_link: str | None

    @property
    def url(self) -> str:
        return self.stack.config.url


def local_config(port: int | None = None) -> StackConfig:
    """Ports are chosen once per start: the usual one where it is free, else any."""
    return StackConfig(
        data_dir=settings.DATA_DIR,
        web_port=free_port(port or WEB_PORT),
        broker_port=free_port(),
    )


@contextmanager
def running(config: StackConfig, say: Callable[[str], None]) -> Iterator[Installation]:
    """Everything started and ready; stopped again on the way out, whatever happened."""
    settings.PUBLIC_URL = config.url
    say("Preparing the database and the pages")
    bootstrap.prepare_database()
    bootstrap.collect_static()
    user, org = bootstrap.owner_account()
    prepare_demo_model(config, say)
    stack = Stack(config)
    try:
        say("Starting broker, web server and worker")
        stack.start("broker")
        stack.wait_for_broker()
        stack.start("web")
        stack.start("worker")
        stack.wait_for_web()
        say("Starting the agent on this machine")
        agent = bootstrap.local_agent(config, org=org, user=user)
        stack.start("agent")
        link = None if user.has_usable_password() else password_link(user)
        yield Installation(stack, user, org, agent, link)
    finally:
        stack.stop()


def prepare_demo_model(config: StackConfig, say: Callable[[str], None]) -> None:
    """Convert the demo model once; a machine without its package works with other models."""
    target = config.model_dir / DEMO_MODEL
    if (target / "config.json").exists():
        return
    say(f"Converting the demo model {DEMO_MODEL} (once)")
    config.model_dir.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "gpuagent.demo_model", "--to", str(config.model_dir)],
        cwd=REPO_DIR,
        env=config.env(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        raise StackError(f"The demo model was not converted: {done.stderr.strip()[-500:]}")
