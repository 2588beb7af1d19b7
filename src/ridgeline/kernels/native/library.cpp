// Which levels serve on this processor. README.md draws the files.
#include "library.h"

#include <cstring>
#include <string>
#include <vector>

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

#if defined(RL_HAS_AMX)
// Linux gives the tile registers only to processes that ask for them; it may refuse.
bool may_use_tiles() {
#if defined(__linux__) && defined(__x86_64__)
    constexpr int ASK = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
#else
    return false;
#endif
}
#endif

// The levels of this library that this processor has, best first.
const std::vector<const Level*>& levels() {
    static const std::vector<const Level*> found = [] {
        std::vector<const Level*> here;
#if defined(__x86_64__)
        __builtin_cpu_init();
        // These ask the operating system too whether it keeps such registers.
        [[maybe_unused]] bool wide =
            __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
            __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
#if defined(RL_HAS_AMX)
        unsigned a = 7, b, c = 0, d;  // leaf 7: EDX 22 AMX-BF16, 24 AMX-TILE, 25 AMX-INT8
        asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        constexpr unsigned TILES = 1u << 22 | 1u << 24 | 1u << 25;
        if (wide && (d & TILES) == TILES && may_use_tiles()) here.push_back(&amx_level);
#endif
#if defined(RL_HAS_AVX512)
        if (wide) here.push_back(&avx512_level);
#endif
#if defined(RL_HAS_AVX2)
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
            here.push_back(&avx2_level);
#endif
#endif
        here.push_back(&plain_level);
        return here;
    }();
    return found;
}

}  // namespace

const Level* level_named(const char* name) {
    for (const Level* level : levels())
        if (!std::strcmp(level->name, name)) return level;
    return nullptr;
}

RL_EXPORT int32_t rl_abi() { return RL_ABI; }

// This processor's levels, best first, separated by commas.
RL_EXPORT const char* rl_levels() {
    static const std::string names = [] {
        std::string text;
        for (const Level* level : levels()) text += (text.empty() ? "" : ",") + std::string(level->name);
        return text;
    }();
    return names.c_str();
}
