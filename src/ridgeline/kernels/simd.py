"""Sixteen-lane vectors for numba: the few inner loops that LLVM does not vectorise by itself.

The law of this file: what it emits is plain LLVM IR on `<16 x float>`, which every backend lowers
to what the machine has (one AVX-512 register, two AVX, four SSE or NEON), so that nothing here is
tied to one instruction set. `kernels.cpu` calls it; nobody else does.

Items of a cache are fp32, or bf16 as uint16 (numba has no bf16). Two neighbours of the reduced
dimension lie together, so that one load of sixteen words gives the even and the odd element:

    bf16   word j = [even_j | odd_j]        low half: even, high half: odd
    fp32   sixteen evens, then `pair_items / 2` further on sixteen odds
"""
# ruff: noqa: ARG001 (numba reads an instruction's operands from its signature)

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
LOG2_E = np.float32(1.4426950408889634)

instruction: Callable[[Any], Any] = intrinsic
"""Makes a function that emits IR callable in a compiled one; its first argument is numba's."""

_I16, _I32, _I64, _F32 = ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_FLOATS, _WORDS = ir.VectorType(_F32, LANES), ir.VectorType(_I32, LANES)
# llvmlite and numba.core carry no types.
_variable: Callable[[Any, Any], Any] = cgutils.alloca_once_value
_pointer_kind: Callable[[Any], Any] = types.CPointer

# Contraction lets the backend fuse multiply and add where it can; the order of sums stays fixed.
_FUSE = ("contract",)


def _splat_int(value: int) -> ir.Constant:
    return ir.Constant(_WORDS, [value] * LANES)


def _splat_float(value: float) -> ir.Constant:
    # llvmlite prints the constant as a double; LLVM wants it to be exact in fp32.
    return ir.Constant(_FLOATS, [float(np.float32(value))] * LANES)


def _broadcast(builder: Any, scalar: Any) -> Any:
    first = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), scalar, _I32(0))
    return builder.shuffle_vector(first, ir.Constant(_FLOATS, ir.Undefined), _splat_int(0))


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(builder.fmul(a, b, flags=_FUSE), c, flags=_FUSE)


def _load(builder: Any, pointer: Any, kind: Any) -> Any:
    return builder.load(builder.bitcast(pointer, kind.as_pointer()), align=4)


def _store(builder: Any, vector: Any, pointer: Any) -> None:
    builder.store(vector, builder.bitcast(pointer, vector.type.as_pointer()), align=4)


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _across(builder: Any, vector: Any, join: Callable[[Any, Any, Any], Any]) -> Any:
    """Join all lanes in a tree of four steps; the result is a scalar."""
    for half in (8, 4, 2, 1):
        order = ir.Constant(_WORDS, [(lane + half) % LANES for lane in range(LANES)])
        moved = builder.shuffle_vector(vector, ir.Constant(_FLOATS, ir.Undefined), order)
        vector = join(builder, vector, moved)
    return builder.extract_element(vector, _I32(0))


def _add(builder: Any, a: Any, b: Any) -> Any:
    return builder.fadd(a, b)


def _data(context: Any, builder: Any, kind: Any, value: Any, start: Any) -> Any:
    """Pointer to item `start` of a one-dimensional contiguous array."""
    array = context.make_array(kind)(context, builder, value)
    return builder.gep(array.data, [start])


def _even_odd(builder: Any, base: Any, item: Any, pair_items: Any) -> tuple[Any, Any]:
    """The two vectors of one pair row, whichever way the cache stores it."""
    if base.type.pointee == _I16:
        words = _load(builder, builder.gep(base, [item]), _WORDS)
        even = builder.bitcast(builder.shl(words, _splat_int(16)), _FLOATS)
        return even, builder.bitcast(builder.and_(words, _splat_int(0xFFFF0000)), _FLOATS)
    odd = builder.add(item, builder.lshr(pair_items, _I64(1)))
    even = _load(builder, builder.gep(base, [item]), _FLOATS)
    return even, _load(builder, builder.gep(base, [odd]), _FLOATS)


def _multiply(
    builder: Any,
    sums: Sequence[Sequence[Any]],
    left: Any,
    left_stride: Any,
    panels: Sequence[Any],
    pair_items: Any,
    pairs: Any,
) -> None:
    """sums[row][panel] += left[row, 2i] * even[panel, i] + left[row, 2i+1] * odd[panel, i]."""
    base, starts = panels[0], panels[1:]
    rows = [builder.gep(left, [builder.mul(left_stride, _I64(r))]) for r in range(len(sums))]
    with cgutils.for_range(builder, pairs, intp=_I64) as loop:
        down = builder.mul(loop.index, pair_items)
        loaded = [
            _even_odd(builder, base, builder.add(start, down), pair_items) for start in starts
        ]
        for odd in (0, 1):
            column = builder.add(builder.shl(loop.index, _I64(1)), _I64(odd))
            for row, accumulators in zip(rows, sums, strict=True):
                factor = _broadcast(builder, builder.load(builder.gep(row, [column])))
                for pair, accumulator in zip(loaded, accumulators, strict=True):
                    total = _fma(builder, factor, pair[odd], builder.load(accumulator))
                    builder.store(total, accumulator)


