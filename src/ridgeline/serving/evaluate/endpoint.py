"""One model of one OpenAI-compatible server, as it is asked for reference prompts.

Law: what the server says of a request is an `Answer`, refusals too; only what makes the whole
comparison impossible (nobody there, no such model, a wrong key, no log-probabilities) is raised.
A server that is busy is asked again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from ridgeline.errors import SpecError
from ridgeline.serving.evaluate.cases import COMPLETIONS, TOP, Case
from ridgeline.serving.policy.answers import Answer, Step, common

TIMEOUT_S = 600.0
_BUSY = (429, 503)
_ASKED_AGAIN = 20
_WAIT_S, _MOST_WAIT_S = 0.5, 10.0
_SHOWN = 200
_NEVER = -9999.0


def connect(api_key: str | None) -> aiohttp.ClientSession:
    """A session for `Endpoint`."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_S), headers=headers, raise_for_status=False
    )


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The model `model` behind `url`, the server's root."""

    session: aiohttp.ClientSession
    url: str
    model: str

    async def longest(self) -> int | None:
        """Its longest sequence in tokens, where it tells."""
        try:
            async with self.session.get(f"{self.url}/v1/models") as response:
                listed = await response.json(content_type=None)
            rows = {row["id"]: row.get("max_model_len") for row in listed["data"]}
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._unreachable(error) from error
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # the first prompt will tell what it is
        found = rows.get(self.model)
        return found if isinstance(found, int) else None

    async def ask(self, case: Case) -> Answer:
        """The answer to a reference prompt."""
        status, told = await self._post(case.path, case.body)
        if status != 200:
            return Answer(refused=f"{status} {_message(told)}")
        try:
            return _answer(told, is_raw=case.is_raw)
        except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
            raise SpecError(
                f"{self.url} answers {case.name} without log-probabilities",
                where="URL",
                remedy="a server that honours `logprobs` (ours, vLLM, SGLang)",
            ) from error

    async def follow(self, case: Case, reference: Answer) -> Answer:
        """The answer, its steps at the reference's own tokens as far as it can be asked.

        Where the answer leaves the reference, what comes after each further token of the reference
        is asked for, one token each, where the server takes and tells ids.
        """
        own = await self.ask(case)
        shared = common(reference.steps, own.steps)
        wanted = len(reference.steps)
        if own.refused or shared == wanted:
            return own
        # At the first other token the same came before, so that step still counts.
        kept = own.steps[: shared + 1]
        if own.prompt_ids is None or reference.ids is None:
            return replace(own, steps=kept, ids=None)
        rest = await self._after(own.prompt_ids, reference.ids, range(len(kept), wanted))
        return replace(own, steps=(*kept, *rest), ids=None)

    async def _after(self, prompt: Sequence[int], ids: Sequence[int], places: range) -> list[Step]:
        """What follows the prompt and so many of the ids; none where that cannot be asked."""
        if not places:
            return []
        body = {
            "prompt": [[*prompt, *ids[:place]] for place in places],
            "max_tokens": 1,
            "temperature": 0.0,
            "logprobs": TOP,
            "ignore_eos": True,
        }
        status, told = await self._post(COMPLETIONS, body)
        if status != 200:
            return []
        try:
            choices = sorted(told["choices"], key=lambda choice: choice["index"])
            return [_completion_steps(choice["logprobs"])[0] for choice in choices]
        except (KeyError, TypeError, IndexError, ValueError):
            return []  # it has another idea of prompts as ids; what was compared still counts

    async def _post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """Status and body, once the server has room for it."""
        asked = {"model": self.model, **body}
        for _ in range(_ASKED_AGAIN):
            try:
                async with self.session.post(f"{self.url}{path}", json=asked) as response:
                    status, told = response.status, await _read(response)
                    again = response.headers.get("Retry-After", "")
            except aiohttp.InvalidURL as error:
                remedy = "http://127.0.0.1:8000"
                raise SpecError(f"{self.url!r} is no URL", where="--url", remedy=remedy) from error
            except (aiohttp.ClientError, TimeoutError) as error:
                raise self._unreachable(error) from error
            if status not in _BUSY:
                break
            await asyncio.sleep(min(float(again), _MOST_WAIT_S) if again.isdecimal() else _WAIT_S)
        if status in (401, 403):
            raise SpecError(
                f"{self.url} answered {status}: {_message(told)}",
                where="--api-key",
                remedy="--api-key KEY, or the environment's RIDGELINE_API_KEY",
            )
        if status in (404, 429) or status >= 500:
            raise SpecError(f"{self.url} answered {status}: {_message(told)}", where="URL")
        return status, told

    def _unreachable(self, error: Exception) -> SpecError:
        return SpecError(
            f"{self.url} cannot be reached ({error or type(error).__name__})",
            where="--url",
            remedy="the address of a running server, e.g. http://127.0.0.1:8000",
        )


async def _read(response: aiohttp.ClientResponse) -> Any:
    try:
        return await response.json(content_type=None)
    except ValueError:
        return await response.text(errors="replace")


def _message(told: Any) -> str:
    """What an error says, in OpenAI's shape or any other."""
    error = told.get("error", told) if isinstance(told, dict) else told
    said = error.get("message", error) if isinstance(error, dict) else error
    return " ".join(str(said).split())[:_SHOWN]


def _answer(told: Mapping[str, Any], *, is_raw: bool) -> Answer:
    choice = told["choices"][0]
    steps = (_completion_steps if is_raw else _chat_steps)(choice["logprobs"])
    prompt = told.get("prompt_token_ids") or choice.get("prompt_token_ids")
    ids = choice.get("token_ids")
    return Answer(
        steps=tuple(steps),
        # The end of the sequence is an id and no step.
        ids=None if ids is None else tuple(ids[: len(steps)]),
        prompt_tokens=(told.get("usage") or {}).get("prompt_tokens"),
        prompt_ids=None if prompt is None else tuple(prompt),
    )


def _chat_steps(told: Mapping[str, Any]) -> list[Step]:
    return [
        Step(
            _text(one),
            _finite(one["logprob"]),
            {_text(other): _finite(other["logprob"]) for other in one["top_logprobs"]},
        )
        for one in told["content"]
    ]


def _completion_steps(told: Mapping[str, Any]) -> list[Step]:
    return [
        Step(token, _finite(logprob), {key: _finite(value) for key, value in (top or {}).items()})
        for token, logprob, top in zip(
            told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True
        )
    ]


def _finite(logprob: float) -> float:
    """Of a token that cannot be, servers tell -9999 or minus infinity; of a broken model, NaN."""
    value = float(logprob)
    return value if value > _NEVER else _NEVER  # NaN is not more than anything


def _text(one: Mapping[str, Any]) -> str:
    """As plain completions spell it: bytes that are no text by themselves by their values."""
    spelled = one.get("bytes")
    if not spelled:
        return str(one["token"])
    try:
        return bytes(spelled).decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)
