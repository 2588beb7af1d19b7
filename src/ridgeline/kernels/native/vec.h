// Vectors of floats as wide as this level's registers, and bf16.
//
// Law of this file: GCC's and clang's vector types, so that one text is AVX-512, AVX2, SSE2 or NEON
// by how it is compiled. Everything has internal linkage: were two levels to share a function, the
// linker would keep one of them, for a processor that may not be this one.
#pragma once
#include <cstdint>
#include <cstring>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float Vec __attribute__((vector_size(LANES * 4)));
typedef int32_t VecInt __attribute__((vector_size(LANES * 4)));
typedef uint32_t VecBits __attribute__((vector_size(LANES * 4)));
typedef uint16_t VecHalf __attribute__((vector_size(LANES * 2)));
typedef int8_t VecByte __attribute__((vector_size(LANES)));

using Bf16 = uint16_t;  // its bits

template <class V>
inline __attribute__((always_inline)) V load_as(const void* from) {
    V v;
    std::memcpy(&v, from, sizeof v);
    return v;
}
template <class V>
inline __attribute__((always_inline)) void store_as(void* to, V v) {
    std::memcpy(to, &v, sizeof v);
}

inline __attribute__((always_inline)) Vec broadcast(float x) { return x - Vec{}; }

// The even (low) and odd (high) element of every pair of bf16.
inline __attribute__((always_inline)) Vec low_of(VecBits pairs) { return (Vec)(pairs << 16); }
inline __attribute__((always_inline)) Vec high_of(VecBits pairs) {
    return (Vec)(pairs & 0xffff0000u);
}

inline float widen(Bf16 x) {
    uint32_t bits = uint32_t(x) << 16;
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}
inline float widen(float x) { return x; }

// To the nearest, ties to even; a NaN stays one.
inline Bf16 to_bf16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (x != x) return Bf16(bits >> 16 | 0x40);
    return Bf16((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline void narrow(float x, Bf16* to) { *to = to_bf16(x); }
inline void narrow(float x, float* to) { *to = x; }

// LANES neighbours as floats, and back.
inline __attribute__((always_inline)) Vec load(const float* from) { return load_as<Vec>(from); }
inline __attribute__((always_inline)) Vec load(const Bf16* from) {
    // GCC 12 makes several instructions of a conversion where there is one.
#if defined(__AVX512F__)
    return (Vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_as<__m256i>(from)), 16);
#elif defined(__AVX2__)
    return (Vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_as<__m128i>(from)), 16);
#else
    return (Vec)(__builtin_convertvector(load_as<VecHalf>(from), VecBits) << 16);
#endif
}
inline __attribute__((always_inline)) Vec load(const int8_t* from) {
    return __builtin_convertvector(load_as<VecByte>(from), Vec);
}
inline __attribute__((always_inline)) void store(float* to, Vec v) { store_as(to, v); }
inline __attribute__((always_inline)) void store(Bf16* to, Vec v) {
#if defined(__AVX512BF16__)
    store_as(to, _mm512_cvtneps_pbh((__m512)v));
#else
    VecBits bits = (VecBits)v;
    VecBits rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    VecBits quiet = bits >> 16 | 0x40;
    VecBits chosen = v == v ? rounded : quiet;
    store_as(to, __builtin_convertvector(chosen, VecHalf));
#endif
}

// The low byte of each.
inline __attribute__((always_inline)) VecByte low_bytes(VecInt v) {
#if defined(__AVX512F__)
    return (VecByte)_mm512_cvtepi32_epi8((__m512i)v);
#else
    return __builtin_convertvector(v, VecByte);
#endif
}

inline __attribute__((always_inline)) Vec at_least(Vec a, Vec b) { return a > b ? a : b; }

inline float sum_of(Vec v) {
    float total = 0;
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) v[i] += v[i + width];
    total = v[0];
    return total;
}
inline float most_of(Vec v) {
    for (int width = LANES / 2; width; width /= 2)
        for (int i = 0; i < width; i++) v[i] = v[i] > v[i + width] ? v[i] : v[i + width];
    return v[0];
}

// 2**y for y <= 127; 0 (to 1e-38) from -126 down. Relative error under 2e-7.
inline __attribute__((always_inline)) Vec exp2_of(Vec y) {
    y = y < -126.0f ? broadcast(-126.0f) : y;
    // y + 126.5 >= 0: rounds. Without a sign, since a NaN becomes the least of all numbers.
    VecBits whole = (VecBits)__builtin_convertvector(y + 126.5f, VecInt) - 126;
    Vec rest = y - __builtin_convertvector((VecInt)whole, Vec);  // within +-0.5
    Vec power = broadcast(1.5252733804059841e-5f);
    power = power * rest + 1.5403530393381608e-4f;
    power = power * rest + 1.3333558146428443e-3f;
    power = power * rest + 9.618129107628477e-3f;
    power = power * rest + 5.550410866482158e-2f;
    power = power * rest + 2.402265069591007e-1f;
    power = power * rest + 6.931471805599453e-1f;
    power = power * rest + 1.0f;
    return power * (Vec)((whole + 127) << 23);
}

// 1 / x for 1 <= x <= 2**127. Relative error under 2e-7: to divide would take longer than all else
// that a silu needs.
inline __attribute__((always_inline)) Vec reciprocal(Vec x) {
#if defined(__AVX512F__)
    Vec near = (Vec)_mm512_rcp14_ps((__m512)x);
    return near * (2.0f - x * near);
#else
    return 1.0f / x;
#endif
}

constexpr float LOG2_E = 1.4426950408889634f;

}  // namespace
