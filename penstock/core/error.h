// What the library throws. A message says what was expected, what was found and where.
#pragma once
#include <stdexcept>
#include <string>
#include <utility>

namespace penstock {

/// Misuse, or a machine that cannot go on: a bad option, a missing dataset, a full disk.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One bad sample: unreadable, damaged, changed. A feed goes on without it when `on_bad_sample` is skip.
///
/// Stages throw it with what they know (`stage`, `path`, `cause`); feed/ adds the utterance's id.
class SampleError : public Error {
 public:
  SampleError(std::string in_stage, std::string of_path, std::string because, std::string id = {})
      : Error(in_stage + ": " + of_path + ": " + because),
        stage(std::move(in_stage)),
        path(std::move(of_path)),
        cause(std::move(because)),
        utterance(std::move(id)) {}

  std::string stage;      ///< read, decode, mel, tokens
  std::string path;       ///< the audio file, or `metadata.csv:12` for a text
  std::string cause;      ///< "sample rate must be 22050, but is 16000"
  std::string utterance;  ///< the id; empty while no caller has filled it in
};

}  // namespace penstock
