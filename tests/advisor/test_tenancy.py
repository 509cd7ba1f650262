"""Every route × every kind of caller: nobody sees or changes another organisation's things.

The routes come from the URL configuration. A route without an entry in ROUTES fails, an entry
without a route fails, and so does a method that an entry does not name. What a caller may expect
follows from the entry's access alone, so a new route needs one line here.

Two more nets below the statuses: whoever does not belong to the organisation must not find any of
its names in any answer, and a refused request must leave every row as it was.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Any
from urllib.parse import unquote

import pytest
from django.apps import apps
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import transaction
from django.db.models import Model
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, resolve
from django.utils import timezone

from advisor import secrets
from advisor.accounts.models import Org, Role, User
from advisor.fleet.models import Agent, RegistrationToken
from advisor.rules import RULES
from advisor.studies import sample
from advisor.studies.models import Attempt, StoredArtifact, Study, Trial
from advisor.studies.sharing import share_create
from advisor.studies.states import TrialState
from gpuagent.wire import WIRE_VERSION, HubModel
from tests import builders, factories
from tests.advisor.imports.samples import LOCUST


class Access(Enum):
    """Who may use a method of a route, by role in the organisation that owns the object."""

    PUBLIC = "anybody"
    READ = "every member of the organisation"
    WRITE = "member and owner"
    MANAGE = "owner"
    PERSON = "any signed-in person, about their own account"
    AGENT = "an agent, about its own trials"
    JOIN = "whoever holds a registration token"
    METRICS = "loopback or the metrics token"
    STAFF = "whoever runs the installation"
    NOWHERE = "nobody: always 404"


PUBLIC, READ, WRITE, MANAGE = Access.PUBLIC, Access.READ, Access.WRITE, Access.MANAGE
PERSON, AGENT, NOWHERE = Access.PERSON, Access.AGENT, Access.NOWHERE


@dataclass(frozen=True)
class Route:
    """One line of the table: method -> access, and what goes into the path and the body.

    own: the path names an object, which exists for its own organisation only.
    body: keyed by method; a name of `World` or a value. query: what follows the path.
    """

    methods: dict[str, Access]
    own: bool = False
    args: dict[str, Any] = field(default_factory=dict)
    bodies: dict[str, Any] = field(default_factory=dict)
    query: str = ""


FILE = b"bytes of an announced file"


def one(access: Access, *names: str, **kwargs: Any) -> Route:
    return Route(dict.fromkeys(names or ("GET",), access), **kwargs)


ROUTES: dict[str, Route] = {
    # --- health
    "healthz": one(PUBLIC),
    "readyz": one(PUBLIC),
    "metrics": one(Access.METRICS),
    # --- REST API of people
    "api/v1/studies": Route({"GET": READ, "POST": WRITE}, bodies={"POST": "study_body"}),
    "api/v1/studies/<uuid:study_id>": one(READ, own=True),
    "api/v1/studies/<uuid:study_id>/cancel": one(WRITE, "POST", own=True),
    "api/v1/studies/<uuid:study_id>/trials": one(READ, own=True),
    "api/v1/studies/<uuid:study_id>/findings": one(READ, own=True),
    "api/v1/studies/<uuid:study_id>/gate": one(READ, "POST", own=True),
    "api/v1/studies/<uuid:study_id>/report": one(READ, own=True),
    "api/v1/studies/<uuid:study_id>/diagnoses": one(READ, own=True),
    "api/v1/studies/<uuid:study_id>/export": one(READ, own=True),
    "api/v1/studies/<uuid:study_id>/shares": Route(
        {"GET": READ, "POST": WRITE}, own=True, bodies={"POST": {"days": 7}}
    ),
    "api/v1/studies/<uuid:study_id>/shares/<uuid:share_id>": one(WRITE, "DELETE", own=True),
    "api/v1/studies/<uuid:study_id>/what-if": one(READ, "POST", own=True),
    "api/v1/trials/<uuid:trial_id>": one(READ, own=True),
    "api/v1/trials/<uuid:trial_id>/cancel": one(WRITE, "POST", own=True),
    "api/v1/compare": one(READ, own=True, query="?trials={trial_id},{measured_id}"),
    "api/v1/traces": Route({"GET": READ, "POST": WRITE}, bodies={"POST": "upload"}),
    "api/v1/traces/<uuid:trace_id>": Route({"GET": READ, "DELETE": WRITE}, own=True),
    "api/v1/traces/<uuid:trace_id>/compare": one(READ, own=True),
    "api/v1/traces/<uuid:trace_id>/file": one(READ, own=True),
    "api/v1/agents": one(READ),
    "api/v1/agents/<slug:slug>": one(READ, own=True),
    "api/v1/agents/<slug:slug>/drain": one(MANAGE, "POST", own=True),
    "api/v1/agents/<slug:slug>/resume": one(MANAGE, "POST", own=True),
    "api/v1/models": one(READ),
    "api/v1/estimates": one(
        READ, "POST", bodies={"POST": {"model": "Qwen/Qwen3-8B", "gpu": "H100 SXM"}}
    ),
    "api/v1/imports": one(READ, "POST", bodies={"POST": {"content": LOCUST}}),
    "api/v1/gpus": one(READ),
    "api/v1/gpus/<str:name>/price": Route(
        {"PUT": MANAGE, "DELETE": MANAGE},
        args={"name": "h100_sxm"},
        bodies={"PUT": {"usd_per_gpu_hour": 2.5, "reason": "reserved"}},
    ),
    "api/v1/rules": one(READ),
    "api/v1/tokens": Route(
        {"GET": MANAGE, "POST": MANAGE}, bodies={"POST": {"name": "ci", "scope": "read"}}
    ),
    "api/v1/tokens/<uuid:token_id>": Route({"GET": MANAGE, "DELETE": MANAGE}, own=True),
    "api/schema/": one(PUBLIC),
    "api/schema": one(PUBLIC),
    "api/docs/": one(PUBLIC),
    "api/docs": one(PUBLIC),
    "api/(?P<rest>.*)$": one(NOWHERE, "GET", "POST", args={"rest": "v1/anything"}),
    # --- REST API of agents
    "api/agent/v1/register": one(Access.JOIN, "POST", bodies={"POST": "register_body"}),
    "api/agent/v1/claim": one(AGENT, "POST", bodies={"POST": "claim_body"}),
    "api/agent/v1/renew": one(AGENT, "POST", own=True, bodies={"POST": "lease_body"}),
    "api/agent/v1/release": one(AGENT, "POST", own=True, bodies={"POST": "lease_body"}),
    "api/agent/v1/events": one(AGENT, "POST", own=True, bodies={"POST": "events_body"}),
    "api/agent/v1/telemetry": one(AGENT, "POST", bodies={"POST": {"samples": [{"at_s": 1.0}]}}),
    "api/agent/v1/result": one(AGENT, "POST", own=True, bodies={"POST": "result_body"}),
    "api/agent/v1/artifacts/<uuid:trial_id>/<int:epoch>/<str:sha256>": one(
        AGENT, "PUT", own=True, bodies={"PUT": FILE}
    ),
    # --- account (allauth): about the caller alone
    "language/": one(PUBLIC, "GET", "POST"),
    "account/login/": one(PUBLIC, "GET", "POST"),
    "account/logout/": one(PUBLIC, "GET", "POST"),
    "account/inactive/": one(PUBLIC),
    "account/signup/": one(PUBLIC, "GET", "POST"),
    "account/reauthenticate/": one(PERSON, "GET", "POST"),
    "account/reauthenticate/code/": one(PERSON, "GET", "POST"),
    "account/reauthenticate/code/confirm/": one(PERSON, "GET", "POST"),
    "account/email/": one(PERSON, "GET", "POST"),
    "account/confirm-email/": one(PUBLIC),
    "account/confirm-email/(?P<key>[-:\\w]+)/$": Route(
        {"GET": PUBLIC, "POST": NOWHERE}, args={"key": "forged"}
    ),
    "account/": one(PERSON, "GET", "POST"),
    "account/password/change/": one(PERSON, "GET", "POST"),
    "account/password/set/": one(PERSON, "GET", "POST"),
    "account/password/reset/": one(PUBLIC, "GET", "POST"),
    "account/password/reset/done/": one(PUBLIC),
    "account/password/reset/key/done/": one(PUBLIC),
    "account/password/reset/key/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$": one(
        PUBLIC, "GET", "POST", args={"uidb36": "1", "key": "forged"}
    ),
    "account/login/code/confirm/": one(PUBLIC, "GET", "POST"),
    # --- pages
    "": one(PUBLIC),
    "studies/": one(READ),
    "studies/new/": Route({"GET": WRITE, "POST": WRITE}, bodies={"POST": "study_form"}),
    "studies/sample/": one(WRITE, "POST"),
    "studies/new/plan/": one(WRITE, "POST", bodies={"POST": "study_form"}),
    "studies/<uuid:study_id>/": one(READ, own=True),
    "studies/<uuid:study_id>/live/": one(READ, own=True),
    "studies/<uuid:study_id>/what-if/": one(READ, own=True),
    "studies/<uuid:study_id>/cancel/": one(WRITE, "POST", own=True),
    "studies/<uuid:study_id>/report.<slug:suffix>": one(READ, own=True, args={"suffix": "html"}),
    "studies/<uuid:study_id>/export.<slug:fmt>": one(READ, own=True, args={"fmt": "json"}),
    "studies/<uuid:study_id>/diagnose/<slug:complaint>/": one(
        READ, own=True, args={"complaint": "memory"}
    ),
    "studies/<uuid:study_id>/shares/": one(WRITE, "POST", own=True, bodies={"POST": {"days": "7"}}),
    "studies/<uuid:study_id>/shares/<uuid:share_id>/revoke/": one(WRITE, "POST", own=True),
    # Whoever holds a link's secret reads that report (test_shares.py); nobody else anything.
    "r/<str:token>/": one(NOWHERE, args={"token": secrets.new_secret("tas").full}),
    "trials/<uuid:trial_id>/": one(READ, own=True),
    "trials/<uuid:trial_id>/cancel/": one(WRITE, "POST", own=True),
    "compare/": one(READ, own=True, query="?trials={trial_id},{measured_id}"),
    "traces/": one(READ),
    "traces/upload/": one(WRITE, "POST", bodies={"POST": "upload"}),
    "traces/<uuid:trace_id>/": one(READ, own=True),
    "traces/<uuid:trace_id>/compare/": one(READ, own=True, query="?before={trace_id}"),
    "traces/<uuid:trace_id>/delete/": one(WRITE, "POST", own=True),
    "imports/": Route({"GET": READ, "POST": READ}, bodies={"POST": "import_form"}),
    "model/": one(READ, "GET", "POST"),
    "agents/": one(READ),
    "agents/add/": one(MANAGE, "POST"),
    "agents/<slug:slug>/": one(READ, own=True),
    "agents/<slug:slug>/drain/": one(MANAGE, "POST", own=True),
    "agents/<slug:slug>/resume/": one(MANAGE, "POST", own=True),
    "agents/<slug:slug>/remove/": one(MANAGE, "POST", own=True),
    "offline/": one(PUBLIC),
    "sw.js": one(PUBLIC),
    "rules/": one(READ),
    "rules/<slug:rule_id>/": one(READ, args={"rule_id": RULES[0].id}),
    "organisation/": one(READ),
    "organisation/tokens/": one(
        READ, "POST", bodies={"POST": {"name": "mine", "scope": "read", "days": "30"}}
    ),
    # The token in the address is the owner's; a member revokes only their own.
    "organisation/tokens/<uuid:token_id>/revoke/": one(MANAGE, "POST", own=True),
    "organisation/prices/": one(
        MANAGE, "POST", bodies={"POST": {"gpu": "L4", "usd_per_gpu_hour": "0.5"}}
    ),
    "organisation/members/": one(
        MANAGE, "POST", bodies={"POST": {"email": "new@example.org", "role": "viewer"}}
    ),
    "organisation/members/<int:membership_id>/role/": one(
        MANAGE, "POST", own=True, bodies={"POST": {"role": "owner"}}
    ),
    "organisation/members/<int:membership_id>/remove/": one(MANAGE, "POST", own=True),
    "organisation/members/<int:membership_id>/link/": one(MANAGE, "POST", own=True),
}

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


# --- the routes of the URL configuration --------------------------------------------------------


def walk(patterns: Any, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in patterns:
        route = prefix + str(pattern.pattern).removeprefix("^")
        if isinstance(pattern, URLResolver):
            yield from walk(pattern.url_patterns, route)
        else:
            yield route, pattern


def configured() -> dict[str, URLPattern]:
    return dict(walk(get_resolver().url_patterns))


def test_every_route_has_an_entry_and_every_entry_a_route() -> None:
    routes = {route for route in configured() if not route.startswith("admin/")}
    assert routes - set(ROUTES) == set(), "add these routes to ROUTES, with who may use them"
    assert set(ROUTES) - routes == set(), "these entries have no route any more"


# --- the world ----------------------------------------------------------------------------------


@dataclass
class World:
    """One organisation with one of everything, whose names all carry a mark."""

    org: Org
    study: Study
    trial: Trial
    agent: Agent
    lease: dict[str, Any]
    path: dict[str, Any]
    registration_secret: str
    callers: dict[str, Callable[[], Client]]

    @property
    def study_body(self) -> dict[str, Any]:
        spec = builders.make_study_spec(agent=self.agent.slug)
        return spec.model_dump(mode="json")

    @property
    def import_form(self) -> dict[str, Any]:
        return {"file": SimpleUploadedFile("stats.csv", LOCUST.encode())}

    @property
    def upload(self) -> dict[str, Any]:
        """A form whose file no reader takes: it is refused without a child process."""
        return {"file": SimpleUploadedFile("report.nsys-rep", b"whatever")}

    @property
    def study_form(self) -> dict[str, Any]:
        return {"name": "Mine", "agent": self.agent.slug, "action": "start"}

    @property
    def register_body(self) -> dict[str, Any]:
        return {
            "registration_token": self.registration_secret,
            "slug": "newcomer",
            "hello": factories.make_hello().model_dump(mode="json"),
        }

    @property
    def claim_body(self) -> dict[str, Any]:
        return {"instance": "0" * 8}

    @property
    def lease_body(self) -> dict[str, Any]:
        return {"lease": self.lease}

    @property
    def events_body(self) -> dict[str, Any]:
        event = {"seq": 1, "at_s": 1.0, "phase": "measure", "message": "forged"}
        return {"lease": self.lease, "events": [event]}

    @property
    def result_body(self) -> dict[str, Any]:
        return {"lease": self.lease, "outcome": {"status": "cancelled"}}


MARK = "zqzqzqzq"
"""In every name of the organisation, so that one search finds any leak: too long to be a part of a
random token by chance."""


@pytest.fixture
def world(db: None, monkeypatch: pytest.MonkeyPatch) -> World:
    # Who may open the sample is asked here, not what it shows.
    monkeypatch.setattr(sample, "_simulated", tuple)
    owner = _person(f"owner-{MARK}")
    org = factories.create_org(f"Org {MARK}", owner=owner)
    people = {"owner": owner}
    for role in (Role.MEMBER, Role.VIEWER):
        people[role] = _person(f"{role}-{MARK}")
        factories.create_member(org, people[role], role)
    people["stranger"] = _person("stranger")
    foreign = factories.create_org("Elsewhere", owner=people["stranger"])
    people["loner"] = _person("loner")

    agent = factories.create_agent(org, f"agent-{MARK}")
    outsider = factories.create_agent(foreign, "outsider")
    spec = builders.make_study_spec(
        name=f"Study {MARK}", agent=agent.slug, model=HubModel(id=f"{MARK}/model")
    )
    study = factories.create_study(org, agent=agent, spec=spec)
    measured = factories.create_trial(
        study, builders.make_trial(builders.make_baseline_result(n_requests=5))
    )
    factories.create_finding(study, title=f"Finding {MARK}")
    trial, lease = _running(study, agent)
    trace = factories.create_trace(org, name=f"{MARK}.json", trial=trial)
    token, _ = factories.create_token(org, owner, name=f"token {MARK}")
    share, _ = share_create(study=study, user=owner, days=7, actor=owner.email)
    registration = secrets.new_secret("tar")
    RegistrationToken.objects.create(
        org=org,
        prefix=registration.prefix,
        secret_hash=registration.sha256,
        expires_at=timezone.now() + timedelta(hours=1),
    )
    callers: dict[str, Callable[[], Client]] = {"anonymous": Client}
    for name, user in people.items():
        callers[name] = _session(user)
        if name != "loner":
            home = foreign if name == "stranger" else org
            callers[f"{name}'s token"] = _token(home, user, "write")
    callers["owner's read token"] = _token(org, owner, "read")
    callers["agent"] = _agent(agent)
    callers["foreign agent"] = _agent(outsider)
    return World(
        org=org,
        study=study,
        trial=trial,
        agent=agent,
        lease=lease,
        registration_secret=registration.full,
        callers=callers,
        path={
            "study_id": study.pk,
            "trial_id": trial.pk,
            "measured_id": measured.pk,
            "trace_id": trace.pk,
            "share_id": share.pk,
            "slug": agent.slug,
            "token_id": token.pk,
            "epoch": 1,
            "sha256": hashlib.sha256(FILE).hexdigest(),
            "membership_id": org.memberships.get(user=people["viewer"]).pk,
        },
    )


def _person(name: str) -> User:
    return factories.create_user(f"{name}@example.org", name=name, password="a password")


def _running(study: Study, agent: Agent) -> tuple[Trial, dict[str, Any]]:
    """A trial under a lease, with the real token of that lease."""
    secret, now = "t" * 32, timezone.now()
    trial = factories.create_trial(
        study,
        builders.make_trial(state="running", title=f"Trial {MARK}"),
        lease_hash=hashlib.sha256(secret.encode()).hexdigest(),
        lease_until=now + timedelta(minutes=5),
        renewed_at=now,
        state=TrialState.RUNNING,
    )
    attempt = Attempt.objects.create(trial=trial, number=1, agent=agent, instance="1" * 8)
    StoredArtifact.objects.create(
        attempt=attempt,
        name="trace.json",
        sha256=hashlib.sha256(FILE).hexdigest(),
        size_bytes=len(FILE),
    )
    return trial, {"trial_id": str(trial.pk), "epoch": 1, "token": secret}


def _session(user: User) -> Callable[[], Client]:
    def make() -> Client:
        client = Client()
        client.force_login(user)
        return client

    return make


def _token(org: Org, user: User, scope: str) -> Callable[[], Client]:
    _, secret = factories.create_token(org, user, scope=scope)
    return lambda: Client(headers={"Authorization": f"Bearer {secret}"})


def _agent(agent: Agent) -> Callable[[], Client]:
    return lambda: Client(headers={"Authorization": f"Bearer {agent.secret}"})


# --- what a caller may expect -------------------------------------------------------------------

ROLES = {"viewer": READ, "member": WRITE, "owner": MANAGE}
RANK = [READ, WRITE, MANAGE]


class Expect(Enum):
    """An outcome, and the statuses that count as it."""

    ALLOWED = "allowed"
    LOGIN = "sent to the login page"
    UNKNOWN = "401"
    FORBIDDEN = "403"
    MISSING = "404"
    FENCED = "404 or 409"


def expected(route: str, entry: Route, method: str, caller: str) -> Expect:
    access = entry.methods[method]
    name = caller.partition("'")[0]
    by_token = caller.endswith("token")
    if access in (PUBLIC, Access.JOIN, Access.METRICS):
        return Expect.ALLOWED
    if access is NOWHERE:
        return Expect.MISSING
    if access is AGENT:
        if "agent" not in caller:
            return Expect.UNKNOWN
        return Expect.FENCED if caller == "foreign agent" and entry.own else Expect.ALLOWED
    if "agent" in caller:
        return Expect.UNKNOWN if route.startswith("api/") else Expect.LOGIN
    if not route.startswith("api/"):
        # Pages know sessions only: to them a token is nobody.
        if by_token or caller == "anonymous":
            return Expect.LOGIN
        if access is PERSON:
            return Expect.ALLOWED
    elif caller == "anonymous":
        return Expect.UNKNOWN
    if name == "loner":
        return Expect.FORBIDDEN
    if name == "stranger":
        return Expect.MISSING if entry.own else Expect.ALLOWED
    # A POST that every member may send only asks; it needs no right to write.
    if "read token" in caller and method != "GET" and access is not READ:
        return Expect.FORBIDDEN
    return Expect.ALLOWED if RANK.index(ROLES[name]) >= RANK.index(access) else Expect.FORBIDDEN


def check(response: HttpResponse, wanted: Expect) -> bool:
    status = response.status_code
    location = response.get("Location", "")
    if wanted is Expect.LOGIN:
        return status == 302 and location.startswith("/account/login/")
    if wanted is Expect.ALLOWED:
        sent_away = status == 302 and location.startswith("/account/login/?next=")
        return status < 500 and status not in (401, 403, 404, 405) and not sent_away
    return str(status) in wanted.value


# --- the matrix ---------------------------------------------------------------------------------

CALLERS = (
    "anonymous",
    "loner",
    "stranger",
    "stranger's token",
    "viewer",
    "viewer's token",
    "member",
    "member's token",
    "owner",
    "owner's token",
    "owner's read token",
    "agent",
    "foreign agent",
)
TO_PAGES = tuple(c for c in CALLERS if "'" not in c or c == "owner's token")
"""Pages do not know tokens, so one of them is enough."""

FEW = ("anonymous", "stranger", "owner", "owner's token", "foreign agent")
"""For what is public, where the caller makes no difference."""

INSIDE = ("viewer", "member", "owner", "agent")

CASES = [
    pytest.param(route, method, id=f"{method} {route}")
    for route, entry in ROUTES.items()
    for method in entry.methods
]


@pytest.mark.parametrize(("route", "method"), CASES)
def test_each_caller_gets_what_the_table_says(world: World, route: str, method: str) -> None:
    before = rows_of(world.org)
    complaints = [
        complaint
        for caller in callers_for(route, method)
        for complaint in undone(complaints_of, world, route, method, caller, before)
    ]
    assert complaints == []


def callers_for(route: str, method: str) -> tuple[str, ...]:
    if ROUTES[route].methods[method] in (PUBLIC, NOWHERE):
        return FEW
    return CALLERS if route.startswith("api/") else TO_PAGES


def undone(action: Callable[..., list[str]], *args: Any) -> list[str]:
    """The result of `action`; whatever it wrote is rolled back."""
    with transaction.atomic():
        result = action(*args)
        transaction.set_rollback(True)
    return result


def complaints_of(
    world: World, route: str, method: str, caller: str, before: dict[str, Any]
) -> list[str]:
    entry = ROUTES[route]
    wanted = expected(route, entry, method, caller)
    response = send(world, world.callers[caller](), route, entry, method)
    found = []
    if not check(response, wanted):
        where = response.get("Location", "")
        found.append(f"{caller} got {response.status_code} {where}, wanted {wanted.value}")
    inside = caller.partition("'")[0] in INSIDE
    sent = [address(world, route)] + [world.agent.slug] * ("POST" in entry.bodies)
    if not inside and MARK in _told(response, sent):
        found.append(f"{caller} was told a name of the organisation")
    may_write = inside and wanted is Expect.ALLOWED and method != "GET"
    may_write = may_write or entry.methods[method] is Access.JOIN
    if not may_write and rows_of(world.org) != before:
        found.append(f"{caller} changed a row")
    return found


STRICT = [
    route
    for route, entry in ROUTES.items()
    if not route.startswith("account/")
    and not set(entry.methods.values()) & {PUBLIC, NOWHERE, Access.METRICS}
]
"""Routes that answer some methods and refuse the rest."""


@pytest.mark.parametrize("route", STRICT)
def test_a_method_without_an_entry_is_405_even_for_those_with_every_right(
    world: World, route: str
) -> None:
    entry = ROUTES[route]
    caller = "agent" if route.startswith("api/agent/") else "owner"
    before = rows_of(world.org)
    for method in METHODS:
        if method not in entry.methods:
            response = send(world, world.callers[caller](), route, entry, method)
            assert response.status_code == 405, f"{method} gave {response.status_code}"
    assert rows_of(world.org) == before


@pytest.mark.parametrize("caller", ["anonymous", "stranger", "stranger's token", "owner"])
def test_the_admin_is_closed_to_everybody_but_staff(world: World, caller: str) -> None:
    routes = [route for route in configured() if route.startswith("admin/")]
    assert routes
    for route in routes:
        path = "/" + re.sub(r"<(?:\w+:)?\w+>|\(\?P<\w+>[^)]*\)", "1", route)
        path = path.removesuffix("$")
        response = world.callers[caller]().get(path)
        # To the login page, or (after signing out of nothing) to the admin's own front page.
        target = response.get("Location", "")
        away = response.status_code == 302 and ("login" in target or target == "/admin/")
        assert away or response.status_code in (403, 405), f"{path}: {response.status_code}"
        assert caller in INSIDE or MARK not in _told(response, [path])


def send(world: World, client: Client, route: str, entry: Route, method: str) -> HttpResponse:
    body = entry.bodies.get(method)
    if isinstance(body, str):
        body = getattr(world, body)
    path = address(world, route)
    headers = {"X-Agent-Wire": str(WIRE_VERSION)}
    path += entry.query.format(**world.path)
    if route.endswith("traces") and method == "POST":
        return client.post(path, body, headers=headers)
    if isinstance(body, bytes):
        kind = "application/octet-stream"
        return client.generic(method, path, body, content_type=kind, headers=headers)
    if route.startswith("api/"):
        text = "" if body is None else json.dumps(body)
        kind = "application/json"
        return client.generic(method, path, text, content_type=kind, headers=headers)
    return getattr(client, method.lower())(path, body or {})


def address(world: World, route: str) -> str:
    """The route with the world's own ids in it; it must lead back to the same route."""
    values = {**world.path, **ROUTES[route].args}
    filled = re.sub(
        r"<(?:\w+:)?(\w+)>|\(\?P<(\w+)>[^)]*\)", lambda m: str(values[m[1] or m[2]]), route
    )
    path = "/" + filled.removesuffix("$")
    assert resolve(path).route == route, f"{path} is answered by another route"
    return path


