// What happens to rows between two products: norm, rotation, silu, storing keys and values.
//
// Law of this file: one row at a time, its result depending on that row alone. Buffers' columns are
// padded to a multiple of 64 with zeros (so are norm weights), and stay so.
#pragma once
#include <cmath>

#include "gemm.h"
#include "quantise.h"

namespace {

inline int64_t padded(int64_t columns) { return (columns + 63) / 64 * 64; }

// LANES values of an activation to a product's input format; `narrowly`: the model computes in bf16.
inline __attribute__((always_inline)) void put(
    Line line, int64_t column, Vec v, int32_t format, bool narrowly) {
    if (format == RL_BF16) return store((Bf16*)line.at(column * 2), v);
    if (narrowly) {
        Bf16 bits[LANES];
        store(bits, v);
        v = load(bits);
    }
    store((float*)line.at(column * 4), v);
}

// x * sigmoid(x). Far below zero 2**y would overflow; with 2**127 it is already nothing.
inline __attribute__((always_inline)) Vec silu(Vec x) {
    Vec y = x * -LOG2_E;
    y = y > 127.0f ? broadcast(127.0f) : y;
    return x * reciprocal(1.0f + exp2_of(y));
}

// x / rms(x) * weight (Zhang and Sennrich 2019), [columns] padded.
inline void norm_row(
    const float* x, const float* weight, int64_t hidden, float eps, Line to, int32_t format,
    bool narrowly) {
    Vec sums[4] = {};
    int64_t columns = padded(hidden);
    for (int64_t i = 0; i < columns; i += 4 * LANES)
        for (int j = 0; j < 4; j++) {
            Vec v = load(x + i + j * LANES);
            sums[j] += v * v;
        }
    float total = sum_of((sums[0] + sums[1]) + (sums[2] + sums[3]));
    Vec factor = broadcast(1.0f / std::sqrt(total / float(hidden) + eps));
    for (int64_t i = 0; i < columns; i += LANES)
        put(to, i, load(x + i) * factor * load(weight + i), format, narrowly);
}

// Norm one head (where `weight` is not null) and rotate its halves (Su et al. 2021), as Hugging
// Face lays them out: dimension i turns with i + H/2.
inline void rotate_head(
    const float* head, int64_t dims, const float* weight, float eps, const float* cos,
    const float* sin, float* to) {
    float factor = 1.0f;
    if (weight) {
        Vec squares = {};
        for (int64_t i = 0; i < dims; i += LANES) squares += load(head + i) * load(head + i);
        factor = 1.0f / std::sqrt(sum_of(squares) / float(dims) + eps);
    }
    int64_t half = dims / 2, i = 0;
    for (; i + LANES <= half; i += LANES) {
        Vec low = load(head + i), high = load(head + half + i), c = load(cos + i), s = load(sin + i);
        if (weight) {
            low *= factor * load(weight + i);
            high *= factor * load(weight + half + i);
        }
        store(to + i, low * c - high * s);
        store(to + half + i, high * c + low * s);
    }
    for (; i < half; i++) {  // heads of 16 dimensions have halves of 8
        float low = head[i], high = head[half + i];
        if (weight) low *= factor * weight[i], high *= factor * weight[half + i];
        to[i] = low * cos[i] - high * sin[i];
        to[half + i] = high * cos[i] + low * sin[i];
    }
}

// One key's H dimensions into column `key` of its block, one value's into its row.
inline void store_key(const float* line, int64_t dims, Bf16* block, int key) {
    for (int64_t d = 0; d < dims; d += 16) {  // a head's dimensions are a multiple of 16
        Bf16 bits[16];
        for (int i = 0; i < 16; i += LANES) store(bits + i, load(line + d + i));
        for (int i = 0; i < 16; i += 2) std::memcpy(block + (d + i) * 16 + key * 2, bits + i, 4);
    }
}
inline void store_key(const float* line, int64_t dims, float* block, int key) {
    for (int64_t d = 0; d < dims; d++) block[d * 16 + key] = line[d];
}
inline void store_value(const float* line, int64_t dims, Bf16* block, int key) {
    // One element at a time: the neighbour's may be written by another thread just now.
    Bf16* to = block + key / 2 * 2 * dims + key % 2;
    for (int64_t d = 0; d < dims; d += 16) {
        Bf16 bits[16];
        for (int i = 0; i < 16; i += LANES) store(bits + i, load(line + d + i));
        for (int i = 0; i < 16; i++) to[2 * (d + i)] = bits[i];
    }
}
inline void store_value(const float* line, int64_t dims, float* block, int key) {
    float* to = block + key * dims;
    for (int64_t d = 0; d < dims; d++) to[d] = line[d];
}

// The same for an int8 cache: numbers here, and their scale, one for each token and head.
inline float store_key(const float* line, int64_t dims, int8_t* block, int key) {
    float scale = scale_of(line, dims), inverse = inverse_of(scale);
    for (int64_t d = 0; d < dims; d++)
        block[d / 2 * 32 + key * 2 + d % 2] = nearest(line[d], inverse);
    return scale;
}
inline float store_value(const float* line, int64_t dims, int8_t* block, int key) {
    float scale = scale_of(line, dims), inverse = inverse_of(scale);
    for (int64_t d = 0; d < dims; d++)
        block[key / 2 * 2 * dims + 2 * d + key % 2] = nearest(line[d], inverse);
    return scale;
}

}  // namespace
