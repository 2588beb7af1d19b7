// Softmax of attention, one step of keys at a time: scores become weights relative to the largest
// score so far, and what was summed before shrinks to it.
//
// Law of this file: a masked key's weight is exactly 0; a row's sums never depend on other rows.
//
// Source: Milakov and Gimelshein 2018 (online softmax), Dao et al. 2022 (FlashAttention).
#pragma once
#include "attention_work.h"

namespace {
namespace attention {

// The second one where either is NaN.
inline __attribute__((always_inline)) Vec larger(Vec a, Vec b) {
#if defined(__AVX512F__)
    return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (Vec)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (Vec)_mm_max_ps((__m128)a, (__m128)b);
#else
    return a > b ? a : b;
#endif
}

inline __attribute__((always_inline)) float largest(Vec v) {
#if defined(__AVX512F__)
    return _mm512_reduce_max_ps((__m512)v);
#else
    return most_of(v);
#endif
}

inline __attribute__((always_inline)) float total_of(Vec v) {
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)v);
#else
    return sum_of(v);
#endif
}

// 2**y for y <= 1, exactly 0 from -127 down, NaN for NaN. Relative error under 2e-7: the minimax polynomial on
// [0, 1] among those that give exactly 1 at 0.
inline __attribute__((always_inline)) Vec weight_of(Vec y) {
#if defined(__AVX512F__)
    Vec rest = (Vec)_mm512_reduce_ps((__m512)y, _MM_FROUND_TO_NEG_INF);
#else
    y = larger(broadcast(-127.0f), y);  // the second one where either is NaN
    VecInt biased = __builtin_convertvector(y + 127.0f, VecInt);
    Vec rest = y - (__builtin_convertvector(biased, Vec) - 127.0f);
#endif
    Vec power = broadcast(1.8671302e-3f);
    power = power * rest + 9.0170298e-3f;
    power = power * rest + 5.5799913e-2f;
    power = power * rest + 2.4016444e-1f;
    power = power * rest + 6.9315130e-1f;
    power = power * rest + 1.0f;
#if defined(__AVX512F__)
    return (Vec)_mm512_scalef_ps((__m512)power, (__m512)y);  // by 2**floor(y)
#else
    return power * (Vec)((VecBits)biased << 23);
#endif
}

// The first `live` lanes, the others LEAST.
inline __attribute__((always_inline)) Vec masked(Vec v, int live) {
    VecInt lane;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    return lane < live ? v : broadcast(LEAST);
}

// Two vectors of weights as the products take them; `rounded`: to bf16, though kept as floats.
inline __attribute__((always_inline)) void put_weights(Bf16* to, Vec first, Vec second, bool) {
#if defined(__AVX512BF16__)
    store_as(to, _mm512_cvtne2ps_pbh((__m512)second, (__m512)first));
#else
    store(to, first);
    store(to + LANES, second);
#endif
}
inline __attribute__((always_inline)) Vec rounded_to_bf16(Vec v) {
    VecBits bits = (VecBits)v;
    return (Vec)((bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u);
}
inline __attribute__((always_inline)) void put_weights(
    float* to, Vec first, Vec second, bool rounded) {
    store(to, rounded ? rounded_to_bf16(first) : first);
    store(to + LANES, rounded ? rounded_to_bf16(second) : second);
}

// How the scores of one step become weights: score * factor * key_scales, then * value_scales.
// The scales (of int8 caches) may be null together.
struct Weighing {
    float factor;
    bool rounded;
    const float *key_scales, *value_scales;
};

constexpr int TWO = 2 * LANES;  // keys that are weighed together

// The largest of a row's first `limit` scores, times the factor; the rest of its last two vectors
// becomes LEAST. With scales, the scores are multiplied here. FULL: it sees all keys of the step.
template <bool SCALED, bool FULL>
inline __attribute__((always_inline)) float top_of(float* scores, int limit, const Weighing& how) {
    Vec top = broadcast(LEAST);
    const int end = FULL ? KEYS : up_to(limit, TWO);
#pragma GCC unroll 8
    for (int j = 0; j < end; j += LANES) {
        Vec score = load(scores + j);
        if (SCALED) score = score * load(how.key_scales + j) * how.factor;
        if (!FULL && limit - j < LANES) score = masked(score, limit - j);
        if (SCALED || (!FULL && limit - j < LANES)) store(scores + j, score);
        top = larger(top, score);
    }
    return SCALED ? largest(top) : largest(top) * how.factor;
}

// A row's weights in place of its scores; the sum of each lane.
template <class Operand, bool SCALED, bool FULL>
inline __attribute__((always_inline)) Vec weigh_row(
    float* scores, int limit, float top, const Weighing& how) {
    Vec totals = broadcast(0.0f);
    const int end = FULL ? KEYS : up_to(limit, TWO);
#pragma GCC unroll 8
    for (int j = 0; j < end; j += TWO) {
        Vec first = load(scores + j), second = load(scores + j + LANES);
        first = weight_of(SCALED ? first - top : first * how.factor - top);
        second = weight_of(SCALED ? second - top : second * how.factor - top);
        totals = totals + first + second;
        if (SCALED) first = first * load(how.value_scales + j);
        if (SCALED) second = second * load(how.value_scales + j + LANES);
        put_weights((Operand*)scores + j, first, second, how.rounded);
    }
    return totals;
}

// The new maximum of each row of a chunk, and the factor that brings older sums to it.
template <bool SCALED>
void find_tops(float* scores, int rows, const int* limits, const Weighing& how, float* tops,
               float* shrinks) {
    alignas(64) float highest[CHUNK];
    for (int r = 0; r < CHUNK; r++) highest[r] = LEAST;
    for (int r = 0; r < rows; r++) {
        if (limits[r] == KEYS)
            highest[r] = top_of<SCALED, true>(scores + r * KEYS, KEYS, how);
        else if (limits[r] > 0)
            highest[r] = top_of<SCALED, false>(scores + r * KEYS, limits[r], how);
    }
    for (int r = 0; r < rows; r += LANES) {
        Vec before = load(tops + r), now = larger(before, load(highest + r));
        store(shrinks + r, weight_of(before - now));
        store(tops + r, now);
    }
}

// Scores of `rows` rows become weights, up to `padded` keys; `limits` [rows] says how many keys of
// the step each row sees.
template <class Operand, bool SCALED>
void weigh(float* scores, int rows, const int* limits, int padded, const Weighing& how, float* tops,
           float* totals, float* shrinks) {
    find_tops<SCALED>(scores, rows, limits, how, tops, shrinks);
    for (int r = 0; r < rows; r++) {
        float* line = scores + r * KEYS;
        Vec added = broadcast(0.0f);
        if (limits[r] == KEYS)
            added = weigh_row<Operand, SCALED, true>(line, KEYS, tops[r], how);
        else if (limits[r] > 0)
            added = weigh_row<Operand, SCALED, false>(line, limits[r], tops[r], how);
        for (int j = limits[r] > 0 ? up_to(limits[r], TWO) : 0; j < padded; j += TWO)
            put_weights((Operand*)line + j, Vec{}, Vec{}, false);
        store(totals + r * LANES, load(totals + r * LANES) * shrinks[r] + added);
    }
}

}  // namespace attention
}  // namespace
