"""What a bare system is told of this one, so that it finds packages as this one does: apt's Debian sources and settings, pip's, certificates
and names. Nothing else of this machine."""
import configparser
import os
import pathlib
import re
import shutil
import subprocess

SUITES = set("stable oldstable testing unstable buster bullseye bookworm trixie forky sid".split())
POCKETS = {"", "updates", "security"}
COMPONENTS = {"main", "contrib", "non-free", "non-free-firmware"}
FIELDS = {"arch": "Architectures", "lang": "Languages", "target": "Targets"}  # of a one-line source's options; the others keep their name
APT = re.compile(r"Acquire::(https?(::|$)|(Check|Max|Min)-Valid|Retries|Languages|ForceIPv|Allow(Insecure|Weak|Downgrade))")
PROGRAMS = re.compile(r"Auto-?Detect", re.IGNORECASE)  # names a program of this machine
VARIABLES = re.compile(r"PIP_\w+|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSL_CAINFO|\w+_proxy", re.IGNORECASE)
PLACES = re.compile(r"PIP_(CACHE_DIR|LOG|TARGET|PREFIX|ROOT|SRC|USER|PYTHON|REQUIRE_VIRTUALENV)$")  # where pip works here, not where it looks
LARGEST = 2 << 30  # bytes of a folder that is copied


# ---- apt ----

