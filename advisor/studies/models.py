"""Studies, trials, attempts and what came back. Specs and results are wire values in JSON columns.

Rows of `Trial` change only through `leases.py` and `services.py`, by compare-and-set on state and
epoch; nothing here has behaviour beyond reading itself.
"""

from __future__ import annotations

import uuid
from functools import cached_property

from django.db import models
from django.utils import timezone

from advisor.accounts.models import Org, User
from advisor.fleet.models import Agent
from advisor.studies.states import LIVE, TERMINAL, AttemptEnd, StudyState, TrialState
from gpuagent.wire import Failure, StudySpec, TrialResult, TrialSpec, parse_from_peer


def _choices(states: type[TrialState] | type[AttemptEnd] | type[StudyState]) -> list:
    return [(state.value, state.value) for state in states]


class Study(models.Model):
    """What somebody submitted and how far it is.

    shape_json: the model's config.json as read at submission, None until an agent loads the model.
    verdict_json, evaluated_at: the last `advance`, so that lists need not recompute.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    org = models.ForeignKey(Org, on_delete=models.CASCADE, related_name="studies")
    number = models.PositiveIntegerField()
    name = models.CharField(max_length=120)
    spec_json = models.JSONField()
    model_config_json = models.JSONField(null=True)
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="studies")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True)
    state = models.CharField(max_length=10, choices=_choices(StudyState))
    phase = models.CharField(max_length=12, default="understand")
    plan_notes = models.JSONField(default=list)
    notices = models.JSONField(default=list)
    verdict_json = models.JSONField(null=True)
    created_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    evaluated_at = models.DateTimeField(null=True)
    stale_since = models.DateTimeField(null=True, db_index=True)
    """Set with every change that `advance` has to look at, cleared by it: survives a crash."""
    need = models.PositiveSmallIntegerField(default=2)
    preset = models.CharField(max_length=12, default="")
    search = models.CharField(max_length=400, default="")
    """What lists sort, filter and search by; see `studies.listing`."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["org", "number"], name="study_number")]
        indexes = [
            models.Index(fields=["org", "-created_at"]),
            # Holds all that a list asks for, so that a search reads no spec and no verdict.
            models.Index(
                fields=["org", "need", "-created_at", "-number", "preset", "search"],
                name="study_list",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.number} {self.name}"

    @cached_property
    def spec(self) -> StudySpec:
        return parse_from_peer(StudySpec, self.spec_json)

    @property
    def is_terminal(self) -> bool:
        return self.state in (StudyState.FINISHED, StudyState.CANCELLED)


class Trial(models.Model):
    """One experiment with one configuration. epoch counts claims and fences older tokens."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="trials")
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True, related_name="trials")
    ordinal = models.PositiveIntegerField()
    role = models.CharField(max_length=12)
    title = models.CharField(max_length=200)
    reason = models.TextField()
    estimate_s = models.FloatField(null=True)
    spec_json = models.JSONField()

    state = models.CharField(max_length=12, choices=_choices(TrialState), default=TrialState.QUEUED)
    epoch = models.PositiveIntegerField(default=0)
    attempts_used = models.PositiveSmallIntegerField(default=0)
    agent_deaths = models.PositiveSmallIntegerField(default=0)
    lease_hash = models.CharField(max_length=64, blank=True)
    lease_until = models.DateTimeField(null=True)
    renewed_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    not_before = models.DateTimeField(null=True)

    phase = models.CharField(max_length=10, blank=True)
    progress_text = models.CharField(max_length=300, blank=True)
    done_frac = models.FloatField(null=True)
    remaining_s = models.FloatField(null=True)

    failure_json = models.JSONField(null=True)
    log_tail = models.TextField(blank=True)
    queued_at = models.DateTimeField(default=timezone.now)
    woken_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["study_id", "ordinal"]
        constraints = [
            models.UniqueConstraint(fields=["study", "ordinal"], name="trial_ordinal"),
        ]
        indexes = [
            models.Index(fields=["agent", "state"]),
            models.Index(fields=["agent", "-started_at"]),
            models.Index(fields=["state", "lease_until"]),
        ]

    def __str__(self) -> str:
        return f"trial {self.ordinal} of {self.study_id}"

    @cached_property
    def spec(self) -> TrialSpec:
        return parse_from_peer(TrialSpec, self.spec_json)

    @property
    def failure(self) -> Failure | None:
        return parse_from_peer(Failure, self.failure_json) if self.failure_json else None

    @property
    def is_live(self) -> bool:
        return self.state in LIVE

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL


class Attempt(models.Model):
    """One agent's try at a trial; `number` counts claims, released ones too."""

    trial = models.ForeignKey(Trial, on_delete=models.CASCADE, related_name="attempts")
    number = models.PositiveIntegerField()
    agent = models.ForeignKey(Agent, on_delete=models.SET_NULL, null=True)
    instance = models.CharField(max_length=40, blank=True)
    claimed_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)
    end = models.CharField(max_length=10, choices=_choices(AttemptEnd), blank=True)
    failure_json = models.JSONField(null=True)
    longest_gap_s = models.FloatField(default=0.0)
    """Longest silence between two renewals; beyond 60 s it is a warning on the result."""

    class Meta:
        ordering = ["trial_id", "number"]
        constraints = [models.UniqueConstraint(fields=["trial", "number"], name="attempt_number")]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.trial_id}"


