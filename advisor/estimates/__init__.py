"""Fit, roofline, calibrated prediction and cost. Pure."""
