// Blocks of the cache made ready for the products, where they cannot be taken as they lie.
//
// Law of this file: what lies in the cache beyond a sequence's last key may be anything, NaN too,
// and reaches no result: its values become zeros here (its scores are masked in the softmax).
#pragma once
#include "attention_work.h"

namespace {
namespace attention {

// One block of values with those from `live` on zeroed, in the cache's own layout.
template <class Item>
inline const char* clear_values(const char* block, int live, int64_t dims, char* to) {
    constexpr bool BY_KEY = SAME<Item, float>;  // [16 keys][H]; else [8 pairs][H][2]
    const int64_t kept = (BY_KEY ? live : (live + 1) / 2 * 2) * dims;
    Item* items = (Item*)to;
    std::memcpy(to, block, size_t(kept) * sizeof(Item));
    if (!BY_KEY && live % 2)
        for (int64_t d = 0; d < dims; d++) items[(live / 2 * dims + d) * 2 + 1] = 0;
    for (int64_t i = kept; i < BLOCK * dims; i++) items[i] = 0;
    return to;
}

// The scales of a step's keys, zeros from its last key on.
inline void gather_scales(const float* from, const Step& step, float* to) {
    for (int i = 0; i < step.blocks; i++)
        std::memcpy(to + i * BLOCK, from + step.scales[i], BLOCK * 4);
    for (int key = step.count; key < KEYS; key++) to[key] = 0.0f;
}

#if defined(__AVX512BF16__)

// Sixteen pairs as bf16; every int8 is exact there.
inline __attribute__((always_inline)) __m512i sixteen_pairs(const Bf16* from) {
    return load_as<__m512i>(from);
}
inline __attribute__((always_inline)) __m512i sixteen_pairs(const int8_t* from) {
    __m512 low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_as<__m128i>(from)));
    __m512 high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_as<__m128i>(from + 16)));
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// A block's keys as [wide / 2][16 keys][2] bf16, dimensions from `dims` to `wide` being zero.
template <class Cached>
inline void gather_keys(const char* block, int64_t dims, int64_t wide, char* to) {
    for (int64_t pair = 0; pair < dims / 2; pair++)
        store_as(to + pair * 64, sixteen_pairs((const Cached*)block + pair * 2 * BLOCK));
    for (int64_t pair = dims / 2; pair < wide / 2; pair++) store_as(to + pair * 64, __m512i{});
}

// A block's values as bf16, keys from `live` on being zero. Each pair of keys is H / 16 vectors:
// pair p's t-th goes to p * pair_bytes + t * vector_bytes.
template <class Cached>
inline void gather_values(
    const char* block, int live, int64_t dims, char* to, int64_t pair_bytes, int64_t vector_bytes) {
    for (int pair = 0; pair < BLOCK / 2; pair++) {
        int keys = live - 2 * pair;
        __m512i keep = _mm512_set1_epi32(keys > 1 ? -1 : keys == 1 ? 0xffff : 0);
        const Cached* from = (const Cached*)block + pair * dims * 2;
        for (int64_t t = 0; t < dims / 16; t++)
            store_as(to + pair * pair_bytes + t * vector_bytes,
                     _mm512_and_si512(sixteen_pairs(from + t * 32), keep));
    }
}

#endif

}  // namespace attention
}  // namespace
