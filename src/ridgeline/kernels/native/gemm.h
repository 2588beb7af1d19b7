// Matrix products of a few to some hundred rows with packed weights.
//
// Law of this file: every element is summed over k in one order that depends on nothing but the
// level and the kind, so a row's result is the same bit for bit whatever other rows there are.
//
// Weights [out, in] are packed into panels of 32 outputs; a panel is a row of tile pairs, each tile
// what a matrix instruction takes as its right operand, and read once from front to back:
//
//     panel   [k tiles] [2 halves] [16 steps of k] [16 outputs] [4 bytes]
//             4 bytes: one fp32, two bf16 or four int8 weights, neighbours in k
//
// Padding (outputs to 32, k to a whole tile) is zero. Activations are lines (line.h) padded to whole
// tiles, in the format that `format_of` says, with rows up to a multiple of 32 that may hold anything.
#pragma once
#include "abi.h"
#include "line.h"
#include "tiles.h"
#include "vec.h"

namespace {

constexpr int PANEL = 32;  // outputs of a panel, and rows of a block
#if defined(__AVX512BF16__)
constexpr bool BF16_DOT = true;
#else
constexpr bool BF16_DOT = false;
#endif
#if defined(__AMX_BF16__)
constexpr bool AMX = true;
#else
constexpr bool AMX = false;
#endif

// How a product takes its activations: without bf16 dot products as fp32 (rounded to bf16 before).
constexpr int32_t format_of(int32_t kind) {
    return kind == RL_BF16 && !BF16_DOT ? int32_t(RL_F32) : kind;
}
constexpr int depth_of(int32_t kind) { return kind == RL_F32 ? 16 : kind == RL_BF16 ? 32 : 64; }
constexpr int bytes_of(int32_t format) { return format == RL_F32 ? 4 : format == RL_BF16 ? 2 : 1; }
inline int64_t k_tiles(const RlLinear& l) {
    return (l.in + depth_of(l.kind) - 1) / depth_of(l.kind);
}
inline int64_t panels(const RlLinear& l) { return (l.out + PANEL - 1) / PANEL; }

// One step of k for LANES outputs: `word` points at the activations that meet these weights.
template <int KIND>
struct Dot;

template <>
struct Dot<RL_F32> {
    using Sum = Vec;
    static constexpr int WORD = 4;
    static inline __attribute__((always_inline)) void add(Sum& sum, const char* word, VecBits w) {
        sum += broadcast(load_as<float>(word)) * (Vec)w;
    }
};

template <>
struct Dot<RL_BF16> {
    using Sum = Vec;
    static constexpr int WORD = BF16_DOT ? 4 : 8;
    static inline __attribute__((always_inline)) void add(Sum& sum, const char* word, VecBits w) {
#if defined(__AVX512BF16__)
        __m512i pair = _mm512_set1_epi32(load_as<int32_t>(word));
        sum = (Vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)pair, (__m512bh)(__m512i)w);
#else
        sum += broadcast(load_as<float>(word)) * low_of(w);
        sum += broadcast(load_as<float>(word + 4)) * high_of(w);
#endif
    }
};

template <>
struct Dot<RL_INT8> {
    using Sum = VecInt;
    static constexpr int WORD = 4;
    static inline __attribute__((always_inline)) void add(Sum& sum, const char* word, VecBits w) {
        int32_t quad = load_as<int32_t>(word);
#if defined(__AVX512VNNI__)
        // Unsigned times signed: 128 too much an activation, which `exact` takes away again.
        __m512i shifted = _mm512_set1_epi32(quad ^ int32_t(0x80808080));
        sum = (VecInt)_mm512_dpbusd_epi32((__m512i)sum, shifted, (__m512i)w);
#elif defined(__AVX2__)
        __m256i q = _mm256_set1_epi32(quad), weights = (__m256i)w;
        __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8);
        __m256i w_even = _mm256_srai_epi16(_mm256_slli_epi16(weights, 8), 8);
        sum += (VecInt)_mm256_madd_epi16(even, w_even);
        sum += (VecInt)_mm256_madd_epi16(_mm256_srai_epi16(q, 8), _mm256_srai_epi16(weights, 8));
#else
        for (int i = 0; i < 4; i++)
            sum += (int32_t)(int8_t)(quad >> 8 * i) * ((VecInt)(w << (24 - 8 * i)) >> 24);
#endif
    }
    static inline __attribute__((always_inline)) VecInt exact(VecInt sum, const int32_t* weights) {
#if defined(__AVX512VNNI__) && !defined(__AMX_INT8__)
        return sum - 128 * load_as<VecInt>(weights);
#else
        (void)weights;
        return sum;
#endif
    }
};

