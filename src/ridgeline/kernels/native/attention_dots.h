// The two products of attention with vectors: queries with keys, weights with values.
//
// Law of this file: each result is one chain of sums in the order of its dimensions, or keys,
// however many rows and columns are computed together.
//
// Keys and values alike are rows of pairs (of dimensions, or of keys), and one loop serves both:
//
//     left [rows][pairs][2] x right [pairs][width][2] (fp32: [pairs][2][width]) = [rows][width]
#pragma once
#include "attention_work.h"

namespace {
namespace attention {

// LANES columns of one pair of the right side.
template <class Operand, class Item>
struct Pair {
    Vec low, high;

    inline __attribute__((always_inline)) Pair(const Item* right, int64_t pair, int64_t width) {
        if constexpr (SAME<Item, float>) {
            low = load(right + 2 * pair * width);
            high = load(right + (2 * pair + 1) * width);
        } else if constexpr (SAME<Item, Bf16>) {
            VecBits both = load_as<VecBits>(right + 2 * pair * width);
            low = low_of(both);
            high = high_of(both);
        } else {
            typedef int16_t Both __attribute__((vector_size(LANES * 2)));
            VecInt both = __builtin_convertvector(load_as<Both>(right + 2 * pair * width), VecInt);
            low = __builtin_convertvector((both << 24) >> 24, Vec);
            high = __builtin_convertvector(both >> 8, Vec);
        }
    }
    inline __attribute__((always_inline)) void add(Vec& sum, const float* left) const {
        sum = broadcast(left[0]) * low + sum;
        sum = broadcast(left[1]) * high + sum;
    }
};

#if defined(__AVX512BF16__)
template <>
struct Pair<Bf16, Bf16> {
    __m512bh both;

    inline __attribute__((always_inline)) Pair(const Bf16* right, int64_t pair, int64_t width)
        : both(load_as<__m512bh>(right + 2 * pair * width)) {}
    inline __attribute__((always_inline)) void add(Vec& sum, const Bf16* left) const {
        __m512bh two = (__m512bh)_mm512_set1_epi32(load_as<int32_t>(left));
        sum = (Vec)_mm512_dpbf16_ps((__m512)sum, two, both);
    }
};
#endif

// From one column to the next: items.
template <class Item>
constexpr int STRIDE = SAME<Item, float> ? 1 : 2;

// Sums kept in registers: ROWS x VECTORS.
#if defined(__AVX512F__)
constexpr int ROWS = 4, VECTORS = 4;
#elif defined(__AVX2__)
constexpr int ROWS = 4, VECTORS = 2;
#elif defined(__aarch64__)
constexpr int ROWS = 4, VECTORS = 4;
#else
constexpr int ROWS = 2, VECTORS = 4;
#endif

template <int R, int V, class Operand, class Item>
inline __attribute__((always_inline)) void add_pairs(
    Vec (&sums)[R][V], const Operand* left, int64_t stride, const Item* const (&right)[V],
    int64_t width, int64_t pairs) {
    for (int64_t pair = 0; pair < pairs; pair++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            Pair<Operand, Item> here(right[v], pair, width);
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) here.add(sums[r][v], left + r * stride + 2 * pair);
        }
}

template <int R, int V>
inline __attribute__((always_inline)) void put_sums(
    const Vec (&sums)[R][V], float* to, int64_t stride) {
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) store(to + r * stride + v * LANES, sums[r][v]);
}

// Scores of R rows with the keys of VECTORS vectors, from block `first` on.
template <int R, class Operand, class Item>
void score_rows(
    const Operand* queries, int64_t stride, int64_t dims, const char* const* keys, float* scores) {
    constexpr int PER = BLOCK / LANES;  // vectors of a block
    const Item* right[VECTORS];
    for (int v = 0; v < VECTORS; v++)
        right[v] = (const Item*)keys[v / PER] + v % PER * LANES * STRIDE<Item>;
    Vec sums[R][VECTORS] = {};
    add_pairs(sums, queries, stride, right, BLOCK, dims / 2);
    put_sums(sums, scores, KEYS);
}

// R rows of weighted values, V vectors of dimensions wide, from `column` on.
template <int R, int V, class Operand, class Item>
void value_rows(const Operand* weights, int64_t stride, const char* const* values, int pairs,
                int64_t dims, int64_t column, float* to) {
    Vec sums[R][V] = {};
    for (int block = 0; block * BLOCK / 2 < pairs; block++) {
        const Item* right[V];
        for (int v = 0; v < V; v++)
            right[v] = (const Item*)values[block] + (column + v * LANES) * STRIDE<Item>;
        int left = pairs - block * BLOCK / 2, here = left < BLOCK / 2 ? left : BLOCK / 2;
        add_pairs(sums, weights + block * BLOCK, stride, right, dims, here);
    }
    put_sums(sums, to + column, dims);
}

template <int R, class Operand, class Item>
void value_columns(const Operand* weights, int64_t stride, const char* const* values, int pairs,
                   int64_t dims, float* to) {
    int64_t column = 0;
    for (; column + VECTORS * LANES <= dims; column += VECTORS * LANES)
        value_rows<R, VECTORS, Operand, Item>(weights, stride, values, pairs, dims, column, to);
    for (; column < dims; column += LANES)
        value_rows<R, 1, Operand, Item>(weights, stride, values, pairs, dims, column, to);
}

template <class Operand, class Item>
struct DotProducts {
    static constexpr int THREE = ROWS < 3 ? ROWS : 3;

    // Scores [rows][KEYS] of a chunk's rows with `blocks` blocks of keys.
    static void scores(const Operand* queries, int64_t wide, int64_t dims, int rows,
                       const char* const* keys, int blocks, float* scores) {
        constexpr int TOGETHER = VECTORS * LANES / BLOCK;  // blocks
        for (int block = 0; block < blocks; block += TOGETHER, keys += TOGETHER) {
            for (int row = 0; row < rows; row += ROWS) {
                const Operand* q = queries + row * wide;
                float* to = scores + row * KEYS + block * BLOCK;
                auto compute = rows - row == 1   ? score_rows<1, Operand, Item>
                               : rows - row == 2 ? score_rows<2, Operand, Item>
                               : rows - row == 3 ? score_rows<THREE, Operand, Item>
                                                 : score_rows<ROWS, Operand, Item>;
                compute(q, wide, dims, keys, to);
            }
        }
    }

    // Weighted values [rows][H] of the step's first `keys`; weights lie in lines of scores.
    static void values(const float* weights, int rows, const char* const* values, int keys,
                       int64_t dims, float* sums) {
        constexpr int64_t stride = KEYS * 4 / sizeof(Operand);
        int pairs = (keys + 1) / 2;
        for (int row = 0; row < rows; row += ROWS) {
            const Operand* w = (const Operand*)(weights + row * KEYS);
            float* to = sums + row * dims;
            auto compute = rows - row == 1   ? value_columns<1, Operand, Item>
                           : rows - row == 2 ? value_columns<2, Operand, Item>
                           : rows - row == 3 ? value_columns<THREE, Operand, Item>
                                             : value_columns<ROWS, Operand, Item>;
            compute(w, stride, values, pairs, dims, to);
        }
    }
};

}  // namespace attention
}  // namespace
