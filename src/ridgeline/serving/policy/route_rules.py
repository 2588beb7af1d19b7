"""The routing formulas of other systems, to compare with. Pure, as `route`, which calls them.

Each is what its source computes at its own defaults, over what this gateway knows: load counted at
dispatch, what replicas last reported, and the prefix index in place of the source's own tree or
events, which forgets as a replica's cache does. What all rules of `route` share holds for them too:
no full replica while another has room. Where a source leaves equals to the order of a hash map, we
say which.
"""

from collections.abc import Iterable, Mapping, Sequence

from ridgeline.serving.policy.route_view import Replica, Route, Rule, View, scores_of
from ridgeline.serving.policy.sticky import Score

# Of sglang-router's command line; its library's own are 0.5, 32 and 1.1.
CACHED = 0.3  # of a prompt: with more of it cached somewhere it goes there
UNEVEN = 64  # requests between the most and the least loaded, and
TIMES = 1.5  # so many times as many: with both exceeded only the load counts

QUEUE, KV, PREFIX = 2.0, 2.0, 3.0  # the weights of llm-d's scorers


def sglang_cache_aware(view: View, able: list[Replica]) -> Route:
    """The longest match where loads are even and enough of the prompt is cached, else the least.

    Of equal loads the first in order of id; of equal matches the least loaded, as vllm-router,
    which has the same rule, decides it. Before PR 14650 (2025-12) a miss went to the smallest tree.

    Source: sgl-project/sglang, sgl-model-gateway/src/policies/cache_aware.rs at 053b63f; defaults
    of sglang-router 0.3.2 and smg 1.13.0, router_args.py.
    """
    scores = scores_of(view, able)
    loads = [score.load for score in scores]
    most, least = max(loads), min(loads)
    if most - least > UNEVEN and most > TIMES * least:
        chosen = _first(scores)
        return Route(chosen.replica, f"uneven, {least} to {most} requests: the fewest", scores)
    best = max(score.warm_tokens for score in scores)
    share = best / view.request.input_tokens
    if share <= CACHED:
        chosen = _first(scores)
        said = f"{share:.0%} of the prompt is cached at best: {chosen.load} requests there, fewest"
        return Route(chosen.replica, said, scores)
    chosen = _first(score for score in scores if score.warm_tokens == best)
    return Route(chosen.replica, f"even, and has {share:.0%} of the prompt", scores)


def dynamo_kv(view: View, able: list[Replica]) -> Route:
    """The lowest cost in KV blocks: what is to be prefilled there, and what is held there.

        cost = max(0, in flight + prompt - overlap) + active + prompt

    Counted in tokens, for a block's size divides all alike. A prompt is active from its dispatch to
    its end, its answer's blocks are not counted (their default), and a beginning that several
    active prompts share counts for each of them (theirs counts it once). Temperature is 0, so
    chance only decides between equals.

    Source: ai-dynamo/dynamo, lib/kv-router/src/scheduling/selector/default.rs at 07a6c9c, with
    prefill_load_scale 1, overlap_score_credit 1 and no decay, as ai-dynamo 1.6.1 has them.
    """
    prompt, scores = view.request.input_tokens, scores_of(view, able)
    for one, score in zip(able, scores, strict=True):
        score.cost = max(0, one.uncached_tokens + prompt - score.warm_tokens)
        score.cost += one.prompt_tokens + prompt
    least = min(score.cost for score in scores)
    chosen = _drawn([score for score in scores if score.cost == least], view)
    return Route(chosen.replica, f"costs {chosen.cost:,} tokens, least of {len(scores)}", scores)


def llm_d_scorers(view: View, able: list[Replica]) -> Route:
    """The highest sum of weighted scores, each 0..1: a short queue, a free cache, a long match.

        2 (longest - queue) / (longest - shortest) + 2 (1 - KV in use) + 3 matched / prompt

    The first is 1 where all queues are equal. Queues and caches are as last reported, and who has
    reported nothing gets nothing for them. Chance decides between equals. Each score's `cost` says
    what is lacking to the possible 7, in thousandths.

    Source: llm-d/llm-d-router, pkg/epp/config/loader/defaults.go at 0b59e4e and its scorers at
    2342697; the Gateway API Inference Extension's endpoint picker, before that code moved there.
    """
    scores = scores_of(view, able)
    queues = [one.waiting for one in able if one.waiting is not None]
    longest, shortest = max(queues, default=0), min(queues, default=0)
    totals: dict[str, float] = {}
    for one, score in zip(able, scores, strict=True):
        total = PREFIX * score.warm_tokens / view.request.input_tokens
        if one.waiting is not None:
            spread = longest - shortest
            total += QUEUE * ((longest - one.waiting) / spread if spread else 1.0)
        if one.kv_usage is not None:
            total += KV * (1.0 - one.kv_usage)
        totals[one.id] = total
        score.cost = round(1000 * (QUEUE + KV + PREFIX - total))
    best = max(totals.values())
    chosen = _drawn([score for score in scores if totals[score.replica] == best], view)
    return Route(chosen.replica, f"scores {best:.2f} of 7, most of {len(scores)}", scores)


def production_stack_prefix(view: View, able: list[Replica]) -> Route:
    """The longest match, whatever the load; chance between equals, and where nothing matches.

    Theirs never forgets a prompt; here a replica's index forgets what its cache cannot hold.

    Source: vllm-project/production-stack, src/vllm_router/routers/routing_logic.py at 008a23b,
    routing logic "prefixaware".
    """
    scores = scores_of(view, able)
    best = max(score.warm_tokens for score in scores)
    equals = [score for score in scores if score.warm_tokens == best]
    share = best / view.request.input_tokens
    reason = f"has {share:.0%} of the prompt, as {len(equals)} of {len(scores)} have"
    return Route(_drawn(equals, view).replica, reason, scores)


THEIRS: Mapping[str, Rule] = {
    "sglang-cache-aware": Rule(sglang_cache_aware),
    "dynamo-kv": Rule(dynamo_kv, draws=True),
    "llm-d-scorers": Rule(llm_d_scorers, draws=True),
    "production-stack-prefix": Rule(production_stack_prefix, draws=True),
}


def _first(scores: Iterable[Score]) -> Score:
    return min(scores, key=lambda score: (score.load, score.replica))


def _drawn(equals: Sequence[Score], view: View) -> Score:
    ranked = sorted(equals, key=lambda score: score.replica)
    return ranked[view.request.chance % len(ranked)]
