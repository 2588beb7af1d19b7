"""`ridgeline serve`: one model, one replica, no gateway."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ridgeline.catalog.packaged import DEFAULT_MODEL, PACKAGED
from ridgeline.cli.clients_key import clients_key
from ridgeline.cli.extras import needs
from ridgeline.launch.local import announce, leave_with_parent
from ridgeline.paths import cache_home
from ridgeline.serving.models.weights import shown_name, weights
from ridgeline.units import parse_bytes

if TYPE_CHECKING:
    from ridgeline.cli.spare import Spare


def size(_: click.Context, __: click.Parameter, value: str) -> int:
    """A number of bytes, as people write it."""
    try:
        return parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def say(event: Mapping[str, Any]) -> None:
    """For a person: where the replica is in its start."""
    match event["event"]:
        case "listening":
            click.echo(f"{event['url']} loads the model ...")
        case "ready":
            spent = ", ".join(f"{name} {s:.1f} s" for name, s in event["stages_s"].items())
            threads = f"{event['threads']} thread{'s' if event['threads'] > 1 else ''}"
            click.echo(f"ready: {event['dtype']}, {threads}, {event['kernels']} ({spent})")


@click.command()
@click.argument("model", default=DEFAULT_MODEL)
@click.option("--name", help="What clients call the model; its file's name where not given.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8001, show_default=True, type=click.IntRange(0, 65535))
@click.option(
    "--dtype",
    default="bf16",
    show_default=True,
    type=click.Choice(["bf16", "fp32", "int8"]),
    help="int8: weights and activations of the layers (W8A8), faster and less exact.",
)
@click.option(
    "--kv-cache-dtype",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "int8"]),
    help="int8: half the memory for a context.",
)
@click.option("--threads", default=0, type=click.IntRange(min=0), help="0: every core.")
@click.option("--max-model-len", default=0, type=click.IntRange(min=0), help="0: the model's.")
@click.option("--max-seqs", default=64, show_default=True, type=click.IntRange(min=1))
@click.option("--max-batched-tokens", default=512, show_default=True, type=click.IntRange(min=1))
@click.option("--kv-cache", default="1GB", show_default=True, callback=size)
@click.option("--prefix-caching/--no-prefix-caching", default=True, show_default=True)
@click.option(
    "--speculation",
    default="off",
    show_default=True,
    type=click.Choice(["off", "ngram"]),
    help="ngram: guess from the text so far where there is room; the answers stay the same.",
)
@click.option("--draft-tokens", default=8, show_default=True, type=click.IntRange(1, 16))
@click.option(
    "--usage-log",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Keep a durable count of each request's tokens there; for /usage/ID.",
)
@click.option("--api-key-env", metavar="VARIABLE", help="Environment variable with clients' key.")
@click.option("--supervised", is_flag=True, hidden=True)
@click.pass_obj
def serve(
    spare: "Spare | None",
    model: str,
    name: str | None,
    host: str,
    port: int,
    dtype: str,
    kv_cache_dtype: str,
    threads: int,
    max_model_len: int,
    max_seqs: int,
    max_batched_tokens: int,
    kv_cache: int,
    prefix_caching: bool,
    speculation: str,
    draft_tokens: int,
    usage_log: Path | None,
    api_key_env: str | None,
    supervised: bool,
) -> None:
    """Serve MODEL (a packaged model, GGUF file or Hugging Face folder) as a single replica.

    It speaks OpenAI's API and vLLM's metrics; a BERT (all-minilm-l6-v2) answers /v1/embeddings
    in float32. `ridgeline up` puts a gateway before replicas.
    """
    needs("torch", "engine")
    from ridgeline.serving.engine.config import EngineConfig
    from ridgeline.serving.engine.encoder_files import is_encoder
    from ridgeline.serving.engine.environment import engine_environment
    from ridgeline.serving.engine.link import ENGINE, EngineProcess
    from ridgeline.serving.usage_log import UsageLog

    key = clients_key(api_key_env, host)
    config = EngineConfig(
        model=click.get_current_context().with_resource(weights(model)),
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        threads=threads,
        max_model_len=max_model_len,
        max_seqs=max_seqs,
        max_batched_tokens=max_batched_tokens,
        kv_cache_bytes=kv_cache,
        prefix_caching=prefix_caching,
        speculation=speculation,
        draft_tokens=draft_tokens,
        cache_dir=cache_home() / "models",
    )
    if supervised:
        leave_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    shown = name or (model if model in PACKAGED else shown_name(model))
    log = None if usage_log is None else UsageLog(usage_log)
    said = announce if supervised else say
    if is_encoder(config.model):
        assert spare is None, "a spare computes what generates"
        from ridgeline.serving.engine.embedding_front import serve_embeddings

        raise SystemExit(
            serve_embeddings(
                config, name=shown, host=host, port=port, api_key=key, log=log, said=said
            )
        )
    if spare is None:
        engine = EngineProcess(config, ENGINE, engine_environment())
    else:  # it has imported and waits
        engine = spare.engine
        engine.configure(config, spare.log, spare.since_s)
    # Only now: the engine loads while the front imports.
    from ridgeline.serving.engine.front import serve as serve_front

    raise SystemExit(
        serve_front(
            engine,
            config,
            name=shown,
            host=host,
            port=port,
            api_key=key,
            log=log,
            said=said,
        )
    )
