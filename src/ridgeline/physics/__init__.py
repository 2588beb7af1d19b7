"""Laws of the machine: bytes, FLOPs, seconds, dollars, heat. Written once, used by all four verbs.

A law is a plain function of numbers, marked with `law.law`. It knows nothing of catalogs, models
or platforms, and runs on floats (a simulation), numpy arrays (a sweep) and Quantities (a plan that
shows its working).
"""
