// top-p: which weights are the fewest largest that have a share of the sum. Without a sort.
//
// Law of this file: exact on the weights as they are; sums in double.
#pragma once
#include "weights.h"

namespace {

// The sum of those weights that reach `floor`; `padded` is a multiple of BLOCK.
inline double sum_reaching(const float* weights, int64_t padded, float floor) {
    Vec least = broadcast(floor), none = {};
    double total = 0;
    for (int64_t i = 0; i < padded; i += BLOCK) {
        Vec sums[4] = {};
        for (int64_t j = 0; j < BLOCK; j += 4 * LANES)
            for (int k = 0; k < 4; k++) {
                Vec v = load(weights + i + j + k * LANES);
                sums[k] += v >= least ? v : none;
            }
        total += sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
    return total;
}

// Those weights of [low, high], padded with zeros to whole blocks; `to` may be where they are.
inline int64_t pick_between(const float* weights, int64_t padded, float low, float high, float* to) {
    Vec least = broadcast(low), most = broadcast(high);
    int64_t found = 0;
    for (int64_t i = 0; i < padded; i += LANES) {
        Vec v = load(weights + i);
        uint32_t bits = reaching(v, least) & reaching(most, v);
#if defined(__AVX512F__)
        store(to + found, (Vec)_mm512_maskz_compress_ps(__mmask16(bits), (__m512)v));
        found += __builtin_popcount(bits);
#else
        for (; bits; bits &= bits - 1) to[found++] = weights[i + __builtin_ctz(bits)];
#endif
    }
    int64_t blocks = padded_to_blocks(found);
    for (int64_t i = found; i < blocks; i++) to[i] = 0;
    return blocks;
}

// The least weight of the nucleus: the largest whose sum with all that are larger is at least
// `target` > 0; 0 where rounding leaves none. By halving what it can be, of ever fewer weights.
// `equals`: how many of that weight the nucleus needs.
inline float least_of_nucleus(
    const Weights& weights, double target, float bound, float* others, double& equals) {
    const float* here = weights.values;
    int64_t padded = weights.padded(), low = rank_of(bound), high = rank_of(1.0f);
    double larger = 0;  // the sum of all that are not `here` any more
    for (int turn = 0; low < high; turn++) {
        if (turn % 4 == 3 && padded > BLOCK) {
            larger += sum_reaching(here, padded, float_of(high + 1));
            padded = pick_between(here, padded, float_of(low), float_of(high), others);
            here = others;
        }
        int64_t middle = low + (high - low + 1) / 2;
        if (larger + sum_reaching(here, padded, float_of(middle)) >= target)
            low = middle;
        else
            high = middle - 1;
    }
    float least = float_of(low);
    if (larger + sum_reaching(here, padded, least) < target) return 0;
    equals = ceil((target - larger - sum_reaching(here, padded, float_of(low + 1))) / least);
    return least;
}

// Weights under (1 - top_p) / count of the whole are, together, less than 1 - top_p of it: the
// nucleus lies among the others. A little lower, for rounding.
inline float bound_of_nucleus(double top_p, double whole, int64_t count) {
    double bound = (1 - top_p) * whole / double(count) * (1 - 1e-5);
    return float(bound > 1e-37 ? bound : 1e-37);
}

// Takes the weight from all that top-p drops; the fewest largest whose sum is `target` stay, of
// equals the lower ids.
inline void keep_nucleus(Weights& weights, double target, float bound, float* others) {
    double equals = 0;
    float least =
        least_of_nucleus(weights, target > 0 ? target : 1e-300, bound, others, equals);
    if (least == 0) return;
    int64_t padded = weights.padded();
    Vec floor = broadcast(least), none = {};
    VecInt minus = {};
    for (int64_t i = 0; i < padded; i += LANES) {
        Vec v = load(weights.values + i);
        minus += v == floor;
        store(weights.values + i, v >= floor ? v : none);
    }
    double surplus = -equals;
    for (int i = 0; i < LANES; i++) surplus -= minus[i];
    for (int64_t i = weights.count; surplus > 0 && i-- > 0;)
        if (weights.values[i] == least) weights.values[i] = 0, surplus--;
    weights.total = 0;
    for (int64_t block = 0; block < padded / BLOCK; block++)
        weights.total += weights.sums[block] = sum_of_block(weights.values + block * BLOCK);
}

}  // namespace
