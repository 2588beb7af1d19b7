"""What any replica of ours says of itself, whatever its model does."""

import msgspec
from aiohttp import web

import ridgeline
from ridgeline.serving.engine.replica import State


def json_answer(value: object, status: int = 200) -> web.Response:
    """An answer whose body is this value."""
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


async def version(_request: web.Request) -> web.Response:
    """`GET /version`."""
    return json_answer({"version": ridgeline.__version__})


def state_answer(state: State, *good: State) -> web.Response:
    """The state, with 200 where it is one of the good ones and 503 where not."""
    return json_answer({"status": str(state)}, status=200 if state in good else 503)


def model_list(card: dict[str, object]) -> web.Response:
    """`GET /v1/models` of a replica, which has one model."""
    return json_answer({"object": "list", "data": [card]})


def model_card(name: str, created: int, longest: int) -> dict[str, object]:
    """What `/v1/models` has of a model that takes sequences of up to `longest` tokens."""
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "ridgeline",
        "root": name,
        "parent": None,
        "max_model_len": longest,
    }
