"""Arrivals and sizes of requests, from a seed or from a recorded trace.

The law of this house's floor: the same arguments give the same requests, everywhere. Arrival times,
prompt sizes and output sizes are drawn from separate streams of chance, so changing one leaves
the others as they were (common random numbers). The load generator asks for requests here, and
so does the simulator. `reuse` and `statistics` say what a trace is like.
"""

from ridgeline.workload.arrivals import Arrivals, parse_arrivals
from ridgeline.workload.drawn import sized, synthetic
from ridgeline.workload.read import read_trace
from ridgeline.workload.request import Request
from ridgeline.workload.sizes import Sizes, parse_sizes
from ridgeline.workload.trace import Trace

__all__ = [
    "Arrivals",
    "Request",
    "Sizes",
    "Trace",
    "parse_arrivals",
    "parse_sizes",
    "read_trace",
    "sized",
    "synthetic",
]
