#include "penstock/core/bus_guard.h"

#include <atomic>
#include <csetjmp>
#include <csignal>

#include <ucontext.h>

namespace penstock {
namespace {

struct Guard;
// initial-exec: the handler must reach it without allocating, also where we are a loaded module.
[[gnu::tls_model("initial-exec")]] thread_local Guard* innermost = nullptr;

/// A read that is under way in this thread.
struct Guard {
  explicit Guard(std::span<const std::byte> mapped) : memory(mapped), outer(innermost) {
    innermost = this;
    std::atomic_signal_fence(std::memory_order_seq_cst);  // before the first read
  }
  ~Guard() {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    innermost = outer;
  }
  Guard(const Guard&) = delete;

  std::span<const std::byte> memory;
  Guard* outer;
  sigjmp_buf back;
};

struct sigaction previous;

/// Whoever was there before us decides, or the default does, which ends the process.
void pass_on(int signal, siginfo_t* info, void* context) {
  const bool fault = info->si_code > 0;  // by the kernel, and not by kill()
  if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler == SIG_IGN && !fault) return;
  if (previous.sa_handler != SIG_IGN && previous.sa_handler != SIG_DFL) return previous.sa_handler(signal);
  std::signal(signal, SIG_DFL);
  if (!fault) std::raise(signal);  // a fault comes again by itself, at its own place
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  for (Guard* g = innermost; g != nullptr && info->si_code > 0; g = g->outer) {
    if (at < g->memory.data() || at >= g->memory.data() + g->memory.size()) continue;
    // What the handler's return would do: saving the mask at every sigsetjmp() would cost a system call.
    ::pthread_sigmask(SIG_SETMASK, &static_cast<const ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(g->back, 1);
  }
  pass_on(signal, info, context);
}

bool install() {
  // `previous` is known before our handler can need it.
  if (::sigaction(SIGBUS, nullptr, &previous) != 0) return false;
  struct sigaction ours {};
  ours.sa_sigaction = on_bus_error;
  ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;  // NODEFER: raise() in pass_on() works at once
  sigemptyset(&ours.sa_mask);
  return ::sigaction(SIGBUS, &ours, nullptr) == 0;
}

}  // namespace

bool survives_truncation(std::span<const std::byte> memory, void (*body)(void*), void* context) {
  [[maybe_unused]] static const bool installed = install();
  Guard here(memory);
  if (sigsetjmp(here.back, 0) != 0) return false;
  body(context);
  return true;
}

}  // namespace penstock
