#include "python/module.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include <nanobind/stl/string.h>

#include "penstock/core/threads.h"

namespace penstock::python {

void interruptible(const std::function<void(const Cancelled&)>& work) {
  Cancelled cancelled = false;
  std::exception_ptr error;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  const nb::gil_scoped_release released;
  std::thread thread([&] {
    try {
      work(cancelled);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  });
  std::exception_ptr interrupted;
  {
    std::unique_lock lock(mutex);
    try {
      wait_until(changed, lock, poll_signals, [&] { return done; });
    } catch (...) {
      interrupted = std::current_exception();
    }
  }
  cancelled = interrupted != nullptr;
  thread.join();
  if (interrupted) std::rethrow_exception(interrupted);
  if (error) std::rethrow_exception(error);
}

namespace {

/// penstock.errors has the classes; here they get their values.
void translate(const std::exception_ptr& error, void* /*payload*/) {
  const auto raise = [](const char* name, const auto&... arguments) {
    const nb::object type = nb::module_::import_("penstock.errors").attr(name);
    const nb::object value = type(arguments...);
    PyErr_SetObject(type.ptr(), value.ptr());
  };
  try {
    std::rethrow_exception(error);
  } catch (const SampleError& e) {
    raise("SampleError", e.what(), e.stage, e.utterance, e.path, e.cause);
  } catch (const Error& e) {
    raise("Error", e.what());
  }
}

}  // namespace
}  // namespace penstock::python

NB_MODULE(_penstock, m) {
  using namespace penstock::python;
  m.attr("__version__") = PENSTOCK_VERSION;
  nb::register_exception_translator(translate);
  bind_config(m);
  bind_batch(m);
  bind_feed(m);
}
