// Parallel calls over static splits, by workers that spin between calls and sleep when idle.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>

namespace octavo {

// Threads that stay. A worker that has nothing to do spins for 100 us, then sleeps until called.
//
// A pool of as many threads as the affinity mask of its creator has CPUs pins each worker to a CPU
// of that mask, and moves a worker that sits on the caller's CPU to the free one; the calling
// thread is never pinned. A pool of another size lets its workers float within the mask: two small
// pools of two processes would be pinned to the same CPUs.
//
// After a fork the child has no workers: run() does everything on the calling thread. A pool made
// in the child has workers.
class ThreadPool {
 public:
  // `threads` counts the calling one; at least 1. It has fewer if the system grants no more.
  explicit ThreadPool(int threads);
  ~ThreadPool();  // no run() may be in progress
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(part) once for each part in [0, parts) and returns when all have returned. Share t
  // of n = min(parts, threads()) shares is the parts t, t + n, ...; the caller does share 0, then
  // those that no worker has begun. Nothing is allocated, and all that body wrote is visible to the
  // caller.
  //
  //  - A body must not wait for another part or another caller: they may have to follow on its
  //    thread.
  //  - Within a body that runs beside others, of whatever pool, run() does all parts in order on
  //  the
  //    thread that calls it, up to the first that throws.
  //  - Calls of several threads wait for one another, asleep.
  //  - A part that throws ends its share; the other shares are finished, then the exception of the
  //    lowest share is rethrown here.
  template <class Body>
  void run(int parts, Body&& body) {
    using Function = std::remove_reference_t<Body>;
    run_parts({[](const void* object, int part) {
                 (*static_cast<Function*>(const_cast<void*>(object)))(part);
               },
               std::addressof(body), parts, 1});
  }

  // Workers that sleep at this moment.
  int sleeping_workers() const;

 private:
  struct Job {
    void (*call)(const void* body, int part);
    const void* body;
    int parts;
    int stride;  // threads that take part
    void run(int first) const {
      for (int part = first; part < parts; part += stride) call(body, part);
    }
  };
  struct Worker;
  struct State;

  void run_parts(Job job);

  std::unique_ptr<State> state_;
};

struct Context {
  ThreadPool* pool;  // not owned
};

// That of this thread's innermost ContextScope; without one, allowed_threads() threads
// (octavo/base/machine.h), created by the first call, never destroyed.
const Context& default_context();

// What default_context() gives on this thread while the scope lasts: for calls that take no context
// of their own, as those of octavo/autograd and above. Scopes end in the reverse order of their
// beginning.
class ContextScope {
 public:
  explicit ContextScope(const Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Context context_;
  const Context* outer_;
};

struct Range {
  std::size_t begin, end;
  bool operator==(const Range&) const = default;
};

// Piece `part` of `parts` of [0, count). Pieces follow one another, begin at multiples of `step`,
// and differ in size by at most one step. step and parts at least 1.
Range split(std::size_t count, std::size_t step, int parts, int part);

}  // namespace octavo
