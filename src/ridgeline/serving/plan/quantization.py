"""Which numbers to make smaller: by the resource that is scarce, not by what saves most bytes."""

from dataclasses import dataclass, replace

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.physics.memory import grouped_weight_bytes
from ridgeline.physics.roofline import compute_s, read_s
from ridgeline.quantity import Number, Quantity, largest
from ridgeline.serving.plan.decode import Decode, an_engine, one_token
from ridgeline.serving.plan.splits import check_tensor_parallel
from ridgeline.show import show
from ridgeline.topics import Answer, a_model, amount, an_accelerator, choice, count, topic
from ridgeline.working.formula import bound

_INT4, _BOTH, _CACHE = "int4 weights", "8-bit both", "8-bit cache"
_METHODS = (_INT4, _BOTH, _CACHE)
_SCARCE = ("weights", "compute", "cache")

# What relieves what, the one to try first in front.
_RELIEF = {"weights": (_INT4, _BOTH), "compute": (_BOTH,), "cache": (_CACHE, _INT4)}

# What a method is known to hurt first, so what to measure before and after.
_EVALS = {
    _INT4: "reasoning and code",
    _BOTH: "your tasks, long outputs",
    _CACHE: "long-context retrieval",
}


@dataclass(frozen=True)
class Load:
    """What a node does in the time of one decode step, the prompts of new requests included."""

    node: Decode
    batch: Number
    context: Number
    prompt: Number
    output: Number

    def caches_bytes(self, kind: str) -> Quantity:
        """Caches of all sequences, on all devices."""
        one = replace(self.node, kv_dtype=kind).sequence_bytes(self.context)
        return (self.batch * one).named(f"{kind}_caches_bytes")

    def visited(self, weights: Quantity) -> Quantity:
        """Of the weights, what a step reads: of a mixture, the experts that the batch visits."""
        if not self.node.model.is_moe:
            return weights
        return weights * self.node.read_bytes(self.batch) / self.node.weights_bytes

    def prompt_s(self, kind: str) -> Quantity:
        """Prefill that falls on one step: a sequence makes way for the next after its output."""
        seconds = self._compute_s(self.node.model.prefill_flop(self.prompt), kind)
        return (self.batch * seconds * one_token() / self.output).named(f"{kind}_prompt_s")

    def arithmetic_s(self, kind: str) -> Quantity:
        """Arithmetic of one decode step."""
        return self._compute_s(self.batch * self.node.sequence_flop(self.context), kind)

    def _compute_s(self, flop: Quantity, kind: str) -> Quantity:
        node = replace(self.node, dtype=kind)
        return compute_s(flop, node.peak_flop_per_s, node.coefficients.compute_share)

    def decode_s(self, weights: Quantity, caches: Quantity, kind: str) -> Quantity:
        """One decode step with these weights and caches, multiplied in this type."""
        work = self.node.work(self.batch, self.context)
        work = replace(work, read_bytes=self.visited(weights), cached_bytes=caches)
        return replace(self.node, dtype=kind).spent_s(work)


@dataclass(frozen=True)
class Method:
    """Types of weights, cache and arithmetic, and what they come to under a load."""

    name: str
    load: Load
    weights_bytes: Quantity
    kv_dtype: str
    kind: str

    @property
    def slug(self) -> str:
        """Its name in a derivation."""
        return self.name.replace(" ", "_").replace("-", "_")

    @property
    def held_bytes(self) -> Quantity:
        """Weights and caches together."""
        held = self.weights_bytes + self.load.caches_bytes(self.kv_dtype)
        return held.named(f"{self.slug}.held_bytes")

    @property
    def step_s(self) -> Quantity:
        """A decode step and the prefill that falls on it."""
        caches = self.load.caches_bytes(self.kv_dtype)
        decode = self.load.decode_s(self.weights_bytes, caches, self.kind)
        decode = decode.named(f"{self.slug}.decode_s")
        return (decode + self.load.prompt_s(self.kind)).named(f"{self.slug}.step_s")


