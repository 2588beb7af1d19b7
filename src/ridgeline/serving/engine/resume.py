"""An answer goes on where another replica's ended: what may be resumed, and how text catches up.

The client brings the ids that the answer has so far (`return_token_ids` gave them to it). The
engine computes prompt and ids, and draws on from there: chance, penalties and grammar stand where
they would have stood. Here the text does: half characters, beginnings of stop strings and of tool
calls that the first replica held back are held back again, and what it sent is not sent twice.
Called by `endpoints`.
"""

import msgspec

from ridgeline.serving.engine.asking import Bounds, Wish, ending_ids
from ridgeline.serving.engine.continuation import Continuation, Delta
from ridgeline.serving.engine.messages import Add, Output
from ridgeline.serving.openai import ApiError, Generating


def resumed(request: Generating, adds: list[Add], wish: Wish, bounds: Bounds) -> list[Add]:
    """The engine's requests with what was generated before. Raises ApiError 400."""
    if request.resume is None:
        return adds
    ids = request.resume.token_ids
    if problem := _problem(request, adds, wish, bounds):
        raise ApiError(400, problem, param="resume")
    return [msgspec.structs.replace(adds[0], resumed=ids)]


def catch_up(continuation: Continuation, ids: list[int]) -> Delta:
    """Read what was said before. Raises ApiError 400 where a stop string had ended it."""
    delta = continuation.feed(Output("", 0, ids))
    if delta.finish is not None:
        raise ApiError(400, _COMPLETE, param="resume")
    return delta


_COMPLETE = "resume: this answer is complete, nothing follows."


def _problem(request: Generating, adds: list[Add], wish: Wish, bounds: Bounds) -> str:
    """What forbids to go on exactly as the first replica would have."""
    assert request.resume is not None, "asked before"
    ids = request.resume.token_ids
    rules = adds[0].sampling
    if not request.stream:
        return "resume goes together with stream only."
    if len(adds) > 1 or adds[0].n > 1:
        return "resume continues one answer: n is 1, and there is one prompt."
    if wish.logprobs is not None:
        return "resume and logprobs do not go together: those of the first tokens are not known."
    if not all(0 <= token < bounds.vocab for token in ids):
        return f"resume: ids are 0 to {bounds.vocab - 1}."
    ended = ids[-1] in ending_ids(request, bounds) and len(ids) >= rules.min_tokens
    if ended or len(ids) >= rules.max_tokens:
        return _COMPLETE
    return ""
