#include "cli/chart.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace penstock::cli {
namespace {

constexpr double margin_left = 52, margin_right = 14, margin_top = 12, margin_bottom = 26;
constexpr std::size_t most_tips = 240;  // places where the pointer finds something

/// Points that fall on the same pixels.
struct Column {
  double x = 0, low = 0, high = 0, mean = 0;
};

std::vector<Point> known(const std::vector<Point>& points) {
  std::vector<Point> out;
  std::ranges::copy_if(points, std::back_inserter(out), [](const Point& p) { return std::isfinite(p.y); });
  return out;
}

std::vector<Column> columns_of(const std::vector<Point>& all, double x0, double x1, std::size_t most) {
  const std::vector<Point> points = known(all);
  std::vector<Column> columns;
  if (points.size() <= most) {
    for (const Point& p : points) columns.push_back({p.x, p.y, p.y, p.y});
    return columns;
  }
  const double width = (x1 - x0) / static_cast<double>(most);
  const auto column_of = [&](const Point& p) { return std::floor((p.x - x0) / width); };
  for (std::size_t i = 0; i < points.size();) {
    Column c{0, points[i].y, points[i].y, 0};
    const double number = column_of(points[i]);
    std::size_t n = 0;
    for (; i < points.size() && column_of(points[i]) == number; ++i, ++n) {
      c.x += points[i].x, c.mean += points[i].y;
      c.low = std::min(c.low, points[i].y), c.high = std::max(c.high, points[i].y);
    }
    c.x /= static_cast<double>(n), c.mean /= static_cast<double>(n);
    columns.push_back(c);
  }
  return columns;
}

/// Round numbers from about `low` to `high`.
std::vector<double> ticks(double low, double high, int about) {
  const double rough = std::max((high - low) / about, 1e-12);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (step = factor * power; step >= rough * 0.999) break;
  std::vector<double> out;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= 2 * about && (first + i) * step <= high + step * 1e-9; ++i)
    out.push_back(first + i == 0 ? 0 : (first + i) * step);  // never -0
  return out;
}

std::string short_number(double v) {
  const double a = std::abs(v);
  if (a >= 1e6) return fmt::format("{:.4g}M", v / 1e6);
  if (a >= 1e4) return fmt::format("{:.4g}k", v / 1e3);
  return fmt::format("{:.4g}", a < 1e-12 ? 0 : v);
}

/// Of UTF-8 text.
std::size_t letters(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

/// Of a time axis: which unit fits the whole of it, and how many seconds that is.
std::pair<const char*, double> time_unit(double span) {
  if (span < 150) return {"s", 1};
  if (span < 9000) return {"min", 60};
  return {"h", 3600};
}

/// The drawing area, and where a value lies in it.
struct Frame {
  double width, height, x0, x1, y0, y1;
  [[nodiscard]] double x(double v) const {
    return margin_left + (v - x0) / (x1 - x0) * (width - margin_left - margin_right);
  }
  [[nodiscard]] double y(double v) const {
    const double share = std::clamp((v - y0) / (y1 - y0), 0.0, 1.0);
    return height - margin_bottom - share * (height - margin_top - margin_bottom);
  }
};

std::string open_svg(double width, double height, const std::string& attributes = "") {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" "
      "height=\"{:.0f}\" direction=\"ltr\" role=\"img\"{}>",
      width, height, width, height, attributes);
}

std::string label(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor,
                     escaped(text));
}

std::string axes(const Frame& f, Unit x_unit, Unit y_unit) {
  std::string out = "<g class=\"grid\">";
  const std::vector<double> rows = ticks(f.y0, f.y1, 5);
  for (const double v : rows)
    out += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\"/>", margin_left, f.y(v), f.width - margin_right);
  out += "</g><g class=\"axis\">";
  for (const double v : rows)
    out += label(margin_left - 6, f.y(v) + 4, "end",
                 v == rows.back()          ? text_of(v, y_unit)
                 : y_unit == Unit::percent ? fmt::format("{:.3g}", v * 100)
                                           : short_number(v));
  const auto [unit, scale] =
      x_unit == Unit::seconds ? time_unit(f.x1 - f.x0) : std::pair<const char*, double>("", 1);
  const std::vector<double> places = ticks(f.x0 / scale, f.x1 / scale, static_cast<int>(f.width / 75));
  for (const double v : places) {
    const double x = f.x(v * scale);
    const bool last = x > f.width - margin_right - 20;
    out += label(last ? f.width - margin_right : x, f.height - 8, last ? "end" : "middle",
                 v == places.back() ? fmt::format("{} {}", short_number(v), unit) : short_number(v));
  }
  return out + "</g>";
}