def _told(response: HttpResponse, sent: Sequence[str]) -> str:
    """Everything in the answer but what the caller itself put into the request."""
    body = response.content if not response.streaming else b"".join(response.streaming_content)
    text = body.decode("utf-8", "replace") + json.dumps(dict(response.items()))
    text = unquote(text)
    for known in sent:
        text = text.replace(known, "")
    return text


# --- the rows of an organisation ----------------------------------------------------------------

APPS = ("accounts", "fleet", "studies", "traces")
SHARED_MODELS = {"SweepState"}
"""Models of the installation, which hold nothing of any organisation."""

VOLATILE = {"last_used_at", "last_login"}


def path_to_org(model: type[Model], seen: tuple[type[Model], ...] = ()) -> str | None:
    """The lookup that leads from a model to its organisation, such as trial__study__org."""
    if model is Org:
        return "pk"
    if model is User:
        return "memberships__org"
    found = []
    for relation in model._meta.get_fields():
        target = relation.related_model
        if not relation.many_to_one and not (relation.one_to_one and relation.concrete):
            continue
        if target in (None, User, *seen):
            continue
        rest = path_to_org(target, (*seen, model))
        if rest is not None:
            found.append(relation.name if rest == "pk" else f"{relation.name}__{rest}")
    return min(found, key=lambda path: path.count("__"), default=None)


def rows_of(org: Org) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for app in APPS:
        for model in apps.get_app_config(app).get_models():
            if model.__name__ in SHARED_MODELS:
                continue
            path = path_to_org(model)
            kept = model._default_manager.filter(**{str(path): org.pk}).order_by("pk").values()
            rows[model.__name__] = [
                {name: value for name, value in row.items() if name not in VOLATILE} for row in kept
            ]
    return rows


def test_every_model_belongs_to_an_organisation() -> None:
    for app in APPS:
        for model in apps.get_app_config(app).get_models():
            if model.__name__ not in SHARED_MODELS:
                assert path_to_org(model), f"{model.__name__} has no way to its organisation"
