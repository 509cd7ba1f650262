"""Bytes of a file: plain, gzip in members, cut, padded, and bombs."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import pytest

from gpuagent.traces.errors import TraceError
from gpuagent.traces.limits import MIB, Limits
from gpuagent.traces.source import text_chunks


def read(path: Path, limits: Limits | None = None) -> str:
    return "".join(text_chunks(path, limits or Limits()))


def test_gzip_members_and_padding_read_as_one_text(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one ") + gzip.compress("zwei ä".encode()) + b"\x00" * 512)
    assert read(path) == "one zwei ä"


def test_a_large_file_comes_in_bounded_chunks(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    text = "".join(f"{i}," for i in range(600_000))
    path.write_bytes(gzip.compress(text.encode()))
    chunks = list(text_chunks(path, Limits()))
    assert "".join(chunks) == text
    assert max(map(len, chunks)) <= MIB


def test_a_byte_order_mark_is_dropped_and_bad_bytes_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xef\xbb\xbfab\xff")
    assert read(path) == "ab\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("keep", [0.2, 0.7, 0.999])
def test_a_cut_gzip_file_is_called_truncated(tmp_path: Path, keep: float) -> None:
    whole = gzip.compress(bytes(range(256)) * 4000)
    path = tmp_path / "a.gz"
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(TraceError) as caught:
        read(path)
    assert caught.value.code == "truncated"


def test_damaged_gzip_is_refused(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(b"x" * 100_000 + bytes(range(256)) * 50))
    whole[40:60] = b"\xff" * 20
    path = tmp_path / "a.gz"
    path.write_bytes(whole)
    with pytest.raises(TraceError):
        read(path)


def bomb(path: Path, mebibytes: int) -> Path:
    """Spaces, compressed about a thousand times."""
    engine = zlib.compressobj(9, wbits=31)
    with path.open("wb") as out:
        for _ in range(mebibytes):
            out.write(engine.compress(b" " * MIB))
        out.write(engine.flush())
    return path


def test_a_gzip_bomb_is_refused_early(tmp_path: Path) -> None:
    path = bomb(tmp_path / "bomb.json.gz", 300)
    seen: list[int] = []
    with pytest.raises(TraceError) as caught:
        seen.extend(len(chunk) for chunk in text_chunks(path, Limits()))
    assert caught.value.code == "bomb"
    assert sum(seen) < 70 * MIB


def test_content_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.gz", 20)
    with pytest.raises(TraceError) as caught:
        read(path, Limits(decoded_bytes=8 * MIB))
    assert caught.value.code == "too_large"


def test_reading_stops_when_time_is_up(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("x" * 10)
    with pytest.raises(TraceError) as caught:
        read(path, Limits(seconds=-1))
    assert caught.value.code == "too_slow"
