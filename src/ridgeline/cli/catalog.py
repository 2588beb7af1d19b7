"""`ridgeline catalog`: list, show, check, and add a model from its config.json."""

import json
import os
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ridgeline.catalog.accelerators import accelerators
from ridgeline.catalog.check import Finding, Recount, findings, recounts
from ridgeline.catalog.hf_config import row_of
from ridgeline.catalog.models import Model, model, models
from ridgeline.catalog.network import parts
from ridgeline.catalog.own_file import add_row
from ridgeline.catalog.rows import is_ours, overlay, rows
from ridgeline.catalog.sheet import KINDS, Sheet, overview, sheet
from ridgeline.catalog.xids import xids
from ridgeline.errors import CatalogError
from ridgeline.quantity import Quantity
from ridgeline.show import number, show

_JSON = click.option("--json", "as_json", is_flag=True, help="Everything as JSON.")


@click.group()
def catalog() -> None:
    """Look up models, accelerators, networks and fault codes, each value with its source."""


# list


@catalog.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@_JSON
def list_rows(kind: str | None, as_json: bool) -> None:
    """List what the catalog has, of one KIND or how much of each."""
    if kind is None:
        _overview(as_json)
    elif as_json:
        _json(list(rows(kind).values()))
    else:
        _print(_LISTS[kind]())
        click.echo(f"ridgeline catalog show {next(iter(rows(kind)))}")


def _overview(as_json: bool) -> None:
    counted = overview()
    if as_json:
        _json(counted)
        return
    for kind, rows_of_it in counted.items():
        click.echo(f"{rows_of_it:>4} {kind:14} ridgeline catalog list {kind}")


def _models() -> Table:
    table = _table("model", "params>", "active>", "KV cache a token>", "context>", "attention")
    for one in models():
        is_text = one.data.get("type", "decoder") == "decoder"
        table.add_row(
            one.id,
            _short(one.params),
            _short(one.active_params),
            _cache(one) if is_text else "",
            number(one.data.get("context", 0)),
            _attention(one),
        )
    return table


def _cache(one: Model) -> str:
    grows = one.kv_bytes_per_token()
    return show(grows) if grows.value else f"{show(one.fixed_bytes_per_sequence())} in all"


def _attention(one: Model) -> str:
    kind = one.data.get("type", one.attention["kind"])
    mix = one.layer_mix
    return f"{kind}: " + ", ".join(f"{n} {k}" for k, n in mix.items()) if len(mix) > 1 else kind


def _short(count: Quantity) -> str:
    """Parameters as people say them: 70.6 B."""
    value = float(count.value)
    scale, letter = (1e9, "B") if value >= 1e9 else (1e6, "M")
    return f"{number(value / scale, 3)} {letter}"


def _accelerators() -> Table:
    table = _table("accelerator", "memory>", "memory/s>", "dense bf16>", "link>", "TDP>", "price>")
    for one in accelerators():
        rates = one.data["flops_dense"]
        dtype = "bf16" if rates.get("bf16") else next(iter(rates))
        table.add_row(
            one.id,
            show(one.memory_bytes, 3),
            show(one.memory_bytes_per_s, 3),
            show(one.flop_per_s(dtype), 3) + ("" if dtype == "bf16" else f" {dtype}"),
            _or_empty(one, "link_bytes_per_s"),
            _or_empty(one, "tdp_w"),
            _or_empty(one, "price_usd_per_s"),
        )
    return table


def _network() -> Table:
    table = _table("part", "kind", "ports>", "a port, one way>", "power>", "price>")
    for one in parts():
        cells = (_or_empty(one, name) for name in ("ports", "bytes_per_s", "w", "price_usd"))
        table.add_row(one.id, one.kind, *cells)
    return table


def _or_empty(one: Any, name: str) -> str:
    try:
        return show(getattr(one, name), 3)
    except CatalogError:
        return ""


def _xids() -> Table:
    table = _table("code>", "severity", "do first", "meaning")
    for one in xids():
        table.add_row(str(one.code), one.severity, one.action, one.meaning)
    return table


_LISTS = {
    "models": _models, "accelerators": _accelerators, "network": _network, "xids": _xids,
}  # fmt: skip


# show


@catalog.command("show")
@click.argument("name")
@_JSON
def show_row(name: str, as_json: bool) -> None:
    """Show all that is known of NAME, with sources, and what follows from it."""
    found = sheet(name)
    if as_json:
        _json(_sheet_data(found))
        return
    click.echo(f"{found.title}   ({found.kind}: {found.id})")
    if found.values:
        _print(_values(found.values))
    if found.derived:
        click.echo("\nfollows from these")
        _print(_values(found.derived, sources=False))
    if found.text:
        click.echo("")
    for field, text in found.text.items():
        click.echo(f"{field}: {text}")
    for note in found.notes:
        click.echo(f"note: {note}")
    for source in dict.fromkeys(one.source for one in found.values.values()):
        told = source.removeprefix(f"{found.title}: ")
        click.echo(f"source {_letter(found, source)}: {told}")


