// Packs weights into the panels that gemm.h draws.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "abi.h"

namespace {

constexpr int PANEL = 32, HALF = 16, STEPS = 16;

uint16_t to_bf16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (x != x) return uint16_t(bits >> 16 | 0x40);
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

int depth_of(int32_t kind) { return kind == RL_F32 ? 16 : kind == RL_BF16 ? 32 : 64; }

// Elements of a tile row's 4 bytes, by kind.
template <class T, class Convert>
void pack_as(const float* weights, int64_t out, int64_t in, T* tiles, Convert convert) {
    constexpr int64_t WORD = 4 / sizeof(T), DEPTH = STEPS * WORD;
    int64_t k_tiles = (in + DEPTH - 1) / DEPTH;
    for (int64_t row = 0; row < (out + PANEL - 1) / PANEL * PANEL; row++) {
        int64_t panel = row / PANEL, half = row % PANEL / HALF, column = row % HALF;
        for (int64_t k = 0; k < k_tiles * DEPTH; k++) {
            int64_t tile = (panel * k_tiles + k / DEPTH) * 2 + half;
            int64_t at = (tile * STEPS + k % DEPTH / WORD) * HALF * WORD + column * WORD + k % WORD;
            tiles[at] = row < out && k < in ? convert(weights[row * in + k], row) : T(0);
        }
    }
}

}  // namespace

#define RL_EXPORT extern "C" __attribute__((visibility("default")))

// Bytes of packed weights.
RL_EXPORT int64_t rl_packed_bytes(int64_t out, int64_t in, int32_t kind) {
    int64_t depth = depth_of(kind), k_tiles = (in + depth - 1) / depth;
    return (out + PANEL - 1) / PANEL * k_tiles * 2 * 1024;
}

// Packs weights [out, in]; int8: symmetric for each output, its largest magnitude being 127 times
// its scale; `sums` are those of the int8 weights. Both [out] and more, unused for other kinds.
RL_EXPORT void rl_pack(const float* weights, int64_t out, int64_t in, int32_t kind, void* tiles,
                       float* scales, int32_t* sums) {
    if (kind == RL_F32) {
        pack_as(weights, out, in, static_cast<float*>(tiles), [](float w, int64_t) { return w; });
    } else if (kind == RL_BF16) {
        pack_as(weights, out, in, static_cast<uint16_t*>(tiles),
                [](float w, int64_t) { return to_bf16(w); });
    } else {
        for (int64_t row = 0; row < out; row++) {
            float most = 0;
            for (int64_t k = 0; k < in; k++) most = std::max(most, std::fabs(weights[row * in + k]));
            scales[row] = most / 127.0f;
            sums[row] = 0;
        }
        pack_as(weights, out, in, static_cast<int8_t*>(tiles), [&](float w, int64_t row) {
            float inverse = scales[row] >= __FLT_MIN__ ? 1.0f / scales[row] : 0.0f;
            auto q = int8_t(std::nearbyint(double(w) * inverse));  // rounded once, halves to even
            sums[row] += q;
            return q;
        });
    }
}
