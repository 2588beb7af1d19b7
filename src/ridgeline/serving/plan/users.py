"""How many users with full contexts fit on nodes, and what stops the next one."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.quantity import Number, ceil, floor
from ridgeline.topics import DTYPES, Answer, a_model, amount, an_accelerator, choice, count, topic


@topic("users-per-node", subject="serving")
def users_per_node(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(8, "Devices that share the weights.", noun="GPUs"),
    users: Number = count(1000, "Users to serve at once.", noun="users"),
    context_tokens: Number = amount("8k", "tokens", "Tokens that each user holds.", least="1"),
    memory_share: Number = amount("0.9", "", "Share of memory for weights and cache.", most="1"),
    dtype: str = choice("bf16", DTYPES, "Type of the weights."),
    kv_dtype: str = choice("bf16", DTYPES, "Type of the cache."),
) -> Answer:
    """How many users with full contexts one node holds, and how many nodes that takes."""
    per_user = (model.kv_bytes_per_token(kv_dtype) * context_tokens).named("per_user_bytes")
    usable = (gpus * accelerator.memory_bytes * memory_share).named("usable_bytes")
    left = (usable - model.weights_bytes(dtype)).named("left_bytes", note="for the cache")
    fit = floor(left / per_user).named("users_per_node", "users")
    return Answer(
        "{users_per_node} with {context_tokens} each on one node of {gpus}: {nodes} for {users}",
        {
            "users_per_node": fit,
            "nodes": ceil(users / fit).named("nodes", "nodes"),
            "per_user_bytes": per_user,
            "left_bytes": left,
        },
    )
