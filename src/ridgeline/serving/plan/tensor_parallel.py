"""One sequence on several devices: which part of a step tensor parallelism shortens."""

from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.physics.latency_chain import collective_count, launches_s
from ridgeline.physics.roofline import read_s
from ridgeline.physics.step_time import all_reduces_s, ring_s
from ridgeline.quantity import Number, Provenance, Quantity, choose, given, holds, smallest
from ridgeline.serving.plan.decode import Decode
from ridgeline.serving.plan.splits import check_tensor_parallel
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic

#: Degrees that the table compares.
_DEGREES = (1, 2, 4, 8, 16)


@topic("tensor-parallel-latency", subject="serving")
def tensor_parallel_latency(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    tensor_parallel: Number = count(8, "Devices that share each layer.", noun="GPUs"),
    batch: Number = count(1, "Sequences in the step.", noun="sequences"),
    all_reduce_s: Number = amount(
        "8us",
        "s",
        "One small all-reduce.",
        interval=("4us", "20us"),
        source="4.7 us in a graph, 15.6 us NCCL, 23 us eager, measured on 8 x H100",
    ),
    kernels_a_layer: Number = amount("10", "", "Kernels that one layer starts, on average."),
    launch_s: Number = amount(
        "3us", "s", "From one kernel's start to the next.", interval=("1us", "5us")
    ),
    dtype: str = choice("bf16", DTYPES, "Type of the weights."),
) -> Answer:
    """How fast one sequence decodes on several devices, and what more devices cannot shorten.

    Weights are read in parts; all-reduces and launches stay. The cache's own read is left out, as
    at short contexts it is small.
    """
    check_tensor_parallel(model, tensor_parallel)
    node = Decode(model, accelerator, tensor_parallel, dtype)
    chain = _Chain(model, accelerator, batch, all_reduce_s, kernels_a_layer, launch_s, dtype)
    step, floor = chain.step(tensor_parallel), chain.floor(tensor_parallel)
    read = chain.read(tensor_parallel)
    base = _devices(1, "one_device", "the base of the speedup")
    alone = chain.read(base).named("one_device_read_s", "ms")
    like = chain.step(base).named("one_device_step_s", "ms")
    count = collective_count(model.layers)
    reduces = choose(tensor_parallel > 1, count, 0 * count, why="several devices")
    fits = holds(accelerator.memory_bytes >= node.weights_bytes)
    return Answer(
        "one step takes {step_s} on {tensor_parallel}: {read_s} of reading, {floor_s} of "
        "{all_reduces} and launches; that is {speedup} the rate of reading on one device",
        {
            "step_s": step,
            "read_s": read,
            "all_reduces": reduces.named("all_reduces", "collectives"),
            "launches": (model.layers * kernels_a_layer).named("launches", "launches"),
            "floor_s": floor,
            "speedup": (alone / step).named("speedup", "x"),
            "speedup_like_for_like": (like / step).named("speedup_like_for_like", "x"),
        },
        table=chain.table(tensor_parallel),
        notes=(
            "The speedup compares with reading alone on one device, as the usual figure does; "
            "like for like counts that device's launches too."
            + ("" if fits else " No single device holds this model: the base is a thought."),
            "All-reduce and launch latency are what to measure: an all-reduce takes 5 us in a "
            "graph and 16 to 23 us outside.",
        ),
    )


def _devices(count: int, name: str, told: str) -> Quantity:
    return given(count, "GPUs", name=name, provenance=Provenance.DEFINED, source=told)


@dataclass(frozen=True)
class _Chain:
    """A decode step as reads, collectives and launches, for any degree."""

    model: Model
    accelerator: Accelerator
    batch: Number
    all_reduce_s: Number
    kernels_a_layer: Number
    launch_s: Number
    dtype: str

    @property
    def launches(self) -> Quantity:
        """Starting all kernels, on any degree."""
        seconds = launches_s(self.model.layers, self.kernels_a_layer, self.launch_s)
        return seconds.named("launches_s", "ms")

    def read(self, degree: Number) -> Quantity:
        """Reading the weights, a part on each device."""
        read = Decode(self.model, self.accelerator, degree, self.dtype).read_bytes(self.batch)
        return read_s(read, degree * self.accelerator.memory_bytes_per_s).named("read_s", "ms")

    def collectives(self, degree: Number) -> Quantity:
        """All-reduces: their latency, and the little that they carry."""
        message = (self.batch * self.model.hidden * dtype_bytes("bf16")).named("message_bytes")
        latency = all_reduces_s(self.model.layers, degree, self.all_reduce_s)
        carried = ring_s(message, degree, self.model.layers, self.accelerator.link_bytes_per_s)
        return (latency + carried).named("collectives_s", "ms")

    def floor(self, degree: Number) -> Quantity:
        """What stays however many devices read."""
        return (self.collectives(degree) + self.launches).named("floor_s", "ms")

    def step(self, degree: Number) -> Quantity:
        """The whole step."""
        return (self.read(degree) + self.floor(degree)).named("step_s", "ms")

    def table(self, asked: Number) -> tuple[dict[str, Quantity | str], ...]:
        """Degrees that split the model, up to the one asked for."""
        rows: list[dict[str, Quantity | str]] = []
        for degree in _DEGREES:
            if smallest(asked=asked, row=degree).value < degree or self.model.heads.value % degree:
                break
            of = _devices(degree, "degree", "a row of the table")
            rows.append(
                {
                    "degree": of,
                    "read": self.read(of),
                    "collectives": self.collectives(of),
                    "launches": self.launches,
                    "step": self.step(of),
                }
            )
        return tuple(rows)
