"""Profiler traces of an organisation: a scrubbed copy of the file and the report about it."""

from __future__ import annotations

import uuid
from functools import cached_property
from typing import Any

from django.db import models
from django.utils import timezone

from advisor.accounts.models import Org, User
from advisor.studies.models import Trial
from gpuagent.traces.report import TraceReport, report_from_dict


class Trace(models.Model):
    """One analysed trace.

    name: the file's name as it was sent, without folders. stored_bytes, sha256: of the scrubbed
    copy, which lies below TRACE_DIR under the ids of organisation and trace. trial: set where an
    agent recorded it. The columns beside report_json repeat what lists show.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="traces")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True)
    trial = models.ForeignKey(Trial, on_delete=models.SET_NULL, null=True, related_name="traces")
    name = models.CharField(max_length=200)
    format = models.CharField(max_length=20)
    upload_bytes = models.BigIntegerField()
    stored_bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)
    bottleneck = models.CharField(max_length=30)
    sentence = models.TextField()
    gpu = models.CharField(max_length=200, blank=True)
    report_json = models.JSONField()
    analysis_s = models.FloatField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [models.Index(fields=["org", "-created_at"])]

    def __str__(self) -> str:
        return self.name

    @property
    def report(self) -> dict[str, Any]:
        """The promised JSON (docs/traces.md)."""
        return dict(self.report_json)

    @cached_property
    def typed_report(self) -> TraceReport:
        return report_from_dict(self.report_json)
