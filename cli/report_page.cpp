#include "cli/report_page.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <set>

#include <fmt/format.h>

#include "cli/chart.h"
#include "cli/report_findings.h"
#include "cli/report_style.h"
#include "penstock/monitor/diagnosis.h"

namespace penstock::cli {
namespace {

constexpr int wide = 500, narrow = 340;  // pixels of a chart's two drawings: for a screen, and for a phone
constexpr std::size_t most_rows = 40;    // of a table
constexpr std::size_t most_shapes = 12;

std::string key(Tone tone, std::string_view name) {
  return fmt::format("<span class=\"item\"><i class=\"key {}\"></i>{}</span>", tone_class(tone),
                     escaped(name));
}

/// A text that keeps its own direction: ids, shapes and reasons in a Persian page.
std::string isolated(std::string_view text) { return fmt::format("<bdi>{}</bdi>", escaped(text)); }

std::string shape_text(const Shape& s) { return fmt::format("{}×{}×{}", s.rows, s.tokens, s.frames); }

std::string time_text(double t) {
  const auto seconds = static_cast<std::time_t>(t);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02} UTC", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min);
}

class Writer {
 public:
  Writer(const RunRecords& run, Language language) : run_(run), found_(diagnose(run)), say_(language) {
    double first = INFINITY, last = 0;
    const auto look = [&](const auto& records) {
      if (records.empty()) return;
      first = std::min(first, records.front().t), last = std::max(last, records.back().t);
    };
    look(run.steps), look(run.feed), look(run.summaries), look(run.tune), look(run.system), look(run.events);
    begin_ = std::isfinite(first) ? first : 0, end_ = std::max(last, begin_);
  }
  ReportPage page(const std::string& name);

 private:
  void utilisation();
  void data_and_compute();
  void ring();
  void stages();
  void batch_times();
  void shapes();
  void loss();
  void retraces();
  void tune();
  void skipped();

  template <typename Chart>
  void picture(const std::string& id, std::string_view title, std::string_view note,
               const std::string& legend, Chart chart);
  void table(const std::string& id, std::string_view title, std::string_view note,
             const std::vector<std::string_view>& heads, const std::vector<std::vector<std::string>>& rows);
  void card(const std::string& id, std::string_view title, std::string_view note, const std::string& body);
  void leave_out(const std::string& id, std::string_view why) { page_.left_out.emplace_back(id, why); }
  [[nodiscard]] std::string tiles() const;
  [[nodiscard]] double since(double t) const { return t - begin_; }
  [[nodiscard]] bool timed() const { return found_.au > 0; }
  [[nodiscard]] std::vector<Mark> marks(bool by_time) const;

