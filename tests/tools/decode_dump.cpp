// decode_dump FILE [--rate R] [--no-resample] [--out RAW]: the decoded waveform as raw float32, on stdout or
// in RAW. decode_dump FILE --probe: samples, rate and channels of the header.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "penstock/core/file.h"
#include "penstock/decode/decode.h"

int main(int argc, char** argv) try {
  using namespace penstock;
  std::string path;
  std::string out;
  bool probe = false;
  DecodeOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--probe") {
      probe = true;
    } else if (argument == "--no-resample") {
      options.resample = false;
    } else if (argument == "--rate" && i + 1 < argc) {
      options.sample_rate = std::stoi(argv[++i]);
    } else if (argument == "--out" && i + 1 < argc) {
      out = argv[++i];
    } else {
      path = argument;
    }
  }
  const File file = File::open(path.c_str());
  if (probe) {
    const AudioInfo info = probe_audio(file, path);
    fmt::print("{} {} {}\n", info.samples, info.sample_rate, info.channels);
    return 0;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(file.stamp().size));
  file.read_at(0, bytes);
  Decoder decoder(options);
  const auto samples = std::as_bytes(decoder.decode(bytes, path));
  if (!out.empty())
    write_file(out, samples);
  else if (std::fwrite(samples.data(), 1, samples.size(), stdout) != samples.size())
    return 1;
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "{}\n", e.what());
  return 1;
}