/// Where a line has to be broken: a run that was stopped and went on draws nothing in between.
double longest_gap(const std::vector<Column>& columns) {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < columns.size(); ++i) gaps.push_back(columns[i].x - columns[i - 1].x);
  if (gaps.empty()) return 0;
  std::nth_element(gaps.begin(), gaps.begin() + static_cast<std::ptrdiff_t>(gaps.size() / 2), gaps.end());
  return 25 * gaps[gaps.size() / 2];
}

std::string line_path(const Frame& f, const std::vector<Column>& columns, std::string_view tone) {
  const double gap = longest_gap(columns);
  std::string band, line, dots;
  for (std::size_t begin = 0, end = 0; begin < columns.size(); begin = end) {
    for (end = begin + 1; end < columns.size() && columns[end].x - columns[end - 1].x <= gap;) ++end;
    std::string back;
    bool wide = false;
    for (std::size_t i = begin; i < end; ++i) {
      const Column& c = columns[i];
      const char* command = i == begin ? "M" : "L";
      line += fmt::format("{}{:.1f} {:.1f}", command, f.x(c.x), f.y(c.mean));
      wide = wide || c.high > c.low;
    }
    if (end - begin == 1)
      dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>", f.x(columns[begin].x),
                          f.y(columns[begin].mean));
    if (!wide) continue;
    for (std::size_t i = begin; i < end; ++i)
      band += fmt::format("{}{:.1f} {:.1f}", i == begin ? "M" : "L", f.x(columns[i].x), f.y(columns[i].high));
    for (std::size_t i = end; i-- > begin;)
      band += fmt::format("L{:.1f} {:.1f}", f.x(columns[i].x), f.y(columns[i].low));
    band += "Z";
  }
  return fmt::format("<g class=\"{}\"><path class=\"band\" d=\"{}\"/><path class=\"line\" d=\"{}\"/>{}</g>",
                     tone, band, line, dots);
}

/// Each line's means on top of those before it.
std::string stacked_paths(const Frame& f, const LineChart& chart,
                          const std::vector<std::vector<Column>>& columns) {
  std::string out;
  std::vector<double> base(columns.front().size(), 0);
  const double slot =
      (f.width - margin_left - margin_right) / static_cast<double>(std::max<std::size_t>(1, base.size()));
  const double bar = slot > 4 ? slot * 0.8 : slot + 0.15;  // thin ones touch
  for (std::size_t l = 0; l < columns.size(); ++l) {
    std::string path;
    for (std::size_t i = 0; i < base.size() && i < columns[l].size(); ++i) {
      const double x = margin_left + slot * (static_cast<double>(i) + 0.5) - bar / 2, from = f.y(base[i]);
      base[i] += columns[l][i].mean;
      path += fmt::format("M{:.1f} {:.1f}V{:.1f}h{:.2f}V{:.1f}Z", x, from, f.y(base[i]), bar, from);
    }
    out += fmt::format("<g class=\"{}\"><path class=\"fill\" d=\"{}\"/></g>", tone_class(chart.lines[l].tone),
                       path);
  }
  return out;
}

