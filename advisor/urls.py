"""Root URLs: pages, REST API, account, health. Every path is listed in the two-tenant test."""

from django.contrib import admin
from django.urls import include, path
from django.views.i18n import set_language

from advisor.ops import health

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
    path("language/", set_language, name="set_language"),
    path("account/", include("allauth.account.urls")),
    path("admin/", admin.site.urls),
    path("api/", include("advisor.api.urls")),
    path("", include("advisor.pages.urls")),
]

handler400 = "advisor.pages.views.errors.bad_request"
handler403 = "advisor.pages.views.errors.forbidden"
handler404 = "advisor.pages.views.errors.not_found"
handler500 = "advisor.pages.views.errors.server_error"
