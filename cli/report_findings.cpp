#include "cli/report_findings.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/chart.h"

namespace penstock::cli {
namespace {

template <typename... Parts>
std::string filled(std::string_view text, const Parts&... parts) {
  return fmt::format(fmt::runtime(text), parts...);
}

std::string percent(double share, const Words& say) { return say.ltr(text_of(share, Unit::percent)); }
std::string ms(double value, const Words& say) { return say.ltr(text_of(value, Unit::ms)); }

std::string busy(const RunDiagnosis& found, const Words& say) {
  if (found.au > 0)
    return filled(
        say("The device computed {} of the time that steps and their waits took (AU {:.3f}): a "
            "step computes {} and "
            "waits {} for data, on average.",
            "دستگاه {} از زمان گام‌ها و انتظارهایشان را محاسبه "
            "کرد "
            "(\u2066AU "
            "{:.3f}\u2069): "
            "هر "
            "گام "
            "به‌طور "
            "میانگین {} محاسبه "
            "می‌کند و {} منتظر داده می‌ماند."),
        percent(found.au, say), found.au, ms(found.step.mean, say), ms(found.data.mean, say));
  return filled(
      say("No step was timed, so there is no AU: a batch came every {}, on average.",
          "زمان هیچ گامی ثبت نشده و AU در کار نیست: به‌طور میانگین "
          "هر "
          "{} "
          "یک "
          "دسته "
          "رسید."),
      ms(found.batch.mean, say));
}

/// A finding's cause, and what helps, in Persian: the diagnosis itself speaks English.
std::string in_persian(const RunFinding& f, const Words& say) {
  struct Phrase {
    std::string_view cause, text;
  };
  static constexpr Phrase phrases[] = {
      {"data", "دستگاه {} از زمان منتظر داده است."},
      {"retraces", "دوباره طرح‌شدن گام‌ها {} از زمان را می‌گیرد."},
      {"checkpoint", "ذخیرهٔ نقطه‌های بازیابی {} از زمان را می‌گیرد."},
      {"validation", "اعتبارسنجی {} از زمان را می‌گیرد."},
      {"padding", "لایه‌گذاری {} از زمان را می‌گیرد."},
      {"device", "دستگاه با وجود داده، {} از زمان کم‌کار است."}};
  const std::string share = percent(f.share, say);
  std::string text = filled("{}: {} از زمان.", f.cause, share);
  for (const Phrase& p : phrases)
    if (p.cause == f.cause) text = filled(p.text, share);
  return f.lines.empty() ? text : text + " پیشنهاد:";
}

std::string steadiness(const RunDiagnosis& found, const Words& say) {
  std::string text = filled(
      found.swings
          ? say("Batch times vary much: {}, p99 {} against a median of {}.",
                "زمان دسته‌ها بسیار نوسان دارد: {}، p99 برابر {} در "
                "برابر "
                "میانهٔ "
                "{}.")
          : say("Batch times are steady: {}, p99 {} against a median of {}.",
                "زمان دسته‌ها یکنواخت است: {}، p99 برابر {} در برابر "
                "میانهٔ "
                "{}."),
      say.ltr("CV " + text_of(found.batch.cv, Unit::percent)), ms(found.batch.p99, say),
      ms(found.batch.p50, say));
  if (const Oscillation& o = found.slow.oscillation)
    text += filled(say(" They swing with a period of about {:.0f} steps.",
                       " نوسان آن دوره‌ای است: هر {:.0f} گام."),
                   o.period);
  else
    text += say(" No period was found in them.", " دوره‌ای در آن پیدا نشد.");
  return text;
}

std::string retraced(const RunDiagnosis& found, const Words& say) {
  if (found.retraces == 0)
    return std::string(say("No step had to be planned again (no retraces).",
                           "هیچ گامی دوباره طرح نشد (بدون ردیابی دوباره)."));
  return filled(
      found.retraces == 1
          ? say("{} step had to be planned again (retrace); the table below has the cause.",
                "{} گام دوباره طرح شد (ردیابی دوباره)؛ علت در جدول پایین است.")
          : say("{} steps had to be planned again (retraces); the table below has the causes.",
                "{} گام دوباره طرح شد (ردیابی دوباره)؛ علت‌ها در "
                "جدول "
                "پایین "
                "است."),
      found.retraces);
}

}  // namespace

std::vector<Sentence> sentences(const RunDiagnosis& found, const RunRecords& run, const Words& say) {
  std::vector<Sentence> out;
  const auto add = [&](std::string text, std::string lines = "") {
    out.push_back({std::move(text), std::move(lines)});
  };
  if (found.steps == 0) {
    add(std::string(say("The log has too few steps to judge.",
                        "گام‌های گزارش برای داوری کم است.")));
  } else {
    add(busy(found, say));
    if (found.healthy() && found.au > 0)
      add(std::string(
          say("Nothing keeps the device waiting: the step itself sets the pace.",
              "چیزی دستگاه را معطل نمی‌کند: سرعت را خود گام تعیین "
              "می‌کند.")));
    for (const RunFinding& f : found.findings)
      add(say.persian() ? in_persian(f, say) : f.what + " " + f.advice, f.lines);
    add(steadiness(found, say));
  }
  const bool trained =
      std::ranges::any_of(run.steps, [](const StepRecord& s) { return std::isfinite(s.loss); });
  if (trained || found.retraces > 0) add(retraced(found, say));
  if (found.skipped > 0)
    add(filled(
        say("Samples that were skipped: {}. The table below names them.",
            "نمونه‌های کنارگذاشته: {}. جدول پایین آن‌ها را نام "
            "می‌برد."),
        found.skipped));
  if (run.damaged_lines > 0)
    add(filled(say("Damaged lines of the log that are left out: {} (the first is line {}).",
                   "خط‌های آسیب‌دیدهٔ گزارش که کنار گذاشته شد: {} "
                   "(نخستین، "
                   "خط "
                   "{})."),
               run.damaged_lines, run.first_damaged.front().number));
  return out;
}

}  // namespace penstock::cli
