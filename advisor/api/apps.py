from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "advisor.api"

    def ready(self) -> None:
        from advisor.api import schema  # noqa: F401 - registers the OpenAPI extensions
