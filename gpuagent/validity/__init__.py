"""Whether a measurement can be trusted, said before any of its numbers."""

from gpuagent.validity.checks import assess
from gpuagent.validity.limits import LIMITS
from gpuagent.validity.window import Observed, WindowWatch

__all__ = ["LIMITS", "Observed", "WindowWatch", "assess"]
