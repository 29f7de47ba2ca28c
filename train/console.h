// What a person sees of a training run, and what a program gets of it.
#pragma once
#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "train/retrace.h"
#include "train/trainer.h"

namespace penstock::train {

/// Lines on stdout; on a terminal a bar with the time left below them (on stderr). One thread.
class Console {
 public:
  ~Console() { clear(); }
  /// All parts of a view that write here.
  TrainView view();

  void note(const std::string& text);
  void line(const StepLine& line);
  void progress(std::int64_t step, std::int64_t total, double seconds);
  void retrace(const RetraceReport& report);
  void validation(const Validation& validation);
  void summary(const Summary& summary);
  void clear();  ///< takes the bar away

 private:
  std::int64_t lines_ = 0;
  std::int64_t first_ = -1;  // the update behind which this process began
  double drawn_ = -1;        // when the bar was drawn last, in seconds of the process
};

std::string shape_text(const Shape& shape);
/// `batch 7 of epoch 0, bucket 2: shape (16, 96, 512) is none of ...; utterances a b c`
std::string retrace_text(const RetraceReport& report);

nlohmann::json result_json(const TrainResult& result, const std::string& run);
nlohmann::json findings_json(const RetraceFindings& found);

}  // namespace penstock::train