class Result(models.Model):
    """The accepted result. The primary key is the trial: there can be only one."""

    trial = models.OneToOneField(
        Trial, on_delete=models.CASCADE, primary_key=True, related_name="result"
    )
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE)
    payload = models.JSONField()
    received_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"result of {self.trial_id}"

    @cached_property
    def value(self) -> TrialResult:
        return parse_from_peer(TrialResult, self.payload)


class Event(models.Model):
    """Progress and log lines; `seq` counts within the attempt, so a replay changes nothing."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveIntegerField()
    at = models.DateTimeField()
    phase = models.CharField(max_length=10)
    level = models.CharField(max_length=8)
    message = models.TextField()
    done_frac = models.FloatField(null=True)

    class Meta:
        ordering = ["attempt_id", "seq"]
        constraints = [models.UniqueConstraint(fields=["attempt", "seq"], name="event_seq")]

    def __str__(self) -> str:
        return self.message


class StoredArtifact(models.Model):
    """A file of an attempt. Stored under its hash, never under its name."""

    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, related_name="artifacts")
    name = models.CharField(max_length=100)
    sha256 = models.CharField(max_length=64, db_index=True)
    size_bytes = models.BigIntegerField()
    stored_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["attempt", "name"], name="artifact_name")]

    def __str__(self) -> str:
        return self.name


class FindingRow(models.Model):
    """A finding as the last `advance` left it; replaced as a set."""

    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="findings")
    rank = models.PositiveIntegerField()
    rule_id = models.CharField(max_length=80)
    verdict = models.CharField(max_length=16)
    payload = models.JSONField()

    class Meta:
        ordering = ["study_id", "rank"]

    def __str__(self) -> str:
        return f"{self.rule_id}: {self.verdict}"


class StudyShare(models.Model):
    """A link that shows the report without an account. Only a hash of its secret is kept."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    study = models.ForeignKey(Study, on_delete=models.CASCADE, related_name="shares")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True)
    prefix = models.CharField(max_length=16, unique=True)
    secret_hash = models.CharField(max_length=64)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created_at", "id"]

    def __str__(self) -> str:
        return self.prefix

    @property
    def is_live(self) -> bool:
        return self.revoked_at is None and self.expires_at > timezone.now()


class SweepState(models.Model):
    """One row: when the sweeper last ran; tells a server outage from lost agents."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1)
    last_run_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"swept {self.last_run_at}"
