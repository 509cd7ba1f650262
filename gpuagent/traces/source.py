"""Bytes of a trace file as bounded text chunks: plain or gzip, never more than the limits allow."""

from __future__ import annotations

import codecs
import zlib
from collections.abc import Iterator
from pathlib import Path

from gpuagent.traces.errors import TraceError, malformed, over_limit, truncated
from gpuagent.traces.limits import MIB, Limits

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
READ_BYTES = 256 * 1024
CHUNK_BYTES = MIB // 2


def head(path: Path, size: int = 4096) -> bytes:
    """First bytes of the file, or a TraceError that says why it cannot be opened."""
    try:
        with path.open("rb") as handle:
            return handle.read(size)
    except FileNotFoundError:
        raise TraceError("not_found", f"There is no file {path.name}.") from None
    except IsADirectoryError:
        raise TraceError("not_a_file", f"{path.name} is a folder; name one trace file.") from None
    except OSError as error:
        raise TraceError("unreadable", f"{path.name} cannot be opened: {error.strerror}.") from None


def check_size(path: Path, limits: Limits) -> int:
    """Size of the file in bytes, refused past the limit."""
    size = path.stat().st_size
    if size > limits.file_bytes:
        raise over_limit(f"{size / 1e9:.1f} GB", f"{limits.file_bytes / 1e9:.1f} GB")
    return size


def text_chunks(path: Path, limits: Limits) -> Iterator[str]:
    """Decoded text of the file in pieces of about half a mebibyte; invalid UTF-8 is replaced."""
    raw = _gunzip(path, limits) if head(path, 2) == GZIP_MAGIC else _plain(path, limits)
    decoder = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    for chunk in raw:
        limits.check_time()
        text = decoder.decode(chunk)
        if text:
            yield text
    tail = decoder.decode(b"", final=True)
    if tail:
        yield tail


def _plain(path: Path, limits: Limits) -> Iterator[bytes]:
    check_size(path, limits)
    with path.open("rb") as handle:
        while chunk := handle.read(CHUNK_BYTES):
            yield chunk


def _gunzip(path: Path, limits: Limits) -> Iterator[bytes]:
    """Members of a gzip file one after the other, each output step bounded."""
    check_size(path, limits)
    read = produced = 0
    with path.open("rb") as handle:
        engine = zlib.decompressobj(wbits=31)
        pending = b""
        while True:
            data = pending or handle.read(READ_BYTES)
            if not pending:
                read += len(data)
            if not data:
                break
            try:
                chunk = engine.decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                raise malformed(f"the gzip data is damaged ({error})") from None
            pending = engine.unconsumed_tail
            produced += len(chunk)
            _check_ratio(read, produced, limits)
            if chunk:
                yield chunk
            if engine.eof:
                pending = engine.unused_data or handle.read(READ_BYTES)
                if not pending.startswith(GZIP_MAGIC):  # nothing, or padding after the last member
                    return
                engine = zlib.decompressobj(wbits=31)
        # Output may still sit inside the engine when the input ends on a chunk boundary.
        chunk = engine.flush()
        if chunk:
            yield chunk
        if not engine.eof:
            raise truncated("the gzip stream is incomplete")


def _check_ratio(read: int, produced: int, limits: Limits) -> None:
    if produced > limits.decoded_bytes:
        raise over_limit(
            f"more than {limits.decoded_bytes / 1e9:.1f} GB of content",
            f"{limits.decoded_bytes / 1e9:.1f} GB",
        )
    if produced > limits.ratio_free_bytes and produced > limits.ratio * read:
        raise TraceError(
            "bomb",
            f"The gzip file grows more than {limits.ratio} times when opened; profiles grow 14 to "
            "20 times. It was refused.",
        )
