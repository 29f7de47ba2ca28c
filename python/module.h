// What the files of the Python module share. Each file binds one stage.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include <nanobind/nanobind.h>
#include <sys/types.h>
#include <unistd.h>

#include "penstock/core/config.h"
#include "penstock/core/error.h"

namespace penstock::python {

namespace nb = nanobind;

void bind_config(nb::module_& m);
void bind_feed(nb::module_& m);
void bind_batch(nb::module_& m);

/// What Python's Settings hold: a validated configuration.
struct Settings {
  Config config;
  std::vector<std::string> notes;
};

/// Runs the interpreter's signal handlers (Ctrl-C). With the GIL; throws what they raised.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

/// The same for C++ that waits without the GIL.
inline void poll_signals() {
  const nb::gil_scoped_acquire gil;
  check_signals();
}

/// Set when somebody pressed Ctrl-C while work is done for Python.
using Cancelled = std::atomic<bool>;
/// Thrown by progress callbacks when it is.
struct Cancellation {};
inline void stop_if(const Cancelled& cancelled) {
  if (cancelled.load(std::memory_order_relaxed)) throw Cancellation();
}

/// Does long work on a thread of its own while this one listens for signals. `work` gets a flag that its
/// progress callbacks have to look at (stop_if). Called with the GIL; `work` runs without it.
void interruptible(const std::function<void(const Cancelled&)>& work);

/// A thing with threads or locks of its own: good only in the process that made it. After a fork the child
/// gets an error instead of a hang, and leaves the thing alone at its end.
template <typename T>
class OfThisProcess {
 public:
  explicit OfThisProcess(std::unique_ptr<T> thing) : thing_(std::move(thing)) {}
  OfThisProcess(OfThisProcess&&) noexcept = default;
  ~OfThisProcess() {
    if (::getpid() != owner_) (void)thing_.release();
  }
  T& get() const {
    if (::getpid() != owner_)
      throw Error("this Feed belongs to process " + std::to_string(owner_) +
                  ", and its threads did not come along through the fork: open a Feed here, or start "
                  "processes with spawn (penstock.torch.FeedDataset does what is right in a DataLoader)");
    return *thing_;
  }
  T* operator->() const { return &get(); }
  /// For what only reads memory, which a child has a copy of.
  const T& look() const { return *thing_; }

 private:
  std::unique_ptr<T> thing_;
  pid_t owner_ = ::getpid();
};

}  // namespace penstock::python
