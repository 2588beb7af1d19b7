"""A version with one fault, or with none: whether a rollout goes back, and for the right reason.

    python examples/canary/canary.py                  # which fault is drawn, and told at the end
    python examples/canary/canary.py --seed 7         # the same draw again
    python examples/canary/canary.py --fault dtype    # this one
    python examples/canary/canary.py --short          # slower or none, without weights

Starts `ridgeline up`, makes a reference of what is served, has somebody ask all the while, and
starts a rollout to the version with the fault. Exit status 1 where the rollout ended otherwise than
the fault deserves, or a request failed.
"""

import argparse
import asyncio
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from ridgeline.catalog.packaged import DEFAULT_MODEL, PACKAGED

FOLDER = Path(__file__).parent
FAKES, REAL = FOLDER / "fakes.yaml", FOLDER / "real.yaml"
LOOK_S = 0.25
START_MOST_S, ROLLOUT_MOST_S = 120.0, 420.0
PLAN = ("--steps", "50%", "--keep", "1s")
WORDS = ("time", "year", "hand", "part", "life", "case", "week", "work")
#: A template of the same length that leaves out the turn of the assistant.
TURN = ("{% if add_generation_prompt %}", "{% if add_generation_nobody %}")


@dataclass(frozen=True)
class Fault:
    """What makes a version of it (arguments of `rollout start`), and what is to be said of it.

    `said` is in the reason why the rollout goes back; None: it is to be promoted.
    """

    change: Callable[[Path], list[str]]
    said: str | None


def setting(text: str) -> Callable[[Path], list[str]]:
    """Another setting of the engine."""
    return lambda _: ["--engine", text]


def other_template(folder: Path) -> list[str]:
    """A copy of the weights with another chat template."""
    path = PACKAGED[DEFAULT_MODEL].path()
    assert path is not None
    old, new = (text.encode() for text in TURN)
    data = path.read_bytes()
    if data.count(old) != 1:
        raise SystemExit(f"{path} has another template than this script knows")
    copy = folder / "other-template.gguf"
    copy.write_bytes(data.replace(old, new))
    return ["--to", str(copy)]


FAULTS = {
    "template": Fault(other_template, "template: "),
    "dtype": Fault(setting("dtype=int8"), "dtype: "),
    "truncation": Fault(setting("max_model_len=512"), "context: "),
    # Of the whole TTFT, of which prompts are nine tenths, that is 20 % more.
    "slower": Fault(setting("prefill_tokens_per_s=820"), "TTFT "),
    "none": Fault(setting("max_seqs=7"), None),
}
#: Those that replicas without weights can have. A real engine is not slowed by exactly so much.
ON_FAKES = ("slower", "none")


@dataclass
class Asked:
    """What became of the requests."""

    answers: int = 0
    failures: list[str] = field(default_factory=list)


