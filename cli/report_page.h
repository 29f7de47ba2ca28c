// A run on one HTML page: findings in plain sentences, then its pictures. Nothing is loaded from elsewhere.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "penstock/monitor/run_reader.h"

namespace penstock::cli {

enum class Language : std::uint8_t { english, persian };

/// A finding, and the settings to paste for it, where there are some.
struct Sentence {
  std::string text, lines;
};

struct Picture {
  std::string name;                           ///< au, data_compute, ...: also the section's id on the page
  std::function<std::string(int width)> svg;  ///< needs chart_css()
};

struct ReportPage {
  std::string html;
  std::vector<Sentence> findings;     ///< what it begins with
  std::vector<std::string> sections;  ///< ids, in their order
  std::vector<Picture> pictures;
  std::vector<std::pair<std::string, std::string>> left_out;  ///< id, and why: the run does not have it
};

/// `name` is the run's, as a person calls it.
ReportPage make_report(const RunRecords& run, const std::string& name, Language language);

}  // namespace penstock::cli
