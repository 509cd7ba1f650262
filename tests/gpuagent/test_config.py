"""Settings of the agent: environment, identity file, sentences for what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuagent.config import Identity, load_config, read_identity, server_url, write_identity
from gpuagent.errors import ConfigError


def test_folders_come_from_the_environment(tmp_path: Path) -> None:
    config = load_config(
        {"GPUAGENT_STATE_DIR": str(tmp_path), "GPUAGENT_MODEL_DIRS": f"{tmp_path}/a:{tmp_path}/b"}
    )
    assert config.state_dir == tmp_path
    assert config.model_roots == (tmp_path / "a", tmp_path / "b")
    assert config.broker_url is None


def test_a_limit_that_is_no_number_names_its_variable() -> None:
    with pytest.raises(ConfigError, match="GPUAGENT_MIN_FREE_GIB"):
        load_config({"GPUAGENT_MIN_FREE_GIB": "much"})


def test_an_identity_is_stored_for_its_owner_only_and_read_back(tmp_path: Path) -> None:
    config = load_config({"GPUAGENT_STATE_DIR": str(tmp_path / "state")})
    identity = Identity("https://advisor.example.com", "h100-a", "tag_secret", "redis://b")
    write_identity(config, identity)
    assert read_identity(config) == identity
    assert config.identity_path.stat().st_mode & 0o077 == 0
    assert "tag_secret" not in repr(identity)


def test_an_unregistered_agent_is_told_the_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gpuagent register"):
        read_identity(load_config({"GPUAGENT_STATE_DIR": str(tmp_path)}))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"slug": "a"}'])
def test_a_damaged_identity_says_what_to_do(tmp_path: Path, text: str) -> None:
    config = load_config({"GPUAGENT_STATE_DIR": str(tmp_path)})
    config.identity_path.write_text(text)
    with pytest.raises(ConfigError, match="register the agent again"):
        read_identity(config)


@pytest.mark.parametrize("text", ["advisor.example.com", "ftp://host", "http://", "javascript:1"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no server address"):
        server_url(text)
