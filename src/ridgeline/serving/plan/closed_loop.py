"""Users of one copy in a closed loop: what each gets while the prompts of the others come between.

Steps are those that were fitted to engines; a bound would hide what prompts cost. The law is
`closed_loop_tpot_s`, solved here for the users whose time per token stays within a limit.
"""

from dataclasses import dataclass, replace

from ridgeline.catalog.step_times import ANY
from ridgeline.errors import CatalogError, SpecError
from ridgeline.physics.roofline import fitting_batch
from ridgeline.physics.step_time import closed_loop_tpot_s
from ridgeline.quantity import Number, Quantity, largest, smallest
from ridgeline.serving.plan.decode import Decode, one_token
from ridgeline.serving.plan.splits import points


@dataclass(frozen=True)
class ClosedLoop:
    """Clients who each send the next prompt as soon as they have their answer."""

    decode: Decode
    prompt_tokens: Quantity
    answer_tokens: Quantity
    prefill_s: Quantity
    limit_s: Quantity

    @property
    def context_tokens(self) -> Quantity:
        """The mean over an answer's life."""
        return (self.prompt_tokens + self.answer_tokens / 2).named("mean_context_tokens")

    def values(self, most: Quantity, copies: Quantity) -> dict[str, Quantity]:
        """What each of `most` users on a copy gets, and how many on all copies keep the rate."""
        some = largest(users=most, one=0 * most + 1)
        step = self.decode.step_s(some, self.context_tokens).named("decode_step_s")
        tpot = closed_loop_tpot_s(step, self.prefill_s, some, self.answer_tokens).named(
            "tpot_with_prompts_s", "ms"
        )
        kept = smallest(memory=most, **self.users())
        return {
            "tokens_per_s_with_prompts": (one_token() / tpot).named("tokens_per_s_with_prompts"),
            "users_with_prompts": (kept * copies).named("users_with_prompts", "users"),
        }

    def users(self) -> dict[str, Quantity]:
        """The most users whose tokens come in time; every further one brings a prompt as well."""
        sides = self.decode.sides(self.context_tokens)
        prompt = (self.prefill_s * one_token() / self.answer_tokens).named("prompt_each_s")
        added = 0 * prompt if sides.added_s is None else sides.added_s
        # A user's own prompt does not interrupt it.
        limit = self.limit_s + prompt
        reads = fitting_batch(limit, sides.weights_s + added, sides.reads_each_s + prompt)
        arithmetic = fitting_batch(limit, added, sides.arithmetic_each_s + prompt)
        return {"bandwidth": reads, "compute": arithmetic}

    def command(self, clients: Quantity) -> str:
        """How to ask for the same loop, on one copy, with its interval."""
        node = self.decode
        numbers = {
            "tensor-parallel": node.devices,
            "concurrency": clients,
            "input": self.prompt_tokens,
            "output": self.answer_tokens,
        }
        words = [f"--{name} {points(one)[0]:.0f}" for name, one in numbers.items()]
        if node.dtype != "native":
            words = [f"--dtype {node.dtype}", *words]
        return " ".join(
            (
                f"ridgeline plan step-time --model {node.model.id}",
                f"--accelerator {node.accelerator.id} --kv-dtype {node.kv_dtype}",
                *words,
            )
        )


def closed_loop(
    decode: Decode, context_tokens: Number, answer_share: Number, user_tokens_per_s: Number
) -> ClosedLoop | None:
    """The loop of users with such contexts; None where no steps are fitted to the machine."""
    fitted = replace(decode, engine=decode.engine if decode.is_fitted else ANY)
    answer = (context_tokens * answer_share).named("answer_tokens")
    prompt = (context_tokens - answer).named("prompt_tokens")
    try:
        prefill = fitted.prefill_s(prompt).named("prompt_prefill_s", "ms")
    except (CatalogError, SpecError):
        return None
    limit = (one_token() / user_tokens_per_s).named("token_s")
    return ClosedLoop(fitted, prompt, answer, prefill, limit)