def make_scores(rows: int, panels: int) -> Any:
    """Emit `scores`: queries of `rows` rows times the keys of `panels` cache blocks.

    out[out_start + r*out_stride + p*16 + lane] = sum over d of
    queries[q_start + r*dims + d] * keys[block starting at item starts[first + p]][d, lane].
    """

    @instruction
    def scores(
        typing: Any, queries: Any, q_start: Any, dims: Any, keys: Any, starts: Any, first: Any,
        out: Any, out_start: Any, out_stride: Any,
    ) -> Any:  # fmt: skip
        i64 = types.int64
        signature = types.void(queries, i64, i64, keys, starts, i64, out, i64, i64)

        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kinds = sig.args
            left = _data(context, builder, kinds[0], args[0], args[1])
            base = _data(context, builder, kinds[3], args[3], _I64(0))
            begin = _data(context, builder, kinds[4], args[4], args[5])
            where = [builder.load(builder.gep(begin, [_I64(p)])) for p in range(panels)]
            zero = _splat_float(0.0)
            sums = [[_variable(builder, zero) for _ in range(panels)] for _ in range(rows)]
            pairs = builder.lshr(args[2], _I64(1))
            _multiply(builder, sums, left, args[2], [base, *where], _I64(2 * LANES), pairs)
            target = _data(context, builder, kinds[6], args[6], args[7])
            for r, accumulators in enumerate(sums):
                for p, accumulator in enumerate(accumulators):
                    at = builder.add(builder.mul(args[8], _I64(r)), _I64(p * LANES))
                    _store(builder, builder.load(accumulator), builder.gep(target, [at]))
            return context.get_dummy_value()

        return signature, emit

    return scores


