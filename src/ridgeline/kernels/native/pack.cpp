// Packs weights into the panels that gemm.h draws; compiled once, for any processor.
#include "abi.h"
#include "gemm.h"
#include "quantise.h"

namespace {

int64_t padded_outputs(int64_t out) { return (out + PANEL - 1) / PANEL * PANEL; }

// Element by element: convert(weight, its row) is what a tile holds.
template <class T, class Convert>
void pack_as(const float* weights, int64_t out, int64_t in, T* tiles, Convert convert) {
    constexpr int64_t HALF = PANEL / 2, STEPS = 16, WORD = 4 / sizeof(T), DEPTH = STEPS * WORD;
    int64_t k_tiles = (in + DEPTH - 1) / DEPTH;
    for (int64_t row = 0; row < padded_outputs(out); row++) {
        int64_t panel = row / PANEL, half = row % PANEL / HALF, column = row % HALF;
        for (int64_t k = 0; k < k_tiles * DEPTH; k++) {
            int64_t tile = (panel * k_tiles + k / DEPTH) * 2 + half;
            int64_t at = (tile * STEPS + k % DEPTH / WORD) * HALF * WORD + column * WORD + k % WORD;
            tiles[at] = row < out && k < in ? convert(weights[row * in + k], row) : T(0);
        }
    }
}

}  // namespace

// Bytes of packed weights.
RL_EXPORT int64_t rl_packed_bytes(int64_t out, int64_t in, int32_t kind) {
    int64_t depth = depth_of(kind), k_tiles = (in + depth - 1) / depth;
    return padded_outputs(out) / PANEL * k_tiles * 2 * TILE_BYTES;
}

// Packs weights [out, in]; int8: symmetric for each output, its largest magnitude being 127 times
// its scale; `sums` are those of the int8 weights. Both [out] and more, unused for other kinds.
RL_EXPORT void rl_pack(const float* weights, int64_t out, int64_t in, int32_t kind, void* tiles,
                       float* scales, int32_t* sums) {
    if (kind == RL_F32) {
        pack_as(weights, out, in, static_cast<float*>(tiles), [](float w, int64_t) { return w; });
    } else if (kind == RL_BF16) {
        pack_as(weights, out, in, static_cast<Bf16*>(tiles),
                [](float w, int64_t) { return to_bf16(w); });
    } else {
        for (int64_t row = 0; row < out; row++) {
            scales[row] = scale_of(weights + row * in, in);
            sums[row] = 0;
        }
        pack_as(weights, out, in, static_cast<int8_t*>(tiles), [=](float w, int64_t row) {
            int8_t q = nearest(w, inverse_of(scales[row]));
            sums[row] += q;
            return q;
        });
    }
}
