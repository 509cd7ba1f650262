from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "advisor.accounts"

    def ready(self) -> None:
        from advisor import checks  # noqa: F401 - registers the system checks
