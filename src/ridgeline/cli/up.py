"""`ridgeline up`: serve models behind an OpenAI-compatible gateway, until Ctrl-C."""

import asyncio
import json
import os
import re
import shlex
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.status import Status

import ridgeline
from ridgeline import event_loop
from ridgeline.catalog.packaged import DEFAULT_MODEL, PACKAGED
from ridgeline.cli.extras import needs
from ridgeline.errors import SpecError
from ridgeline.serving.models.weights import shown_name, weights
from ridgeline.serving.spec import (
    ModelSpec,
    Replicas,
    RidgelineEngine,
    UrlEngine,
    check_address,
    is_loopback,
)
from ridgeline.spec import NAME, Platform, load

KEY_VARIABLE = "RIDGELINE_API_KEY"


@click.command()
@click.argument("spec", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--model", metavar="PATH_OR_NAME", help="A packaged model, GGUF file or HF folder.")
@click.option("--replicas", type=click.IntRange(min=1), help="Replicas of the model.")
@click.option(
    "--replica",
    "urls",
    multiple=True,
    metavar="URL",
    help="A server that runs already (vLLM, SGLang, llama.cpp, ...); may be given again.",
)
@click.option("--name", help="Of the platform, for a second one on this machine.")
@click.option("--port", type=click.IntRange(0, 65535), help="8000 where not given; 0: a free one.")
@click.option("--host", help=f"127.0.0.1 where not given; any other needs {KEY_VARIABLE}.")
def up(
    spec: Path | None,
    model: str | None,
    replicas: int | None,
    urls: tuple[str, ...],
    name: str | None,
    port: int | None,
    host: str | None,
) -> None:
    """Serve models behind an OpenAI-compatible gateway, until Ctrl-C.

    SPEC is a platform.yaml (`ridgeline init` writes one). Without it and without --model the
    default model is served. Ctrl-C drains: running answers finish, then everything stops.
    """
    needs("aiohttp", "engine")
    if spec is not None and (model or replicas or urls):
        raise SpecError(
            "--model, --replicas and --replica do not go together with a spec",
            where="up",
            remedy=f"write them into {spec}",
        )
    written = load(spec) if spec is not None else _from_options(model, replicas, urls)
    platform = written
    if name is not None:
        platform = platform.model_copy(update={"name": _checked(name)})
    platform = _listen(platform, host, port)
    if any(isinstance(one.engine, RidgelineEngine) for one in platform.models):
        needs("torch", "engine")
    from ridgeline.platform.live import LivePlatform
    from ridgeline.web.console import mount_console

    # Without a spec nobody has said anything about tenants.
    screen = Screen(platform, spec)
    live = LivePlatform(platform, screen, rules_tenants=spec is not None, written=written)
    live.mount(mount_console)
    event_loop.run(_run(live))


def _checked(name: str) -> str:
    if not re.fullmatch(NAME, name) or len(name) > 63:
        remedy = "up to 63 lower-case letters, digits and inner hyphens"
        raise SpecError(f"{name!r} is no name", where="--name", remedy=remedy)
    return name


def _from_options(model: str | None, replicas: int | None, urls: tuple[str, ...]) -> Platform:
    """The platform that options describe: a model on our engine, servers by URL, or both."""
    named = model or DEFAULT_MODEL
    name = named if named in PACKAGED else shown_name(named)
    models = []
    if model or not urls:
        models.append(ModelSpec(name=name, model=named, replicas=Replicas(min=replicas or 1)))
    elif replicas:
        raise SpecError("--replicas needs a --model to replicate", where="up", remedy="--model")
    if urls:
        # What such servers serve, they say themselves.
        models.append(_by_url(urls))
    return Platform(name="platform", models=models)


def _by_url(urls: tuple[str, ...]) -> ModelSpec:
    for url in urls:
        try:
            check_address(url)
        except ValueError as error:
            remedy = "http://host:port"
            raise SpecError(str(error), where="--replica", remedy=remedy) from error
    return ModelSpec(name="*", engine=UrlEngine(kind="url", urls=list(urls)))


def _listen(platform: Platform, host: str | None, port: int | None) -> Platform:
    """The same platform, listening where the options say."""
    there = platform.gateway
    host = host if host is not None else there.host
    port = port if port is not None else there.port
    key = there.api_key_env
    if not is_loopback(host) and key is None:
        if not os.environ.get(KEY_VARIABLE):
            raise SpecError(
                f"{host} is open to the network, so clients need a key",
                where="--host",
                remedy=f"export {KEY_VARIABLE}=… and start again",
            )
        key = KEY_VARIABLE
    shown = f"[{host}]" if ":" in host else host
    gateway = there.model_copy(update={"listen": f"{shown}:{port}", "api_key_env": key})
    return platform.model_copy(update={"gateway": gateway})


async def _run(live: Any) -> None:
    """Run until Ctrl-C, SIGTERM or a closed terminal; a second one ends everything at once."""
    stop = asyncio.Event()
    serving = asyncio.current_task()
    assert serving is not None

    def leave() -> None:
        if stop.is_set():
            serving.cancel()
        stop.set()

    event_loop.on_signals(leave, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        await live.run(stop)
    except asyncio.CancelledError:
        raise SystemExit(1) from None


class Screen:
    """Draws what a platform does: a moving line on a terminal, plain lines in a pipe."""

    def __init__(self, platform: Platform, spec: Path | None) -> None:
        self._platform = platform
        self._spec = spec
        self._console = Console(highlight=False)
        self._began = time.monotonic()
        self._status: Status | None = None
        self._models: list[ModelSpec] = []

    def started(self, url: str, models: list[ModelSpec]) -> None:
        """The address, and what is on its way."""
        self._models = models
        self._say(
            f"[bold]Ridgeline {ridgeline.__version__}[/]   [cyan]{url}[/]   "
            "(console at /, OpenAI API at /v1)"
        )
        self._status = self._console.status("replicas start ...")
        self._status.start()

    def stage(self, replica: str, event: Mapping[str, Any]) -> None:
        """A replica's stage while it starts; when it is ready, how long each took."""
        if event["event"] == "ready":
            spent = "  ".join(f"{name} {s:.1f} s" for name, s in event["stages_s"].items())
            about = event.get("engine", "makes words up")
            if "dtype" in event:
                about = f"{event['dtype']}, {event['threads']} threads, {event['kernels']}"
            self._say(f"  [green]ready[/]  {escape(replica)}   {about}   {spent}")
        elif self._status is not None:
            self._status.update(f"{replica}: {event.get('stage', event['event'])} ...")

    def died(self, replica: str, reason: str) -> None:
        """A death is news at any time."""
        self._say(f"  [red]died[/]   {escape(replica)}   {escape(reason)}")

    def joined(self, replica: str, url: str, is_ready: bool) -> None:
        """A server that runs already: in routing, or not yet."""
        if is_ready:
            self._say(f"  [green]ready[/]  {escape(replica)}   {escape(url)}")
        else:
            wait = "does not answer as an OpenAI-compatible server; it joins once it does"
            self._say(f"  [red]absent[/] {escape(replica)}   {escape(url)} {wait}")

    def ready(self, url: str) -> None:
        """What to paste next."""
        self._stop_status()
        self._say(f"  ready after {time.monotonic() - self._began:.1f} s")
        self._say_what_to_try(url)
        self._say("Ctrl-C drains and stops.")

    def _say_what_to_try(self, url: str) -> None:
        """A model that generates, if there is one; and where a key comes from, if one is needed."""
        named = [model for model in self._models if model.name != "*"]
        if not named:
            return
        first = next((model for model in named if not _embeds(model)), named[0])
        key = self._platform.gateway.api_key_env
        if key is None and self._platform.tenants:
            key = KEY_VARIABLE
            tenant = self._platform.tenants[0].name
            self._say(
                f"Make a key:\n  export {key}=$(ridgeline keys create {escape(tenant)} "
                f"{escape(shlex.quote(str(self._spec)))} --json | python -c "
                "'import json,sys; print(json.load(sys.stdin)[\"secret\"])')",
                wrap=False,
            )
        self._say(escape(try_it(url, first.name, embeds=_embeds(first), key=key)), wrap=False)

    def draining(self) -> None:
        """Said once, on the first Ctrl-C."""
        self._stop_status()
        self._say("Draining: running answers finish. Ctrl-C again stops at once.")

    def _say(self, text: str, *, wrap: bool = True) -> None:
        self._console.print(text, soft_wrap=not wrap or not self._console.is_terminal)

    def _stop_status(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def _embeds(model: ModelSpec) -> bool:
    """Whether it turns texts into vectors, as far as that can be seen from here."""
    if model.model is None or not isinstance(model.engine, RidgelineEngine):
        return False
    from ridgeline.serving.engine.encoder_files import is_encoder

    with weights(model.model) as path:
        return is_encoder(path)


def try_it(url: str, model: str, *, embeds: bool = False, key: str | None = None) -> str:
    """Lines that work when pasted: curl, and the openai client. `key` is a variable with a key."""
    asked: dict[str, Any]
    if embeds:
        path, asked = "embeddings", {"model": model, "input": "What is the capital of France?"}
        call = f"embeddings.create(model='{model}', input='hello').data[0].embedding[:4]"
    else:
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        path, asked = (
            "chat/completions",
            {"model": model, "messages": messages, "temperature": 0},
        )
        call = (
            f"chat.completions.create(model='{model}', messages=[dict(role='user', "
            "content='What is the capital of France?')], temperature=0)"
            ".choices[0].message.content"
        )
    header = f'-H "Authorization: Bearer ${key}" ' if key else ""
    given = f"'${key}'" if key else "'-'"
    shown = f"""Try it:
  curl -s {url}/v1/{path} {header}-H 'content-type: application/json' \\
    -d '{json.dumps(asked)}'
  pip install -q openai && python -c "from openai import OpenAI; \
print(OpenAI(base_url='{url}/v1', api_key={given}).{call})\""""
    if embeds or key:
        return shown
    return f"{shown}\n  ridgeline bench load {url} --rate 2 --slo ttft=500ms,tpot=50ms"
