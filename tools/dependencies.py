"""List the installed dependencies of the package: a table of licences and a software bill of materials.

    python tools/dependencies.py licences                      # rewrite the tables of docs/dependencies.md
    python tools/dependencies.py sbom build/wheel/NAME.whl     # write build/wheel/NAME.cdx.json (CycloneDX 1.6)

Both follow the requirements in the metadata of the installed distributions, from `body-transformer` on. Run them in an
environment with all extras (`make check` builds it).
"""

import argparse
import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
LOCK = ROOT / "requirements.lock"
PACKAGE = "body-transformer"
EXTRAS = ("imitation", "rl", "deploy", "dev")

SPDX = {
    "Apache": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "3-Clause BSD License": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "ISC license": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "The MIT License (MIT)": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""SPDX expressions of the licences that metadata states in words."""

SPDX_IDS = frozenset({"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "MPL-2.0"})
"""Identifiers that the free field `License` uses, alone or joined by AND and OR."""

NO_FILES = "none (no files of its own)"
NVIDIA = "LicenseRef-NVIDIA-Proprietary"
READ = {
    "pyopengl": "BSD-3-Clause",
    "torchrunx": "GPL-3.0-only",
    "colorama": "BSD-3-Clause",
    "cuda-bindings": "Apache-2.0",
    "cuda-pathfinder": "Apache-2.0",
    "cuda-toolkit": NO_FILES,
    "httpx2-jsfetch": "BSD-3-Clause",
    "nvidia-cublas": NVIDIA,
    "nvidia-cuda-cupti": NVIDIA,
    "nvidia-cuda-nvrtc": NVIDIA,
    "nvidia-cuda-runtime": NVIDIA,
    "nvidia-cudnn-cu13": NVIDIA,
    "nvidia-cufft": NVIDIA,
    "nvidia-cufile": NVIDIA,
    "nvidia-curand": NVIDIA,
    "nvidia-cusolver": NVIDIA,
    "nvidia-cusparse": NVIDIA,
    "nvidia-cusparselt-cu13": NVIDIA,
    "nvidia-nccl-cu13": NVIDIA,
    "nvidia-nvjitlink": NVIDIA,
    "nvidia-nvshmem-cu13": NVIDIA,
    "nvidia-nvtx": "Apache-2.0",
}
"""Licences read in a package's files, for packages whose metadata is not conclusive or that are not installed here."""

FFMPEG = ("imageio-ffmpeg", "GPL-3.0-or-later")
"""The distribution whose wheel contains an executable of FFmpeg, and the licence of that executable."""


@dataclass(frozen=True)
class Dependency:
    """An installed distribution that the package needs, itself or through others."""

    name: str
    """Normalised name."""
    version: str
    licence: str
    """SPDX expression."""
    parts: tuple[str, ...]
    """What needs it: `core`, or names of extras."""
    requires: tuple[str, ...]
    """Normalised names of the distributions that it needs itself."""

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version.replace('+', '%2B')}"

    @property
    def scope(self) -> str:
        """Scope of CycloneDX: `required` by the core, `optional` by an extra for users, or `excluded`."""
        return "required" if "core" in self.parts else "excluded" if self.parts == ("dev",) else "optional"


