"""Names of steps as words for titles and axes: `kv_bytes_per_token` is `KV bytes per token`."""

_CAPITALS = {"kv", "gpu", "gpus", "hbm", "tp", "pp", "dp", "ttft", "tpot", "mfu", "nic", "cpu"}
_UNITS = {"s", "bytes", "tokens", "usd", "w", "flop", "k", "j", "kg", "m3"}


def phrase(name: str) -> str:
    """The name without underscores and, unless it is a rate, without its unit."""
    words = name.rsplit(".", 1)[-1].split("_")
    if "per" not in words[1:] and len(words) > 1 and words[-1] in _UNITS:
        words = words[:-1]
    return " ".join(word.upper() if word in _CAPITALS else word for word in words)
