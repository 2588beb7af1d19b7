"""What serving decides, as pure code.

The law of this room: a policy takes and returns its own frozen dataclasses or is a sans-I/O
state machine. It knows no clock, no I/O, no chance, no logging, no torch and no spec; time
(integer nanoseconds) comes in as an argument. The live system (engine, gateway) and the
simulator call the same code.
"""
