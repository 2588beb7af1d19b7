// A row of logits cut into chunks, and the tokens of it that can matter, found without a sort.
//
// Law of this file: exact. The maxima of disjoint groups say where large values are; what they
// leave over is looked at value by value. No std templates (vec.h says why).
#pragma once
#include <math.h>

#include "vec.h"

namespace {

constexpr int64_t CHUNK = 128, VECTORS = CHUNK / LANES;
constexpr float NEVER = -INFINITY;

inline int64_t chunks_of(int64_t count) { return (count + CHUNK - 1) / CHUNK; }

// One bit for each lane that is at least `floor`.
inline __attribute__((always_inline)) uint32_t reaching(Vec v, Vec floor) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)v, (__m512)floor, _CMP_GE_OQ);
#elif defined(__AVX2__)
    return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps((__m256)v, (__m256)floor, _CMP_GE_OQ)));
#elif defined(__SSE2__)
    return uint32_t(_mm_movemask_ps(_mm_cmpge_ps((__m128)v, (__m128)floor)));
#else
    uint32_t bits = 0;
    for (int i = 0; i < LANES; i++) bits |= uint32_t(v[i] >= floor[i]) << i;
    return bits;
#endif
}

// A row as whole chunks: the last one, if it is not whole, is a copy padded with -inf.
struct Chunks {
    const float* row;
    int64_t count, whole, number;
    alignas(64) float tail[CHUNK];

    Chunks(const float* row, int64_t count)
        : row(row), count(count), whole(count / CHUNK), number(chunks_of(count)) {
        for (int64_t i = 0; i < CHUNK; i++) {
            int64_t at = whole * CHUNK + i;
            tail[i] = at < count ? row[at] : NEVER;
        }
    }
    const float* at(int64_t chunk) const { return chunk < whole ? row + chunk * CHUNK : tail; }
};

// The largest of a row, NaN if any is NaN; in `maxima` [chunks][LANES] the largest of each lane.
inline float peak_of(const Chunks& chunks, float* maxima) {
    Vec most = broadcast(NEVER);
    VecInt strange = {};
    for (int64_t chunk = 0; chunk < chunks.number; chunk++) {
        const float* at = chunks.at(chunk);
        Vec here = broadcast(NEVER);
        for (int64_t i = 0; i < VECTORS; i++) {
            Vec v = load(at + i * LANES);
            strange |= v != v;
            here = at_least(here, v);
        }
        store(maxima + chunk * LANES, here);
        most = at_least(most, here);
    }
    for (int i = 0; i < LANES; i++)
        if (strange[i]) return NAN;
    return most_of(most);
}

// Where `value`, which is there, comes first.
inline int64_t first_of(const Chunks& chunks, const float* maxima, float value) {
    Vec wanted = broadcast(value);
    for (int64_t chunk = 0;; chunk++) {
        if (!reaching(load(maxima + chunk * LANES), wanted)) continue;
        const float* at = chunks.at(chunk);
        for (int64_t i = 0; i < VECTORS; i++)
            if (uint32_t bits = reaching(load(at + i * LANES), wanted))
                return chunk * CHUNK + i * LANES + __builtin_ctz(bits);
    }
}

// Writes those lanes of `v` that `bits` name, and their ids, the first lane's being `first`; returns
// how many they are. What it writes behind them, up to LANES in all, is nothing.
inline __attribute__((always_inline)) int64_t append(
    Vec v, uint32_t bits, int32_t first, float* values, int32_t* ids) {
#if defined(__AVX512F__)
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i numbers = _mm512_add_epi32(lanes, _mm512_set1_epi32(first));
    store(values, (Vec)_mm512_maskz_compress_ps(__mmask16(bits), (__m512)v));
    store_as(ids, _mm512_maskz_compress_epi32(__mmask16(bits), numbers));
    return __builtin_popcount(bits);
#else
    int64_t written = 0;
    for (; bits; bits &= bits - 1) {
        int lane = __builtin_ctz(bits);
        values[written] = v[lane];
        ids[written++] = first + lane;
    }
    return written;
#endif
}