// R rows times one panel into c [R][32]; HALVES of the panel at a time, as registers allow. `a` is
// where the first row begins; the others share its tiles.
template <int KIND, int R, int HALVES>
inline void few_rows(const char* a, const char* panel, int64_t tiles, char* c) {
    using D = Dot<KIND>;
    using Sum = typename D::Sum;
    constexpr int V = 16 / LANES;
    for (int half = 0; half < 2; half += HALVES) {
        Sum sums[R][HALVES][V] = {};
        for (int64_t tile = 0; tile < tiles; tile++) {
            const char* w = panel + (2 * tile + half) * TILE_BYTES;
            const char* from = a + tile * (D::WORD / 4) * TILE_BYTES;
            for (int k = 0; k < 16; k++, w += 64) {
                const char* word = from + k * D::WORD / 64 * TILE_BYTES + k * D::WORD % 64;
#pragma GCC unroll 2
                for (int h = 0; h < HALVES; h++)
#pragma GCC unroll 4
                    for (int v = 0; v < V; v++) {
                        VecBits bits = load_as<VecBits>(w + h * TILE_BYTES + v * LANES * 4);
#pragma GCC unroll 8
                        for (int r = 0; r < R; r++) D::add(sums[r][h][v], word + r * 64, bits);
                    }
            }
        }
        for (int r = 0; r < R; r++)
            for (int h = 0; h < HALVES; h++)
                for (int v = 0; v < V; v++)
                    store_as(c + r * PANEL * 4 + (half + h) * 64 + v * LANES * 4, sums[r][h][v]);
    }
}

template <int KIND>
inline void block_of_vectors(
    const char* a, int64_t row_bytes, int rows, const char* panel, int64_t tiles, char* c) {
    constexpr int MOST = LANES == 16 ? 8 : LANES == 8 ? 4 : 2;
    constexpr int HALVES = LANES == 16 ? 2 : 1;
    for (int row = 0, now; row < rows; row += now, c += now * PANEL * 4) {
        const char* from = a + row / 16 * 16 * row_bytes + row % 16 * 64;
        int left = rows - row;
        if (left >= MOST)
            few_rows<KIND, MOST, HALVES>(from, panel, tiles, c), now = MOST;
        else if (MOST > 4 && left >= 4)
            few_rows<KIND, 4, HALVES>(from, panel, tiles, c), now = 4;
        else if (MOST > 2 && left >= 2)
            few_rows<KIND, 2, HALVES>(from, panel, tiles, c), now = 2;
        else
            few_rows<KIND, 1, HALVES>(from, panel, tiles, c), now = 1;
    }
}

// Weights that will be wanted, asked for early, some cache lines for each pair of tiles used.
//
// One block of rows reads each panel once and at memory's pace: then whole pairs, the fifth from here
// (`near`). Several blocks read the same panel, from the second cache after the first one: then each
// of them asks for its share of the next panel, so that reading that hides behind their work.
struct Ask {
    static constexpr int PAIR_LINES = 2 * TILE_BYTES / 64, AHEAD_BYTES = 4 * 2 * TILE_BYTES;
    const char* at;
    int share;  // lines
    bool near;

