"""Interactive API docs, from files of this server and without inline script or style (CSP)."""

from __future__ import annotations

from drf_spectacular.views import SpectacularSwaggerSplitView


class ApiDocs(SpectacularSwaggerSplitView):
    url_name = "schema"
    template_name = "api/docs.html"
