"""Ridgeline: plan, simulate, run and diagnose AI infrastructure from one description.

Importing the package is cheap: it pulls neither torch nor a web server. The floors
(`ridgeline.serving` today) and the command line (`ridgeline.cli`) import what they need.
"""

__version__ = "0.1.0"
