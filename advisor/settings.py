"""The one settings module. Everything that differs between machines comes from the environment.

`.env.example` lists every variable with its default. What a public server needs beyond a laptop
(TLS redirect, secure cookies, HSTS) follows from one fact: whether ADVISOR_PUBLIC_URL is https.
"""

from pathlib import Path
from urllib.parse import urlsplit

import environ
from csp.constants import NONE, SELF

from advisor import __version__
from advisor.local_secrets import read_or_create_secret

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.FileAwareEnv()
environ.Env.read_env(BASE_DIR / ".env")

DATA_DIR = Path(env.str("ADVISOR_DATA_DIR", str(BASE_DIR / "var"))).resolve()
DATA_DIR.mkdir(parents=True, exist_ok=True)
ARTIFACT_DIR = DATA_DIR / "artifacts"
TRACE_DIR = DATA_DIR / "traces"

VERSION = __version__
PUBLIC_URL = env.str("ADVISOR_PUBLIC_URL", "http://127.0.0.1:8000").rstrip("/")
IS_HTTPS = PUBLIC_URL.startswith("https://")
DEBUG = env.bool("ADVISOR_DEBUG", False)

SECRET_KEY_FROM_ENV = bool(env.str("ADVISOR_SECRET_KEY", ""))
SECRET_KEY = env.str("ADVISOR_SECRET_KEY", "") or read_or_create_secret(DATA_DIR / "secret_key")

_host = urlsplit(PUBLIC_URL).hostname or "localhost"
ALLOWED_HOSTS = env.list(
    "ADVISOR_ALLOWED_HOSTS", default=[_host, "localhost", "127.0.0.1", "[::1]"]
)
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL]

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.admin",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "allauth",
    "allauth.account",
    "csp",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "advisor.accounts",
    "advisor.fleet",
    "advisor.studies",
    "advisor.traces",
    "advisor.pages",
    "advisor.api",
    "advisor.ops",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "advisor.pages.language.LanguageMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "advisor.accounts.middleware.OrgMiddleware",
]

ROOT_URLCONF = "advisor.urls"
WSGI_APPLICATION = "advisor.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "advisor.pages.context.page_context",
            ],
            "builtins": ["advisor.pages.templatetags.say"],
        },
    }
]

# --- database ----------------------------------------------------------------------------------

DATABASES = {"default": env.db("DATABASE_URL", default=f"sqlite:///{DATA_DIR / 'db.sqlite3'}")}
_database = DATABASES["default"]
if _database["ENGINE"] == "django.db.backends.sqlite3":
    # IMMEDIATE takes the write lock at BEGIN: two writers then wait for each other (busy timeout)
    # instead of failing when a read transaction tries to become a write transaction.
    _database["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
else:
    _database["CONN_MAX_AGE"] = 60
    _database["CONN_HEALTH_CHECKS"] = True
    _database.setdefault("OPTIONS", {})["options"] = (
        "-c statement_timeout=15000 -c lock_timeout=3000"
        " -c idle_in_transaction_session_timeout=30000"
    )
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = {"default": env.cache_url("CACHE_URL", default="locmemcache://advisor")}

# --- accounts ----------------------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "studies"
ACCOUNT_ADAPTER = "advisor.accounts.adapter.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = env.str("ADVISOR_EMAIL_VERIFICATION", "none")
ACCOUNT_LOGIN_ON_PASSWORD_RESET = True
ACCOUNT_LOGOUT_ON_GET = False
ADVISOR_OPEN_SIGNUP = env.bool("ADVISOR_OPEN_SIGNUP", False)

EMAIL_CONFIG = env.email_url("EMAIL_URL", default="consolemail://")
vars().update(EMAIL_CONFIG)
DEFAULT_FROM_EMAIL = env.str("ADVISOR_FROM_EMAIL", f"advisor@{_host}")

# --- security ----------------------------------------------------------------------------------

SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
if IS_HTTPS:
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
    SECURE_HSTS_SECONDS = 365 * 86400
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SESSION_COOKIE_SECURE = True
    SESSION_COOKIE_NAME = "__Host-sessionid"
    CSRF_COOKIE_SECURE = True
    CSRF_COOKIE_NAME = "__Host-csrftoken"
    if env.bool("ADVISOR_BEHIND_PROXY", False):
        SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
        # Else every visitor has the proxy's address and shares its sign-in limit.
        ALLAUTH_TRUSTED_PROXY_COUNT = 1

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "connect-src": [SELF],
        "object-src": [NONE],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
        "form-action": [SELF],
    }
}