def make_values(rows: int, panels: int) -> Any:
    """Emit `values`: add weights of `rows` rows times the values of consecutive keys.

    out[out_start + r*dims + p*16 + lane] += sum over keys 0..2*pairs of
    weights[w_start + r*w_stride + key] * values[key, column + p*16 + lane], where key k lies in
    the block that starts at item starts[k // 16].
    """

    @instruction
    def values(
        typing: Any, weights: Any, w_start: Any, w_stride: Any, cache: Any, starts: Any,
        pairs: Any, column: Any, out: Any, out_start: Any, dims: Any,
    ) -> Any:  # fmt: skip
        i64 = types.int64
        signature = types.void(weights, i64, i64, cache, starts, i64, i64, out, i64, i64)

        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            kinds = sig.args
            left = _data(context, builder, kinds[0], args[0], args[1])
            base = _data(context, builder, kinds[3], args[3], _I64(0))
            begin = _data(context, builder, kinds[4], args[4], _I64(0))
            target = _data(context, builder, kinds[7], args[7], args[8])
            packed = 2 if base.type.pointee == _I16 else 1
            places = [
                [
                    builder.gep(
                        target, [builder.add(builder.mul(args[9], _I64(r)), _I64(p * LANES))]
                    )
                    for p in range(panels)
                ]
                for r in range(rows)
            ]
            sums = [
                [_variable(builder, _load(builder, at, _FLOATS)) for at in line] for line in places
            ]
            half = _I64(LANES // 2)
            blocks = builder.sdiv(builder.add(args[5], _I64(LANES // 2 - 1)), half)
            with cgutils.for_range(builder, blocks, intp=_I64) as loop:
                block = builder.load(builder.gep(begin, [loop.index]))
                block = builder.add(block, builder.mul(args[6], _I64(packed)))
                where = [builder.add(block, _I64(p * LANES * packed)) for p in range(panels)]
                rest = builder.sub(args[5], builder.mul(loop.index, half))
                here = builder.select(builder.icmp_signed("<", rest, half), rest, half)
                from_ = builder.gep(left, [builder.mul(loop.index, _I64(LANES))])
                pair_items = builder.shl(args[9], _I64(1))
                _multiply(builder, sums, from_, args[2], [base, *where], pair_items, here)
            for line, accumulators in zip(places, sums, strict=True):
                for at, accumulator in zip(line, accumulators, strict=True):
                    _store(builder, builder.load(accumulator), at)
            return context.get_dummy_value()

        return signature, emit

    return values


@instruction
def row_max(typing: Any, row: Any, start: Any, blocks: Any) -> Any:
    """The largest of `16 * blocks` scores from `start` (at least one block)."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _data(context, builder, sig.args[0], args[0], args[1])
        top = _variable(builder, _load(builder, at, _FLOATS))
        with cgutils.for_range(builder, args[2], intp=_I64) as loop:
            here = builder.gep(at, [builder.mul(loop.index, _I64(LANES))])
            larger = _larger(builder, _load(builder, here, _FLOATS), builder.load(top))
            builder.store(larger, top)
        return _across(builder, builder.load(top), _larger)

    return types.float32(row, types.int64, types.int64), emit


# 2**f on [-0.5, 0.5]: Taylor coefficients ln(2)**n / n!, error below one fp32 rounding.
EXP2_TERMS = (
    1.5403530393381609e-4,
    1.3333558146428443e-3,
    9.618129107628477e-3,
    5.550410866482158e-2,
    0.2402265069591007,
    0.6931471805599453,
    1.0,
)
EXP2_LEAST = -126.0


def _exp2(builder: Any, x: Any) -> Any:
    """2**x for x <= 0; zero where fp32 would become subnormal."""
    vanishes = builder.fcmp_ordered("<", x, _splat_float(EXP2_LEAST))
    x = _larger(builder, x, _splat_float(EXP2_LEAST))
    whole = builder.fptosi(builder.fsub(x, _splat_float(0.5)), _WORDS)
    rest = builder.fsub(x, builder.sitofp(whole, _FLOATS))
    power = _splat_float(EXP2_TERMS[0])
    for term in EXP2_TERMS[1:]:
        power = _fma(builder, power, rest, _splat_float(term))
    exponent = builder.shl(builder.add(whole, _splat_int(127)), _splat_int(23))
    result = builder.fmul(power, builder.bitcast(exponent, _FLOATS))
    return builder.select(vanishes, _splat_float(0.0), result)


@instruction
def row_exp2(typing: Any, row: Any, start: Any, blocks: Any, top: Any) -> Any:
    """Replace `16 * blocks` scores by 2**(score - top), in place; their sum."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _data(context, builder, sig.args[0], args[0], args[1])
        sums = _variable(builder, _splat_float(0.0))
        top = _broadcast(builder, args[3])
        with cgutils.for_range(builder, args[2], intp=_I64) as loop:
            here = builder.gep(at, [builder.mul(loop.index, _I64(LANES))])
            power = _exp2(builder, builder.fsub(_load(builder, here, _FLOATS), top))
            _store(builder, power, here)
            builder.store(builder.fadd(builder.load(sums), power), sums)
        return _across(builder, builder.load(sums), _add)

    return types.float32(row, types.int64, types.int64, types.float32), emit


@instruction
def widen(typing: Any, item: Any) -> Any:
    """An item as fp32: bf16 (a uint16) by shifting its bits up, fp32 as it is."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if sig.args[0] == types.float32:
            return args[0]
        return builder.bitcast(builder.shl(builder.zext(args[0], _I32), _I32(16)), _F32)

    return types.float32(item), emit


@instruction
def narrow(typing: Any, like: Any, value: Any) -> Any:
    """An fp32 value as an item of the array `like`: bf16 rounds to nearest, ties to even."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        if sig.return_type == types.float32:
            return args[1]
        bits = builder.bitcast(args[1], _I32)
        odd = builder.and_(builder.lshr(bits, _I32(16)), _I32(1))
        rounded = builder.add(builder.add(bits, _I32(0x7FFF)), odd)
        return builder.trunc(builder.lshr(rounded, _I32(16)), _I16)

    return like.dtype(like, types.float32), emit


@instruction
def float_of_bits(typing: Any, bits: Any) -> Any:
    """The fp32 number with these 32 bits."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _F32)

    return types.float32(types.int32), emit


@instruction
def pointer_to(typing: Any, address: Any, like: Any) -> Any:
    """A machine address as a pointer to items of the array `like`, for `numba.carray`."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        kind = context.get_data_type(sig.return_type.dtype)
        return builder.inttoptr(args[0], kind.as_pointer())

    return _pointer_kind(like.dtype)(types.int64, like), emit


@instruction
def take_next(typing: Any, counter: Any) -> Any:
    """Add one to counter[0], atomically; the value before. Threads share out work with it."""

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = _data(context, builder, sig.args[0], args[0], _I64(0))
        return builder.atomic_rmw("add", at, _I64(1), "monotonic")

    return types.int64(counter), emit
