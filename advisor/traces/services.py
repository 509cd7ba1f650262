"""Taking a trace in and letting it go.

The file is hostile until proven otherwise: a child process with limits scrubs it, a second one
reads the scrubbed copy, and only JSON comes back. The file as it was sent is never kept.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from advisor import units
from advisor.accounts.models import Org, User
from advisor.accounts.services import audit
from advisor.errors import AdvisorError, Conflict, InvalidInput, StorageFull, TooLarge
from advisor.studies.models import Trial
from advisor.traces.models import Trace
from gpuagent.traces.errors import TraceError
from gpuagent.traces.read import refuse_name
from gpuagent.traces.sandbox import analyse_upload, scrub_upload
from gpuagent.traces.scrub import scrub_text

log = logging.getLogger(__name__)

FIELD = "file"
_NAME = re.compile(r"[^\w .()+,=@-]")
_turns = threading.BoundedSemaphore(2)
"""Readings at once in one web process; each is a child that may use a core and 200 MiB."""
_TURN_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class ReadTrace:
    """A file that was read: its report, and where its scrubbed copy lies for now."""

    name: str
    size_bytes: int
    report: dict[str, Any]
    scrubbed: Path
    seconds: float


@contextmanager
def trace_read(*, org: Org, path: Path, name: str) -> Iterator[ReadTrace]:
    """Read the file at `path`; store the result inside the context, it is gone afterwards.

    Takes seconds and writes no row, so call it outside a transaction. Raises InvalidInput for a
    file that cannot be read, TooLarge and Conflict for the limits; all say what to do.
    """
    size = path.stat().st_size
    _check_limits(org, size)
    shown = clean_name(name)
    with _folder() as folder:
        with _turn():
            began = time.perf_counter()
            report = _read(path, name, folder / "scrubbed")
            seconds = time.perf_counter() - began
        report["source"] |= {"file": shown, "bytes": size}
        yield ReadTrace(shown, size, report, folder / "scrubbed", seconds)


def trace_store(
    *, org: Org, user: User | None, actor: str, read: ReadTrace, trial: Trial | None = None
) -> Trace:
    """Keep a read trace. A trial that sends the same file again gets the row it has."""
    digest, stored = _digest(read.scrubbed)
    if trial is not None:
        found = Trace.objects.filter(trial=trial, sha256=digest).first()
        if found is not None:
            return found
    verdict = read.report["verdict"]
    trace = Trace(
        org=org,
        created_by=user,
        trial=trial,
        name=read.name,
        format=read.report["source"]["format"],
        upload_bytes=read.size_bytes,
        stored_bytes=stored,
        sha256=digest,
        bottleneck=verdict["class"],
        sentence=verdict["sentence"],
        gpu=_gpu_names(read.report),
        report_json=read.report,
        analysis_s=read.seconds,
    )
    return _keep(trace, read.scrubbed, actor)


def trace_from_artifact(*, trial: Trial, name: str, path: Path) -> Trace | None:
    """The trace that an agent recorded, from its stored file; None for any other file.

    Scrubbed and read again here: the server trusts no file, not even its agents'. A file that
    cannot be read is logged and stays an artefact.
    """
    if trial.spec.experiment != "profile" or not name.startswith("trace-"):
        return None
    org = trial.study.org
    shown = f"study-{trial.study.number}-trial-{trial.ordinal}-{name.removeprefix('trace-')}"
    actor = f"agent {trial.agent.slug}" if trial.agent else "agent"
    try:
        with trace_read(org=org, path=path, name=shown) as read:
            return trace_store(org=org, user=None, actor=actor, read=read, trial=trial)
    except AdvisorError as error:
        log.warning("trace of trial %s not kept: %s", trial.pk, error.message)
        return None


def trace_delete(*, trace: Trace, actor: str) -> None:
    """Remove row and file; the file goes once the row is gone for good."""
    path = stored_path(trace)
    with transaction.atomic():
        Trace.objects.filter(pk=trace.pk).delete()
        audit(org=trace.org, actor=actor, action="trace.delete", target=trace.name)
        transaction.on_commit(lambda: path.unlink(missing_ok=True))


def traces_expire() -> int:
    """Remove traces past their keep-time, with their files. Returns how many."""
    if settings.TRACE_KEEP_DAYS <= 0:
        return 0
    oldest = timezone.now() - timedelta(days=settings.TRACE_KEEP_DAYS)
    gone = list(Trace.objects.filter(created_at__lt=oldest).select_related("org")[:500])
    for trace in gone:
        trace_delete(trace=trace, actor="housekeeping")
    return len(gone)


def stored_path(trace: Trace) -> Path:
    """Where the scrubbed copy lies: ids alone, never a name that came from outside."""
    return Path(settings.TRACE_DIR) / str(trace.org_id) / str(trace.pk)


def clean_name(name: str) -> str:
    """The last part of a file name, without control characters, credentials and markup."""
    last = re.split(r"[\\/]", name)[-1]
    kept = _NAME.sub("_", scrub_text(last)).strip(" .")
    return kept[-200:] or "trace"


def _check_limits(org: Org, size: int) -> None:
    if size > settings.TRACE_MAX_BYTES:
        raise TooLarge(
            f"The file has {units.memory(size)}; up to {units.memory(settings.TRACE_MAX_BYTES)} "
            "are accepted. Compress it or record a shorter window."
        )
    rows = Trace.objects.filter(org=org)
    if rows.count() >= settings.TRACE_ORG_MAX_COUNT:
        raise Conflict(
            f"Your organisation keeps {settings.TRACE_ORG_MAX_COUNT} traces, the most it may. "
            "Delete some, then upload again."
        )
    used = rows.aggregate(used=Sum("stored_bytes"))["used"] or 0
    if used + size > settings.TRACE_ORG_MAX_BYTES:
        raise Conflict(
            f"Your organisation's traces take {units.memory(used)} of "
            f"{units.memory(settings.TRACE_ORG_MAX_BYTES)}. Delete some, then upload again."
        )


def _read(path: Path, name: str, scrubbed: Path) -> dict[str, Any]:
    try:
        refuse_name(name)
        scrub_upload(path, scrubbed)
        return analyse_upload(scrubbed)
    except TraceError as error:
        raise InvalidInput(error.message, {FIELD: [error.message]}) from error


def _keep(trace: Trace, scrubbed: Path, actor: str) -> Trace:
    target = stored_path(trace)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with transaction.atomic():
            trace.save(force_insert=True)
            audit(org=trace.org, actor=actor, action="trace.upload", target=trace.name)
            shutil.move(scrubbed, target)
    except OSError as error:
        raise StorageFull("The server's disk has no room for the trace.") from error
    return trace


@contextmanager
def _folder() -> Iterator[Path]:
    """A folder on the disk that the copy will stay on."""
    root = Path(settings.TRACE_DIR)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".part-") as name:
        yield Path(name)


@contextmanager
def _turn() -> Iterator[None]:
    if not _turns.acquire(timeout=_TURN_WAIT_S):
        raise Conflict("The server is reading other traces: send this one again in a minute.")
    try:
        yield
    finally:
        _turns.release()


def _digest(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size


def _gpu_names(report: dict[str, Any]) -> str:
    names = sorted({str(d["name"]) for d in report["devices"] if d.get("name")})
    return ", ".join(names)[:200]
