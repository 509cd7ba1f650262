"""Server time and queries of every list page over 100,000 trials in a scratch SQLite database.

The rows are made in bulk and hold what lists read: specs, stored verdicts, states. Each page is
asked for 40 times by Django's test client, so that middleware and templates count and the network
does not. Budget: p95 at most 200 ms and at most 12 queries.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
TRIALS, TRIALS_A_STUDY, REPEATS = 100_000, 5, 40
BUDGET_S, BUDGET_QUERIES = 0.2, 12


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "ADVISOR_DATA_DIR": folder,
            "DATABASE_URL": f"sqlite:///{folder}/db.sqlite3",
            "DJANGO_SETTINGS_MODULE": "advisor.settings",
        }
        import django

        django.setup()
        from django.conf import settings
        from django.core.management import call_command

        settings.ALLOWED_HOSTS = ["*"]
        settings.STORAGES["staticfiles"] = {
            "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        }
        call_command("migrate", verbosity=0)
        started = time.perf_counter()
        org, agent = _fill()
        print(f"{TRIALS:,} trials in {time.perf_counter() - started:.0f} s")
        _measure(org, agent)


def _fill():
    from django.db import transaction
    from django.utils import timezone

    from advisor.accounts.models import AuditEvent
    from advisor.studies.listing import listing_of
    from advisor.studies.models import Study, Trial
    from tests import builders, factories

    owner = factories.create_user("owner@example.org")
    org = factories.create_org(owner=owner)
    agents = [factories.create_agent(org, f"node-{n:02d}") for n in range(12)]
    spec = builders.make_study_spec(agent=agents[0].slug).model_dump(mode="json")
    trial_spec = builders.make_trial().spec.model_dump(mode="json")
    statuses = ("met", "missed", "not_proven", "no_targets", "met", "met")
    now = timezone.now()
    studies, trials = [], []
    for n in range(TRIALS // TRIALS_A_STUDY):
        finished = n % 500 != 0
        study = Study(
            org=org,
            number=n + 1,
            name=f"Chat on node {n % 97} of {n}",
            spec_json=spec,
            agent=agents[n % len(agents)],
            state="finished" if finished else "running",
            verdict_json=_verdict(statuses[n % len(statuses)]) if finished else None,
            created_at=now - timedelta(minutes=n),
        )
        for field, value in listing_of(study).items():
            setattr(study, field, value)
        studies.append(study)
        for ordinal in range(1, TRIALS_A_STUDY + 1):
            open_ = not finished and ordinal > 2
            trials.append(
                Trial(
                    study=study,
                    agent=study.agent,
                    ordinal=ordinal,
                    role="variant",
                    title=f"Variant {ordinal}",
                    reason="benchmark",
                    spec_json=trial_spec,
                    state="queued" if open_ else "succeeded",
                    started_at=None if open_ else now - timedelta(minutes=n),
                    finished_at=None if open_ else now - timedelta(minutes=n - 1),
                )
            )
    with transaction.atomic():
        Study.objects.bulk_create(studies, batch_size=500)
        Trial.objects.bulk_create(trials, batch_size=500)
        AuditEvent.objects.bulk_create(
            [
                AuditEvent(org=org, actor="owner", action="study.create", target=str(n))
                for n in range(20_000)
            ],
            batch_size=1000,
        )
    return owner, agents[0].slug


def _verdict(status: str) -> dict:
    target = {
        "metric": "ttft_s", "statistic": "p95", "limit": 0.2, "verdict": status, "value": 0.15,
        "low": 0.14, "high": 0.16, "n": 100, "needed_n": None, "headroom_frac": 0.25,
        "reason": "measured", "basis": "measured", "trial_id": None, "over": 1,
    }  # fmt: skip
    return {
        "status": status, "sentence": "A sentence.", "lede": "", "best_trial": None,
        "best_title": "Variant 2 with chunked prefill", "verification": "none",
        "targets": [target] * 4,
    }  # fmt: skip


def _measure(owner, agent: str) -> None:
    from django.db import connection
    from django.test import Client
    from django.test.utils import CaptureQueriesContext

    client = Client()
    client.force_login(owner)
    pages = {
        "studies": "/studies/",
        "studies, last page": "/studies/?page=400",
        "studies, need attention": "/studies/?status=attention",
        "studies, preset and search": "/studies/?preset=chat&q=node+96+variant",
        "studies, search without a hit": "/studies/?q=nothing-like-it",
        "agents": "/agents/",
        "agent": f"/agents/{agent}/",
        "traces": "/traces/",
        "rules": "/rules/",
        "organisation": "/organisation/",
        "compare": "/compare/",
    }
    print(f"{'page':32} {'median':>8} {'p95':>8} {'queries':>8}")
    for name, address in pages.items():
        times = []
        for repeat in range(REPEATS + 3):
            with CaptureQueriesContext(connection) as queries:
                started = time.perf_counter()
                response = client.get(address)
                spent = time.perf_counter() - started
            assert response.status_code == 200, (address, response.status_code)
            if repeat >= 3:
                times.append(spent)
        p95 = statistics.quantiles(times, n=20)[-1]
        late = p95 > BUDGET_S or len(queries) > BUDGET_QUERIES
        print(
            f"{name:32} {statistics.median(times) * 1e3:5.0f} ms {p95 * 1e3:5.0f} ms"
            f" {len(queries):8}{'  over the budget' if late else ''}"
        )


if __name__ == "__main__":
    main()
