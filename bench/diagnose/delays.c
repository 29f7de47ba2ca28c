/* Slow circumstances for a program that does not know of them: LD_PRELOAD of this, and in the environment
 *   SLOW_READ_US=N         every audio file takes N us longer to read
 *   SLOW_FIRST_READ_US=N   the same, but only the first time: what is not in the page cache
 *   SLOW_DECODE_US=N       every file that libsndfile opens takes N us of CPU time more
 *   STALL_MS=N STALL_EVERY_MS=M   reads stand still for N of every M ms
 *   JITTER_US=N JITTER_IN_1000=P  P of 1,000 files take N us longer to read
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long number(const char* name) {
  const char* text = getenv(name);
  return text ? atol(text) : 0;
}

static int64_t now_ns(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void sleep_us(long us) {
  struct timespec t = {us / 1000000, us % 1000000 * 1000};
  if (us > 0) nanosleep(&t, NULL);
}

/* Whether this file is read for the first time; a table that is never full in what we run. */
static int is_first(int fd) {
  static _Atomic uint64_t seen[1 << 16];
  struct stat s;
  if (fstat(fd, &s) != 0) return 0;
  const uint64_t key = (uint64_t)s.st_ino * 0x9E3779B97F4A7C15u + (uint64_t)s.st_dev;
  for (uint64_t i = key >> 48;; i = (i + 1) & 0xFFFF) {
    uint64_t empty = 0;
    if (atomic_compare_exchange_strong(&seen[i], &empty, key | 1)) return 1;
    if (empty == (key | 1)) return 0;
  }
}

/* Audio is read from the start of its file in large pieces; nothing else is. */
ssize_t pread(int fd, void* into, size_t bytes, off_t at) {
  static long read_us, first_us, stall_ms, every_ms, jitter_us, jitter_share, ready;
  if (!ready) {
    read_us = number("SLOW_READ_US"), first_us = number("SLOW_FIRST_READ_US");
    stall_ms = number("STALL_MS"), every_ms = number("STALL_EVERY_MS");
    jitter_us = number("JITTER_US"), jitter_share = number("JITTER_IN_1000");
    ready = 1;
  }
  if (bytes > 4096 && at == 0) {
    sleep_us(read_us);
    if (first_us > 0 && is_first(fd)) sleep_us(first_us);
    if (every_ms > 0) {
      const int64_t in_ms = now_ns(CLOCK_MONOTONIC) / 1000000 % every_ms;
      if (in_ms < stall_ms) sleep_us((stall_ms - in_ms) * 1000);
    }
    if (jitter_share > 0) {
      static _Atomic uint64_t count;
      const uint64_t x = (atomic_fetch_add(&count, 1) + 1) * 0x9E3779B97F4A7C15u;
      if ((x ^ x >> 31) * 0xBF58476D1CE4E5B9u >> 32 < (uint64_t)jitter_share * 4294967u) sleep_us(jitter_us);
    }
  }
  return syscall(SYS_pread64, fd, into, bytes, at);
}

static void burn_us(long us) {
  const int64_t end = now_ns(CLOCK_THREAD_CPUTIME_ID) + us * 1000;
  while (us > 0 && now_ns(CLOCK_THREAD_CPUTIME_ID) < end) {
  }
}

void* sf_open_virtual(void* io, int mode, void* info, void* user) {
  static void* (*real)(void*, int, void*, void*);
  if (!real) real = (void* (*)(void*, int, void*, void*))dlsym(RTLD_NEXT, "sf_open_virtual");
  burn_us(number("SLOW_DECODE_US"));
  return real(io, mode, info, user);
}