    Ask(const char* panel, int64_t panel_bytes, int blocks)
        : at(panel + (blocks == 1 ? AHEAD_BYTES : panel_bytes)), share(PAIR_LINES / blocks),
          near(blocks == 1) {}

    inline __attribute__((always_inline)) void more() {
#if defined(__x86_64__)
        if (near)  // a loop of its own, which is unrolled
            for (int i = 0; i < PAIR_LINES; i++) _mm_prefetch(at + i * 64, _MM_HINT_T0);
        else
            for (int i = 0; i < share; i++) _mm_prefetch(at + i * 64, _MM_HINT_T1);
        at += share * 64;
#endif
    }
};

#if defined(__AMX_BF16__)
// A macro, since the instructions want their tiles' numbers as they are written.
#define RL_MULTIPLY_TILES(c, a, b)      \
    do {                                \
        if constexpr (KIND == RL_BF16)  \
            _tile_dpbf16ps(c, a, b);    \
        else                            \
            _tile_dpbssd(c, a, b);      \
    } while (false)

// Whole tiles: rows beyond `rows` are computed too, and not read by anybody.
template <int KIND>
inline void block_of_tiles(
    const char* a, int64_t row_bytes, int rows, const char* panel, int64_t tiles, Ask& ask, char* c) {
    const char* below = a + 16 * row_bytes;
    settle();
    _tile_zero(0);
    _tile_zero(1);
    if (rows <= 16) {
        for (int64_t k = 0; k < tiles; k++, panel += 2 * TILE_BYTES) {
            ask.more();
            _tile_loadd(4, a + k * TILE_BYTES, 64);
            _tile_loadd(6, panel, 64);
            _tile_loadd(7, panel + TILE_BYTES, 64);
            RL_MULTIPLY_TILES(0, 4, 6);
            RL_MULTIPLY_TILES(1, 4, 7);
        }
    } else {
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t k = 0; k < tiles; k++, panel += 2 * TILE_BYTES) {
            ask.more();
            _tile_loadd(4, a + k * TILE_BYTES, 64);
            _tile_loadd(5, below + k * TILE_BYTES, 64);
            _tile_loadd(6, panel, 64);
            _tile_loadd(7, panel + TILE_BYTES, 64);
            RL_MULTIPLY_TILES(0, 4, 6);
            RL_MULTIPLY_TILES(1, 4, 7);
            RL_MULTIPLY_TILES(2, 5, 6);
            RL_MULTIPLY_TILES(3, 5, 7);
        }
        _tile_stored(2, c + 16 * PANEL * 4, PANEL * 4);
        _tile_stored(3, c + 16 * PANEL * 4 + 64, PANEL * 4);
    }
    _tile_stored(0, c, PANEL * 4);
    _tile_stored(1, c + 64, PANEL * 4);
}
#undef RL_MULTIPLY_TILES
#endif

// c [32][32] = up to 32 rows of activations times one panel; sums are fp32, or int32 for int8. `a`:
// where the first row, a multiple of 16, begins.
template <int KIND>
inline void block(
    const char* a, int64_t row_bytes, int rows, const char* panel, int64_t tiles, Ask& ask, char* c) {
#if defined(__AMX_BF16__)
    if constexpr (KIND != RL_F32) return block_of_tiles<KIND>(a, row_bytes, rows, panel, tiles, ask, c);
#endif
    (void)ask;
    block_of_vectors<KIND>(a, row_bytes, rows, panel, tiles, c);
}

// What an int8 block's sums mean: times the rows' and the outputs' scales.
inline void rescale(const RlLinear& l, const float* row_scales, int rows, int64_t column, char* c) {
    const float* scales = l.scales + column;
    const int32_t* sums = l.sums + column;
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < PANEL; i += LANES) {
            char* at = c + (r * PANEL + i) * 4;
            VecInt sum = Dot<RL_INT8>::exact(load_as<VecInt>(at), sums + i);
            store_as(at, __builtin_convertvector(sum, Vec) * (row_scales[r] * load(scales + i)));
        }
}

}  // namespace