@topic("quantization-method", subject="serving")
def quantization_method(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices that share the weights.", noun="GPUs"),
    batch: Number = count(16, "Sequences that decode together.", noun="sequences"),
    context_tokens: Number = amount("4k", "tokens", "Tokens that each has cached.", least="1"),
    prompt_tokens: Number = amount("1k", "tokens", "Prompt of a request, not cached.", least="1"),
    output_tokens: Number = amount("500", "tokens", "Answer of a request.", least="1"),
    scarce: str = choice("auto", ("auto", *_SCARCE), "The scarce resource; auto computes it."),
    failed_evals: str = choice("none", ("none", *_METHODS), "Method whose evals did not pass."),
    group: Number = count(128, "Weights that share a scale in int4.", least=8),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
    engine: str = an_engine(),
) -> Answer:
    """Which of weights, arithmetic and cache to make smaller, by what is scarce; what it gains.

    The start is bf16 throughout. What does not fit is scarce before anything that is slow.
    """
    check_tensor_parallel(model, gpus)
    node = Decode(model, accelerator, gpus, engine=engine)
    load = Load(node, batch, context_tokens, prompt_tokens, output_tokens)
    now = Method("bf16", load, node.weights_bytes, "bf16", "bf16")
    usable = node.usable_bytes(memory_share)
    binding = _binding(now, usable)
    found = bound(binding) if scarce == "auto" else scarce
    methods = _methods(load, group)
    fitting = [name for name in _RELIEF[found] if name in methods and name != failed_evals]
    rows = tuple(_row(method, now) for method in methods.values())
    values = {"scarce_share": (binding / _all(now, usable)).named("scarce_share", "%")}
    if not fitting:
        return Answer(
            f"Scarce: {found}, and no method relieves it here: more or other devices",
            values | {"step_s": now.step_s},
            table=rows,
            ok=False,
        )
    best = methods[fitting[0]]
    gain = (now.step_s / best.step_s).named("gain", "x")
    saved = (now.held_bytes - best.held_bytes).named("saved_bytes")
    return Answer(
        f"Scarce: {found}, so {best.name}: it saves {{saved_bytes}} and makes a step {{gain}} "
        f"as fast; measure {_EVALS[best.name]}",
        {"gain": gain, "saved_bytes": saved, "step_s": best.step_s, "before_step_s": now.step_s}
        | {"saved_share": (saved / now.held_bytes).named("saved_share", "%")}
        | values,
        table=rows,
        notes=(*_notes(accelerator, found, methods), node.told()),
    )


def _loads(now: Method, usable: Quantity) -> dict[str, Quantity]:
    """Use of each resource, as a share: of memory where that is short, else of the step."""
    load, caches = now.load, now.load.caches_bytes("bf16")
    if now.held_bytes > usable:
        return {
            "weights": now.weights_bytes / usable,
            "cache": caches / usable,
            "compute": 0 * now.weights_bytes / usable,
        }
    step, times = now.step_s, load.node.steps
    return {
        "weights": times.weights_s(load.visited(now.weights_bytes)) / step,
        "cache": read_s(caches, times.cache_bytes_per_s) / step,
        "compute": (load.arithmetic_s("bf16") + load.prompt_s("bf16")) / step,
    }


def _binding(now: Method, usable: Quantity) -> Quantity:
    return largest(**_loads(now, usable)).named("scarce")


def _all(now: Method, usable: Quantity) -> Quantity:
    loads = _loads(now, usable)
    return loads["weights"] + loads["cache"] + loads["compute"]


def _methods(load: Load, group: Number) -> dict[str, Method]:
    """The methods this device can run; weights of 8 bits multiply in fp8, or in int8 without it."""
    model, four = load.node.model, dtype_bytes("int4")
    int4 = grouped_weight_bytes(model.params, four, group).named("int4_weight_bytes")
    whole = model.weights_bytes("bf16")
    found = {_INT4: Method(_INT4, load, int4, "bf16", "int4")}
    if eight := _eight_bits(load.node.accelerator):
        half = model.weights_bytes(eight).named(f"{eight}_weight_bytes")
        found[_BOTH] = Method(_BOTH, load, half, eight, eight)
    return found | {_CACHE: Method(_CACHE, load, whole, eight or "fp8", "bf16")}


def _eight_bits(accelerator: Accelerator) -> str:
    """The 8-bit type that the device multiplies, fp8 first; empty where it has none."""
    return next((kind for kind in ("fp8", "int8") if accelerator.multiplies(kind)), "")


def _row(method: Method, now: Method) -> dict[str, Quantity | str]:
    caches = method.load.caches_bytes(method.kv_dtype)
    return {
        "method": method.name,
        "weights": method.weights_bytes,
        "caches": caches,
        "saves": (now.held_bytes - method.held_bytes).named("saved_bytes"),
        "step": method.step_s,
        "as fast": (now.step_s / method.step_s).named("gain", "x"),
        "measure": _EVALS[method.name],
    }


def _notes(accelerator: Accelerator, found: str, methods: dict[str, Method]) -> tuple[str, ...]:
    notes = [
        "int4 weights are widened before they multiply, so they save reads and memory and no "
        "arithmetic; only 8 bits on both sides double the FLOP/s.",
        "Measure before and after: int4 costs small models most, and first in reasoning and code; "
        "activations in 8 bits have the outliers; a narrow cache loses over long contexts, which "
        "short prompts hide.",
    ]
    if _BOTH in methods and methods[_BOTH].kind == "int8":
        notes.append(f"{accelerator.name} has no fp8 units: 8 bits are int8 here.")
    if found == "cache":
        saved = methods[_CACHE].load.caches_bytes(methods[_CACHE].kv_dtype)
        notes.append(f"An 8-bit cache leaves {show(saved)} where bf16 has twice that.")
    return tuple(notes)
