// Threads that run one step together: all execute the same program and meet between its stages.
//
// Law of this file: work of a stage is handed out piece by piece, so that a thread whose core was
// taken by another process delays nobody for longer than one piece; a waiting thread spins for some
// 50 microseconds, longer than a stage's tail, and then sleeps (decisions/0015).
#pragma once
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

class Pool {
public:
    // At least one thread, the caller. Throws where the system gives no more, leaving none behind.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    int threads() const { return count_; }

    // Runs body(what, thread) on every thread, the caller being thread 0; returns when all are done.
    // One caller at a time. In a forked child, which has none of the threads, it starts others, and
    // throws as the constructor does.
    // A plain pointer: templates of the standard library must not be compiled for one level only.
    using Body = void (*)(void* what, int thread);
    void run(Body body, void* what);

    // Returns once all threads have come here.
    void meet();

    // Hands out pieces 0 .. pieces-1 of a stage; -1 when none is left. Stages are numbered one after
    // the other from 0 in each run; all threads ask until -1 and then meet. Each thread first takes
    // its own share in order, which keeps memory reads sequential, then helps the others.
    int64_t next(int stage, int thread, int64_t pieces);

private:
    struct alignas(64) Counter {
        std::atomic<int64_t> taken{0};
    };
    void start();
    void stop();
    void forget();
    void work(int thread);
    void wait_for(std::atomic<uint32_t>& value, uint32_t old);

    int count_;
    pid_t home_ = 0;  // the process that has the threads
    std::vector<std::thread> others_;
    Body body_ = nullptr;
    void* what_ = nullptr;
    alignas(64) std::atomic<uint32_t> started_{0};  // runs since the threads began
    alignas(64) std::atomic<uint32_t> arrived_{0};  // at the meeting that is next
    alignas(64) std::atomic<uint32_t> met_{0};      // meetings that were held
    std::atomic<bool> leaving_{false};
    std::vector<Counter> counters_;
};
