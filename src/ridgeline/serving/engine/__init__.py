"""A small LLM engine in PyTorch: one flat batch a step over a paged key-value cache.

Read in this order: `messages` (what goes in and out), `loop` (one step), `runner` (a decision
becomes tensors), `model`, `attention`, `sampler`. `front` is the HTTP process before it.
"""
