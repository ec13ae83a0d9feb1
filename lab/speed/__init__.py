"""Measurements of the parts, each against what it cannot beat: `python -m lab.speed.engine`."""
