"""The handlers that do not generate: health, metrics, models, tokens."""

from aiohttp import web

from ridgeline.serving.engine.aside import Aside
from ridgeline.serving.engine.messages import Stats
from ridgeline.serving.engine.pages import json_answer, model_card, model_list, state_answer
from ridgeline.serving.engine.replica import Replica, State
from ridgeline.serving.http_guard import Patience, read_body
from ridgeline.serving.openai import ApiError, DetokenizeRequest, TokenizeRequest, read


class Status:
    """The quick handlers of one replica."""

    def __init__(self, replica: Replica, patience: Patience, aside: Aside) -> None:
        self._replica = replica
        self._patience = patience
        self._aside = aside

    async def health(self, _request: web.Request) -> web.Response:
        """`GET /health`: 200 while the engine lives, draining included."""
        return state_answer(self._replica.state, State.READY, State.DRAINING)

    async def ready(self, _request: web.Request) -> web.Response:
        """`GET /ready`: 200 while requests are taken; the engine has generated a token by then."""
        return state_answer(self._replica.state, State.READY)

    async def metrics(self, _request: web.Request) -> web.Response:
        """`GET /metrics`: Prometheus' text, with vLLM's names."""
        replica = self._replica
        stats = replica.loaded.link.stats if replica.started else Stats()
        text = replica.metrics.text(
            stats,
            replica.started,
            prefix_caching=replica.config.prefix_caching,
            usage_log_failures=None if replica.log is None else replica.log.failures,
        )
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4"})

    async def usage(self, request: web.Request) -> web.Response:
        """`GET /usage/{id}`: what the durable log has of a request, also of an earlier process."""
        log = self._replica.log
        found = log.find(request.match_info["id"]) if log is not None else None
        if found is None:
            raise ApiError(
                404,
                "The usage log has no such request."
                if log is not None
                else "This replica keeps no usage log; `--usage-log FOLDER` starts one.",
                code="request_not_found",
            )
        return json_answer(found)

    async def models(self, _request: web.Request) -> web.Response:
        """`GET /v1/models`: the one model, with the longest sequence it takes."""
        return model_list(self._card())

    async def model(self, request: web.Request) -> web.Response:
        """`GET /v1/models/{model}`."""
        self._replica.check_model(request.match_info["model"])
        return json_answer(self._card())

    async def tokenize(self, request: web.Request) -> web.Response:
        """`POST /tokenize`: the ids of a text or a conversation."""
        return json_answer(await self._aside.run(self._tokenized, await self._body(request)))

    async def detokenize(self, request: web.Request) -> web.Response:
        """`POST /detokenize`: the text of ids, special tokens included."""
        return json_answer(await self._aside.run(self._detokenized, await self._body(request)))

    def _tokenized(self, body: bytes) -> dict[str, object]:
        asked = read(body, TokenizeRequest)
        self._replica.check_model(asked.model)
        loaded = self._replica.loaded
        ids = self._ids(asked)
        spelled = loaded.prompts.tokenizer.token_text
        return {
            "count": len(ids),
            "max_model_len": loaded.started.max_model_len,
            "tokens": ids,
            "token_strs": list(map(spelled, ids)) if asked.return_token_strs else None,
        }

    def _detokenized(self, body: bytes) -> dict[str, object]:
        asked = read(body, DetokenizeRequest)
        self._replica.check_model(asked.model)
        tokenizer = self._replica.loaded.prompts.tokenizer
        return {"prompt": tokenizer.decode(asked.tokens, skip_special=False)}

    def _ids(self, asked: TokenizeRequest) -> list[int]:
        prompts = self._replica.loaded.prompts
        if asked.messages is not None:
            return prompts.chat(
                asked.messages,
                asked.tools,
                asked.chat_template_kwargs,
                add_generation_prompt=asked.add_generation_prompt,
            )
        if asked.prompt is None:
            raise ApiError(400, "Missing required parameter: prompt (or messages).", param="prompt")
        return prompts.text(asked.prompt, param="prompt", add_bos=asked.add_special_tokens)

    def _card(self) -> dict[str, object]:
        replica = self._replica
        return model_card(replica.name, replica.created, replica.loaded.started.max_model_len)

    async def _body(self, request: web.Request) -> bytes:
        return await read_body(request, self._replica.limits.body_bytes, self._patience.body_s)
