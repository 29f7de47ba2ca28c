// What the files of the Python module share. Each file binds one stage.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nlohmann/json_fwd.hpp>
#include <sys/types.h>
#include <unistd.h>

#include "penstock/core/config.h"
#include "penstock/core/error.h"

namespace penstock::python {

namespace nb = nanobind;

void bind_config(nb::module_& m);
void bind_mel(nb::module_& m);
void bind_text(nb::module_& m);
void bind_dataset(nb::module_& m);
void bind_cache(nb::module_& m);
void bind_synth(nb::module_& m);
void bind_batch(nb::module_& m);
void bind_feed(nb::module_& m);
void bind_monitor(nb::module_& m);

/// What Python's Settings hold: a validated configuration.
struct Settings {
  Config config;
  std::vector<std::string> notes;
};

// ---- values ----

/// A str. Bytes that are no UTF-8 (in an id, in a file's name) become what os.fsdecode() makes of them.
nb::str text(std::string_view utf8);
/// The other way round; throws UnicodeEncodeError.
std::string utf8(nb::handle text);
/// Dicts, lists, str and numbers.
nb::object python_of(const nlohmann::json& value);

// ---- waiting ----

/// For C++ that waits without the GIL: takes it, runs the interpreter's signal handlers (Ctrl-C), then
/// `then`; throws what they raised. Does not return when the interpreter ends.
void poll(const std::function<void()>& then = {});

/// While one lives the GIL is released: for every wait, and all work that takes long.
class WithoutGil {
 public:
  WithoutGil() : released_(std::in_place) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  std::optional<nb::gil_scoped_release> released_;
};

/// How far long work has come, and whether it shall end. Copies are the same one.
class Progress {
 public:
  /// A callback for the library, for any thread. Throws (nothing that anybody sees) when the work shall end.
  [[nodiscard]] auto of(const char* stage) const {
    return [*this, stage](std::size_t done, std::size_t total, auto... /*bytes*/) {
      report(stage, done, total);
    };
  }
  void cancel() { state_->cancelled = true; }
  /// Calls listener(stage, done, total) when there is something new. With the GIL; throws what it raised.
  void tell(const nb::object& listener);

 private:
  struct State {
    std::atomic<bool> cancelled{false};
    std::mutex mutex;  // of what follows
    const char* stage = "";
    std::size_t done = 0, total = 0;
    bool news = false;
  };
  void report(const char* stage, std::size_t done, std::size_t total) const;

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

void run_interruptible(const nb::object& listener, const std::function<void(const Progress&)>& work);

/// Does long work on a thread of its own, without the GIL, while this one listens for Ctrl-C and calls
/// `listener` (None, or a callable) a few times a second. Called with the GIL. What a signal handler or the
/// listener raises ends the work at its next progress.
template <typename Work>
auto interruptible(const nb::object& listener, const Work& work) {
  std::optional<std::invoke_result_t<Work, const Progress&>> result;
  run_interruptible(listener, [&](const Progress& progress) { result.emplace(work(progress)); });
  return std::move(*result);
}

// ---- forks ----

/// A thing with threads or locks of its own: good only in the process that made it. After a fork the child
/// gets an error instead of a hang, and leaves the thing alone at its end.
template <typename T>
class OfThisProcess {
 public:
  explicit OfThisProcess(std::unique_ptr<T> thing) : thing_(std::move(thing)) {}
  OfThisProcess(OfThisProcess&&) noexcept = default;
  OfThisProcess& operator=(OfThisProcess&&) = delete;
  ~OfThisProcess() { drop(); }

  void check() const {
    if (::getpid() != owner_)
      throw Error("this Feed belongs to process " + std::to_string(owner_) +
                  ", and its threads did not come along through the fork: open a Feed here, or start "
                  "processes with spawn (penstock.torch.FeedDataset does what is right in a DataLoader)");
  }
  T& get() const {
    check();
    return *thing_;
  }
  T* operator->() const { return &get(); }
  /// For what only reads memory, which a child has a copy of.
  const T& look() const { return *thing_; }
  void drop() {
    if (::getpid() == owner_)
      thing_.reset();
    else
      (void)thing_.release();
  }

 private:
  std::unique_ptr<T> thing_;
  pid_t owner_ = ::getpid();
};

}  // namespace penstock::python
