#include "penstock/core/bus_guard.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace penstock {
namespace {

const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

/// A mapped file of some pages of ones.
class Mapping {
 public:
  explicit Mapping(std::size_t pages) : size_(pages * page) {
    fd_ = ::memfd_create("pages", 0);
    const std::vector<char> ones(size_, 1);
    if (::write(fd_, ones.data(), size_) != static_cast<ssize_t>(size_)) std::abort();
    memory_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
  }
  ~Mapping() {
    ::munmap(memory_, size_);
    ::close(fd_);
  }
  Mapping(const Mapping&) = delete;

  [[nodiscard]] std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(memory_), size_};
  }
  void cut(std::size_t size) const { ASSERT_EQ(::ftruncate(fd_, static_cast<off_t>(size)), 0); }

 private:
  std::size_t size_;
  int fd_;
  void* memory_;
};

long sum(std::span<const std::byte> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), 0L,
                         [](long s, std::byte b) { return s + static_cast<long>(b); });
}

TEST(BusGuard, ABodyThatReadsAWholeFileRuns) {
  const Mapping file(3);
  long total = 0;
  EXPECT_TRUE(survives_truncation(file.bytes(), [&] { total = sum(file.bytes()); }));
  EXPECT_EQ(total, static_cast<long>(3 * page));
}

TEST(BusGuard, AFileThatEndsInsideIsReportedEveryTime) {
  const Mapping file(3);
  file.cut(page);
  for (int i = 0; i < 3; ++i) {
    volatile long total = 0;
    EXPECT_FALSE(survives_truncation(file.bytes(), [&] { total = sum(file.bytes()); }));
    EXPECT_EQ(total, 0);
    EXPECT_TRUE(survives_truncation(file.bytes(), [&] { total = sum(file.bytes().first(page)); }));
    EXPECT_EQ(total, static_cast<long>(page));
  }
}

TEST(BusGuard, AnInnerGuardLeavesTheOuterOneInPlace) {
  const Mapping whole(2), cut(2);
  cut.cut(0);
  volatile bool inner = true, after = false;
  EXPECT_FALSE(survives_truncation(cut.bytes(), [&] {
    inner = survives_truncation(cut.bytes(), [&] { after = sum(cut.bytes()) != 0; });
    inner = inner || !survives_truncation(whole.bytes(), [&] { after = sum(whole.bytes()) != 0; });
    after = sum(cut.bytes()) == 0;
  }));
  EXPECT_FALSE(inner);
  EXPECT_TRUE(after);
}

TEST(BusGuard, AnExceptionPassesThroughAndTakesTheGuardOff) {
  const Mapping file(2);
  EXPECT_THROW(survives_truncation(file.bytes(), [] { throw std::runtime_error("out"); }),
               std::runtime_error);
  file.cut(0);
  EXPECT_FALSE(survives_truncation(file.bytes(), [&] { EXPECT_EQ(sum(file.bytes()), 0); }));
}

TEST(BusGuard, ThreadsDoNotDisturbEachOther) {
  const Mapping whole(4), cut(4);
  cut.cut(page);
  std::atomic<int> wrong = 0;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const Mapping& mine = t % 2 == 0 ? whole : cut;
      for (int i = 0; i < 200; ++i)
        if (survives_truncation(mine.bytes(), [&] { wrong += sum(mine.bytes()) == 0 ? 1 : 0; }) !=
            (t % 2 == 0))
          ++wrong;
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST(BusGuardDeath, AFaultElsewhereGoesToTheHandlerBeforeUs) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto fault = [] {
    struct sigaction theirs {};
    theirs.sa_handler = [](int) { ::_exit(42); };
    ::sigaction(SIGBUS, &theirs, nullptr);
    const Mapping mine(1), other(1);
    other.cut(0);
    survives_truncation(mine.bytes(), [&] { std::exit(sum(other.bytes()) == 0 ? 1 : 2); });
  };
  EXPECT_EXIT(fault(), testing::ExitedWithCode(42), "");
}

TEST(BusGuardDeath, WithoutAHandlerBeforeUsAFaultElsewhereEndsTheProcess) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto fault = [](bool by_kill) {
    std::signal(SIGBUS, SIG_DFL);
    const Mapping mine(1), other(1);
    other.cut(0);
    survives_truncation(mine.bytes(), [] {});
    if (by_kill) std::raise(SIGBUS);
    std::exit(sum(other.bytes()) == 0 ? 1 : 2);
  };
  EXPECT_EXIT(fault(false), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(fault(true), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace penstock
