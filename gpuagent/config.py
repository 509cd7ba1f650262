"""Where the agent keeps its things and whom it talks to. Environment first, then the state folder.

`register` writes `agent.json` (server, slug, credential; readable by its owner only); everything
else has a default. `.env.example` lists the variables.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from platformdirs import user_cache_path, user_state_path

from gpuagent.errors import ConfigError

IDENTITY_FILE = "agent.json"


@dataclass(frozen=True, slots=True)
class Identity:
    """What registration gave the agent. The credential is a secret: never logged."""

    server_url: str
    slug: str
    credential: str
    broker_url: str | None = None

    def __repr__(self) -> str:
        return f"Identity(server_url={self.server_url!r}, slug={self.slug!r})"


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """Settings of one daemon.

    model_roots: folders below which model folders are offered by name.
    broker_url: overrides the one that registration gave; empty means polling alone.
    """

    state_dir: Path
    model_roots: tuple[Path, ...]
    broker_url: str | None
    min_free_bytes: int = 2 * 1024**3

    @property
    def work_dir(self) -> Path:
        return self.state_dir / "work"

    @property
    def spool_dir(self) -> Path:
        return self.state_dir / "spool"

    @property
    def identity_path(self) -> Path:
        return self.state_dir / IDENTITY_FILE


def load_config(environ: dict[str, str] | None = None) -> AgentConfig:
    """Read GPUAGENT_STATE_DIR, GPUAGENT_MODEL_DIRS, GPUAGENT_BROKER_URL, GPUAGENT_MIN_FREE_GIB."""
    env = dict(os.environ) if environ is None else environ
    state_dir = Path(env.get("GPUAGENT_STATE_DIR") or user_state_path("gpuagent")).expanduser()
    roots = env.get("GPUAGENT_MODEL_DIRS") or str(user_cache_path("gpuagent") / "models")
    try:
        min_free_gib = float(env.get("GPUAGENT_MIN_FREE_GIB", "2"))
    except ValueError as error:
        raise ConfigError("GPUAGENT_MIN_FREE_GIB is not a number: give GiB, such as 2") from error
    return AgentConfig(
        state_dir=state_dir.resolve(),
        model_roots=tuple(
            Path(part).expanduser().resolve() for part in roots.split(os.pathsep) if part
        ),
        broker_url=env.get("GPUAGENT_BROKER_URL") or None,
        min_free_bytes=int(min_free_gib * 1024**3),
    )


def server_url(text: str) -> str:
    """`text` without a trailing slash. Raises ConfigError where it is no http(s) address."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{text!r} is no server address: give http(s)://host[:port]")
    return text.rstrip("/")


def read_identity(config: AgentConfig) -> Identity:
    """Raises ConfigError with the command to run where the agent is not registered."""
    try:
        data = json.loads(config.identity_path.read_text())
        return Identity(**data)
    except FileNotFoundError:
        raise ConfigError(
            "This agent is not registered yet. Make a registration token in the dashboard under"
            " Agents, then run: python -m gpuagent register --server URL --token TOKEN"
        ) from None
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{config.identity_path} is damaged. Remove it and register the agent again."
        ) from error


def write_identity(config: AgentConfig, identity: Identity) -> None:
    """Store the identity, readable by its owner only, in one step."""
    config.state_dir.mkdir(parents=True, exist_ok=True)
    text = json.dumps(
        {
            "server_url": identity.server_url,
            "slug": identity.slug,
            "credential": identity.credential,
            "broker_url": identity.broker_url,
        }
    )
    handle, name = tempfile.mkstemp(dir=config.state_dir, prefix=".agent-")
    with os.fdopen(handle, "w") as out:  # mkstemp opens with mode 0600
        out.write(text)
    Path(name).replace(config.identity_path)
