from __future__ import annotations

import pytest

from advisor import secrets


@pytest.mark.parametrize("kind", ["ta", "tar", "tag", "tas"])
def test_a_secret_is_found_by_its_prefix_and_proved_by_its_hash(kind: secrets.Kind) -> None:
    made = secrets.new_secret(kind)
    assert secrets.split(made.full, kind) == made.prefix
    assert len(made.prefix) <= 16
    assert secrets.matches(made.full, made.sha256)
    assert not secrets.matches(made.full[:-1] + "!", made.sha256)


def test_one_kind_does_not_pass_for_another() -> None:
    agent = secrets.new_secret("tag").full
    assert secrets.split(agent, "ta") is None
    assert secrets.split(secrets.new_secret("tar").full, "tag") is None


@pytest.mark.parametrize(
    "text", ["", "ta", "ta_", "ta_abc", "ta_abcdefgh_", "ta_abcdefgh_\n" + "x" * 42, "é" * 50]
)
def test_what_is_not_a_secret_has_no_prefix(text: str) -> None:
    assert secrets.split(text, "ta") is None


def test_secrets_do_not_repeat() -> None:
    made = {secrets.new_secret("ta").full for _ in range(500)}
    assert len(made) == 500
