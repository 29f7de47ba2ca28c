"""penstock report: one page that draws by itself, in a real browser, in both languages and both colour schemes; pictures alone; what a run does not have."""
import json
import math
import os
import pathlib
import re
import shutil

import pytest

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")


def make_run(folder, steps=400, **without):
    """A log with everything that a report can show, one thing at a time left out."""
    folder.mkdir(parents=True)
    t, lines = 1.79e9, []

    def add(kind, **fields):
        if not without.get(fields.get("event", kind)):
            lines.append(json.dumps({"t": round(t, 3), "kind": kind, **fields}))
    add("event", event="start", step=0, steps=steps)
    shapes = ([16, 72, 360], [16, 120, 592], [16, 208, 856])
    stages = {"read": 126, "decode": 58, "mel": 857, "tokens": 3.6, "cache": 0.5, "pad": 1.8}
    for step in range(1, steps + 1):
        shape = shapes[step % 3]
        compute, wait = shape[2] / 10, 120 if step % 40 < 4 else 1
        t += (compute + wait) / 1e3
        add("step", step=step, epoch=step // 100, loss=2 + 6 * math.exp(-step / 80), lr=1e-4, grad_norm=1, step_ms=compute, data_ms=wait,
            au=compute / (compute + wait), frames_per_s=1000, padding=0.1, retraces=int(step >= 150), shape=shape, ring=0 if wait > 1 else 5)
        if step % 20 == 0:
            add("feed", samples=320, samples_per_second=180, stages=stages, workers=2, depth=8, ring_level=4, hits=100, misses=20, recomputed=1,
                bytes_read=1000, skipped=1)
            add("gpu", gpus=[{"index": 0, "name": "GPU", "utilisation": 0.8}], cpu={"busy": 0.4, "cores": [0.3, 0.5]})
        if step % 100 == 0:
            add("event", event="validation", step=step, loss=2.5, utterances=10, best=True, seconds=0.2)
            add("event", event="checkpoint", step=step, best=True, seconds=0.1)
        if step == 150:
            add("event", event="retrace", step=step, epoch=1, batch=3, shape=[16, 99, 333], bucket=0, utterances=["a-1", "b-2", "c-3", "d-4"],
                cause="shape (16, 99, 333) is none of the <3> that were planned")
            add("tune", epoch=1, step=5, workers=3, depth=8, reason="the consumer waited for 11 % of the time")
    add("feed", samples=1, skipped=1, skipped_samples=[{"id": "s01-000044", "reason": "decode: wavs/s01-000044.wav: has no RIFF header", "times": 12}])
    (folder / "log.jsonl").write_text("\n".join(lines) + '\n{"t":1.79e9,"ki', encoding="utf-8")
    return folder


ALL = ["au", "data_compute", "ring", "stages", "batch_times", "shapes", "loss", "retraces", "tune", "skipped"]
PICTURES = ALL[:7]


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM or not DRIVER:
        pytest.skip("no chromium and chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


def show(browser, page, width=1200, dark=False):
    """Opens it; returns what the browser complained of and every address that it asked for."""
    browser.get_log("browser"), browser.get_log("performance")
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})
    browser.get(page.resolve().as_uri())
    asked = [m["params"]["request"]["url"] for entry in browser.get_log("performance")
             for m in [json.loads(entry["message"])["message"]] if m["method"] == "Network.requestWillBeSent"]
    return browser.get_log("browser"), [url for url in asked if not url.startswith("data:")]


BOXES = """return [...document.querySelectorAll('.cards svg')].filter(s => s.getClientRects().length).map(s => {
  const box = s.getBoundingClientRect();
  const parts = [...s.querySelectorAll('path.line,path.fill,rect.fill')].map(p => p.getBBox());
  return [s.closest('section').id, box.width, box.height, parts.length, Math.max(...parts.map(p => p.width)), Math.max(...parts.map(p => p.height))];
});"""


@pytest.mark.parametrize("language, dark, width", [("en", False, 1200), ("en", True, 390), ("fa", False, 390), ("fa", True, 1200)])
def test_the_page_draws_everything_and_asks_for_nothing(penstock, browser, tmp_path, language, dark, width):
    run = make_run(tmp_path / "a run")
    done = penstock("report", run, "--lang", language)
    assert done.returncode == 0, done.stderr
    complaints, asked = show(browser, run / "report.html", width, dark)
    assert complaints == [] and asked == [(run / "report.html").resolve().as_uri()]
    drawn = browser.execute_script(BOXES)
    assert [d[0] for d in drawn] == PICTURES  # each once: the drawing for this width
    for name, across, high, parts, widest, highest in drawn:
        assert across > 250 and high > 80 and parts >= 1 and widest > 4 and highest > 4, name
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert [s.get_attribute("id") for s in browser.find_elements("css selector", ".cards section")] == ALL
    assert browser.execute_script("return getComputedStyle(document.documentElement).direction") == ("rtl" if language == "fa" else "ltr")
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", ground)[:3])) / 3
    assert light < 60 if dark else light > 200
    text = browser.find_element("tag name", "body").text
    assert "is none of the <3> that were planned" in text and "s01-000044" in text
    assert bool(re.search("[آ-ی]", text)) == (language == "fa")


