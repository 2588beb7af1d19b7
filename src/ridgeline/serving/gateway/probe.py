"""How a replica is looked at: is it ready, what does it serve, how full is it.

Any OpenAI-compatible server will do: `/ready` is asked first (Ridgeline), then `/health` (vLLM,
SGLang, llama.cpp), then `/v1/models`. Called by `fleet`, which decides what the answers mean.
"""

import json
import re
import uuid
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout

from ridgeline.serving.gateway.config import ReplicaAddress
from ridgeline.serving.policy.health import Sign

_PATHS = ("/ready", "/health", "/v1/models")
_NO_SUCH_PATH = {404, 405, 501}
#: The least that can be asked of each kind of server, in the order in which they are met.
_SMALLEST: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "1", "max_tokens": 1, "temperature": 0},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "1"}], "max_tokens": 1},
    "/v1/embeddings": {"input": "1"},
}
#: Statuses by which a server says that it does not do this kind of thing at all.
_OTHER_KIND = {400, 404, 405, 422, 501}
_MOST_BYTES = 4 * 1024 * 1024

# What engines call the same thing; names have changed before and broke routers that knew one.
_RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing")
_WAITING = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred")
_KV_USAGE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",
    "sglang:token_usage",
    "llamacpp:kv_cache_usage_ratio",
)


_LORA = re.compile(
    r"^vllm:lora_requests_info\{(?P<labels>[^}]*)\} (?P<at>[0-9.eE+]+)$", re.MULTILINE
)
_BLOCKS = re.compile(r'^vllm:cache_config_info\{[^}]*num_gpu_blocks="([0-9]{1,12})"', re.M)
_BLOCK_SIZE = re.compile(r'^vllm:cache_config_info\{[^}]*block_size="([0-9]{1,6})"', re.M)
_LORA_NAMES = re.compile(r'(?:running|waiting)_lora_adapters="([^"]*)"')


class ProbeError(Exception):
    """A replica's answer to a probe cannot be used; says why."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a replica reports of itself; None where it does not. `kv_usage` is a share, 0..1.

    `adapters` are those that it has in use, and so in memory; `kv_tokens` is its cache's size.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    adapters: frozenset[str] = frozenset()
    kv_tokens: int | None = None


class Probe:
    """Looks at one replica, each look within `within_s`."""

    def __init__(self, session: ClientSession, address: ReplicaAddress, within_s: float) -> None:
        self._session = session
        self._root = address.root
        self._headers = {"Authorization": f"Bearer {address.api_key}"} if address.api_key else {}
        self._timeout = ClientTimeout(total=within_s)
        self._ready_path: str | None = None
        #: What it said with its last "not ready": the stage of its start, where it tells one.
        self.said = ""

    async def ready(self) -> Sign:
        """Whether the replica takes requests; remembers which path it answers on."""
        paths = (self._ready_path,) if self._ready_path else _PATHS
        for path in paths:
            try:
                status, body = await self._get(path, most_bytes=_MOST_BYTES)
            except TimeoutError:
                return Sign.SILENT
            except (ClientError, OSError):
                return Sign.REFUSED
            except (ProbeError, ValueError):  # ValueError: an address that yarl cannot read
                return Sign.NOT_READY
            if status in _NO_SUCH_PATH:
                continue
            self.said = "" if status == 200 else _stage(body)
            if status == 200:
                self._ready_path = path
            return Sign.READY if status == 200 else Sign.NOT_READY
        self._ready_path = None  # another program may answer there now
        return Sign.NOT_READY

    async def models(self) -> list[dict[str, Any]]:
        """The model objects of `/v1/models`. Raises ProbeError."""
        try:
            status, body = await self._get("/v1/models", most_bytes=_MOST_BYTES)
            entries = json.loads(body)["data"] if status == 200 else None
        except (ClientError, OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise ProbeError(f"/v1/models cannot be read: {error!r}") from error
        if not isinstance(entries, list):
            raise ProbeError(f"/v1/models answers with status {status}")
        return [one for one in entries if isinstance(one, dict) and isinstance(one.get("id"), str)]

    async def load(self) -> Load:
        """How full the replica is, from `/metrics`; all None where it has none to offer."""
        try:
            status, body = await self._get("/metrics", most_bytes=_MOST_BYTES)
        except (ClientError, OSError, ProbeError):
            return Load()
        return parse_load(body.decode(errors="replace")) if status == 200 else Load()

    async def first_token(self, model: str, within_s: float) -> str:
        """Ask for one token, as a client would; why there is none, or nothing where there is.

        Health pages answer before models do. A server of embeddings is asked for one of those.
        """
        problem = ""
        for path, body in _SMALLEST.items():
            try:
                async with self._session.post(
                    self._root + path,
                    json={"model": model, **body},
                    headers={**self._headers, "X-Request-Id": f"probe-{uuid.uuid4().hex}"},
                    timeout=ClientTimeout(total=within_s),
                    allow_redirects=False,
                ) as answer:
                    await _bounded(answer, _MOST_BYTES)
            except TimeoutError:
                return f"gave no token within {within_s:g} s"
            except (ClientError, OSError, ProbeError) as error:
                return f"gave no token: {error!r}"
            if answer.status == 200:
                return ""
            problem = problem or f"answers a request with status {answer.status}"
            if answer.status not in _OTHER_KIND:
                break
        return problem

    async def _get(self, path: str, *, most_bytes: int) -> tuple[int, bytes]:
        async with self._session.get(
            self._root + path, headers=self._headers, timeout=self._timeout, allow_redirects=False
        ) as answer:
            return answer.status, await _bounded(answer, most_bytes)


def _stage(body: bytes) -> str:
    """What a "not ready" says of itself: `{"stage"}`, or OpenAI's error message."""
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(told, dict):
        return ""
    error = told.get("error")
    said = (
        told.get("stage")
        or told.get("status")
        or (error.get("message") if isinstance(error, dict) else None)
    )
    return str(said)[:200] if said else ""


