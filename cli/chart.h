// Charts as SVG text, drawn without any library. Colours are classes: chart_css() gives them for light and
// dark, so that one drawing serves both.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::cli {

/// What a line or bar stands for; each has its colour everywhere.
enum class Tone : std::uint8_t { compute, data, good, bad, extra, plain };

/// How numbers of an axis are written.
enum class Unit : std::uint8_t { number, percent, ms, us, seconds };

struct Point {
  double x = 0, y = 0;  ///< y may be NaN: not known
};

struct Line {
  std::string name;
  Tone tone = Tone::plain;
  std::vector<Point> points;  ///< by rising x
};

/// Something that happened at x.
struct Mark {
  double x = 0;
  Tone tone = Tone::plain;
};

/// Lines over time or steps. Where more points than pixels come together, a line is their mean and the band
/// around it goes from their least to their largest.
struct LineChart {
  std::vector<Line> lines;
  Unit x = Unit::number, y = Unit::number;
  std::string x_name;      ///< "step": for what is shown under the pointer
  double least = 0;        ///< y axis begins here, or lower
  double most = 0;         ///< and ends here, or higher
  bool from_data = false;  ///< the y axis fits the lines instead
  bool stacked = false;    ///< lines on top of each other, as columns; all have the same x
  std::vector<Mark> marks;
};

/// One bar a row, with its label in front and its value behind.
struct Bar {
  std::string label, value;
  double length = 0, inner = 0;  ///< `inner` of it is drawn in another tone
};
struct BarChart {
  std::vector<Bar> bars;
  Tone tone = Tone::compute, inner_tone = Tone::data;
};

struct HistogramChart {
  std::vector<double> values;
  Unit x = Unit::ms;
  std::string more;  ///< "and more": of the last bar, where a few values are far out
};

/// An <svg> of this width in its own pixels, as high as it needs.
std::string draw(const LineChart& chart, int width);
std::string draw(const BarChart& chart, int width);
std::string draw(const HistogramChart& chart, int width);

/// Rules for the classes above; `dark`: on a dark ground.
std::string chart_css(bool dark);
std::string_view tone_class(Tone tone);

/// `12.3 ms`, `81 %`, `2.5 min`.
std::string text_of(double value, Unit unit);
/// For text inside HTML, and inside attributes in double quotes.
std::string escaped(std::string_view text);

}  // namespace penstock::cli
