"""First start: database, static files, owner account, the local agent. Idempotent."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command

from advisor.accounts.models import Membership, Org, Role, User
from advisor.accounts.services import org_create
from advisor.fleet.models import Agent, AgentState
from advisor.fleet.services import registration_token_issue
from advisor.ops.stack import REPO_DIR, StackConfig, StackError
from gpuagent.config import load_config, read_identity
from gpuagent.errors import ConfigError

OWNER_EMAIL = "owner@localhost"
LOCAL_AGENT = "local"


def prepare_database() -> None:
    call_command("migrate", interactive=False, verbosity=0)


def collect_static() -> bool:
    """Collect and compress static files when they changed; compressing plotly takes seconds."""
    stamp = Path(settings.STATIC_ROOT) / ".stamp"
    wanted = _static_fingerprint()
    if stamp.exists() and stamp.read_text() == wanted:
        return False
    call_command("collectstatic", interactive=False, verbosity=0)
    stamp.write_text(wanted)
    return True


def _static_fingerprint() -> str:
    digest = hashlib.sha256(settings.VERSION.encode())
    for finder in get_finders():
        for name, storage in finder.list([]):
            digest.update(f"{name} {storage.size(name)}".encode())
            digest.update(str(storage.get_modified_time(name)).encode())
    return digest.hexdigest()


def owner_account(email: str = OWNER_EMAIL) -> tuple[User, Org]:
    """The first account and its organisation. It has no password until its link is used."""
    member = Membership.objects.filter(role=Role.OWNER).select_related("user", "org").first()
    if member is not None:
        return member.user, member.org
    user = User.objects.create_user(email, None)
    return user, org_create(name="My organisation", owner=user)


def local_agent(config: StackConfig, *, org: Org, user: User) -> str:
    """Register this machine's agent unless it is; returns its slug. Raises StackError."""
    environ = config.env()
    agent_config = load_config(environ)
    try:
        identity = read_identity(agent_config)
        known = Agent.objects.filter(slug=identity.slug, org=org).exclude(state=AgentState.REVOKED)
        if known.exists() and identity.server_url == config.url:
            return identity.slug
        agent_config.identity_path.unlink()
    except ConfigError:
        agent_config.identity_path.unlink(missing_ok=True)
    _token, secret = registration_token_issue(org=org, user=user, actor="local set-up")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "gpuagent", "register", "--no-calibrate"),
            *("--server", config.url, "--token", secret, "--name", LOCAL_AGENT),
        ],
        cwd=REPO_DIR,
        env=environ,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    if done.returncode != 0:
        raise StackError(f"The local agent was not registered: {done.stderr.strip()[-500:]}")
    return read_identity(agent_config).slug
