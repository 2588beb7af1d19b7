"""`ridgeline fake-replica`: a server that times like a model on a machine, and fails on demand."""

import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click

from ridgeline.cli.clients_key import clients_key
from ridgeline.cli.extras import needs
from ridgeline.errors import SpecError
from ridgeline.launch.local import announce, leave_with_parent


def say(event: Mapping[str, Any]) -> None:
    """For a person: where it is in its start."""
    match event["event"]:
        case "listening":
            click.echo(f"{event['url']} pretends to load a model ...")
        case "ready":
            click.echo(f'ready: "{event["model"]}" has no weights and makes words up')


@click.command("fake-replica")
@click.option("--model", help="A model of the catalog, to time by; needs --accelerator.")
@click.option("--accelerator", help="A device of the catalog, to time by; needs --model.")
@click.option("--tensor-parallel", default=1, show_default=True, type=click.IntRange(1, 64))
@click.option("--dtype", default="bf16", show_default=True, help="Of the weights, for --model.")
@click.option("--engine", default="*", help="vllm, sglang, ...: whose fitted step time.")
@click.option("--prefill-tokens-per-s", default=20_000.0, show_default=True, type=float)
@click.option("--step-ms", default=10.0, show_default=True, type=float, help="Each step.")
@click.option("--step-ms-per-seq", default=0.0, show_default=True, type=float)
@click.option("--time-scale", default=1.0, show_default=True, type=click.FloatRange(min=0),
              help="Multiplies every time; 0: as fast as this process can.")  # fmt: skip
@click.option("--name", help="What clients call the model; --model or `fake` where not given.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=8001, show_default=True, type=click.IntRange(0, 65535))
@click.option("--max-seqs", default=256, show_default=True, type=click.IntRange(min=1))
@click.option("--max-batched-tokens", default=2048, show_default=True, type=click.IntRange(min=1))
@click.option("--max-model-len", default=131_072, show_default=True, type=click.IntRange(min=2))
@click.option("--kv-tokens", type=click.IntRange(min=16), help="The cache; by --model, or 400000.")
@click.option("--block-size", default=16, show_default=True, type=click.IntRange(1, 1024))
@click.option("--prefix-caching/--no-prefix-caching", default=True, show_default=True)
@click.option("--answer-tokens", default=128, show_default=True, type=click.IntRange(min=1),
              help="Length of an answer without max_tokens.")  # fmt: skip
@click.option("--adapter", "adapters", multiple=True, help="A LoRA adapter to list and answer for.")
@click.option("--seed", default=0, show_default=True, type=int, help="Of its words and faults.")
@click.option("--fail", "faults", multiple=True, metavar="FAULT",
              help="E.g. error,status=503,share=0.1 or cut,after=5; repeatable.")  # fmt: skip
@click.option("--starting-s", default=0.0, type=click.FloatRange(min=0), help="Before it listens.")
@click.option("--loading-s", default=0.0, type=click.FloatRange(min=0), help="Before it is ready.")
@click.option("--metrics", default="vllm", show_default=True,
              type=click.Choice(["vllm", "old", "none"]))  # fmt: skip
@click.option("--grace-s", default=30.0, show_default=True, type=click.FloatRange(min=0))
@click.option("--usage-log", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER")
@click.option("--api-key-env", metavar="VARIABLE", help="Environment variable with clients' key.")
@click.option("--supervised", is_flag=True, hidden=True)
def fake_replica(
    model: str | None,
    accelerator: str | None,
    tensor_parallel: int,
    dtype: str,
    engine: str,
    prefill_tokens_per_s: float,
    step_ms: float,
    step_ms_per_seq: float,
    time_scale: float,
    name: str | None,
    host: str,
    port: int,
    max_seqs: int,
    max_batched_tokens: int,
    max_model_len: int,
    kv_tokens: int | None,
    block_size: int,
    prefix_caching: bool,
    answer_tokens: int,
    adapters: tuple[str, ...],
    seed: int,
    faults: tuple[str, ...],
    starting_s: float,
    loading_s: float,
    metrics: Literal["vllm", "old", "none"],
    grace_s: float,
    usage_log: Path | None,
    api_key_env: str | None,
    supervised: bool,
) -> None:
    """Serve made-up words in the time that a model would take: for tests, drills and sizing.

    It speaks OpenAI's API and vLLM's metrics, batches and caches prefixes as Ridgeline's engine
    does, and takes no GPU. Times come from the step-time model (--model with --accelerator), or
    from plain numbers. `POST /fake/faults` changes its faults while it runs.
    """
    needs("aiohttp", "gateway")
    from ridgeline.serving.fake.faults import parse
    from ridgeline.serving.fake.server import serve
    from ridgeline.serving.fake.setup import Setup
    from ridgeline.serving.fake.timing import Machine, Plain, machine

    if (model is None) != (accelerator is None):
        raise SpecError(
            "times by the catalog need both",
            where="--model and --accelerator",
            remedy="both, or neither and --step-ms, --step-ms-per-seq, --prefill-tokens-per-s",
        )
    if model is not None and accelerator is not None:
        runs_on = machine(
            model, accelerator, tensor_parallel=tensor_parallel, dtype=dtype, engine=engine
        )
    else:
        steps = Plain(step_ms / 1e3, step_ms_per_seq / 1e3, _positive(prefill_tokens_per_s))
        runs_on = Machine(steps, 400_000)
    setup = Setup(
        name=name or model or "fake",
        machine=replace(runs_on, kv_tokens=kv_tokens or runs_on.kv_tokens),
        time_scale=time_scale,
        max_seqs=max_seqs,
        max_batched_tokens=max_batched_tokens,
        block_size=block_size,
        prefix_caching=prefix_caching,
        max_model_len=max_model_len,
        answer_tokens=answer_tokens,
        seed=seed,
        loading_s=loading_s,
        grace_s=grace_s,
        api_key=clients_key(api_key_env, host),
        adapters=adapters,
        metrics=metrics,
        usage_log=usage_log,
    )
    told = [parse(fault) for fault in faults]
    if supervised:
        leave_with_parent(lambda: os.kill(os.getpid(), signal.SIGTERM))
    raise SystemExit(
        serve(
            setup,
            faults=told,
            host=host,
            port=port,
            starting_s=starting_s,
            die=lambda: os._exit(137),
            said=announce if supervised else say,
        )
    )


def _positive(tokens_per_s: float) -> float:
    if tokens_per_s > 0:
        return tokens_per_s
    raise SpecError(
        f"{tokens_per_s:g} would never end a prompt", where="--prefill-tokens-per-s",
        remedy="a positive number",
    )  # fmt: skip