# Room for a config of 10 MB in a text field: it is refused beside its field, and the form keeps
# everything else. What is larger still is answered by the page of error 400.
DATA_UPLOAD_MAX_MEMORY_SIZE = 12 * 1024 * 1024
API_BODY_MAX_BYTES = 2_621_440
DATA_UPLOAD_MAX_NUMBER_FIELDS = 200
DATA_UPLOAD_MAX_NUMBER_FILES = 5
MODEL_CONFIG_MAX_BYTES = 1_000_000
AGENT_BODY_MAX_BYTES = 32 * 1024 * 1024

# Traces: one file, and an organisation's scrubbed copies together. 0 days keeps them for good.
TRACE_MAX_BYTES = env.int("ADVISOR_TRACE_MAX_MIB", 1024) << 20
TRACE_ORG_MAX_BYTES = env.int("ADVISOR_TRACE_ORG_MAX_MIB", 10 * 1024) << 20
TRACE_ORG_MAX_COUNT = env.int("ADVISOR_TRACE_ORG_MAX_COUNT", 500)
TRACE_KEEP_DAYS = env.int("ADVISOR_TRACE_KEEP_DAYS", 30)
FILE_UPLOAD_HANDLERS = [
    "advisor.traces.uploads.SizeLimitHandler",
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "django.core.files.uploadhandler.TemporaryFileUploadHandler",
]

# --- static files ------------------------------------------------------------------------------

STATIC_URL = "static/"
STATIC_ROOT = DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "advisor.pages.finders.PlotlyFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if not DEBUG
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# Texts and how they are found: docs/i18n.md.
LANGUAGE_CODE = "en-gb"
LANGUAGES = [("en-gb", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "advisor" / "locale"]
LANGUAGE_COOKIE_AGE = 365 * 86400
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SAMESITE = "Lax"
LANGUAGE_COOKIE_SECURE = IS_HTTPS
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True

# --- REST --------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "advisor.accounts.auth.ApiTokenAuthentication",
        "advisor.accounts.auth.OrgSessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["advisor.accounts.auth.OrgPermission"],
    "DEFAULT_PAGINATION_CLASS": "advisor.api.pagination.NewestFirst",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["advisor.api.wire_parser.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "advisor.api.errors.exception_handler",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
    "PAGE_SIZE": 50,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "LLM Tuning Advisor",
    "DESCRIPTION": "Submit a study, follow it, fetch its findings and report.",
    "VERSION": __version__,
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    # The types are pydantic's: JSON Schema 2020-12, which is OpenAPI 3.1, with enums of its own.
    "OAS_VERSION": "3.1.0",
    "POSTPROCESSING_HOOKS": [],
}

# --- dispatch (see docs/architecture.md, "Dispatch") ------------------------------------------

REDIS_URL = env.str("REDIS_URL", "redis://127.0.0.1:6379/0")
AGENT_BROKER_URL = env.str("ADVISOR_AGENT_BROKER_URL", "") or None
LEASE_RENEW_S = env.float("ADVISOR_LEASE_RENEW_S", 15.0)
LEASE_UNREACHABLE_S = env.float("ADVISOR_LEASE_UNREACHABLE_S", 60.0)
LEASE_LOST_S = env.float("ADVISOR_LEASE_LOST_S", 300.0)
AGENT_POLL_S = env.float("ADVISOR_AGENT_POLL_S", 20.0)
WAKE_RESEND_S = env.float("ADVISOR_WAKE_RESEND_S", 60.0)
CANCEL_FORCE_S = env.float("ADVISOR_CANCEL_FORCE_S", 120.0)
SWEEP_EVERY_S = env.float("ADVISOR_SWEEP_EVERY_S", 10.0)

METRICS_TOKEN = env.str("ADVISOR_METRICS_TOKEN", "")

HUB_ENDPOINT = env.str("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
HUB_CHECK = env.bool("ADVISOR_HUB_CHECK", True)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": env.str("ADVISOR_LOG_LEVEL", "INFO")},
    "loggers": {"django.request": {"level": "ERROR"}, "httpx": {"level": "WARNING"}},
}
