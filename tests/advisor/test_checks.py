"""The system checks of the settings, one by one and as a production installation sees them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from advisor import checks

ROOT = Path(__file__).resolve().parents[2]

PRODUCTION = {
    "IS_HTTPS": True,
    "PUBLIC_URL": "https://advisor.example.org",
    "SECRET_KEY_FROM_ENV": True,
    "CACHES": {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache"}},
    "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
    "DATABASES": {"default": {"ENGINE": "django.db.backends.postgresql"}},
    "ALLOWED_HOSTS": ["advisor.example.org"],
    "AGENT_BROKER_URL": None,
    "ADVISOR_OPEN_SIGNUP": False,
}


Ids = Callable[..., list[str]]


@pytest.fixture
def ids(monkeypatch: pytest.MonkeyPatch) -> Ids:
    """`ids(**changes)`: what the checks say about production settings with these changes."""

    def run(**changes: Any) -> list[str]:
        monkeypatch.setattr(checks, "settings", SimpleNamespace(**{**PRODUCTION, **changes}))
        messages = checks.check_public_server(None)
        assert all(message.hint for message in messages)
        return [str(message.id) for message in messages]

    return run


def test_a_complete_public_server_has_nothing_to_fix(ids: Ids) -> None:
    assert ids() == []


@pytest.mark.parametrize(
    ("changes", "id_"),
    [
        ({"SECRET_KEY_FROM_ENV": False}, "advisor.E001"),
        (
            {"CACHES": {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}},
            "advisor.E002",
        ),
        ({"EMAIL_BACKEND": "django.core.mail.backends.console.EmailBackend"}, "advisor.E003"),
        ({"DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3"}}}, "advisor.W004"),
        ({"ADVISOR_OPEN_SIGNUP": True, "ACCOUNT_EMAIL_VERIFICATION": "none"}, "advisor.W005"),
        ({"ALLOWED_HOSTS": ["*"]}, "advisor.W006"),
        ({"AGENT_BROKER_URL": "redis://broker.example.org:6379/0"}, "advisor.W007"),
        ({"IS_HTTPS": False, "PUBLIC_URL": "http://10.0.0.5:8000"}, "advisor.W008"),
    ],
)
def test_each_gap_has_its_check(ids: Ids, changes: dict[str, Any], id_: str) -> None:
    assert ids(**changes) == [id_]


@pytest.mark.parametrize(
    "changes",
    [
        {"ADVISOR_OPEN_SIGNUP": True, "ACCOUNT_EMAIL_VERIFICATION": "mandatory"},
        {"AGENT_BROKER_URL": "rediss://broker.example.org:6379/0"},
        {"AGENT_BROKER_URL": "redis://127.0.0.1:6379/0"},
        {"IS_HTTPS": False, "PUBLIC_URL": "http://127.0.0.1:8000", "SECRET_KEY_FROM_ENV": False},
    ],
)
def test_what_is_safe_is_not_complained_about(ids: Ids, changes: dict[str, Any]) -> None:
    assert ids(**changes) == []


def _check_deploy(tmp_path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
            "ADVISOR_DATA_DIR": str(tmp_path),
            **env,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_production_settings_pass_the_deploy_check_without_a_warning(tmp_path: Path) -> None:
    done = _check_deploy(
        tmp_path,
        ADVISOR_PUBLIC_URL="https://advisor.example.org",
        ADVISOR_SECRET_KEY="k9!" + "aB3$xY7-qW5z" * 6,
        DATABASE_URL="postgres://advisor:pw@db.example.org/advisor",
        CACHE_URL="redis://cache.example.org:6379/1",
        EMAIL_URL="smtp+tls://user:pw@mail.example.org:587",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no issues" in done.stdout
    assert "WARNING" not in done.stderr.upper()


def test_a_laptops_settings_on_https_name_every_gap(tmp_path: Path) -> None:
    done = _check_deploy(tmp_path, ADVISOR_PUBLIC_URL="https://advisor.example.org")
    assert done.returncode == 1
    for id_ in ("advisor.E001", "advisor.E002", "advisor.E003", "advisor.W004"):
        assert id_ in done.stderr
