// Numbers as int8 times a scale: the largest magnitude is 127 times it, halves round to even.
//
// Law of this file: no number is undefined. Where one that is quantised is NaN, the scale is NaN;
// where one is infinite, so is the scale; and what is computed with it says so.
#pragma once
#include "vec.h"

namespace {

// Zero where it would overflow, as zero's would: then all numbers are zero.
inline float inverse_of(float scale) { return scale >= __FLT_MIN__ ? 1.0f / scale : 0.0f; }

// |x * inverse| < 128 as a whole number: in a sum with 1.5 * 2**52 the last bit is 1, and since the
// product is exact in double, it is rounded once. The low byte is the number in two's complement.
inline int8_t nearest(float x, float inverse) {
    double shifted = double(x) * double(inverse) + 6755399441055744.0;
    uint64_t bits;
    std::memcpy(&bits, &shifted, 8);
    return int8_t(bits);
}

// The same of LANES: a fused multiply-add rounds once too.
inline __attribute__((always_inline)) VecByte nearest(Vec x, Vec inverse) {
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_convertvector((VecBits)(x * inverse + 12582912.0f), VecByte);  // 1.5 * 2**23
#else
    VecByte numbers;
    for (int i = 0; i < LANES; i++) numbers[i] = nearest(x[i], inverse[i]);
    return numbers;
#endif
}

// The scale of `columns` numbers. Without its sign, a float is the larger the larger its bits are,
// and a NaN larger than all.
template <class Item>
inline float scale_of(const Item* row, int64_t columns) {
    VecInt most = {};
    int64_t i = 0;
    for (; i + LANES <= columns; i += LANES) {
        VecInt bits = (VecInt)load(row + i) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    int32_t largest_bits = 0;
    for (int lane = 0; lane < LANES; lane++)
        largest_bits = most[lane] > largest_bits ? most[lane] : largest_bits;
    for (; i < columns; i++) {
        float x = widen(row[i]);
        int32_t bits;
        std::memcpy(&bits, &x, 4);
        bits &= 0x7fffffff;
        largest_bits = bits > largest_bits ? bits : largest_bits;
    }
    float largest;
    std::memcpy(&largest, &largest_bits, 4);
    return largest / 127.0f;
}

// One row of bf16 as int8 times the scale that is returned.
inline float quantise(const Bf16* row, int64_t columns, int8_t* to) {
    float scale = scale_of(row, columns);
    Vec inverse = broadcast(inverse_of(scale));
    for (int64_t i = 0; i < columns; i += LANES) store_as(to + i, nearest(load(row + i), inverse));
    return scale;
}

}  // namespace
