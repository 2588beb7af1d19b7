// Numbers as int8 times a scale: the largest magnitude is 127 times it, halves round to even.
//
// Law of this file: no number is undefined. Where one that is quantised is NaN, the scale is NaN;
// where one is infinite, so is the scale; and what is computed with it says so.
#pragma once
#include "line.h"
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
    return low_bytes((VecInt)(x * inverse + 12582912.0f));  // 1.5 * 2**23
#else
    VecByte numbers;
    for (int i = 0; i < LANES; i++) numbers[i] = nearest(x[i], inverse[i]);
    return numbers;
#endif
}

// Without its sign, a float is the larger the larger its bits are, and a NaN larger than all.
inline __attribute__((always_inline)) VecInt larger_size(VecInt most, Vec x) {
    VecInt bits = (VecInt)x & 0x7fffffff;
    return bits > most ? bits : most;
}
inline float scale_of(VecInt most) {
    int32_t bits = 0;
    for (int lane = 0; lane < LANES; lane++) bits = most[lane] > bits ? most[lane] : bits;
    float largest;
    std::memcpy(&largest, &bits, 4);
    return largest / 127.0f;
}

// The scale of `columns` numbers.
inline float scale_of(const float* row, int64_t columns) {
    VecInt most = {};
    int64_t i = 0;
    for (; i + LANES <= columns; i += LANES) most = larger_size(most, load(row + i));
    for (; i < columns; i++) most = larger_size(most, broadcast(row[i]));
    return scale_of(most);
}

// A line of bf16, a multiple of 64 columns, as int8 times the scale that is returned.
inline float quantise(Line row, int64_t columns, Line to) {
    VecInt most = {};
    for (int64_t i = 0; i < columns; i += LANES)
        most = larger_size(most, load((const Bf16*)row.at(i * 2)));
    float scale = scale_of(most);
    Vec inverse = broadcast(inverse_of(scale));
    for (int64_t i = 0; i < columns; i += LANES)
        store_as(to.at(i), nearest(load((const Bf16*)row.at(i * 2)), inverse));
    return scale;
}

}  // namespace