class Canary:
    """A platform that runs in `folder`, and what is done with it."""

    def __init__(self, spec: Path, folder: Path) -> None:
        self.url = ""
        self._spec = spec
        self._log = folder / "up.log"
        # What is converted of the copy of the weights goes with it.
        moved = {"RIDGELINE_STATE": str(folder), "RIDGELINE_CACHE": str(folder / "cache")}
        self._environment = {**os.environ, **moved}

    @asynccontextmanager
    async def runs(self) -> AsyncIterator[None]:
        """`ridgeline up`, from ready to drained."""
        command = [sys.executable, "-m", "ridgeline", "up", str(self._spec)]
        with self._log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, env=self._environment, stdout=log, stderr=log
            )
        try:
            async with asyncio.timeout(START_MOST_S):
                while "Ctrl-C drains" not in (text := self._log.read_text()):
                    if process.returncode is not None:
                        raise SystemExit(text)
                    await asyncio.sleep(LOOK_S)
            start = text.index("http://127.0.0.1:")
            self.url = text[start:].split()[0].rstrip("/")
            yield
        finally:
            process.send_signal(signal.SIGINT)
            await process.wait()

    async def ridgeline(self, command: str, *options: str) -> str:
        """What a command says of the spec's model."""
        done = await asyncio.to_thread(
            subprocess.run,
            [
                sys.executable,
                "-m",
                "ridgeline",
                *command.split(),
                "chat",
                str(self._spec),
                *options,
            ],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(done.stderr or done.stdout)
        return done.stdout

    async def over(self) -> dict[str, Any]:
        """The last rollout once it has ended, as `ridgeline rollout status --json` tells it."""
        async with aiohttp.ClientSession() as session, asyncio.timeout(ROLLOUT_MOST_S):
            while True:
                async with session.get(f"{self.url}/console/models.json") as answer:
                    rollout: dict[str, Any] = (await answer.json())["rollouts"][0]
                if rollout["phase"] in ("done", "back"):
                    return rollout
                await asyncio.sleep(LOOK_S)

    @asynccontextmanager
    async def asked(self) -> AsyncIterator[Asked]:
        """Somebody asks all the while, one request after the other, no two alike."""
        seen, ends = Asked(), asyncio.Event()

        async def ask() -> None:
            async with aiohttp.ClientSession() as session:
                while not ends.is_set():
                    await self._one(session, seen)

        task = asyncio.create_task(ask())
        try:
            yield seen
        finally:
            ends.set()
            await task

    async def _one(self, session: aiohttp.ClientSession, seen: Asked) -> None:
        text = " ".join(random.choices(WORDS, k=80))
        messages = [{"role": "user", "content": text}]
        body = {"model": "chat", "messages": messages, "max_tokens": 12, "stream": True}
        try:
            async with session.post(f"{self.url}/v1/chat/completions", json=body) as answer:
                said = await answer.text()
        except aiohttp.ClientError as error:
            said = repr(error)
        if said.endswith("data: [DONE]\n\n"):
            seen.answers += 1
        else:
            seen.failures.append(said[-200:])


async def main(name: str, spec: Path) -> int:
    """Roll out a version with this fault; 0 where that ended as it should."""
    fault = FAULTS[name]
    with tempfile.TemporaryDirectory(prefix="ridgeline-canary-") as where:
        canary = Canary(spec, Path(where))
        async with canary.runs():
            if spec == REAL:
                print(await canary.ridgeline("evaluate", "--url", canary.url, "--save"))
            async with canary.asked() as seen:
                change = fault.change(Path(where))
                await canary.ridgeline("rollout start", *PLAN, *change)
                rollout = await canary.over()
            print(await canary.ridgeline("rollout status"))
    return told(name, rollout, seen)


def told(name: str, rollout: dict[str, Any], seen: Asked) -> int:
    """Print how it ended; 0 where it should have ended so."""
    said, reason = FAULTS[name].said, rollout["reason"]
    is_promoted = rollout["phase"] == "done"
    is_right = is_promoted if said is None else not is_promoted and said in reason
    new = rollout["evidence"].get("requests", {"new": 0})["new"]
    print(f"{seen.answers} answers, {new} of them of the new version in its canary")
    print(f"{len(seen.failures)} requests failed", *seen.failures[:3])
    print(
        f"the fault was: {name}; the new version was {'promoted' if is_promoted else 'sent back'}"
    )
    print("as it should" if is_right else "WRONG")
    return 0 if is_right and not seen.failures else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    print(f"seed {options.seed}")
    possible = ON_FAKES if options.short else tuple(FAULTS)
    drawn = options.fault or random.Random(options.seed).choice(possible)
    is_fake = options.short or drawn == "slower"
    if is_fake and drawn not in ON_FAKES:
        parser.error(f"--short has no weights, so no fault of {drawn}")
    if not is_fake and PACKAGED[DEFAULT_MODEL].path() is None:
        parser.error(f"the default model is not installed: {PACKAGED[DEFAULT_MODEL].install}")
    sys.exit(asyncio.run(main(drawn, FAKES if is_fake else REAL)))