async def _bounded(answer: ClientResponse, most_bytes: int) -> bytes:
    chunks, size = [], 0
    async for chunk in answer.content.iter_any():
        size += len(chunk)
        if size > most_bytes:
            raise ProbeError(f"answers a probe with more than {most_bytes:,} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def parse_load(text: str) -> Load:
    """Load from Prometheus text: requests are summed over a replica's engines, usage is the most.

    Older and other names of the same metric are known; the first that is there counts.
    """
    samples: dict[str, list[float]] = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0]
        if name in _WANTED:
            try:
                samples.setdefault(name, []).append(float(value))
            except ValueError:
                continue
    running, waiting, usage = (_first(samples, names) for names in (_RUNNING, _WAITING, _KV_USAGE))
    return Load(
        running=None if running is None else int(sum(running)),
        waiting=None if waiting is None else int(sum(waiting)),
        kv_usage=None if usage is None else min(1.0, max(0.0, max(usage))),
        adapters=_adapters(text),
        kv_tokens=_kv_tokens(text),
    )


def _kv_tokens(text: str) -> int | None:
    """The size of its cache: vLLM tells blocks and their size as labels."""
    blocks, size = _BLOCKS.search(text), _BLOCK_SIZE.search(text)
    return int(blocks[1]) * int(size[1]) if blocks and size else None


def _adapters(text: str) -> frozenset[str]:
    """Adapters in use: vLLM tells them as labels, and the time of the report as the value."""
    found = [(float(match["at"]), match["labels"]) for match in _LORA.finditer(text)]
    latest = max(found, default=(0.0, ""))[1]
    names = (name.strip() for told in _LORA_NAMES.findall(latest) for name in told.split(","))
    return frozenset(name for name in names if name)


_WANTED = frozenset({*_RUNNING, *_WAITING, *_KV_USAGE})


def _first(samples: dict[str, list[float]], names: tuple[str, ...]) -> list[float] | None:
    found = (samples[name] for name in names if name in samples)
    finite = ([v for v in values if v == v and abs(v) != float("inf")] for values in found)
    return next((values for values in finite if values), None)