def _values(values: dict[str, Quantity], *, sources: bool = True) -> Table:
    table = _table("value", "is>", *(("from",) if sources else ()))
    lettered = list(dict.fromkeys(one.source for one in values.values()))
    for name, one in values.items():
        cells = [name, show(one, 5)]
        if sources:
            note = f"   {one.note}" if one.note and len(one.note) < 30 else ""
            cells.append(f"{_LETTERS[lettered.index(one.source)]}{note}")
        table.add_row(*cells)
    return table


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _letter(found: Sheet, source: str) -> str:
    lettered = list(dict.fromkeys(one.source for one in found.values.values()))
    return _LETTERS[lettered.index(source)]


def _sheet_data(found: Sheet) -> dict[str, Any]:
    return {
        "kind": found.kind,
        "id": found.id,
        "name": found.title,
        "values": {name: _quantity(one) for name, one in found.values.items()},
        "derived": {name: _quantity(one) for name, one in found.derived.items()},
        "row": found.row,
    }


def _quantity(one: Quantity) -> dict[str, Any]:
    return {
        "value": one.value,
        "unit": one.unit.symbol,
        "written": show(one),
        "source": one.source,
        "provenance": str(one.provenance),
        "note": one.note,
        "interval": one.interval,
    }


# check


@catalog.command("check")
@_JSON
def check_rows(as_json: bool) -> None:
    """Recount every model's parameters, and find numbers that contradict each other.

    Exit status 1 where a model is more than 2 % off what is published, or anything contradicts.
    """
    counted, found = recounts(), findings()
    bad = [one for one in counted if not one.ok]
    if as_json:
        _json(_check_data(counted, found))
    else:
        _show_check(counted, found, bad)
    if bad or found:
        raise SystemExit(1)


def _show_check(counted: list[Recount], found: list[Finding], bad: list[Recount]) -> None:
    table = _table("model", "published>", "counted>", "difference>", "published as")
    for one in counted:
        said = "" if one.published is None else f"{one.published:,}"
        table.add_row(one.id, said, f"{one.counted:,}", _difference(one), one.basis)
    _print(table)
    exact = sum(one.exact for one in counted)
    click.echo(
        f"{len(counted)} models recounted from their architecture: {exact} to the last parameter, "
        f"{len(counted) - exact - len(bad)} within 2 % or their rounding, {len(bad)} not."
    )
    for finding in found:
        click.echo(f"{finding.where}: {finding.problem}")
    told = f"{len(found)} contradictions" if found else "Nothing contradicts"
    checked = f"{len(accelerators())} accelerators, {len(parts())} parts of networks"
    click.echo(f"{told} in links, rates, caches and sources of {checked} and all models.")


def _difference(one: Recount) -> str:
    if one.difference is None:
        return ""
    if one.exact:
        return "exact"
    return f"{one.difference:+.2%}" + ("" if one.ok else "  WRONG")


def _check_data(counted: list[Recount], found: list[Finding]) -> dict[str, Any]:
    return {
        "models": [
            {
                "id": one.id,
                "published": one.published,
                "counted": one.counted,
                "difference": one.difference,
                "basis": one.basis,
                "ok": one.ok,
            }
            for one in counted
        ],
        "findings": [{"where": one.where, "problem": one.problem} for one in found],
    }


# add-model


@catalog.command("add-model")
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--id", "named", help="Name of the row. [of its folder]")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Your catalog file. [RIDGELINE_CATALOG, else my-catalog.yaml]",
)
@click.option("--source", default="", help="Where the config is from. [its path]")
@click.option("--replace", is_flag=True, help="Even where Ridgeline has a model of that name.")
@_JSON
def add_model(
    config: Path, named: str | None, file: Path | None, source: str, replace: bool, as_json: bool
) -> None:
    """Add the model of a Hugging Face CONFIG.json to your own catalog file, counted.

    The file's folder has to be there.
    """
    if named is not None and not named.strip():
        raise CatalogError("is empty", where="--id", remedy="a name, or no --id")
    row = row_of(config, named=named or "", source=source)
    if is_ours("models", row["id"]) and not replace:
        told = f"Ridgeline's catalog has a model called {row['id']}, which this would hide"
        raise CatalogError(told, where="--id", remedy="--id with another name, or --replace")
    own = file or Path(os.environ.get("RIDGELINE_CATALOG") or "my-catalog.yaml")
    with overlay({"models": [row]}, where=str(config)):
        made = model(row["id"])
    add_row(own, "models", row)
    if as_json:
        _json(row)
        return
    counts = f"{_short(made.params)} parameters, {_short(made.active_params)} active"
    cache = f"{_cache(made)} of cache ({_attention(made)})"
    click.echo(f"{made.id}: {counts}, {cache}, {show(made.weights_bytes('native'))} as shipped")
    if is_ours("models", made.id):
        click.echo(f"{made.id} of {own} now hides the one that Ridgeline ships")
    click.echo(f"written into {own}; RIDGELINE_CATALOG={own} makes every plan know it")


# How it is written.


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        right = column.endswith(">")
        table.add_column(
            column.removesuffix(">"), justify="right" if right else "left", no_wrap=right
        )
    return table


def _print(table: Table) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=160)
    with console.capture() as written:
        console.print(table)
    click.echo("\n".join(line.rstrip() for line in written.get().splitlines()))


def _json(data: Any) -> None:
    click.echo(json.dumps(data, indent=1, default=str))
