"""Other simulators of serving, run on the same requests as ours: only their speed is used.

Law of this file: a peer runs in its own environment, by a program given to its own Python, and
times its own run alone: not its start, not the reading of the trace, not the writing of reports.

- Vidur (PyPI `vidur`), iteration by iteration in Python: Sarathi's scheduler with chunks of 2,048
  tokens, least outstanding requests first. Its profiled tables are not in the wheel, so it gets
  synthetic ones that give its steps about our steps' times; so it has about as many steps.
- DynoSim (PyPI `ai-dynamo`), in Rust: Dynamo's KV router over re-implemented engines, with its own
  polynomial step times. It prints a line for each choice unless told not to.
"""

import csv
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from peer_home import folder
from ridgeline.errors import LaunchError
from ridgeline.serving.simulate.setup import Engine
from ridgeline.workload import Request

_VIDUR = """
import json, logging, os, sys, time
asked = json.loads(sys.argv[1])
from vidur.config.config import *
from vidur.execution_time_predictor.sklearn_execution_time_predictor import (
    SklearnExecutionTimePredictor as Predictor,
)
from vidur.simulator import Simulator
logging.disable(logging.CRITICAL)
class Line(dict):
    def __init__(self, fixed, per_token):
        self.fixed, self.per_token = fixed, per_token
    def __missing__(self, key):
        return self.fixed + self.per_token * key[0]
names = '''attn_pre_proj attn_post_proj mlp_down_proj mlp_act input_layernorm add all_reduce
post_attention_layernorm send_recv attn_rope attn_kv_cache_save attn_decode attn_prefill'''.split()
tables = {name: Line(0.0, 0.0) for name in names}
tables['mlp_up_proj'] = Line(asked['layer_ms'], asked['layer_token_ms'])
Predictor._load_predictions_from_hf = lambda self: tables
Simulator._write_output = lambda self: None
simulator = Simulator(SimulationConfig(
    cluster_config=ClusterConfig(
        num_replicas=asked['replicas'],
        replica_config=ReplicaConfig(num_pipeline_stages=1, tensor_parallel_size=1),
        cache_config=CacheConfig(num_blocks=asked['blocks'], num_preallocate_tokens=0),
        global_scheduler_config=LORGlobalSchedulerConfig(),
        replica_scheduler_config=SarathiSchedulerConfig(batch_size_cap=128, chunk_size=2048),
    ),
    request_generator_config=TraceRequestGeneratorConfig(
        trace_file=asked['trace'], date='day', prefill_scale_factor=1, decode_scale_factor=1,
        time_scale_factor=1, max_tokens=asked['longest'],
    ),
    metrics_config=MetricsConfig(
        write_metrics=False, enable_chrome_trace=False, store_plots=False,
        store_batch_metrics=False, store_utilization_metrics=False, store_request_metrics=False,
    ),
))
began_s = time.perf_counter()
simulator.run()
print(json.dumps(time.perf_counter() - began_s))
"""

_DYNOSIM = """
import json, sys
asked = json.loads(sys.argv[1])
from dynamo.replay import run_trace_replay
report = run_trace_replay(
    asked['trace'],
    extra_engine_args={'engine': {
        'block_size': asked['block_tokens'], 'num_gpu_blocks': asked['blocks'],
        'max_num_seqs': 256, 'max_num_batched_tokens': 2048,
    }},
    num_workers=asked['replicas'], trace_block_size=asked['trace_block_tokens'],
    router_mode='kv_router' if asked['replicas'] > 1 else 'round_robin',
)
assert report.summary['completed_requests'] == report.summary['num_requests']
print(json.dumps(report.summary['wall_time_ms'] / 1000))
"""

_LAYERS = 32  # of Llama 3 8B
_TRACE_BLOCK_TOKENS = 512  # of DynoSim's own format


@dataclass(frozen=True, slots=True)
class Case:
    """What is simulated: requests on so many replicas of this engine."""

    requests: Sequence[Request]
    block_tokens: int
    replicas: int
    engine: Engine


def vidur_s(case: Case) -> float:
    """Seconds that Vidur takes."""
    first_ms, decode_ms = _step_ms(case.engine, 2048), _step_ms(case.engine, 1)
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch) / "trace.csv"
        with trace.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["Date", "Time", "PromptTokenCount", "CompletionTokenCount"])
            for one in case.requests:
                rows.writerow(["day", one.at_s, one.prompt_tokens, max(1, one.output_tokens)])
        asked = {
            "trace": str(trace),
            "replicas": case.replicas,
            "blocks": case.engine.blocks,
            "longest": max(one.prompt_tokens + one.output_tokens for one in case.requests) + 1,
            "layer_ms": decode_ms / _LAYERS,
            "layer_token_ms": (first_ms - decode_ms) / 2047 / _LAYERS,
        }
        return _run("vidur", _VIDUR, asked, Path(scratch))


def dynosim_s(case: Case) -> float:
    """Seconds that DynoSim takes."""
    fresh = count()
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch) / "trace.jsonl"
        with trace.open("w") as file:
            for one in case.requests:
                blocks = -(-one.prompt_tokens // _TRACE_BLOCK_TOKENS)
                named = list(one.blocks) or [next(fresh) for _ in range(blocks)]
                row = {
                    "timestamp": round(1000 * one.at_s),
                    "input_length": one.prompt_tokens,
                    "output_length": max(1, one.output_tokens),
                    "hash_ids": named[:blocks],
                }
                file.write(json.dumps(row) + "\n")
        asked = {
            "trace": str(trace),
            "replicas": case.replicas,
            "blocks": case.engine.blocks,
            "block_tokens": case.block_tokens,
            "trace_block_tokens": _TRACE_BLOCK_TOKENS,
        }
        return _run("ai-dynamo", _DYNOSIM, asked, Path(scratch))


def _step_ms(engine: Engine, prompt_tokens: int) -> float:
    return 1000 * float(engine.machine.steps.step_s(None, None, float(prompt_tokens), 0.0))


def _run(name: str, program: str, asked: dict[str, object], home: Path) -> float:
    """The seconds that a peer's program prints last."""
    done = subprocess.run(
        [folder(name) / "bin" / "python", "-c", program, json.dumps(asked)],
        cwd=home,
        env=os.environ | {"DYN_LOG": "error", "HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise LaunchError(
            f"{name} could not do it: {done.stderr.strip()[-800:]}",
            where="bench/simulators.py",
            remedy=f"remove .peers/{name} and install it again: python bench/peers.py {name}",
        )
    return float(json.loads(done.stdout.strip().splitlines()[-1]))
