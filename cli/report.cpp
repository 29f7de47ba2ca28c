// penstock report: a run's findings and pictures in one HTML file.
#include <array>
#include <cctype>
#include <cerrno>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/chart.h"
#include "cli/commands.h"
#include "cli/report_page.h"
#include "cli/terminal.h"
#include "penstock/core/error.h"
#include "penstock/core/file.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int picture_width = 760;

struct ReportArguments {
  std::string run, output, language = "en", pictures;
  bool json = false;
};

/// Runs a program that says nothing. Its exit code; -1 when there is no such program.
int run_program(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&quiet, fd, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, argv.front(), &quiet, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&quiet);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  check_interrupt();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/// A drawing that stands alone, on white.
std::string standalone(const Picture& picture) {
  std::string svg = picture.svg(picture_width);
  svg.insert(
      svg.find('>') + 1,
      fmt::format("<style>{}</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>", chart_css(false)));
  return svg;
}

/// The number behind `height="`.
int height_of(const std::string& svg) { return std::stoi(svg.substr(svg.find(" height=\"") + 9)); }

std::string file_url(const fs::path& path) {
  std::string url = "file://";
  for (const char c : fs::absolute(path).string())
    if (std::isalnum(static_cast<unsigned char>(c)) ||
        std::string_view("/._-~").find(c) != std::string_view::npos)
      url += c;
    else
      url += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return url;
}

/// One SVG file as PNG, with twice the pixels, by the first program that is there. False: there is none.
bool convert(const fs::path& svg, const fs::path& png, int height) {
  const auto made_by = [&](const std::vector<std::string>& words) {
    const int code = run_program(words);
    if (code > 0 || (code == 0 && !fs::exists(png)))
      throw Error(fmt::format("--png: {} did not make {} (exit code {})", words.front(), png.string(), code));
    return code == 0;
  };
  if (made_by({"rsvg-convert", "--zoom", "2", "--output", png.string(), svg.string()})) return true;
  for (const char* browser : {"chromium", "chromium-browser", "google-chrome"}) {
    std::vector<std::string> arguments = {browser,
                                          "--headless",
                                          "--disable-gpu",
                                          "--hide-scrollbars",
                                          "--force-device-scale-factor=2",
                                          fmt::format("--window-size={},{}", picture_width, height),
                                          "--screenshot=" + fs::absolute(png).string(),
                                          file_url(svg)};
    if (geteuid() == 0) arguments.insert(arguments.begin() + 1, "--no-sandbox");  // it refuses root otherwise
    if (made_by(arguments)) return true;
  }
  return false;
}

/// Files that are gone when it is.
struct Removed {
  std::vector<fs::path> files;
  Removed(std::initializer_list<fs::path> paths) : files(paths) {}
  Removed(const Removed&) = delete;
  Removed& operator=(const Removed&) = delete;
  ~Removed() {
    std::error_code failure;
    for (const fs::path& file : files) fs::remove(file, failure);
  }
};

std::vector<std::string> write_pictures(const ReportPage& page, const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) throw Error(fmt::format("{}: cannot be made: {}", folder.string(), failure.message()));
  std::vector<std::string> written;
  for (const Picture& picture : page.pictures) {
    const std::string svg = standalone(picture);
    const fs::path drawing = folder / ("." + picture.name + ".svg"),
                   unfinished = folder / ("." + picture.name + ".png");
    const Removed leftovers{drawing, unfinished};
    write_file(drawing, svg);
    if (!convert(drawing, unfinished, height_of(svg)))
      throw Error(
          "--png: needs a program that turns SVG into PNG: rsvg-convert (apt install librsvg2-bin) or "
          "chromium (apt install chromium)");
    const fs::path png = folder / (picture.name + ".png");
    fs::rename(unfinished, png);
    written.push_back(png.string());
  }
  return written;
}

int run_report(const ReportArguments& a) {
  const fs::path folder = a.run;
  const RunRecords records = read_run(folder);
  const fs::path output = a.output.empty() ? folder / "report.html" : fs::path(a.output);
  const std::string name = fs::weakly_canonical(folder).filename().string();
  const ReportPage page =
      make_report(records, name, a.language == "fa" ? Language::persian : Language::english);
  write_file(output, page.html);
  std::vector<std::string> pictures;
  if (!a.pictures.empty()) pictures = write_pictures(page, a.pictures);
  if (a.json) {
    json findings = json::array(), left_out = json::object();
    for (const Sentence& s : page.findings) findings.push_back({{"text", s.text}, {"lines", s.lines}});
    for (const auto& [id, why] : page.left_out) left_out[id] = why;
    print_json({{"report", output.string()},
                {"findings", findings},
                {"sections", page.sections},
                {"left_out", left_out},
                {"pictures", pictures},
                {"steps", records.steps.size()},
                {"damaged_lines", records.damaged_lines}});
    return 0;
  }
  for (const Sentence& s : page.findings) fmt::print("{}\n{}", s.text, s.lines.empty() ? "" : s.lines + "\n");
  fmt::print("\n{}\n", output.string());
  if (!pictures.empty())
    fmt::print("{} in {}\n", count_text(static_cast<std::int64_t>(pictures.size()), "picture"), a.pictures);
  return 0;
}

}  // namespace

void add_report(const Command& app, Action& action) {
  auto a = std::make_shared<ReportArguments>();
  const Command c = app.add_command("report", "a run's findings and pictures in one HTML file");
  c.add_option("RUN", a->run, "the run's folder, of train --run or bench --run").required();
  c.add_option("-o,--output", a->output, "the page (default: RUN/report.html)").type_name("FILE");
  c.add_option("--lang", a->language, "en, or fa: in Persian, right to left")
      .show_default()
      .one_of({"en", "fa"});
  c.add_option("--png", a->pictures, "each picture alone into this folder (by rsvg-convert or chromium)")
      .type_name("DIR");
  c.add_flag("--json", a->json, "what was found and written, for programs");
  c.footer(
      "A run that goes on is reported as far as it is.\nExamples:\n  penstock report runs/first\n"
      "  penstock report runs/first -o first.html --png pictures\n  penstock report runs/first --lang fa");
  c.runs(action, [a] { return run_report(*a); });
}

}  // namespace penstock::cli