def deb822(text):
    """The stanzas of a .sources file, as dictionaries."""
    text = re.sub(r"^#.*\n?", "", text, flags=re.MULTILINE)
    for stanza in re.split(r"\n\s*\n", text):
        fields = re.findall(r"^([\w-]+):[ \t]*(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE)
        if fields:
            yield {name.title(): value.strip() for name, value in fields}


def one_line(text):
    """The same of a sources.list."""
    for types, options, uri, suite, components in re.findall(r"^\s*(deb|deb-src)\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s*([^#\n]*)", text, re.MULTILINE):
        pairs = (option.partition("=") for option in options.split())
        yield {"Types": types, "Uris": uri, "Suites": suite, "Components": components.strip(),
               **{FIELDS.get(name, name).title(): value.replace(",", " ") for name, _, value in pairs}}


def listed(uri):
    """The addresses of a source: its own, or those that its mirror list on this machine has."""
    kind, _, path = uri.partition(":")
    if kind != "mirror+file":
        return [uri]
    return [line.split()[0] for line in pathlib.Path(path).read_text().splitlines() if line.strip() and not line.startswith("#")]


def is_debian(uri):
    """True for Debian's own hosts, and for folders of that name on any other."""
    found = re.match(r"https?://(?:[^/@]*@)?([^/:]+)[^/]*/?(.*?)/*$", uri)
    return bool(found) and (found[1].endswith("debian.org") or "debian" in found[2].rpartition("/")[2].lower())


def debian_sources(entries, suite):
    """The entries of Debian itself, its updates and its security, for `suite` in place of this machine's. Other repositories stay away: their
    keys are not in a bare system, and neither are they."""
    kept = []
    for entry in entries:
        uris = [address for uri in entry.get("Uris", "").split() for address in listed(uri) if is_debian(address)]
        parts = [name.partition("-")[::2] for name in entry.get("Suites", "").split()]
        suites = ["-".join(filter(None, (suite, pocket))) for base, pocket in parts if base in SUITES and pocket in POCKETS]
        components = [name for name in entry.get("Components", "").split() if name in COMPONENTS]
        if "deb" in entry["Types"].split() and uris and suites and "main" in components and entry.get("Enabled", "yes") != "no":
            kept.append({**entry, "Types": "deb", "Uris": " ".join(uris), "Suites": " ".join(dict.fromkeys(suites)),
                         "Components": " ".join(components)})
    return [entry for number, entry in enumerate(kept) if entry not in kept[:number]]


def sources_here(suite, etc=pathlib.Path("/etc/apt")):
    files = [*sorted(etc.glob("sources.list.d/*.sources")), etc / "sources.list", *sorted(etc.glob("sources.list.d/*.list"))]
    read = [(deb822 if path.suffix == ".sources" else one_line)(path.read_text()) for path in files if path.exists()]
    return debian_sources([entry for entries in read for entry in entries], suite)


def mirror(sources, suite):
    """Where debootstrap finds the suite: the address, and the keyring that signs it or an empty string. Both empty: nothing here names one."""
    for entry in sources:
        if suite in entry["Suites"].split():
            keyring = entry.get("Signed-By", "").split("\n")[0]
            return entry["Uris"].split()[0], keyring if keyring.startswith("/") and os.path.exists(keyring) else ""
    return "", ""


def apt_settings(dump):
    """Of `apt-config dump`, what says how to reach a mirror and what to believe of it. Hooks call programs that a bare system lacks."""
    lines = (line for line in dump.splitlines() if APT.match(line) and not PROGRAMS.search(line) and not line.endswith(' "";'))
    return "".join(f"{line}\n" for line in lines)


# ---- pip and certificates ----

def variables(environ):
    """Those of the environment that say where packages and certificates are. A folder that is empty or missing says nothing."""
    taken = {name: value for name, value in environ.items() if VARIABLES.fullmatch(name) and not PLACES.match(name)}
    return {name: value for name, value in taken.items()
            if not value.startswith("/") or any(os.path.isfile(path) or (os.path.isdir(path) and os.listdir(path)) for path in value.split())}


def pip_files(environ):
    """pip's configuration files: for everybody, and this user's as paths in a home."""
    home = pathlib.Path(environ.get("HOME", "/"))
    settings = pathlib.Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    own = {".config/pip/pip.conf": settings / "pip/pip.conf", ".pip/pip.conf": home / ".pip/pip.conf"}
    everybody = [path for path in map(pathlib.Path, ("/etc/pip.conf", "/etc/xdg/pip/pip.conf")) if path.exists()]
    return everybody, {name: path for name, path in own.items() if path.exists()}


def paths_in(texts):
    """The files and folders that settings name."""
    words = (word.strip("\"';") for text in texts for word in text.split())
    return sorted({pathlib.Path(word) for word in words if word.startswith("/") and os.path.exists(word)})


def pip_values(path):
    parser = configparser.RawConfigParser()
    parser.read(path)
    return [value for section in parser.sections() for name, value in parser.items(section) if not PLACES.match(f"PIP_{name}".upper().replace("-", "_"))]


def size(path):
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else path.stat().st_size


# ---- the tree ----

def write_settings(tree, suite, environ, home):
    """Writes the settings as files below `tree`, at the paths which they have in a system whose user lives in `home`. Returns what is worth
    a line."""
    tree, remarks = pathlib.Path(tree), []

    def put(source, path=None):
        target = tree / str(path or source).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, target)

    def write(path, text):
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)

    sources = sources_here(suite)
    if sources:
        write("etc/apt/sources.list.d/debian.sources",
              "\n".join("".join(f"{name}: {value}\n" for name, value in entry.items()) for entry in sources))
        write("etc/apt/sources.list", "")
    else:
        remarks.append(f"no source of Debian in /etc/apt: {suite} comes from debootstrap's own mirror")
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True).stdout if shutil.which("apt-config") else ""
    settings = apt_settings(dump)
    write("etc/apt/apt.conf.d/90host", settings)
    everybody, own = pip_files(environ)
    named = paths_in([*(entry.get("Signed-By", "") for entry in sources), settings, *variables(environ).values(),
                      *(value for path in [*everybody, *own.values()] for value in pip_values(path))])
    for path in [*named, *everybody, *map(pathlib.Path, ("/etc/resolv.conf", "/etc/hosts", "/etc/apt/auth.conf")),
                 *pathlib.Path("/etc/apt").glob("auth.conf.d/*"), *pathlib.Path("/etc/apt").glob("trusted.gpg.d/*"),
                 *pathlib.Path("/usr/local/share/ca-certificates").glob("*.crt")]:
        if not os.access(path, os.R_OK) or (tree / str(path).lstrip("/")).exists() or path == pathlib.Path("/etc/ssl/certs"):
            continue  # the folder of certificates is the bare system's own, with this machine's added
        if size(path) > LARGEST:
            remarks.append(f"{path} is too large to come along")
            continue
        put(path)
    for name, path in own.items():
        put(path, f"{home}/{name}")
    return remarks