def test_the_pointer_finds_a_step_with_its_figures(penstock, browser, tmp_path):
    run = make_run(tmp_path / "run")
    assert penstock("report", run).returncode == 0
    show(browser, run / "report.html")
    browser.execute_script("""const svg = document.querySelector('#data_compute .wide svg'), box = svg.getBoundingClientRect();
      svg.dispatchEvent(new PointerEvent('pointermove', {clientX: box.left + box.width / 2, clientY: box.top + 20}));""")
    tip = browser.find_element("id", "tip")
    assert tip.is_displayed() and re.match(r"step \d+\ncomputing: [\d.]+ ms", tip.text)


@pytest.mark.parametrize("missing, gone", [("gpu", []), ("retrace", ["retraces"]), ("tune", ["tune"]), ("feed", ["stages", "skipped"])])
def test_what_a_run_does_not_have_is_said_and_not_drawn(penstock, tmp_path, missing, gone):
    run = make_run(tmp_path / "run", **{missing: True})
    found = json.loads(penstock("report", run, "--json").stdout)
    assert found["sections"] == [s for s in ALL if s not in gone]
    assert set(gone) <= set(found["left_out"]) and len(found["left_out"]) >= 1
    page = (run / "report.html").read_text(encoding="utf-8")
    for name in gone:
        assert f'id="{name}"' not in page and found["left_out"][name] in page


def test_an_empty_log_and_a_folder_without_one(penstock, tmp_path):
    (tmp_path / "log.jsonl").write_text("no json\n", encoding="utf-8")
    found = json.loads(penstock("report", tmp_path, "--json").stdout)
    assert found["sections"] == [] and found["damaged_lines"] == 1 and "line 1" in found["findings"][-1]["text"]
    nothing = penstock("report", tmp_path / "nowhere")
    assert nothing.returncode == 2 and "nowhere: is no folder" in nothing.stderr


def test_a_measurement_of_bench_is_reported(penstock, tones, tmp_path):
    assert penstock("bench", tones, "--batch-size", 4, "--batches", 60, "--step-ms", 2, "--no-limits", "--run", tmp_path / "run").returncode == 0
    found = json.loads(penstock("report", tmp_path / "run", "--json", "-o", tmp_path / "page.html").stdout)
    assert {"au", "data_compute", "ring", "stages", "batch_times", "shapes"} <= set(found["sections"])
    assert "loss" in found["left_out"] and found["steps"] == 60
    assert "AU 0." in found["findings"][0]["text"] or "AU 1." in found["findings"][0]["text"]
    assert (tmp_path / "page.html").exists() and not (tmp_path / "run/report.html").exists()


@pytest.mark.skipif(not (CHROMIUM or shutil.which("rsvg-convert")), reason="neither rsvg-convert nor chromium")
def test_pictures_alone(penstock, tmp_path):
    run = make_run(tmp_path / "run", steps=40, step=False, feed=True, gpu=True)
    found = json.loads(penstock("report", run, "--json", "--png", tmp_path / "pictures").stdout)
    assert sorted(p.name for p in (tmp_path / "pictures").iterdir()) == sorted(f"{s}.png" for s in found["sections"] if s in PICTURES)
    for path in map(pathlib.Path, found["pictures"]):
        head = path.read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n" and int.from_bytes(head[16:20], "big") == 2 * 760


def test_without_a_program_for_pictures_it_says_what_to_install(penstock, tmp_path):
    run = make_run(tmp_path / "run", steps=20)
    done = penstock("report", run, "--png", tmp_path / "pictures", env={**os.environ, "PATH": str(tmp_path)})
    assert done.returncode == 2 and "librsvg2-bin" in done.stderr and "chromium" in done.stderr
    assert list((tmp_path / "pictures").iterdir()) == []


def test_a_program_for_pictures_that_fails_is_named(penstock, tmp_path):
    run, broken = make_run(tmp_path / "run", steps=20), tmp_path / "rsvg-convert"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    done = penstock("report", run, "--png", tmp_path / "pictures", env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == 2 and "rsvg-convert did not make" in done.stderr and "exit code 3" in done.stderr
    assert list((tmp_path / "pictures").iterdir()) == []


@pytest.mark.parametrize("loss", [0.0, 3.0, -5e15, 1e20, 3.4e38])
def test_a_loss_that_never_changes_is_drawn(penstock, tmp_path, loss):
    run = make_run(tmp_path / "run", steps=20)
    log = run / "log.jsonl"
    log.write_text(re.sub(r'"loss": [^,]+', f'"loss": {loss}', log.read_text()))
    found = json.loads(penstock("report", run, "--json").stdout)
    assert "loss" in found["sections"] and (run / "report.html").stat().st_size < 200_000


def test_a_long_run_becomes_a_small_page(penstock, tmp_path):
    run = make_run(tmp_path / "run", steps=20_000, retrace=True, gpu=True)
    assert penstock("report", run).returncode == 0
    assert (run / "report.html").stat().st_size < 500_000
