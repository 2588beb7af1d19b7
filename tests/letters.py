"""An OpenAI-compatible server whose tokens are letters: what it answers follows from a hash.

Tests change its fields as a deployment is changed by a slip.
"""

import asyncio
import hashlib
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

LETTERS = "abcdefgh"


@dataclass
class Letters:
    """`shift` moves every logit by up to so much, as another numeric type would.

    `logprob` is told of every token in the place of the right one.
    """

    template: str = "<{role}>{content}\n"
    shift: float = 0.0
    context: int = 3000
    temperature: float = 1.0
    tells_ids: bool = True
    tells_logprobs: bool = True
    takes_ids: bool = True
    takes_schemas: bool = True
    repeats: bool = True
    logprob: float | None = None
    key: str | None = None
    busy: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def logits(self, text: str) -> dict[str, float]:
        """The next letter's, from the text's end."""
        found = {}
        for letter in LETTERS:
            digest = hashlib.sha256(f"{text[-6:]}|{letter}".encode()).digest()
            found[letter] = digest[0] / 64 + self.shift * (digest[1] / 128 - 1)
        whole = math.log(sum(map(math.exp, found.values())))
        return {letter: logit - whole for letter, logit in found.items()}

    def answer(self, prompt: str, body: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
        """Letters with the likeliest five at each place."""
        chance = hashlib.sha256(str(body.get("seed")).encode())
        if not self.repeats:
            chance.update(str(len(self.bodies)).encode())
        temperature = body.get("temperature", self.temperature)
        said = []
        for _ in range(body["max_tokens"]):
            logits = self.logits(prompt)
            best = sorted(logits, key=lambda letter: -logits[letter])
            chance.update(b".")
            drawn = int.from_bytes(chance.digest()[:4]) / 2**32
            letter = best[0]
            if temperature > 0:
                letter = _drawn({one: logits[one] / temperature for one in best}, drawn)
            kept = {one: logits[one] for one in best[:5]} | {letter: logits[letter]}
            if self.logprob is not None:
                kept = dict.fromkeys(kept, self.logprob)
            said.append((letter, kept))
            prompt += letter
        return said

    async def chat(self, request: web.Request) -> web.Response:
        body = await self.heard(request)
        if "response_format" in body and not self.takes_schemas:
            return refusal(400, "no schemas here")
        prompt = "".join(self.template.format(**message) for message in body["messages"])
        if len(prompt) + body["max_tokens"] > self.context:
            return refusal(400, f"at most {self.context} tokens")
        said = self.answer(prompt, body)
        content = [
            {
                **named(letter, logits[letter]),
                "top_logprobs": [named(*one) for one in logits.items()],
            }
            for letter, logits in said
        ]
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        choice["logprobs"] = {"content": content} if self.tells_logprobs else None
        more: dict[str, Any] = {"usage": {"prompt_tokens": len(prompt)}}
        if self.tells_ids:
            choice["token_ids"] = [ord(letter) for letter, _ in said]
            more["prompt_token_ids"] = [ord(letter) for letter in prompt]
        return web.json_response({"choices": [choice], **more})

    async def completions(self, request: web.Request) -> web.Response:
        body = await self.heard(request)
        given = body["prompt"]
        if self.context < 16:
            return refusal(400, f"at most {self.context} tokens")
        if not isinstance(given, str) and not self.takes_ids:
            return refusal(400, "a text, please")
        prompts = [given] if isinstance(given, str) else ["".join(map(chr, ids)) for ids in given]
        choices = []
        for index, prompt in enumerate(prompts):
            said = self.answer(prompt, body)
            told = {
                "tokens": [letter for letter, _ in said],
                "token_logprobs": [logits[letter] for letter, logits in said],
                "top_logprobs": [logits for _, logits in said],
            }
            choice: dict[str, Any] = {"index": index, "logprobs": told}
            if self.tells_ids:
                choice["token_ids"] = [ord(letter) for letter, _ in said]
                choice["prompt_token_ids"] = [ord(letter) for letter in prompt]
            choices.append(choice)
        usage = {"prompt_tokens": sum(map(len, prompts))}
        return web.json_response({"choices": choices, "usage": usage})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "max_model_len": self.context}]})

    async def heard(self, request: web.Request) -> dict[str, Any]:
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            raise web.HTTPUnauthorized(text=json.dumps({"error": {"message": "no key"}}))
        body = await request.json()
        if body["model"] != "m":
            raise web.HTTPNotFound(text=json.dumps({"error": {"message": "no such model"}}))
        if self.busy:
            self.busy -= 1
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "0"}, text="{}")
        self.bodies.append(body)
        return dict(body)


def _drawn(logits: dict[str, float], at: float) -> str:
    whole = sum(map(math.exp, logits.values()))
    for letter, logit in logits.items():
        at -= math.exp(logit) / whole
        if at <= 0:
            return letter
    return letter


def named(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def refusal(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message}}, status=status)


@contextmanager
def serving(server: Letters) -> Iterator[str]:
    """Its address, while it runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    app = web.Application()
    app.router.add_get("/v1/models", server.models)
    app.router.add_post("/v1/chat/completions", server.chat)
    app.router.add_post("/v1/completions", server.completions)
    runner = web.AppRunner(app)

    async def begin() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return int(runner.addresses[0][1])

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(begin(), loop).result()
        yield f"http://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
