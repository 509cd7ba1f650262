"""Measurements on torch itself: ceilings, kernels, attention, formats. For experiments only."""
