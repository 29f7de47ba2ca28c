#include "python/module.h"

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <thread>

#include <nlohmann/json.hpp>
#include <pthread.h>

#include "penstock/core/threads.h"

namespace penstock::python {

// ---- values ----

nb::str text(std::string_view utf8) {
  return nb::steal<nb::str>(
      PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), "surrogateescape"));
}

std::string utf8(nb::handle text) {
  const auto bytes = nb::steal<nb::bytes>(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogateescape"));
  if (!bytes.is_valid()) throw nb::python_error();
  return {bytes.c_str(), bytes.size()};
}

nb::object python_of(const nlohmann::json& value) {
  if (value.is_object()) {
    nb::dict all;
    for (const auto& [key, item] : value.items()) all[text(key)] = python_of(item);
    return all;
  }
  if (value.is_array()) {
    nb::list all;
    for (const auto& item : value) all.append(python_of(item));
    return all;
  }
  if (value.is_string()) return text(value.get_ref<const std::string&>());
  if (value.is_boolean()) return nb::bool_(value.get<bool>());
  if (value.is_number_unsigned()) return nb::int_(value.get<std::uint64_t>());
  if (value.is_number_integer()) return nb::int_(value.get<std::int64_t>());
  if (value.is_number_float()) return nb::float_(value.get<double>());
  return nb::none();
}

// ---- waiting ----

namespace {

// A thread that asks for the GIL while the interpreter ends is ended by Python, in the middle of C++. So from
// a moment on no thread comes back: whoever is in here then stays, until the process is gone.
std::atomic<bool> ending{false};
std::atomic<int> returning{0};  // threads that have begun to take the GIL back
std::thread::id ender;          // may come and go: it is the one that ends the interpreter

/// Before the GIL is taken, and after.
void begin_return() {
  ++returning;
  if (!ending || ender == std::this_thread::get_id()) return;
  --returning;
  for (;;) ::pause();
}
void end_return() { --returning; }

/// atexit: either a thread has seen `ending`, or it is waited for here; it only needs the GIL.
void end() {
  ender = std::this_thread::get_id();
  ending = true;
  const nb::gil_scoped_release released;
  while (returning > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// Ends work that nobody waits for any more.
struct Cancellation {};

}  // namespace

void poll(const std::function<void()>& then) {
  begin_return();
  const nb::gil_scoped_acquire gil;
  end_return();
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (then) then();
}

WithoutGil::~WithoutGil() {
  begin_return();
  released_.reset();
  end_return();
}

void Progress::report(const char* stage, std::size_t done, std::size_t total) const {
  if (state_->cancelled) throw Cancellation();
  const std::lock_guard lock(state_->mutex);
  state_->stage = stage;
  state_->done = done;
  state_->total = total;
  state_->news = true;
}

void Progress::tell(const nb::object& listener) {
  if (listener.is_none()) return;
  const char* stage = nullptr;
  std::size_t done = 0, total = 0;
  {
    const std::lock_guard lock(state_->mutex);
    if (!std::exchange(state_->news, false)) return;
    stage = state_->stage;
    done = state_->done;
    total = state_->total;
  }
  listener(stage, done, total);
}

void run_interruptible(const nb::object& listener, const std::function<void(const Progress&)>& work) {
  Progress progress;
  std::exception_ptr failed, interrupted;
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  const WithoutGil released;
  std::thread thread([&] {
    try {
      work(progress);
    } catch (...) {
      failed = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_one();
  });
  const auto listen = [&] { poll([&] { progress.tell(listener); }); };
  try {
    std::unique_lock lock(mutex);
    wait_until(changed, lock, listen, [&] { return done; });
    lock.unlock();
    listen();
  } catch (...) {
    interrupted = std::current_exception();
    progress.cancel();
  }
  thread.join();
  if (interrupted) std::rethrow_exception(interrupted);
  if (failed) std::rethrow_exception(failed);
}

// ---- errors ----

namespace {

/// penstock.errors has the classes; here they get their values.
void translate(const std::exception_ptr& error, void* /*payload*/) {
  const auto raise = [](const char* name, const auto&... arguments) {
    const nb::object type = nb::module_::import_("penstock.errors").attr(name);
    const nb::object value = type(text(arguments)...);
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
  m.doc() = "The native part of the package. Use it through penstock.";
  m.attr("version") = PENSTOCK_VERSION;
  // Threads that never come back, after a fork or at the end, keep what they had: nothing to worry people
  // with.
  nb::set_leak_warnings(std::getenv("PENSTOCK_LEAK_WARNINGS") != nullptr);
  nb::register_exception_translator(translate);
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(end));
  pthread_atfork(nullptr, nullptr, [] { returning = 0; });  // the child has one thread, which has the GIL
  bind_config(m);
  bind_mel(m);
  bind_text(m);
  bind_dataset(m);
  bind_cache(m);
  bind_synth(m);
  bind_batch(m);
  bind_feed(m);
  bind_monitor(m);
}
