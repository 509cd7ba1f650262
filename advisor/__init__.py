"""LLM Tuning Advisor, server side. Holds the version only, so that importing it costs nothing."""

__version__ = "0.1.0"
