"""At which batches guesses pay on a sparse model: the step-time law beside the simulated engine.

python examples/simulate/sparse_speculation.py
"""

from ridgeline.serving.fake.timing import machine
from ridgeline.serving.simulate.guesses import Guessing
from ridgeline.serving.simulate.scenarios.sparse_speculation import crossings, points
from ridgeline.serving.simulate.scenarios.streams import Streams

sparse = machine("qwen3-30b-a3b", "h100-sxm")
guessing, streams = Guessing(0.5), Streams(shared_blocks=8, output_tokens=64)
print("qwen3-30b-a3b on an h100-sxm, 4 guesses, each holds with 0.5 where all before it did")
print(f"{'batch':>5} {'experts read':>13} {'with guesses':>13} {'predicted':>10} {'simulated':>10}")
for one in points(sparse, guessing, (1, 2, 4, 8, 32, 128, 256, 400), streams):
    print(
        f"{one.batch:>5} {one.experts:>13.0f} {one.experts_guessing:>13.0f} "
        f"{one.predicted:>9.2f}x {one.simulated:>9.2f}x"
    )
predicted, simulated = crossings(sparse, guessing, streams, 64, 600)
print(f"the last batch with a gain: {predicted} predicted, {simulated} simulated")
