"""A corpus from crawl to shards: bytes and cores of each stage, and the rate a run reads at."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.training import training_flop_per_token, training_tokens_per_s
from ridgeline.quantity import Number, Provenance, Quantity, ceil, given, holds, log2
from ridgeline.show import show
from ridgeline.topics import Answer, a_model, amount, an_accelerator, choice, count, topic

_WIDTHS = ("2", "3", "4")
_BITS = 8
_MEASURED = "measured on one core; yours will differ"


@topic("corpus-pipeline", subject="data")
def corpus_pipeline(
    model: Model = a_model("llama-3.1-405b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    tokens: Number = amount("15T", "Ttokens", "Tokens that the run trains on.", least="1"),
    bytes_per_token: Number = amount(
        "4 B/token",
        "B/token",
        "Clean text of a token.",
        least="0.5 B/token",
        interval=("3.5 B/token", "4.5 B/token"),
        source="English prose with a vocabulary of 32k to 128k",
    ),
    raw_bytes: Number = amount("3 PB", "PB", "Crawl before extraction.", least="1 GB"),
    extracted_share: Number = amount(
        "0.1", "", "Share of the crawl that is text.", most="1", interval=("0.05", "0.15")
    ),
    documents: Number = amount("5B", "", "Documents that are compared.", least="1"),
    permutations: Number = count(128, "Hashes of a MinHash signature."),
    id_width: str = choice("4", _WIDTHS, "Bytes of a token's id."),
    vocabulary: Number = count(128_256, "Tokens of the vocabulary."),
    hash_bytes: Number = amount("4 B", "B", "Bytes of one hash.", least="1 B"),
    deadline_s: Number = amount("14d", "s", "Time for each stage.", least="1h"),
    extract_bytes_per_s: Number = amount(
        "2 MB/s",
        "MB/s",
        "Crawl that one core extracts.",
        least="1 kB/s",
        interval=("0.5 MB/s", "10 MB/s"),
        source="assumed: HTML parsing and boilerplate removal",
    ),
    filter_bytes_per_s: Number = amount(
        "5 MB/s",
        "MB/s",
        "Text that one core filters.",
        least="1 kB/s",
        interval=("1 MB/s", "20 MB/s"),
        source="assumed: language and quality classifiers",
    ),
    sign_bytes_per_s: Number = amount(
        "8 MB/s",
        "MB/s",
        "Text that one core signs for near-duplicates.",
        least="1 kB/s",
        interval=("2 MB/s", "100 MB/s"),
        source=f"128 permutations in numpy, {_MEASURED}",
    ),
    tokenize_bytes_per_s: Number = amount(
        "1 MB/s",
        "MB/s",
        "Text that one core tokenizes.",
        least="1 kB/s",
        interval=("1 MB/s", "4 MB/s"),
        source=f"byte-pair encoding; 2.4 MB/s {_MEASURED}",
    ),
    shard_bytes: Number = amount("64 MiB", "MiB", "Size of one shard.", least="1 MiB"),
    gpus: Number = count(10_240, "Devices that train.", noun="GPUs"),
    mfu: Number = amount("0.4", "", "Share of the peak that is reached.", least="0.001", most="1"),
) -> Answer:
    """Bytes and cores of each stage from crawl to token shards, and the rate training reads at.

    All stages run at once, as a pipeline, and each is done within the deadline.
    """
    one_byte = given(
        1, "B/token", name="byte_per_token", provenance=Provenance.DEFINED, source="8 bits"
    )
    least = (ceil(log2(vocabulary) / _BITS) * one_byte).named("least_id_bytes", "B/token")
    _check_width(id_width, vocabulary, least)
    clean = (tokens * bytes_per_token).named("clean_bytes")
    text = (raw_bytes * extracted_share).named("extracted_bytes")
    if not holds(clean <= text):
        raise SpecError(
            f"{show(clean)} of clean text do not come out of {show(text)}",
            where="raw",
            remedy="a larger crawl, fewer tokens, or a larger extracted-share",
        )
    each = given(float(id_width), "B/token", name="id_bytes_per_token", source="you")
    ids = (tokens * each).named("id_bytes")
    flop = training_flop_per_token(model.active_params)
    rate = training_tokens_per_s(gpus, accelerator.flop_per_s("bf16"), mfu, flop)
    stages = (
        ("extract", raw_bytes, text, extract_bytes_per_s),
        ("filter", text, text, filter_bytes_per_s),
        ("near-duplicates", text, clean, sign_bytes_per_s),
        ("tokenize", clean, ids, tokenize_bytes_per_s),
    )
    cores = {name: _cores(took, per_core, deadline_s) for name, took, _, per_core in stages}
    most = cores["extract"]
    for name in ("filter", "near-duplicates", "tokenize"):
        most = most + cores[name]
    signatures = (documents * permutations * hash_bytes).named("signature_bytes")
    core_days = (clean / tokenize_bytes_per_s).named("tokenize_core_s", "days")
    return Answer(
        "{clean_bytes} of clean text become {id_bytes} of ids in {shards} shards of "
        "{shard_bytes}; training reads {tokens_per_s}, and the run lasts {run_s}",
        {
            "id_bytes": ids,
            "least_id_bytes": least,
            "clean_bytes": clean,
            "kept_share": (clean / raw_bytes).named("kept_share", "%"),
            "tokens_per_s": rate.named("tokens_per_s"),
            "read_bytes_per_s": (rate * ids / tokens).named("read_bytes_per_s"),
            "shards": ceil(ids / shard_bytes).named("shards"),
            "signature_bytes": signatures,
            "tokenize_core_s": core_days,
            "tokenize_cores": cores["tokenize"],
            "stage_cores": most.named("stage_cores", "cores", note="all stages at once"),
            "run_s": (tokens / rate).named("run_s", "days"),
        },
        table=tuple(
            {
                "stage": name,
                "reads": took,
                "writes": gave,
                "a core": per_core,
                "cores": cores[name],
                "share_of_work": (cores[name] / most).named("share_of_work", "%"),
            }
            for name, took, gave, per_core in stages
        ),
        notes=(
            "tokenizing is the small part: extraction and near-duplicates read the crawl, "
            "and hold most of the time",
            "two bytes number 65,536 tokens; a vocabulary of 128k needs three or four",
        ),
    )


def _check_width(id_width: str, vocabulary: Quantity, least: Quantity) -> None:
    if not holds(least.value <= float(id_width)):
        most = 2 ** (8 * int(id_width))
        raise SpecError(
            f"{id_width} bytes number {most:,} tokens, the vocabulary has {show(vocabulary)}",
            where="id-width",
            remedy=" or ".join(one for one in _WIDTHS if holds(least.value <= float(one)))
            or "a vocabulary below four billion",
        )


def _cores(took: Quantity, per_core: Quantity, deadline: Quantity) -> Quantity:
    told: Quantity = (took / per_core / deadline).named("cores", "cores")
    return told