/// What the pointer shows: [pixel, text] for some of the columns.
std::string tips(const Frame& f, const LineChart& chart, const std::vector<std::vector<Column>>& columns) {
  nlohmann::json out = nlohmann::json::array();
  const auto longest = std::ranges::max_element(columns, {}, &std::vector<Column>::size);
  const std::size_t stride = longest->size() / most_tips + 1;
  for (std::size_t i = 0; i < longest->size(); i += stride) {
    const double x = (*longest)[i].x;
    std::string text =
        chart.x == Unit::seconds ? text_of(x, Unit::seconds) : fmt::format("{} {:.0f}", chart.x_name, x);
    for (std::size_t l = 0; l < columns.size(); ++l) {
      const auto near =
          std::ranges::min_element(columns[l], {}, [&](const Column& c) { return std::abs(c.x - x); });
      if (near == columns[l].end()) continue;
      text += fmt::format("\n{}: {}", chart.lines[l].name, text_of(near->mean, chart.y));
      if (near->high > near->low)
        text += fmt::format(" ({} – {})", text_of(near->low, chart.y), text_of(near->high, chart.y));
    }
    const double at = chart.stacked ? margin_left + (static_cast<double>(i) + 0.5) *
                                                        (f.width - margin_left - margin_right) /
                                                        static_cast<double>(longest->size())
                                    : f.x(x);
    out.push_back({std::round(at * 10) / 10, text});
  }
  return escaped(out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// The y axis: up to the largest mean, or where a few columns are far above all others, to what holds the
/// rest.
double upper_end(const LineChart& chart, const std::vector<std::vector<Column>>& columns) {
  std::vector<double> tops;
  for (std::size_t l = 0; l < columns.size(); ++l)
    for (std::size_t i = 0; i < columns[l].size(); ++i) {
      const double value = chart.stacked ? columns[l][i].mean : columns[l][i].high;
      if (chart.stacked && l > 0 && i < tops.size())
        tops[i] += value;
      else
        tops.push_back(value);
    }
  if (tops.empty()) return 1;
  std::ranges::sort(tops);
  const double most = tops.back(), usual = tops[(tops.size() - 1) * 98 / 100];
  return most > 4 * usual && usual > 0 ? 2 * usual : most;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string text_of(double v, Unit unit) {
  switch (unit) {
    case Unit::percent:
      return fmt::format("{:.3g} %", v * 100);
    case Unit::ms:
      return v >= 1e4 ? fmt::format("{:.3g} s", v / 1e3) : fmt::format("{:.3g} ms", v);
    case Unit::us:
      return v >= 1e4 ? fmt::format("{:.3g} ms", v / 1e3) : fmt::format("{:.3g} µs", v);
    case Unit::seconds: {
      const auto [name, scale] = time_unit(v);
      return fmt::format("{:.3g} {}", v / scale, name);
    }
    case Unit::number:
      break;
  }
  return short_number(v);
}

std::string draw(const LineChart& chart, int width) {
  double x0 = INFINITY, x1 = -INFINITY, low = INFINITY;
  for (const Line& line : chart.lines)
    for (const Point& p : line.points) {
      x0 = std::min(x0, p.x), x1 = std::max(x1, p.x);
      if (std::isfinite(p.y)) low = std::min(low, p.y);
    }
  if (!(x1 > x0)) x0 -= 0.5, x1 = x0 + 1;
  const auto pixels = static_cast<std::size_t>(width - margin_left - margin_right);
  std::vector<std::vector<Column>> columns;
  columns.reserve(chart.lines.size());
  for (const Line& line : chart.lines)
    columns.push_back(columns_of(line.points, x0, x1, pixels / (chart.stacked ? 2 : 3)));
  double y1 = upper_end(chart, columns), y0 = chart.from_data ? low : std::min(chart.least, low);
  if (!chart.from_data) y1 = std::max(y1, chart.most);
  if (!(y1 > y0)) y1 = y0 + std::max(1.0, std::abs(y0) * 0.01);
  if (chart.from_data) y0 -= (y1 - y0) * 0.04;
  if (chart.from_data || y1 > chart.most) y1 += (y1 - y0) * 0.04;
  const Frame f{static_cast<double>(width), 210, x0, x1, y0, y1};
  std::string out = open_svg(f.width, f.height, fmt::format(" data-tip=\"{}\"", tips(f, chart, columns)));
  out += axes(f, chart.x, chart.y);
  for (const Mark& mark : chart.marks)
    out += fmt::format("<path class=\"mark {}\" d=\"M{:.1f} {:.1f}V{:.1f}\"/>", tone_class(mark.tone),
                       f.x(mark.x), margin_top, f.height - margin_bottom);
  if (chart.stacked) {
    out += stacked_paths(f, chart, columns);
  } else {
    for (std::size_t i = 0; i < columns.size(); ++i)
      out += line_path(f, columns[i], tone_class(chart.lines[i].tone));
  }
  return out + "</svg>";
}

std::string draw(const BarChart& chart, int width) {
  constexpr double row = 28, pad = 6;
  double longest = 0;
  std::size_t label_letters = 0, value_letters = 0;
  for (const Bar& b : chart.bars) {
    longest = std::max(longest, b.length);
    label_letters = std::max(label_letters, letters(b.label));
    value_letters = std::max(value_letters, letters(b.value));
  }
  const double from = 7.0 * static_cast<double>(label_letters) + 12;
  const double room = width - from - 7.0 * static_cast<double>(value_letters) - 14;
  const double height = row * static_cast<double>(chart.bars.size()) + 2 * pad;
  std::string out = open_svg(width, height);
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    const Bar& b = chart.bars[i];
    const double y = pad + row * static_cast<double>(i), length = longest > 0 ? b.length / longest * room : 0;
    const double inner = longest > 0 ? b.inner / longest * room : 0;
    out += "<g class=\"axis\">" + label(from - 8, y + 18, "end", b.label) + "</g>";
    out += fmt::format(
        "<rect class=\"fill {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"16\" rx=\"2\"/>",
        tone_class(chart.tone), from, y + 6, std::max(length, 1.0));
    if (b.inner > 0)
      out += fmt::format(
          "<rect class=\"fill {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"16\" rx=\"2\"/>",
          tone_class(chart.inner_tone), from + length - inner, y + 6, inner);
    out += "<g class=\"value\">" + label(from + length + 7, y + 18, "start", b.value) + "</g>";
  }
  return out + "</svg>";
}

std::string draw(const HistogramChart& chart, int width) {
  std::vector<double> sorted = chart.values;
  std::ranges::sort(sorted);
  const double low = sorted.front(), usual = sorted[(sorted.size() - 1) * 99 / 100];
  const bool cut = sorted.back() > low + 2 * (usual - low);
  double high = cut ? low + 1.25 * (usual - low) : sorted.back();
  if (!(high > low)) high = low + std::max(1e-6, std::abs(low) * 0.01);
  const std::size_t bins = std::clamp<std::size_t>(static_cast<std::size_t>(width) / 14, 12, 48);
  std::vector<double> counts(bins, 0);
  for (const double v : sorted)
    ++counts[std::min(bins - 1,
                      static_cast<std::size_t>((v - low) / (high - low) * static_cast<double>(bins)))];
  const Frame f{static_cast<double>(width), 210, low, high, 0, *std::ranges::max_element(counts) * 1.05};
  std::string out =
      open_svg(f.width, f.height) + axes(f, chart.x == Unit::ms ? Unit::number : chart.x, Unit::number);
  const double slot = (high - low) / static_cast<double>(bins);
  for (std::size_t i = 0; i < bins; ++i) {
    if (counts[i] == 0) continue;
    const double from = low + slot * static_cast<double>(i);
    const bool last = cut && i + 1 == bins;
    const double x = f.x(from) + 0.75, y = std::min(f.y(counts[i]), f.height - margin_bottom - 1);
    out += fmt::format(
        "<rect class=\"fill {}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"><title>{} – "
        "{}: {:.0f}</title></rect>",
        tone_class(last ? Tone::data : Tone::compute), x, y, f.x(from + slot) - f.x(from) - 1.5,
        f.height - margin_bottom - y, text_of(from, chart.x),
        last ? escaped(chart.more) : text_of(from + slot, chart.x), counts[i]);
  }
  return out + "</svg>";
}

std::string_view tone_class(Tone tone) {
  static constexpr std::string_view names[] = {"compute", "data", "good", "bad", "extra", "plain"};
  return names[static_cast<std::size_t>(tone)];
}

std::string chart_css(bool dark) {
  struct Colour {
    Tone tone;
    const char *on_light, *on_dark;
  };
  static constexpr Colour colours[] = {
      {Tone::compute, "#2f6fd0", "#5c9dff"}, {Tone::data, "#d9730d", "#f2a14a"},
      {Tone::good, "#158a63", "#3fc796"},    {Tone::bad, "#c93434", "#ff7b72"},
      {Tone::extra, "#7a4fd0", "#b294ff"},   {Tone::plain, "#8a94a3", "#7d8998"}};
  std::string out;
  for (const Colour& c : colours) {
    const std::string_view name = tone_class(c.tone);
    const char* colour = dark ? c.on_dark : c.on_light;
    out += fmt::format(
        ".{0} .line,.mark.{0}{{stroke:{1}}}.{0} .band,.{0} .fill,.fill.{0},.{0} circle{{fill:{1}}}"
        ".key.{0}{{background:{1}}}\n",
        name, colour);
  }
  return out +
         fmt::format(".grid path{{stroke:{};stroke-width:1}}.axis text{{fill:{}}}.value text{{fill:{}}}\n",
                     dark ? "#2a3441" : "#e6e9ee", dark ? "#9aa7b5" : "#5b6675",
                     dark ? "#e6ebf1" : "#1a2330") +
         (dark ? ""
               : "svg text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif;"
                 "font-variant-numeric:tabular-nums}"
                 ".value text{font-weight:600}.line{fill:none;stroke-width:1.6;stroke-linejoin:round}"
                 ".band{opacity:.2}.mark{stroke-width:1;stroke-dasharray:3 3;opacity:.7}\n");
}

}  // namespace penstock::cli
