#!/usr/bin/env bash
# The SIMD kernels on NEON: compiles them and their tests for aarch64 and runs them under qemu-user. Needs root once, to install the
# cross compiler; the arm64 libraries are only unpacked into a temporary folder.
#   tests/cross/aarch64.sh [arguments of the test program]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! command -v aarch64-linux-gnu-g++ qemu-aarch64-static >/dev/null; then
  apt-get install -y --no-install-recommends g++-aarch64-linux-gnu qemu-user-static >/dev/null
fi
if ! dpkg --print-foreign-architectures | grep -qx arm64; then
  dpkg --add-architecture arm64
  apt-get update >/dev/null
fi

cd "$work"
apt-get download -o APT::Sandbox::User=root {libhwy-dev,libhwy1,libfmt-dev,libfmt9,libgtest-dev}:arm64 >/dev/null
for package in *.deb; do dpkg-deb -x "$package" sysroot; done

libraries=$work/sysroot/usr/lib/aarch64-linux-gnu
aarch64-linux-gnu-g++ -std=c++20 -O2 -Wall -Wextra -Werror \
  -I"$root" -I"$work/sysroot/usr/include" -I"$work/sysroot/usr/include/aarch64-linux-gnu" \
  "$root"/penstock/core/mel_options.cpp "$root"/penstock/features/{mel*,half}.cpp "$root"/tests/features/{mel,half}_test.cpp \
  -L"$libraries" -Wl,-rpath,"$libraries" -lgtest_main -lgtest -lhwy -lfmt -pthread -o kernels_test
qemu-aarch64-static -L /usr/aarch64-linux-gnu ./kernels_test "$@"