def needed(name: str, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield name and extras of each distribution that one distribution with these extras needs on this platform."""
    for line in distribution(name).requires or []:
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in (extras or {""})):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def closure(extras: Sequence[str] = ()) -> dict[str, set[str]]:
    """Return everything that the package with these extras needs, by name, with the names that each needs itself."""
    found: dict[str, set[str]] = {}
    visited: set[tuple[str, frozenset[str]]] = set()
    waiting = [(PACKAGE, frozenset(extras))]
    while waiting:
        entry = waiting.pop()
        if entry in visited:
            continue
        visited.add(entry)
        children = list(needed(*entry))
        found.setdefault(entry[0], set()).update(name for name, _ in children)
        waiting += children
    return found


def licence_texts(found: Distribution) -> Iterator[str]:
    """Yield the licence field and the licence files of a distribution."""
    yield found.metadata.get("License") or ""
    for file in found.files or []:
        if ".dist-info/" in str(file) and re.search("licen[sc]e|copying", file.name, re.IGNORECASE):
            yield file.read_text()


def licence(found: Distribution) -> str:
    """Return the licence of a distribution as an SPDX expression; raise ValueError if it cannot be determined."""
    name = canonicalize_name(found.name)
    if expression := found.metadata.get("License-Expression"):
        return expression
    if name in READ:
        return READ[name]
    classifiers = [line for line in found.metadata.get_all("Classifier") or [] if line.startswith("License ::")]
    field = (found.metadata.get("License") or "").strip()
    stated = [field.split("\n")[0], *(line.split(" :: ")[-1] for line in classifiers)]
    for words in stated:
        if SPDX_IDS.issuperset(re.split(" (?:AND|OR) ", words)):
            return words
        if words in SPDX:
            return SPDX[words]
    if any("BSD" in words for words in stated):  # the number of clauses is in the text alone
        text = " ".join(" ".join(licence_texts(found)).split())
        if "Redistributions in binary form" in text:
            return "BSD-3-Clause" if re.search("endorse or promote", text) else "BSD-2-Clause"
    raise ValueError(
        f"the licence of {name} is unknown: its metadata states {stated}; read its files and add it to READ"
    )


def dependencies() -> list[Dependency]:
    """Return all installed dependencies of the package and its extras, by name."""
    core = closure()
    parts = {extra: closure([extra]) for extra in EXTRAS}
    everything = closure(EXTRAS)
    result = []
    for name in sorted(set(everything) - {PACKAGE}):
        found = distribution(name)
        of = ("core",) if name in core else tuple(extra for extra in EXTRAS if name in parts[extra])
        result.append(Dependency(name, found.version, licence(found), of, tuple(sorted(everything[name]))))
    return result


def ffmpeg_version() -> str:
    """Return the version of the executable that imageio-ffmpeg contains, `unknown` if it contains none."""
    names = [file.name for file in distribution(FFMPEG[0]).files or [] if file.name.startswith("ffmpeg-")]
    versions = [found[1] for name in names if (found := re.search(r"-v(\d[\d.]*\d)", name))]
    return versions[0] if versions else "unknown"


def locked() -> dict[str, str]:
    """Return the versions of `requirements.lock` by name."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def is_elsewhere(name: str) -> bool:
    """Say whether a distribution belongs to other platforms than a Linux computer without a GPU."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return True
    return name.startswith(("nvidia-", "cuda-"))


def tables() -> dict[str, str]:
    """Return the tables of `docs/dependencies.md` by name, in Markdown."""
    rows = [
        f"| {one.name} | {Version(one.version).public} | {one.licence} | {', '.join(one.parts)} |"
        for one in dependencies()
        if not is_elsewhere(one.name)
    ]
    versions = locked()
    others = [f"| {name} | {versions[name]} | {READ[name]} |" for name in sorted(versions) if is_elsewhere(name)]
    return {
        "everywhere": "\n".join(["| package | version | licence | needed by |", "|---|---|---|---|", *rows]),
        "elsewhere": "\n".join(["| package | version | licence |", "|---|---|---|", *others]),
    }


def page_with_tables(page: str) -> str:
    """Return the text of the page with its tables replaced by those of this environment."""
    for name, table in tables().items():
        start, end = f"<!-- {name}: tools/dependencies.py -->", f"<!-- end of {name} -->"
        before, after = page.split(start)[0], page.split(end)[1]
        page = f"{before}{start}\n\n{table}\n\n{end}{after}"
    return page


def component(one: Dependency) -> dict[str, Any]:
    """Return the entry of a dependency in a bill of materials."""
    entry: dict[str, Any] = {
        "type": "library",
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "scope": one.scope,
        "licenses": [] if one.licence == NO_FILES else [{"expression": one.licence}],
        "purl": one.purl,
        "properties": [{"name": f"{PACKAGE}:needed-by", "value": part} for part in one.parts],
    }
    if one.name == FFMPEG[0]:
        version, licenses = ffmpeg_version(), [{"expression": FFMPEG[1]}]
        reference = f"pkg:generic/ffmpeg@{version}"
        entry["components"] = [
            {"type": "application", "bom-ref": reference, "name": "ffmpeg", "version": version, "licenses": licenses}
        ]
    return entry


def sbom(wheel: Path) -> dict[str, Any]:
    """Return the bill of materials of a wheel and of the dependencies that are installed, in CycloneDX 1.6."""
    listed = dependencies()
    references = {one.name: one.purl for one in listed}
    version = wheel.name.split("-")[1]
    own = f"pkg:pypi/{PACKAGE}@{version}"
    direct = sorted(references[name] for name in closure(EXTRAS)[PACKAGE] - {PACKAGE})
    hashed = hashlib.sha256(wheel.read_bytes()).hexdigest()
    written = time.gmtime(float(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join([own, hashed, *references.values()]))}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", written),
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [{"type": "application", "name": "tools/dependencies.py", "version": version}]},
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": PACKAGE,
                "version": version,
                "licenses": [{"expression": "MIT"}],
                "purl": own,
                "hashes": [{"alg": "SHA-256", "content": hashed}],
            },
        },
        "components": [component(one) for one in listed],
        "dependencies": [
            {"ref": own, "dependsOn": direct},
            *({"ref": one.purl, "dependsOn": [references[name] for name in one.requires]} for one in listed),
        ],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write what the command line asks for, and print its path."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("licences", help="rewrite the tables of docs/dependencies.md")
    verbs.add_parser("sbom", help="write the bill of materials of a wheel beside it").add_argument("wheel", type=Path)
    options = parser.parse_args(arguments)
    if options.verb == "licences":
        PAGE.write_text(page_with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        print(PAGE)
        return
    out = options.wheel.with_suffix(".cdx.json")
    out.write_text(json.dumps(sbom(options.wheel), indent=1) + "\n", encoding="utf-8")
    print(out)


if __name__ == "__main__":
    main()
