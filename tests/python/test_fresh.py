"""`./run fresh`: what it takes along of a machine, how it reads the parts of `run`, and what it says where it may not."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import ROOT

sys.path.append(str(ROOT / "bench"))
import bare_system
import evidence
import host_settings
import prove_fresh

DEB822 = """Types: deb deb-src
# an old address
URIs: http://deb.debian.org/debian
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://deb.nodesource.com/node_20.x
Suites: nodistro
Components: main
Signed-By: /usr/share/keyrings/nodesource.gpg

Enabled: no
Types: deb
URIs: http://deb.debian.org/debian
Suites: sid
Components: main

Types: deb
URIs: https://mirror.example/debian-security/
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBF
"""
ONE_LINE = """# deb http://old.example/debian bookworm main
deb http://ftp.example/pub/debian/ bookworm main non-free-firmware  # the main one
deb-src http://ftp.example/pub/debian/ bookworm main
deb [arch=amd64,arm64 signed-by=/etc/apt/keyrings/ours.gpg] https://packages.example/remote-debian stable main
deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.asc] https://download.docker.com/linux/debian bookworm stable
deb https://packages.microsoft.com/debian/12/prod bookworm main
deb https://packages.cloud.google.com/apt cloud-sdk-bookworm main
deb cdrom:[Debian GNU/Linux 12.0.0 _Bookworm_]/ bookworm main
deb http://archive.ubuntu.com/ubuntu jammy main universe
"""


def sources(text, parse, suite="bookworm"):
    return host_settings.debian_sources(list(parse(text)), suite)


def test_of_deb822_sources_only_debians_are_taken():
    first, second = sources(DEB822, host_settings.deb822)
    assert first == {"Types": "deb", "Uris": "http://deb.debian.org/debian", "Suites": "bookworm bookworm-updates",
                     "Components": "main contrib", "Signed-By": "/usr/share/keyrings/debian-archive-keyring.gpg"}
    assert second["Suites"] == "bookworm-security"
    assert "BEGIN PGP" in second["Signed-By"] and second["Signed-By"].endswith("mQINBF")


def test_of_one_line_sources_only_debians_are_taken():
    first, second = sources(ONE_LINE, host_settings.one_line)
    assert first == {"Types": "deb", "Uris": "http://ftp.example/pub/debian/", "Suites": "bookworm", "Components": "main non-free-firmware"}
    assert second == {"Types": "deb", "Uris": "https://packages.example/remote-debian", "Suites": "bookworm", "Components": "main",
                      "Architectures": "amd64 arm64", "Signed-By": "/etc/apt/keyrings/ours.gpg"}


def test_another_suite_comes_from_the_same_mirror():
    entries = sources(DEB822, host_settings.deb822, "trixie")
    assert [entry["Suites"] for entry in entries] == ["trixie trixie-updates", "trixie-security"]
    assert host_settings.mirror(entries, "trixie")[0] == "http://deb.debian.org/debian"


def test_where_no_source_is_debians_there_is_no_mirror():
    assert host_settings.mirror(sources("deb http://archive.ubuntu.com/ubuntu jammy main\n", host_settings.one_line), "bookworm") == ("", "")


def test_a_mirror_list_is_read(tmp_path):
    (tmp_path / "debian.list").write_text("# by hand\nhttps://mirror.example/debian priority:1\n")
    (entry,) = sources(f"deb mirror+file:{tmp_path}/debian.list bookworm main\n", host_settings.one_line)
    assert entry["Uris"] == "https://mirror.example/debian"


def test_of_apts_settings_those_of_the_mirror_are_taken_and_no_hooks():
    dump = ('Acquire "";\nAcquire::http "";\nAcquire::http::Proxy "http://proxy.example:3128";\nAcquire::http::Proxy-Auto-Detect "/usr/bin/auto";\n'
            'Acquire::https::Verify-Peer "false";\nAcquire::Check-Valid-Until "false";\nAcquire::IndexTargets::deb::DEP-11::DefaultEnabled "0";\n'
            'APT::Update::Post-Invoke-Success:: "/usr/bin/gdbus call";\nDPkg::Post-Invoke:: "rm -f x";\n')
    assert host_settings.apt_settings(dump).splitlines() == [
        'Acquire::http::Proxy "http://proxy.example:3128";', 'Acquire::https::Verify-Peer "false";', 'Acquire::Check-Valid-Until "false";']


def test_of_the_environment_what_finds_packages_is_taken(tmp_path):
    certificates = tmp_path / "ca.crt"
    certificates.touch()
    (tmp_path / "empty").mkdir()
    taken = {"PIP_INDEX_URL": "https://index.example/simple", "https_proxy": "http://proxy.example", "NO_PROXY": "localhost",
             "SSL_CERT_FILE": str(certificates)}
    left = {"PIP_FIND_LINKS": str(tmp_path / "empty"), "PIP_CERT": "/nowhere.crt", "PIP_CACHE_DIR": str(tmp_path), "CUDA_HOME": "/usr/local/cuda"}
    assert host_settings.variables({**taken, **left}) == taken


def test_the_settings_are_a_tree_with_the_files_that_they_name(tmp_path):
    certificates = tmp_path / "ca.crt"
    certificates.write_text("certificates")
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(f"[global]\ncert = {certificates}\n")
    host_settings.write_settings(tmp_path / "tree", "bookworm", {"HOME": str(tmp_path)}, "/home/somebody")
    assert (tmp_path / f"tree{certificates}").read_text() == "certificates"
    assert (tmp_path / "tree/home/somebody/.config/pip/pip.conf").exists()


# ---- what `run` shows ----

SCREEN = """── demo
── packages
installing cmake
── packages: 20 s
── build
── LibTorch
── LibTorch: 30 s
── build: 95 s
── info
── info: 1 s
── the feed at full speed, from audio
5,177 samples/s: good
── the feed at full speed, from audio: 4 s
── the run as a page: data/demo.html
── the run as a page: data/demo.html: 0 s
── what it says"""


def run_of(text, code=0):
    """A line every ten seconds."""
    lines = [(10.0 * number, line) for number, line in enumerate(text.splitlines(), 1)]
    return prove_fresh.Run("./run demo", 0, lines[-1][0], code, lines)


def test_parts_are_nested_and_in_their_order():
    found = prove_fresh.parts(run_of(SCREEN).lines)
    assert [(part.name, part.depth) for part in found] == [
        ("demo", 0), ("packages", 1), ("build", 1), ("LibTorch", 2), ("info", 1), ("the feed at full speed, from audio", 1),
        ("the run as a page: data/demo.html", 1), ("what it says", 1)]
    assert [part.end and part.end - part.start for part in found] == [None, 20, 30, 10, 10, 20, 10, None]


def test_the_first_figures_are_counted_without_the_downloads_before_them():
    assert prove_fresh.seconds_to_figures(run_of(SCREEN)) == 130 - 20 - 10
    assert prove_fresh.seconds_to_figures(run_of(SCREEN.partition("── the feed")[0].strip())) is None


@pytest.mark.parametrize("shift, verdict", [(0, evidence.MET), (1, evidence.MISSED)])
def test_the_bars_are_judged(shift, verdict):
    run = run_of(SCREEN)
    run.end = 360 + shift
    code, everything, figures, *parts = prove_fresh.lines_of(run)
    assert (code.verdict, everything.verdict, figures.verdict) == (evidence.MET, verdict, evidence.MET)
    assert parts[1].cells() == ["· packages", "", "20 s", ""] and parts[-1].figure == "did not end"


def test_a_command_that_fails_or_shows_nothing_misses_its_bars():
    assert [line.verdict for line in prove_fresh.lines_of(run_of("no network", code=1))] == [evidence.MISSED] * 3


def test_the_lines_of_each_command_are_told_apart(tmp_path, capsys):
    commands = ["./run demo", "./run test"]
    shown = ["bare system: Debian\n", "$ ./run demo\n", "\x1b[1m── demo\x1b[0m\n", "1 %\r2 %\n", "$ ./run demo: exit code 0\n",
             "$ ./run test\n", "x\n", "$ ./run test: exit code 3\n", "kept: there\n"]
    remarks = list(prove_fresh.follow(shown, commands, tmp_path))
    assert [remark if isinstance(remark, str) else remark.command for remark in remarks] == ["bare system: Debian", *commands, "kept: there"]
    demo, test = remarks[1:3]
    assert ([text for _, text in demo.lines], demo.code, test.code) == (["── demo", "2 %"], 0, 3)
    assert (tmp_path / "demo.log").read_text().endswith("2 %\n")
    assert capsys.readouterr().out == "".join(shown)


def test_the_screen_in_the_document_has_nothing_of_the_machine():
    text = "\n".join(str(n) for n in range(100)) + "\n/folder/run-12/root/x\nfrom https://me:secret@index.example/simple\nhttp://127.0.0.1:8000/\n## a"
    shown = prove_fresh.screen([run_of(text)], pathlib.Path("/folder"))
    assert shown.splitlines()[2:5] == ["```", "$ ./run demo", "64"]
    assert shown.endswith("\n/x\nfrom (address)\nhttp://127.0.0.1:8000/\n ## a\n```")


# ---- where it may not ----

def bare_path(folder, **programs):
    """A PATH with only these programs, of which each is one line of sh."""
    for name, line in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.fixture
def ordinary(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def way(monkeypatch, folder, **programs):
    monkeypatch.setenv("PATH", bare_path(folder, **programs))
    return bare_system.way(bare_system.job(folder, "bookworm", ["./run demo"]))


def test_without_root_it_says_what_to_do(monkeypatch, tmp_path, ordinary):
    with pytest.raises(bare_system.Unavailable) as error:
        way(monkeypatch, tmp_path, docker="exit 1", sudo="exit 1")
    assert "apt-get install sudo debootstrap" in str(error.value)
    assert "docker run --rm -v \"$PWD\":/source:ro debian:bookworm" in str(error.value) and "&& ./run demo'" in str(error.value)


def test_an_engine_counts_when_it_works(monkeypatch, tmp_path, ordinary):
    assert way(monkeypatch, tmp_path, docker="exit 1", podman="exit 0") == "podman"


def test_sudo_comes_first(monkeypatch, tmp_path, ordinary):
    monkeypatch.setattr(bare_system, "PATH", bare_path(tmp_path, debootstrap=""))
    assert way(monkeypatch, tmp_path, docker="exit 0", sudo="exit 0") == "sudo"


def test_the_script_inside_is_shell_and_stops_at_the_first_failure(tmp_path):
    commands = ["echo it\\'s", "exit 4", "echo never"]
    text = bare_system.script(bare_system.job(tmp_path, "bookworm", commands)).replace("set -eu\n", "#\n")
    assert subprocess.run(["sh", "-n"], input=text, text=True).returncode == 0
    text = "code=0\n" + text.partition("code=0\n")[2].replace('setpriv --reuid "$USER" --regid "$USER" --init-groups -- ', "")
    done = subprocess.run(["sh"], input=text, text=True, capture_output=True)
    assert (done.returncode, done.stdout.splitlines()) == (4, ["$ echo it\\'s", "it's", "$ echo it\\'s: exit code 0", "$ exit 4", "$ exit 4: exit code 4"])


def test_a_task_is_a_line_of_json(tmp_path):
    task = bare_system.job(tmp_path, "bookworm", ["./run demo"], user=True)
    assert json.loads(json.dumps(task)) == task and "\n" not in json.dumps(task)
    assert bare_system.environment(task)["HOME"] == "/home/penstock"
