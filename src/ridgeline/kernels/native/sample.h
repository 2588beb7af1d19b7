// One token for each row of logits: temperature, min-p, top-k, top-p, and a draw in order of ids.
//
// Law of this file: the rules of serving/engine/draw.py, which is the oracle. A row is one thread's,
// so its outcome depends neither on the batch nor on the number of threads. Sums are in double.
#pragma once
#include "chunks.h"
#include "pool.h"
#include "sampling.h"

namespace {

// Half as many floats as a register holds, and as doubles.
typedef float VecFew __attribute__((vector_size(LANES * 2)));
typedef double VecDouble __attribute__((vector_size(LANES * 4)));

constexpr int64_t BLOCK = 4 * CHUNK;  // summed together

inline int64_t padded_to_blocks(int64_t count) { return (count + BLOCK - 1) / BLOCK * BLOCK; }

// One thread's scratch for rows of V words, padded to whole blocks.
struct Scratch {
    float *values, *others, *maxima;
    int32_t* ids;
    double* sums;

    Scratch(char* at, int64_t vocab) {
        int64_t padded = padded_to_blocks(vocab);
        values = (float*)at;
        others = values + padded;
        ids = (int32_t*)(others + padded);
        sums = (double*)(ids + padded);
        maxima = (float*)(sums + padded / BLOCK * 8);  // whole cache lines
    }
};

int64_t sample_scratch_bytes(int64_t vocab) {
    int64_t padded = padded_to_blocks(vocab);
    return 3 * padded * 4 + padded / BLOCK * 64 + padded / CHUNK * LANES * 4;
}

// Weights: probabilities but for their common factor.
struct Weights {
    float* values;       // [count], padded with zeros to a whole block
    const int32_t* ids;  // [count]; null: 0, 1, 2 ...
    int64_t count;
    double* sums;  // of each block
    double total;

