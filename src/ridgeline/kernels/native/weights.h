// Logits become weights, and a share of their sum a token: the draw in order of ids.
//
// Law of this file: sums of blocks are in double, and a row's weights need no memory of its size
// unless a rule drops some of them: a block's are made again when the draw has fallen on it.
#pragma once
#include "chunks.h"

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
    const int32_t* ids;  // [count]
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

// A block's sum, lane by lane: a chunk's few floats of a lane as floats, what they give as doubles.
struct Sum {
    VecDouble low = {}, high = {};

    inline __attribute__((always_inline)) void add(Vec chunk) {
        alignas(64) float lanes[LANES];
        store(lanes, chunk);
        low += doubles(lanes);
        high += doubles(lanes + LANES / 2);
    }
    double total() const {
        VecDouble both = low + high;
        double sum = 0;
        for (int i = 0; i < LANES / 2; i++) sum += both[i];
        return sum;
    }
};

inline double sum_of_block(const float* values) {
    Sum sum;
    for (int64_t chunk = 0; chunk < BLOCK; chunk += CHUNK) {
        Vec even = {}, odd = {};
        for (int64_t i = chunk; i < chunk + CHUNK; i += 2 * LANES) {
            even += load(values + i);
            odd += load(values + i + LANES);
        }
        sum.add(even + odd);
    }
    return sum.total();
}

// Logits to weights: exp((logit - peak) / temperature); what is below 1e-38 is zero.
struct Softmax {
    Vec largest, factor;

    Softmax(float peak, double temperature)
        : largest(broadcast(peak)), factor(broadcast(float(LOG2_E / temperature))) {}

    inline __attribute__((always_inline)) Vec weigh(const float* logits, float* to) const {
        Vec y = (load(logits) - largest) * factor, none = {}, weight = exp2_of(y);
        weight = y < -126.0f ? none : weight;
        store(to, weight);
        return weight;
    }
    // A block's weights, with zeros behind the row's end; returns their sum.
    double weigh_block(const Chunks& logits, int64_t block, float* to) const {
        Sum sum;
        for (int64_t chunk = block * (BLOCK / CHUNK), i = 0; i < BLOCK / CHUNK; chunk++, i++) {
            if (chunk >= logits.number) {
                for (int64_t j = 0; j < CHUNK; j++) to[i * CHUNK + j] = 0;
                continue;
            }
            const float* at = logits.at(chunk);
            Vec even = {}, odd = {};
            for (int64_t j = 0; j < CHUNK; j += 2 * LANES) {
                even += weigh(at + j, to + i * CHUNK + j);
                odd += weigh(at + j + LANES, to + i * CHUNK + j + LANES);
            }
            sum.add(even + odd);
        }
        return sum.total();
    }
};

// The sum of all weights, and of each block; no weight is kept.
inline double sum_all(const Chunks& logits, const Softmax& softmax, Scratch& scratch) {
    double total = 0;
    for (int64_t block = 0; block * BLOCK < logits.count; block++)
        total += scratch.sums[block] = softmax.weigh_block(logits, block, scratch.values);
    return total;
}

inline Weights weigh(
    const Chunks& from, const int32_t* ids, const Softmax& softmax, Scratch& scratch) {
    Weights weights{scratch.values, ids, from.count, scratch.sums, 0};
    for (int64_t block = 0; block * BLOCK < from.count; block++) {
        double sum = softmax.weigh_block(from, block, weights.values + block * BLOCK);
        weights.total += weights.sums[block] = sum;
    }
    return weights;
}

// The block in which the running sum exceeds `target`, and the sum before it. Only rounding can
// lead past the end; then it is the last one with a weight.
struct Reached {
    int64_t block = 0;
    double before = 0;

    Reached(const double* sums, int64_t blocks, double target) {
        double sum = 0;
        for (int64_t i = 0; i < blocks; i++) {
            if (sums[i] > 0) block = i, before = sum;
            if ((sum += sums[i]) > target) return;
        }
    }
    // The place in that block, whose weights these are.
    int64_t place(const float* weights, double target) const {
        double sum = before;
        int64_t last = 0;
        for (int64_t i = 0; i < BLOCK; i++) {
            if (weights[i] > 0) last = i;
            if ((sum += weights[i]) > target) break;
        }
        return block * BLOCK + last;
    }
};

// The token where the running sum exceeds that share of the whole.
inline int32_t pick(const Weights& weights, double chance) {
    double target = chance * weights.total;
    Reached reached(weights.sums, weights.padded() / BLOCK, target);
    return weights.ids[reached.place(weights.values + reached.block * BLOCK, target)];
}

// The same of a row whose blocks' sums are in the scratch; that one block is weighed again.
inline int32_t pick_of_all(
    const Chunks& logits, const Softmax& softmax, double target, Scratch& scratch) {
    Reached reached(scratch.sums, padded_to_blocks(logits.count) / BLOCK, target);
    softmax.weigh_block(logits, reached.block, scratch.values);
    return int32_t(reached.place(scratch.values, target));
}

}  // namespace
