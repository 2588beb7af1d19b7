#include "units.h"

#include <algorithm>
#include <cstddef>

namespace {

int64_t cost_of(const Unit& unit) {
    return int64_t(unit.positions) * (unit.end_key - unit.first_key);
}

// Heaviest first in each thread's share (Pool::next), so that what is left at the end is small.
void deal(std::vector<Unit>& units, size_t threads) {
    std::stable_sort(units.begin(), units.end(),
                     [](const Unit& a, const Unit& b) { return cost_of(a) > cost_of(b); });
    if (threads < 2) return;
    std::vector<Unit> sorted = units;
    size_t count = units.size(), taken = 0;
    for (size_t turn = 0; taken < count; turn++)
        for (size_t thread = 0; thread < threads; thread++) {
            size_t at = count * thread / threads + turn;
            if (at < count * (thread + 1) / threads) units[at] = sorted[taken++];
        }
}

}  // namespace

int64_t plan_units(const RlModel& model, const RlBatch& batch, int positions,
                   std::vector<Unit>& units, std::vector<Merge>& merges) {
    units.clear();
    merges.clear();
    int32_t places = 0;
    for (int32_t s = 0; s < batch.sequences; s++)
        for (int32_t begin = 0; begin < batch.lens[s]; begin += positions) {
            int32_t row = batch.starts[s] + begin;
            int32_t rows = std::min(positions, batch.lens[s] - begin);
            int32_t keys = batch.contexts[s] - batch.lens[s] + begin + rows;
            int32_t parts = (keys + PART_KEYS - 1) / PART_KEYS;
            for (int32_t head = 0; head < model.kv_heads; head++) {
                for (int32_t part = 0; part < parts; part++) {
                    int32_t first = part * PART_KEYS, end = std::min(keys, first + PART_KEYS);
                    int32_t place = parts > 1 ? places + part : -1;
                    units.push_back({s, row, rows, head, first, end, place});
                }
                if (parts == 1) continue;
                merges.push_back({row, rows, head, places, parts});
                places += parts;
            }
        }
    deal(units, size_t(std::max(model.threads, 1)));
    return places;
}
