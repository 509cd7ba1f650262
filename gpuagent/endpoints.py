"""Servers that the agent may be sent to, by name.

GPUAGENT_ENDPOINTS holds `name=https://host/v1#model` entries, separated by spaces; a study names
one of them and never an address, so nobody can point the agent elsewhere. The key is read from
GPUAGENT_ENDPOINT_KEY_<NAME> and goes into one header.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gpuagent.errors import ConfigError

VARIABLE = "GPUAGENT_ENDPOINTS"
KEY_VARIABLE = "GPUAGENT_ENDPOINT_KEY_"
_NAME = re.compile(r"^[a-z0-9][a-z0-9-]{0,39}$")


@dataclass(frozen=True, slots=True)
class NamedEndpoint:
    """One entry of the list. model: what the server calls the model, None asks it."""

    name: str
    url: str
    model: str | None
    key: str | None = field(default=None, repr=False)


def read_endpoints(environ: dict[str, str] | None = None) -> dict[str, NamedEndpoint]:
    """All entries by name. Raises ConfigError for one that is wrong."""
    env = dict(os.environ) if environ is None else environ
    found: dict[str, NamedEndpoint] = {}
    for entry in env.get(VARIABLE, "").split():
        name, _, address = entry.partition("=")
        url, _, model = address.partition("#")
        if not _NAME.match(name) or not url:
            raise ConfigError(
                f"{VARIABLE}: {entry!r} is no entry; give name=http://host:port#model with a name "
                "of small letters, digits and dashes"
            )
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.password:
            raise ConfigError(
                f"{VARIABLE}: {name} needs an address with http:// or https:// and no password"
            )
        key = env.get(KEY_VARIABLE + name.upper().replace("-", "_"))
        found[name] = NamedEndpoint(name, url.rstrip("/").removesuffix("/v1"), model or None, key)
    return found