  const RunRecords& run_;
  const RunDiagnosis found_;
  const Words say_;
  double begin_ = 0, end_ = 0;
  std::string body_;
  ReportPage page_;
};

void Writer::card(const std::string& id, std::string_view title, std::string_view note,
                  const std::string& body) {
  page_.sections.push_back(id);
  body_ += fmt::format("<section id=\"{}\"><h2>{}</h2><p class=\"note\">{}</p>{}</section>\n", id, title,
                       note, body);
}

template <typename Chart>
void Writer::picture(const std::string& id, std::string_view title, std::string_view note,
                     const std::string& legend, Chart chart) {
  card(id, title, note,
       fmt::format("<div class=\"wide\">{}</div><div class=\"narrow\">{}</div>{}", draw(chart, wide),
                   draw(chart, narrow), legend.empty() ? "" : "<p class=\"legend\">" + legend + "</p>"));
  page_.pictures.push_back({id, [chart = std::move(chart)](int width) { return draw(chart, width); }});
}

void Writer::table(const std::string& id, std::string_view title, std::string_view note,
                   const std::vector<std::string_view>& heads,
                   const std::vector<std::vector<std::string>>& rows) {
  std::string html = "<div class=\"scroll\"><table><tr>";
  for (const std::string_view head : heads) html += fmt::format("<th>{}</th>", head);
  html += "</tr>";
  for (std::size_t i = 0; i < rows.size() && i < most_rows; ++i) {
    html += "<tr>";
    for (const std::string& cell : rows[i]) html += fmt::format("<td>{}</td>", isolated(cell));
    html += "</tr>";
  }
  html += "</table></div>";
  if (rows.size() > most_rows)
    html += fmt::format(
        "<p class=\"note\">{}</p>",
        fmt::format(fmt::runtime(say_("and {} more", "و {} مورد دیگر")), rows.size() - most_rows));
  card(id, title, note, html);
}

/// What else took time: validations and checkpoints, and in red retraces. Too many would hide the lines.
std::vector<Mark> Writer::marks(bool by_time) const {
  std::vector<Mark> out;
  for (const EventRecord& e : run_.events) {
    const bool pause = e.event == "checkpoint" || e.event == "validation";
    if (!pause && e.event != "retrace") continue;
    if (!by_time && e.step < 0) continue;
    out.push_back(
        {.x = by_time ? since(e.t) : static_cast<double>(e.step), .tone = pause ? Tone::plain : Tone::bad});
  }
  return out.size() <= 60 ? out : std::vector<Mark>();
}

void Writer::utilisation() {
  LineChart chart{.x = Unit::seconds, .y = Unit::percent, .most = 1, .marks = marks(true)};
  Line au{"AU", Tone::compute, {}}, gpu{"GPU", Tone::good, {}}, cpu{"CPU", Tone::extra, {}};
  for (const StepRecord& s : run_.steps)
    if (std::isfinite(s.au)) au.points.push_back({since(s.t), s.au});
  for (const SystemRecord& s : run_.system) {
    double sum = 0, n = 0;
    for (const GpuRecord& g : s.gpus)
      if (std::isfinite(g.utilisation)) sum += g.utilisation, ++n;
    if (n > 0) gpu.points.push_back({since(s.t), sum / n});
    if (std::isfinite(s.cpu_busy)) cpu.points.push_back({since(s.t), s.cpu_busy});
  }
  if (run_.system.empty())
    leave_out("utilisation", say_("The log has no samples of the CPU and the GPU.",
                                  "در گزارش نمونه‌ای از CPU و GPU نیست."));
  else if (gpu.points.empty())
    leave_out("gpu", say_("No GPU was sampled.", "نمونه‌ای از GPU ثبت نشده است."));
  std::string legend;
  for (Line* line : {&au, &gpu, &cpu}) {
    if (line->points.empty()) continue;
    legend += key(line->tone, line->name);
    chart.lines.push_back(std::move(*line));
  }
  if (chart.lines.empty())
    return leave_out("au", say_("AU: no step was timed.", "AU: زمان هیچ گامی ثبت نشده است."));
  const auto marked = [&](Tone tone) {
    return std::ranges::any_of(chart.marks, [&](const Mark& m) { return m.tone == tone; });
  };
  if (marked(Tone::plain))
    legend += key(Tone::plain, say_("validation or checkpoint", "اعتبارسنجی یا ذخیره"));
  if (marked(Tone::bad)) legend += key(Tone::bad, say_("retrace", "ردیابی دوباره"));
  picture("au", say_("How busy the device was", "دستگاه چقدر مشغول بود"),
          say_("AU is the share of the time in which the step computes; the band goes from the least to the "
               "largest.",
               "AU سهمی از زمان است که گام در آن محاسبه می‌کند؛ نوار "
               "کم‌رنگ "
               "از "
               "کمینه "
               "تا "
               "بیشینه "
               "است."),
          legend, std::move(chart));
}

void Writer::data_and_compute() {
  Line compute{std::string(say_("computing", "محاسبه")), Tone::compute, {}};
  Line data{std::string(say_("waiting for data", "انتظار داده")), Tone::data, {}};
  for (const StepRecord& s : run_.steps) {
    if (!std::isfinite(s.step_ms) || !std::isfinite(s.data_ms)) continue;
    compute.points.push_back({static_cast<double>(s.step), s.step_ms});
    data.points.push_back({static_cast<double>(s.step), s.data_ms});
  }
  if (compute.points.empty())
    return leave_out("data_compute", say_("Time of the steps: not in the log.",
                                          "زمان گام‌ها در گزارش نیست."));
  const std::string legend = key(Tone::compute, compute.name) + key(Tone::data, data.name);
  picture(
      "data_compute", say_("Where each step's time goes", "زمان هر گام کجا می‌رود"),
      say_("Milliseconds a step: its own computing, and on top of it the wait for its batch.",
           "میلی‌ثانیه در هر گام: محاسبهٔ خود گام و روی آن انتظار "
           "برای "
           "دسته."),
      legend,
      LineChart{.lines = {std::move(compute), std::move(data)},
                .y = Unit::ms,
                .x_name = std::string(say_("step", "گام")),
                .stacked = true});
}

void Writer::ring() {
  Line ready{std::string(say_("ready", "آماده")), Tone::good, {}};
  Line depth{std::string(say_("room for", "ظرفیت")), Tone::plain, {}};
  for (const StepRecord& s : run_.steps)
    if (std::isfinite(s.ring)) ready.points.push_back({since(s.t), s.ring});
  if (ready.points.empty())
    for (const FeedRecord& f : run_.feed)
      if (std::isfinite(f.ring_level)) ready.points.push_back({since(f.t), f.ring_level});
  if (ready.points.empty())
    return leave_out("ring", say_("Ring level: not in the log.",
                                  "تعداد دسته‌های آماده در گزارش نیست."));
  for (const FeedRecord& f : run_.feed)
    if (f.depth > 0) depth.points.push_back({since(f.t), static_cast<double>(f.depth)});
  std::string legend = key(ready.tone, ready.name);
  LineChart chart{.lines = {std::move(ready)}, .x = Unit::seconds, .most = 1};
  if (depth.points.size() > 1) {
    legend += key(depth.tone, depth.name);
    chart.lines.push_back(std::move(depth));
  }
  picture("ring", say_("Batches that were ready", "دسته‌های آماده"),
          say_("How many waited in the ring when the next one was asked for. At 0 the step has to wait.",
               "هنگام درخواست دستهٔ بعدی چند دسته در حلقه آماده بود. در صفر، گام باید منتظر بماند."),
          legend, std::move(chart));
}

void Writer::stages() {
  std::vector<std::pair<std::string, double>> costs;
  double samples = 0, hits = 0, misses = 0, recomputed = 0;
  for (const FeedRecord& f : run_.feed) {
    hits += static_cast<double>(f.hits), misses += static_cast<double>(f.misses);
    recomputed += static_cast<double>(f.recomputed);
    if (f.stages.empty() || f.samples == 0) continue;
    const auto weight = static_cast<double>(f.samples);
    samples += weight;
    for (const auto& [name, us] : f.stages) {
      const auto known = std::ranges::find(costs, name, &std::pair<std::string, double>::first);
      if (known == costs.end())
        costs.emplace_back(name, us * weight);
      else
        known->second += us * weight;
    }
  }
  const bool shares = costs.empty() && !run_.summaries.empty();
  if (shares) costs = run_.summaries.back().stages, samples = 1;
  double all = 0;
  for (const auto& cost : costs) all += cost.second;
  if (all <= 0)
    return leave_out("stages", say_("Costs of the feed's stages: not in the log.",
                                    "هزینهٔ مرحله‌ها در گزارش نیست."));
  BarChart chart;
  for (const auto& [name, sum] : costs)
    chart.bars.push_back(
        {.label = name,
         .value = shares ? text_of(sum, Unit::percent)
                         : fmt::format("{} · {:.0f} %", text_of(sum / samples, Unit::us), sum / all * 100),
         .length = sum});
  std::string note(
      shares ? say_("Shares of the feed's work.", "سهم هر مرحله از کار خوراک‌دهی.")
             : say_("Time that a sample takes in each stage, added over the workers.",
                    "زمانی که هر نمونه در هر مرحله می‌گیرد، روی همهٔ "
                    "کارگرها."));
  if (hits + misses > 0)
    note += fmt::format(fmt::runtime(say_(" Cache: {:.0f} hits, {:.0f} misses, {:.0f} recomputed.",
                                          " حافظهٔ نهان: {:.0f} برخورد، {:.0f} نبود، {:.0f} محاسبهٔ دوباره.")),
                        hits, misses, recomputed);
  picture("stages",
          say_("What the feed's stages cost", "هزینهٔ مرحله‌های خوراک‌دهی"), note,
          "", std::move(chart));
}

void Writer::batch_times() {
  HistogramChart chart{.x = Unit::ms, .more = std::string(say_("and more", "و بیشتر"))};
  for (const StepRecord& s : run_.steps)
    if (std::isfinite(s.step_ms) && std::isfinite(s.data_ms)) chart.values.push_back(s.step_ms + s.data_ms);
  if (chart.values.size() < 10)
    return leave_out("batch_times",
                     say_("Histogram of batch times: fewer than ten steps.",
                          "هیستوگرام زمان دسته‌ها: کمتر از ده گام."));
  const SeriesSummary& b = found_.batch;
  picture(
      "batch_times", say_("How long batches take", "زمان دسته‌ها"),
      fmt::format(
          fmt::runtime(say_("Steps by their milliseconds, wait included: mean {}, median {}, {}, {}, {}.",
                            "تعداد گام‌ها بر حسب میلی‌ثانیه، با انتظار: "
                            "میانگین "
                            "{}، "
                            "میانه "
                            "{}، {}، {}، {}.")),
          say_.ltr(text_of(b.mean, Unit::ms)), say_.ltr(text_of(b.p50, Unit::ms)),
          say_.ltr("p95 " + text_of(b.p95, Unit::ms)), say_.ltr("p99 " + text_of(b.p99, Unit::ms)),
          say_.ltr("CV " + text_of(b.cv, Unit::percent))),
      "", std::move(chart));
}

void Writer::shapes() {
  struct Use {
    double frames = 0, padding = 0, batches = 0;
  };
  std::map<Shape, Use> uses;
  for (const StepRecord& s : run_.steps) {
    if (s.shape.rows == 0 || !std::isfinite(s.padding)) continue;
    const double frames = static_cast<double>(s.shape.rows) * s.shape.frames;
    Use& use = uses[s.shape];
    use.frames += frames, use.padding += frames * s.padding, ++use.batches;
  }
  if (uses.empty())
    return leave_out("shapes", say_("Padding by shape: not in the log.",
                                    "لایه‌گذاری هر شکل در گزارش نیست."));
  std::vector<std::pair<Shape, Use>> most(uses.begin(), uses.end());
  std::ranges::stable_sort(most,
                           [](const auto& a, const auto& b) { return a.second.frames > b.second.frames; });
  if (most.size() > most_shapes) most.resize(most_shapes);
  std::ranges::sort(most, {}, &std::pair<Shape, Use>::first);
  BarChart chart;
  for (const auto& [shape, use] : most)
    chart.bars.push_back(
        {.label = shape_text(shape),
         .value = fmt::format("{:.0f}× · {:.3g} %", use.batches, use.padding / use.frames * 100),
         .length = use.frames,
         .inner = use.padding});
  std::string note(say_(
      "Frames by shape (rows × tokens × frames), how often it came, and how much of it is padding.",
      "قاب‌ها به تفکیک شکل (ردیف × نشانه × قاب)، تعداد دفعات، و "
      "سهم "
      "لایه‌گذاری."));
  if (uses.size() > most_shapes)
    note += fmt::format(
        fmt::runtime(say_(" The {} largest of {}.", " {} شکل بزرگ‌تر از {} شکل.")),
        most_shapes, uses.size());
  picture(
      "shapes", say_("Padding by shape", "لایه‌گذاری هر شکل"), note,
      key(Tone::compute, say_("speech", "گفتار")) + key(Tone::data, say_("padding", "لایه‌گذاری")),
      std::move(chart));
}

void Writer::loss() {
  Line training{std::string(say_("training", "آموزش")), Tone::compute, {}};
  Line validation{std::string(say_("validation", "اعتبارسنجی")), Tone::extra, {}};
  for (const StepRecord& s : run_.steps)
    if (std::isfinite(s.loss)) training.points.push_back({static_cast<double>(s.step), s.loss});
  for (const EventRecord& e : run_.events)
    if (e.event == "validation" && std::isfinite(e.loss))
      validation.points.push_back({static_cast<double>(e.step), e.loss});
  if (training.points.empty())
    return leave_out("loss", say_("Loss: nothing was trained.", "زیان: چیزی آموزش داده نشده است."));
  std::string legend = key(training.tone, training.name);
  LineChart chart{
      .lines = {std::move(training)}, .x_name = std::string(say_("step", "گام")), .from_data = true};
  if (!validation.points.empty()) {
    legend += key(validation.tone, validation.name);
    chart.lines.push_back(std::move(validation));
  }
  picture("loss", say_("Loss", "زیان"), say_("By step.", "بر حسب گام."), legend, std::move(chart));
}

void Writer::retraces() {
  std::vector<std::vector<std::string>> rows;
  for (const EventRecord& e : run_.events) {
    if (e.event != "retrace") continue;
    std::string ids;
    for (std::size_t i = 0; i < e.utterances.size() && i < 3; ++i)
      ids += (i > 0 ? " " : "") + e.utterances[i];
    if (e.utterances.size() > 3) ids += fmt::format(" +{}", e.utterances.size() - 3);
    rows.push_back({std::to_string(e.step), shape_text(e.shape), ids, e.cause});
  }
  if (rows.empty()) return leave_out("retraces", say_("Retraces: none.", "ردیابی دوباره: هیچ."));
  table("retraces", say_("Retraces", "ردیابی‌های دوباره"),
        say_("Steps that had to be planned again, since their batch had a shape of its own.",
             "گام‌هایی که باید از نو طرح می‌شدند، چون شکل "
             "دسته‌شان "
             "تازه "
             "بود."),
        {say_("step", "گام"), say_("shape", "شکل"), say_("utterances", "گفته‌ها"),
         say_("cause", "علت")},
        rows);
}

void Writer::tune() {
  if (run_.tune.empty())
    return leave_out("tune", say_("Autotuner: it changed nothing.", "تنظیم خودکار: تغییری نداده است."));
  std::vector<std::vector<std::string>> rows;
  for (const TuneRecord& t : run_.tune)
    rows.push_back(
        {text_of(since(t.t), Unit::seconds), std::to_string(t.workers), std::to_string(t.depth), t.reason});
  table("tune", say_("What the autotuner changed", "تغییرهای تنظیم خودکار"),
        say_("Workers and batches ahead, from that moment on.",
             "تعداد کارگرها و دسته‌های از پیش آماده، از آن لحظه."),
        {say_("after", "پس از"), say_("workers", "کارگر"), say_("depth", "عمق"), say_("reason", "دلیل")},
        rows);
}

void Writer::skipped() {
  std::map<std::string, SkippedRecord> samples;
  for (const FeedRecord& f : run_.feed)
    for (const SkippedRecord& s : f.skipped_samples) samples[s.id] = s;
  if (samples.empty()) return leave_out("skipped", say_("Skipped samples: none.", "نمونهٔ کنارگذاشته: هیچ."));
  std::vector<std::vector<std::string>> rows;
  for (const auto& [id, s] : samples) rows.push_back({id, std::to_string(s.times), s.reason});
  table("skipped", say_("Skipped samples", "نمونه‌های کنارگذاشته"),
        say_("They could not be used; other utterances took their places.",
             "قابل استفاده نبودند و گفته‌های دیگری جایشان آمد."),
        {say_("id", "شناسه"), say_("times", "دفعات"), say_("reason", "دلیل")}, rows);
}

std::string Writer::tiles() const {
  std::string out;
  const auto tile = [&](std::string_view name, const std::string& value, std::string_view tone = "") {
    out += fmt::format("<div class=\"tile {}\"><b>{}</b><span>{}</span></div>", tone, isolated(value), name);
  };
  if (timed())
    tile(say_("AU: the device computes", "AU: محاسبهٔ دستگاه"), text_of(found_.au, Unit::percent),
         found_.au >= 0.95  ? "is-good"
         : found_.au >= 0.8 ? ""
                            : "is-bad");
  tile(say_("steps", "گام"), fmt::format("{}", run_.steps.size()));
  tile(say_("time", "مدت"), text_of(end_ - begin_, Unit::seconds));
  if (found_.steps > 0) {
    tile(say_("a batch, on average", "میانگین هر دسته"), text_of(found_.batch.mean, Unit::ms));
    tile(say_("CV of batch times", "CV زمان دسته‌ها"), text_of(found_.batch.cv, Unit::percent),
         found_.batch.cv > 0.5 ? "is-bad" : "");
  }
  tile(say_("retraces", "ردیابی دوباره"), fmt::format("{}", found_.retraces),
       found_.retraces > 0 ? "is-bad" : "");
  if (std::isfinite(found_.padding))
    tile(say_("padding", "لایه‌گذاری"), text_of(found_.padding, Unit::percent));
  if (found_.skipped > 0) tile(say_("skipped", "کنارگذاشته"), fmt::format("{}", found_.skipped), "is-bad");
  return out;
}

ReportPage Writer::page(const std::string& name) {
  page_.findings = sentences(found_, run_, say_);
  utilisation(), data_and_compute(), ring(), stages(), batch_times(), shapes(), loss();
  retraces(), tune(), skipped();
  std::string findings, left_out;
  for (const Sentence& s : page_.findings)
    findings +=
        fmt::format("<li>{}{}</li>", escaped(s.text),
                    s.lines.empty() ? "" : fmt::format("<pre dir=\"ltr\">{}</pre>", escaped(s.lines)));
  for (const auto& [id, why] : page_.left_out) left_out += fmt::format("<li>{}</li>", escaped(why));
  page_.html = fmt::format(
      "<!doctype html>\n<html lang=\"{lang}\" dir=\"{dir}\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{name} – "
      "penstock</title>\n"
      "<link rel=\"icon\" href=\"data:,\"><style>{style}{light}@media "
      "(prefers-color-scheme:dark){{{dark}}}</style></head>\n<body>"
      "<header><p class=\"kind\">{kind}</p><h1>{title}</h1><p class=\"note\">{when}</p></header>\n"
      "<main><div class=\"tiles\">{tiles}</div>\n<section class=\"findings\" "
      "id=\"findings\"><h2>{found}</h2><ul>{findings}</ul>"
      "</section>\n<div class=\"cards\">{body}</div>\n{left_out}</main><footer>{footer}</footer>"
      "<div id=\"tip\" hidden></div><script>{script}</script></body></html>\n",
      fmt::arg("lang", say_.persian() ? "fa" : "en"), fmt::arg("dir", say_.persian() ? "rtl" : "ltr"),
      fmt::arg("name", escaped(name)), fmt::arg("style", page_style), fmt::arg("light", chart_css(false)),
      fmt::arg("dark", std::string(dark_style) + chart_css(true)),
      fmt::arg("kind", say_("Penstock · report of a run", "Penstock · گزارش اجرا")),
      fmt::arg("title", isolated(name)),
      fmt::arg("when", begin_ > 0 ? isolated(time_text(begin_) + " – " + time_text(end_)) : ""),
      fmt::arg("tiles", tiles()), fmt::arg("found", say_("Findings", "یافته‌ها")),
      fmt::arg("findings", findings), fmt::arg("body", body_),
      fmt::arg("left_out",
               left_out.empty()
                   ? ""
                   : fmt::format(
                         "<section class=\"findings quiet\" id=\"left_out\"><h2>{}</h2><ul>{}</ul></section>",
                         say_("Not in this run", "آنچه در این اجرا نیست"), left_out)),
      fmt::arg("footer",
               say_("Made from log.jsonl. Nothing on this page is loaded from elsewhere.",
                    "ساخته‌شده از log.jsonl. این صفحه چیزی از جای دیگر "
                    "نمی‌خواند.")),
      fmt::arg("script", page_script));
  return std::move(page_);
}

}  // namespace

ReportPage make_report(const RunRecords& run, const std::string& name, Language language) {
  return Writer(run, language).page(name);
}

}  // namespace penstock::cli
