// AMX's tile registers, as every product here uses them: all eight of 16 rows of 64 bytes, always.
//
// Law of this file: nothing but this for other levels. A thread configures its tiles once a step.
#pragma once
#include <cstdint>

#if defined(__AMX_BF16__)
#include <immintrin.h>

namespace {

constexpr int TILE_BYTES = 1024;

// GCC does not know that a tile load reads memory: before the first one, what was written is there.
inline __attribute__((always_inline)) void settle() { asm volatile("" ::: "memory"); }

inline void configure_tiles() {
    alignas(64) static const struct {
        uint8_t palette = 1, first_row = 0, unused[14] = {};
        uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
        uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } tiles;
    _tile_loadconfig(&tiles);
}
inline void release_tiles() { _tile_release(); }

}  // namespace

#else

namespace {

constexpr int TILE_BYTES = 1024;  // of packed weights, which all levels share

inline void configure_tiles() {}
inline void release_tiles() {}

}  // namespace

#endif
