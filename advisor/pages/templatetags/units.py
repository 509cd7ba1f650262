"""Template filters over `advisor.units`: the only place where pages format a number."""

from __future__ import annotations

from datetime import datetime, timedelta

from django import template
from django.utils import dateformat, timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from advisor import units

register = template.Library()

register.filter("number", units.number)
register.filter("seconds", units.seconds)
register.filter("memory", units.memory)
register.filter("bandwidth", units.bandwidth)
register.filter("rate", units.rate)
register.filter("energy", units.energy)
register.filter("percent", units.percent)
register.filter("count", units.count)


@register.filter
def metric(value: float | None, name: str) -> str:
    """`{{ value|metric:"ttft_s" }}` in the metric's usual unit."""
    return units.metric(name, value)


@register.filter
def metric_name(name: str) -> str:
    return units.EFFECT_NAMES.get(name, name)


@register.filter
def metric_definition(name: str) -> str:
    return units.METRIC_DEFINITIONS.get(name, "")


@register.filter
def change(fraction: float | None) -> str:
    """A signed relative change: -0.3 -> "−30 %", 0.12 -> "+12 %"."""
    if fraction is None:
        return units.DASH
    text = units.percent(fraction)
    return text if fraction < 0 or text.startswith("0") else f"+{text}"


@register.filter
def span(value_s: float | None) -> str:
    """A duration for people: "8 s", "2 min 10 s", "3 h 6 min", "2 days"."""
    if value_s is None:
        return units.DASH
    whole = max(0, round(value_s))
    if whole < 60:
        return f"{whole}{units.NBSP}s"
    minutes, left_s = divmod(whole, 60)
    if minutes < 60:
        tail = f" {left_s}{units.NBSP}s" if left_s and minutes < 10 else ""
        return f"{minutes}{units.NBSP}min{tail}"
    hours, left_min = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}{units.NBSP}h" + (f" {left_min}{units.NBSP}min" if left_min else "")
    days = hours // 24
    return (ngettext("%(n)s day", "%(n)s days", days) % {"n": days}).replace(" ", units.NBSP)


@register.filter
def age(moment: datetime | None) -> str:
    """How long ago, in its largest unit."""
    if moment is None:
        return units.DASH
    return span((timezone.now() - moment).total_seconds()).partition(" ")[0]


@register.filter
def until(moment: datetime | None) -> str:
    """How long until a moment, "expired" behind it."""
    if moment is None:
        return units.DASH
    left: timedelta = moment - timezone.now()
    return span(left.total_seconds()) if left.total_seconds() > 0 else _("expired")


@register.filter
def moment(value: datetime | None) -> str:
    """ "today 09:42", "3 Nov 09:42" or "3 Nov 2025", in the server's time zone."""
    if value is None:
        return units.DASH
    local, now = timezone.localtime(value), timezone.localtime()
    if local.date() == now.date():
        return _("today %(time)s") % {"time": f"{local:%H:%M}"}
    # Formats of a day, in Django's letters; each language has its own order.
    return dateformat.format(local, _("j M H:i") if local.year == now.year else _("j M Y"))


@register.filter
def knob(value: object) -> str:
    """A setting's value in words: True is "on", None is "engine's choice"."""
    if value is None:
        return _("engine's choice")
    if isinstance(value, bool):
        return _("on") if value else _("off")
    return str(value)
