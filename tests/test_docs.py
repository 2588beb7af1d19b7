"""Every example in the docs is run and prints what the docs say.

A fenced ```console block holds `$ ridgeline ...` lines, each with its output below; a line `...`
stands for any lines. A fenced ```yaml or ```json block whose first line is `# file: NAME` is
written to the folder that the examples of its page run in. After a change of output:

    python tests/test_docs.py --update [docs/guide/plan.md ...]
"""

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from ridgeline.cli import ridgeline_command
from ridgeline.errors import RidgelineError

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(console|yaml|json)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"# file: (\S+)\n")
ELLIPSIS = "..."
#: The pictures of the docs, and the commands that draw them.
PICTURES = {
    "roofline.svg": "ridgeline plan decode-roofline",
    "phases.svg": "ridgeline plan phase-rooflines --batch 64",
    "latency-throughput.svg": "ridgeline plan step-time --dtype fp8 --sweep concurrency=1:1024"
    " --versus output_tokens_per_s --slo tpot=50ms",
    "users-over-memory.svg": "ridgeline plan users-per-node --sweep memory_bytes=40:160GB",
    "tornado.svg": "ridgeline plan users-per-node --sensitivity",
}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Example:
    """One command of a page: the words after `$`, and the output that the page shows."""

    command: str
    shown: list[str]


def blocks(text: str) -> Iterator[re.Match[str]]:
    """The fenced blocks that matter: console blocks of `ridgeline`, and files."""
    for match in FENCE.finditer(text):
        kind, body = match[1], match[2]
        is_session = kind == "console" and body.startswith("$ ")
        if is_session or (kind != "console" and FILE.match(body)):
            yield match


def examples(body: str) -> list[Example]:
    """The commands of one block."""
    found = []
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        lines = part.splitlines()
        command = lines.pop(0)
        while command.endswith("\\"):
            command = f"{command[:-1]}{lines.pop(0).strip()}"
        while lines and not lines[-1].strip():
            lines.pop()
        found.append(Example(command, lines))
    return found


def run(command: str) -> list[str]:
    """What `ridgeline ...` prints, errors as the console script prints them."""
    words = shlex.split(command)
    environment: dict[str, str] = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    assert words.pop(0) == "ridgeline", command
    result = CliRunner(env=environment).invoke(ridgeline_command, words)
    printed = result.output
    if isinstance(result.exception, RidgelineError):
        printed += f"ridgeline: {result.exception}\n"
    elif result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return [line.rstrip() for line in printed.rstrip("\n").split("\n")]


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def matches(printed: list[str], shown: list[str]) -> bool:
    """Whether the page shows what was printed, `...` standing for any lines."""
    pattern = "\n".join(
        ".*?" if line.strip() == ELLIPSIS else re.escape(line.rstrip()) for line in shown
    )
    return re.fullmatch(pattern, "\n".join(printed), re.S) is not None


def shortened(printed: list[str], shown: list[str]) -> list[str]:
    """The new output, cut where the page cut the old one."""
    if ELLIPSIS not in shown:
        return printed
    before, after = shown.index(ELLIPSIS), len(shown) - 1 - shown[::-1].index(ELLIPSIS)
    tail = len(shown) - 1 - after
    return [*printed[:before], ELLIPSIS, *(printed[-tail:] if tail else [])]


def write_file(body: str) -> None:
    name = FILE.match(body)
    assert name is not None, body
    Path(name[1]).write_text(body)


def refreshed(text: str) -> str:
    """A page with the output that its commands print now; called in an empty folder."""

    wanted = {match.start() for match in blocks(text)}

    def new(match: re.Match[str]) -> str:
        if match.start() not in wanted:
            return match[0]
        if match[1] != "console":
            write_file(match[2])
            return match[0]
        return f"```console\n{_refreshed_block(match[2])}```"

    return FENCE.sub(new, text)


def _refreshed_block(body: str) -> str:
    parts = []
    for example, part in zip(examples(body), re.split(r"^\$ ", body, flags=re.M)[1:], strict=True):
        written = re.match(r"(?:.*\\\n)*.*\n", part)
        assert written is not None, part
        output = shortened(run(example.command), example.shown)
        parts.append(f"$ {written[0]}" + "".join(f"{line}\n" for line in output))
    return "\n".join(parts)


def pages_with_examples() -> Mapping[str, Path]:
    return {
        str(page.relative_to(ROOT)): page for page in PAGES if any(blocks(page.read_text("utf-8")))
    }


@pytest.mark.parametrize("name", pages_with_examples())
def test_every_example_prints_what_the_page_says(name, tmp_path):
    with inside(tmp_path):
        for block in blocks(pages_with_examples()[name].read_text("utf-8")):
            if block[1] != "console":
                write_file(block[2])
                continue
            for example in examples(block[2]):
                printed = run(example.command)
                if not matches(printed, example.shown):
                    assert printed == example.shown, f"{name}: $ {example.command}"


def test_an_ellipsis_stands_for_any_lines():
    assert matches(["a", "b", "c"], ["a", "...", "c"])
    assert matches(["a", "b"], ["a", "..."])
    assert not matches(["a", "b"], ["b", "..."])
    assert shortened(["a", "x", "y", "z"], ["a", "...", "c"]) == ["a", "...", "z"]


def test_a_page_is_refreshed_in_place(tmp_path):
    page = "Text.\n\n```console\n$ ridgeline --version\nold\n```\n\nMore.\n"
    with inside(tmp_path):
        once = refreshed(page)
        assert "old" not in once
        assert refreshed(once) == once
    assert once.startswith("Text.\n\n```console\n$ ridgeline --version\nRidgeline ")
    assert once.endswith("```\n\nMore.\n")


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_says_what_its_command_draws(name, tmp_path):
    fresh = tmp_path / name
    run(f"{PICTURES[name]} --plot {fresh}")
    assert words_of(fresh) == words_of(ROOT / "docs/pictures" / name)


def words_of(picture: Path) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text("utf-8"))


def update(names: list[str]) -> None:
    """Write what the commands print now into the pages, and draw the pictures."""
    import tempfile

    for name, command in PICTURES.items() if not names else ():
        run(f"{command} --plot {ROOT / 'docs/pictures' / name}")

    pages = [Path(name).resolve() for name in names] or list(pages_with_examples().values())
    for page in pages:
        with tempfile.TemporaryDirectory() as folder, inside(Path(folder)):
            text = page.read_text("utf-8")
            new = refreshed(text)
        if new != text:
            page.write_text(new, "utf-8")
            sys.stdout.write(f"updated {page.name}\n")


if __name__ == "__main__":
    if sys.argv[1:2] != ["--update"]:
        sys.exit(__doc__)
    update(sys.argv[2:])
