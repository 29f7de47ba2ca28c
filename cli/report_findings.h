// What a run's report says first, in two languages.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "cli/report_page.h"
#include "penstock/monitor/diagnosis.h"

namespace penstock::cli {

/// Chooses between the two wordings of a text; both stand side by side where they are used.
class Words {
 public:
  explicit Words(Language language) : language_(language) {}
  [[nodiscard]] bool persian() const { return language_ == Language::persian; }
  std::string_view operator()(std::string_view english, std::string_view in_persian) const {
    return persian() ? in_persian : english;
  }
  /// A number with its unit, or a flag, which keeps its own order inside Persian text.
  [[nodiscard]] std::string ltr(const std::string& text) const {
    return persian() ? "\u2066" + text + "\u2069" : text;
  }

 private:
  Language language_;
};

/// The verdict: AU, what limits it, how steady the batches are, retraces, padding, what was skipped.
std::vector<Sentence> sentences(const RunDiagnosis& found, const RunRecords& run, const Words& say);

}  // namespace penstock::cli
