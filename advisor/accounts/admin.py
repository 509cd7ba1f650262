"""Django's admin for whoever runs the installation (`is_staff`), across organisations.

Signing in happens on the ordinary page, so allauth's rate limits cover the admin as well.
"""

from __future__ import annotations

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.http import HttpRequest

from advisor.accounts.models import ApiToken, AuditEvent, Membership, Org, User

admin.site.site_header = "LLM Tuning Advisor"
admin.site.login = secure_admin_login(admin.site.login)


class MembershipInline(admin.TabularInline):
    model = Membership
    extra = 0
    autocomplete_fields = ["user", "org"]


@admin.register(User)
class UserAdmin(admin.ModelAdmin):
    """Passwords are set by their owner through a one-time link, never here."""

    list_display = ["email", "name", "is_active", "is_staff", "last_login"]
    list_filter = ["is_active", "is_staff"]
    search_fields = ["email", "name"]
    fields = ["email", "name", "is_active", "is_staff", "is_superuser", "date_joined", "last_login"]
    readonly_fields = ["date_joined", "last_login"]
    inlines = [MembershipInline]


@admin.register(Org)
class OrgAdmin(admin.ModelAdmin):
    list_display = ["name", "id", "created_at"]
    search_fields = ["name"]
    fields = ["name", "created_at"]
    readonly_fields = ["created_at"]
    inlines = [MembershipInline]


class ReadOnlyAdmin(admin.ModelAdmin):
    """Rows that only services write."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(ApiToken)
class ApiTokenAdmin(ReadOnlyAdmin):
    list_display = ["prefix", "name", "org", "user", "scope", "expires_at", "revoked_at"]
    search_fields = ["prefix", "name", "user__email"]
    exclude = ["secret_hash"]


@admin.register(AuditEvent)
class AuditEventAdmin(ReadOnlyAdmin):
    list_display = ["at", "org", "actor", "action", "target"]
    list_filter = ["action"]
    search_fields = ["actor", "target"]