    int64_t padded() const { return padded_to_blocks(count); }
};

inline __attribute__((always_inline)) VecDouble doubles(const float* values) {
#if defined(__AVX512F__)  // GCC 12 makes two instructions of the conversion below
    return (VecDouble)_mm512_cvtps_pd(_mm256_loadu_ps(values));
#elif defined(__AVX2__)
    return (VecDouble)_mm256_cvtps_pd(_mm_loadu_ps(values));
#else
    return __builtin_convertvector(load_as<VecFew>(values), VecDouble);
#endif
}

inline double sum_of_block(const float* values) {
    constexpr int64_t FEW = LANES / 2;
    VecDouble a = {}, b = {}, c = {}, d = {};
#pragma GCC unroll 1  // GCC 12 spills what it unrolls here
    for (int64_t i = 0; i < BLOCK; i += 4 * FEW) {
        a += doubles(values + i);
        b += doubles(values + i + FEW);
        c += doubles(values + i + 2 * FEW);
        d += doubles(values + i + 3 * FEW);
    }
    a = (a + b) + (c + d);
    double total = 0;
    for (int i = 0; i < FEW; i++) total += a[i];
    return total;
}

// exp((logit - peak) / temperature); what is below 1e-38 is zero.
inline Weights weigh(
    const Chunks& from, const int32_t* ids, float peak, double temperature, Scratch& scratch) {
    Vec factor = broadcast(float(1.4426950408889634 / temperature)), largest = broadcast(peak);
    Vec none = {};
    Weights weights{scratch.values, ids, from.count, scratch.sums, 0};
    for (int64_t i = from.number * CHUNK; i < weights.padded(); i++) weights.values[i] = 0;
    for (int64_t chunk = 0; chunk < from.number; chunk++) {
        const float* at = from.at(chunk);
        float* to = weights.values + chunk * CHUNK;
        for (int64_t i = 0; i < CHUNK; i += LANES) {
            Vec y = (load(at + i) - largest) * factor, weight = exp2_of(y);
            store(to + i, y < -126.0f ? none : weight);
        }
        int64_t block = chunk * CHUNK / BLOCK;
        if ((chunk + 1) * CHUNK % BLOCK == 0 || chunk + 1 == from.number)
            weights.total += weights.sums[block] = sum_of_block(weights.values + block * BLOCK);
    }
    return weights;
}

// The token where the running sum exceeds that share of the whole.
inline int32_t pick(const Weights& weights, double chance) {
    double target = chance * weights.total, before = 0;
    int64_t block = 0;
    for (; block * BLOCK < weights.count; block++) {
        if (before + weights.sums[block] > target) break;
        before += weights.sums[block];
    }
    int64_t end = (block + 1) * BLOCK < weights.count ? (block + 1) * BLOCK : weights.count;
    int64_t last = block * BLOCK;
    for (; last < end; last++) {
        before += weights.values[last];
        if (before > target) break;
    }
    // Only rounding can lead past the end; then it is the last one with a weight.
    if (last >= end) last = end - 1;
    while (last > 0 && weights.values[last] == 0) last--;
    return weights.ids ? weights.ids[last] : int32_t(last);
}

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
        if (turn % 8 == 0 && padded > BLOCK) {
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

// Takes the weight from all that top-p drops; the fewest largest that have that share stay, of
// equals the lower ids.
inline void keep_nucleus(Weights& weights, double top_p, float* others) {
    // Weights under (1 - top_p) / count of the whole are, together, less than 1 - top_p of it: the
    // nucleus lies among the others. A little lower, for rounding.
    double bound = (1 - top_p) * weights.total / double(weights.count) * (1 - 1e-5);
    double target = top_p * weights.total, equals = 0;
    float least = least_of_nucleus(
        weights, target > 0 ? target : 1e-300, float(bound > 1e-37 ? bound : 1e-37), others, equals);
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

// The least logit that min-p and top-k keep; -inf: all.
inline float floor_of(const RlRow& row, const Chunks& logits, float peak, Scratch& scratch) {
    double floor = NEVER;
    if (row.min_p > 0) floor = double(peak) + row.temperature * log(row.min_p);
    if (row.top_k > 0 && row.top_k < logits.count) {
        double kth = kth_largest(logits, scratch.maxima, row.top_k, peak, scratch.ids, scratch.values);
        floor = kth > floor ? kth : floor;
    }
    return float(floor);
}

inline int32_t draw(const RlRow& row, const Chunks& logits, float peak, Scratch& scratch) {
    if (row.temperature <= 0) return int32_t(first_of(logits, scratch.maxima, peak));
    float floor = floor_of(row, logits, peak, scratch);
    Weights weights;
    if (floor == NEVER) {
        weights = weigh(logits, nullptr, peak, row.temperature, scratch);
    } else {
        int64_t kept = collect(logits, scratch.maxima, floor, scratch.ids, scratch.values);
        Chunks some(scratch.values, kept);
        weights = weigh(some, scratch.ids, peak, row.temperature, scratch);
    }
    if (row.top_p < 1) keep_nucleus(weights, row.top_p, scratch.others);
    return pick(weights, row.chance);
}

inline void sample_row(RlRow& row, int64_t vocab, Scratch& scratch) {
    Chunks logits(row.logits, vocab);
    row.peak = peak_of(logits, scratch.maxima);
    row.token = -1;
    if (!(row.peak > NEVER && row.peak < INFINITY)) return;
    row.token = draw(row, logits, row.peak, scratch);
    if (row.alternatives < 0) return;
    Chunks raw(row.raw, vocab);
    float peak = row.raw == row.logits ? row.peak : peak_of(raw, scratch.maxima);
    int64_t named = row.alternatives < vocab ? row.alternatives : vocab;
    name_largest(raw, scratch.maxima, named, peak, scratch.ids, scratch.values, row.likeliest);
    row.normaliser = double(peak) + log(weigh(raw, nullptr, peak, 1.0, scratch).total);
}

struct SampleArguments {
    Pool* pool;
    RlRow* rows;
    int64_t count, vocab;
    char* scratch;
    int64_t scratch_bytes;
};

void sample_of_thread(void* what, int thread) {
    auto& a = *(SampleArguments*)what;
    Scratch scratch(a.scratch + thread * a.scratch_bytes, a.vocab);
    for (int64_t row; (row = a.pool->next(0, thread, a.count)) >= 0;)
        sample_row(a.rows[row], a.vocab, scratch);
}

// All rows, shared among the pool's threads; two rows are done before another thread has woken.
void sample_rows(
    Pool& pool, RlRow* rows, int64_t count, int64_t vocab, char* scratch, int64_t scratch_bytes) {
    SampleArguments arguments{&pool, rows, count, vocab, scratch, scratch_bytes};
    if (count > 2) return pool.run(sample_of_thread, &arguments);
    Scratch own(scratch, vocab);
    for (int64_t row = 0; row < count; row++) sample_row(rows[row], vocab, own);
}

}  // namespace