// All that reach `floor` (not -inf), in order of ids, padded with -inf to a whole chunk.
inline int64_t collect(
    const Chunks& chunks, const float* maxima, float floor, int32_t* ids, float* values) {
    Vec least = broadcast(floor);
    int64_t found = 0;
    for (int64_t chunk = 0; chunk < chunks.number; chunk++) {
        if (!reaching(load(maxima + chunk * LANES), least)) continue;
        const float* at = chunks.at(chunk);
        for (int64_t i = 0; i < CHUNK; i += LANES)
            found += append(
                load(at + i), reaching(load(at + i), least), int32_t(chunk * CHUNK + i),
                values + found, ids + found);
    }
    for (int64_t i = found; i < chunks_of(found) * CHUNK; i++) values[i] = NEVER;
    return found;
}

// Floats in their order as whole numbers, and back; no NaN.
inline int64_t rank_of(float x) {
    int32_t bits;
    __builtin_memcpy(&bits, &x, 4);
    return bits ^ (bits >> 31 & 0x7fffffff);
}
inline float float_of(int64_t rank) {
    int32_t bits = int32_t(rank) ^ (int32_t(rank) >> 31 & 0x7fffffff);
    float x;
    __builtin_memcpy(&x, &bits, 4);
    return x;
}

// The k-th largest of `count` values, a multiple of LANES, by halving what it can be; 1 <= k.
inline float kth_of(const float* values, int64_t count, int64_t k, float peak) {
    int64_t low = rank_of(NEVER), high = rank_of(peak);
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        Vec floor = broadcast(float_of(middle));
        VecInt minus = {};
        for (int64_t i = 0; i < count; i += LANES) minus += load(values + i) >= floor;
        int64_t reach = 0;
        for (int i = 0; i < LANES; i++) reach -= minus[i];
        if (reach >= k)
            low = middle;
        else
            high = middle - 1;
    }
    return float_of(low);
}

// The k-th largest of the row, 1 <= k <= its count. The k-th largest of the groups' maxima is a
// lower bound, as these are values too: only what reaches it is looked at. `ids`, `values`: scratch.
inline float kth_largest(
    const Chunks& chunks, const float* maxima, int64_t k, float peak, int32_t* ids, float* values) {
    int64_t groups = chunks.number * LANES;
    float bound = k <= groups ? kth_of(maxima, groups, k, peak) : NEVER;
    if (bound == NEVER) bound = -__FLT_MAX__;  // then the k-th is -inf, or any finite value
    int64_t found = collect(chunks, maxima, bound, ids, values);
    return found < k ? NEVER : kth_of(values, chunks_of(found) * CHUNK, k, peak);
}

// The ids of the `wanted` largest, largest first, of equals the lower id first; wanted <= count.
inline void name_largest(
    const Chunks& chunks, const float* maxima, int64_t wanted, float peak, int32_t* ids,
    float* values, int32_t* to) {
    if (wanted == 0) return;
    float kth = kth_largest(chunks, maxima, wanted, peak, ids, values);
    int64_t found = collect(chunks, maxima, kth > NEVER ? kth : -__FLT_MAX__, ids, values);
    int64_t named = 0;
    for (int64_t i = 0; i < found; i++) {  // `values` and `ids` before i are the list so far, sorted
        float value = values[i];
        int32_t id = ids[i];
        if (named == wanted && value <= values[named - 1]) continue;
        int64_t place = named < wanted ? named++ : named - 1;
        for (; place > 0 && values[place - 1] < value; place--) {
            values[place] = values[place - 1];
            ids[place] = ids[place - 1];
        }
        values[place] = value;
        ids[place] = id;
    }
    for (int64_t i = 0; i < named; i++) to[i] = ids[i];
    for (int64_t id = 0; named < wanted; id++)  // fewer are finite
        if (chunks.at(id / CHUNK)[id % CHUNK] == NEVER) to[named++] = int32_t(id);
}

}  // namespace
