// A dataset in a temporary folder, whose audio files are a line of text: `samples rate channels`.
#pragma once
#include <atomic>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include "penstock/core/error.h"
#include "penstock/core/file.h"
#include "penstock/source/index.h"
#include "tests/temp_folder.h"

namespace penstock {

class Dataset {
 public:
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_.path(); }
  [[nodiscard]] DatasetPaths paths() const {
    DatasetPaths paths;
    paths.folder = folder();
    return paths;
  }
  void write(const std::filesystem::path& name, std::string_view text) const {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_file(folder_ / name, text);
  }

 private:
  TempFolder folder_;
};

/// Inputs that read such audio files and take every byte of a text for a character; `!` is not valid.
class FakeInputs {
 public:
  FakeInputs() {
    inputs.probe = [this](const File& file, std::string_view path) {
      ++probes;
      std::string text(static_cast<std::size_t>(file.stamp().size), '\0');
      text.resize(file.read_at(0, std::as_writable_bytes(std::span(text))));
      AudioInfo info;
      if (!(std::istringstream(text) >> info.samples >> info.sample_rate >> info.channels))
        throw SampleError("decode", std::string(path), "expected audio, but found something else");
      return info;
    };
    inputs.clean = [this](std::string_view text) {
      ++cleaned;
      if (const std::size_t at = text.find('!'); at != text.npos)
        throw Error("byte " + std::to_string(at + 1) + " of the text is not valid UTF-8");
      return std::u32string(text.begin(), text.end());
    };
    inputs.clean_version = 1;
    inputs.threads = 2;
  }
  FakeInputs(const FakeInputs&) = delete;

  IndexInputs inputs;
  std::atomic<int> probes = 0, cleaned = 0;
};

/// What a function throws as Error; "" when it does not throw.
template <typename Function>
std::string error_of(const Function& function) {
  try {
    function();
    return {};
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace penstock
