"""The steps of setting up and building; one that finds its work done is skipped, also after a failure."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.develop.environment import Environment, dotted, probe, requirements, torch_version
from tools.develop.project import BUILD, ROOT, VENV, Command

# libjpeg-dev is Debian's libjpeg62-turbo-dev and Ubuntu's libjpeg-turbo8-dev.
APT_PACKAGES = (
    "g++ pkg-config libprotobuf-dev protobuf-compiler libre2-dev libutf8proc-dev libgmock-dev libjpeg-dev libpng-dev "
    "libwebp-dev libtiff-dev libopenjp2-7-dev"
).split()
CONSTRAINTS = ROOT / "requirements" / "constraints.txt"  # of what the packages bring along
APT_OPTIONAL = ["ccache"]  # installed along with the others, but no reason to install anything


@dataclass
class Step:
    name: str
    why: str
    cost: str  # disk and time, told before the step runs; empty where neither is worth telling
    done: Callable[[], bool]
    commands: Callable[[], list[Command]]
    by_hand: Callable[[], str | None] = lambda: None  # what the user must do first, where this script may not
    finish: Callable[[], object] = lambda: None
    installs: bool = True


def missing_apt_packages(env: Environment) -> list[str]:
    if not shutil.which("dpkg-query"):
        return []  # another system: CMake names whatever it does not find
    wanted = APT_PACKAGES + APT_OPTIONAL + python_apt_packages(env)
    query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *wanted]
    listed = subprocess.run(query, capture_output=True, text=True).stdout
    installed = {line.split()[0] for line in listed.splitlines() if line.endswith(" installed")}
    missing = [name for name in wanted if name not in installed]
    return [] if set(missing) <= set(APT_OPTIONAL) else missing


def python_apt_packages(env: Environment) -> list[str]:
    """Gives the system packages that Python still needs: Debian splits venv and the C headers from it."""
    found = probe(env.python) or probe(env.base)
    if not found or found["base_prefix"] != "/usr":
        return []
    name = f"python{dotted(found['version'])}"
    need_venv = not Path(env.python).exists() and not found["ensurepip"]
    return [f"{name}-venv"] * need_venv + [f"{name}-dev"] * (not found["headers"])


def apt_commands(packages: list[str]) -> list[Command]:
    return [["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", *packages]]


def apt_by_hand(packages: list[str], is_root: bool) -> str | None:
    if is_root or not packages:
        return None
    line = " && ".join(shlex.join(["sudo", *command]) for command in apt_commands(packages))
    return f"Installing system packages takes root. Run this line, then the same command again:\n\n    {line}\n"


def pip_install(env: Environment, packages: list[str]) -> list[Command]:
    found = probe(env.python)
    commands = []
    if env.own and found and found["incomplete"]:
        commands.append(["rm", "-r", *found["incomplete"]])
    if found and not found["pip"]:
        commands.append([env.python, "-m", "ensurepip"])
    # Naming torch's version keeps pip from changing it.
    torch = f"torch=={torch_version(found) if not env.own else requirements()['torch']}"
    packages = [torch, *(package for package in packages if package != torch)]
    locked = ["--constraint", str(CONSTRAINTS)] if env.own else []  # another environment keeps the versions it has
    commands.append(
        [env.python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *locked, *packages]
    )
    return commands


def setup_steps(env: Environment) -> list[Step]:
    torch = f"torch=={requirements()['torch']}"
    is_root = os.geteuid() == 0
    missing = missing_apt_packages(env)
    return [
        Step(
            "System packages",
            f"the compiler and the libraries the C++ core links: {' '.join(missing or APT_PACKAGES)}",
            "up to 350 MB on disk, 90 MB to download; less than a minute",
            done=lambda: not missing_apt_packages(env),
            commands=lambda: apt_commands(missing_apt_packages(env)),
            by_hand=lambda: apt_by_hand(missing_apt_packages(env), is_root),
        ),
        Step(
            "Virtual environment",
            "keeps the Python packages in .venv, apart from the system's",
            "20 MB on disk; 5 s",
            done=lambda: bool(probe(env.python)),
            commands=lambda: [[env.base, "-m", "venv", "--clear", str(VENV)]],
        ),
        Step(
            "PyTorch",
            f"LibTorch, which runs the models, comes in the {torch} package together with its CUDA libraries",
            "5.5 GB on disk, 3 GB to download; 90 s on a fast line",
            done=lambda: env.has_torch() and env.complete(),
            commands=lambda: pip_install(env, [torch]),
        ),
        packages_step(
            env,
            "dev",
            "Python packages",
            "the ONNX schema, the build tools, the tests and the examples",
            "up to 600 MB on disk, 200 MB to download; 30 s",
        ),
    ]


def packages_step(env: Environment, part: str, name: str, why: str, cost: str) -> Step:
    """Gives the step that installs the packages of one of the requirements' files."""
    return Step(
        name,
        f"{why}: {' '.join(env.missing(part))}",
        cost,
        done=lambda: not env.missing(part) and env.complete(),
        commands=lambda: pip_install(env, env.missing(part)),
    )


def bench_step(env: Environment) -> Step:
    why = "the other engines, and the networks that are measured"
    return packages_step(env, "bench", "Benchmark packages", why, "350 MB on disk, 100 MB to download; 20 s")


def docs_step(env: Environment) -> Step:
    return packages_step(env, "docs", "Documentation packages", "the site", "100 MB on disk, 35 MB to download; 10 s")


def build_steps(env: Environment, preset: str) -> list[Step]:
    folder = BUILD / preset
    stamp = folder / "configured-for.txt"  # the environment this folder was configured for
    identity = lambda: f"{env.python}\ntorch {torch_version(probe(env.python))}\n"
    fresh = lambda: ["--fresh"] if stamp.exists() else []
    return [
        Step(
            "Configure",
            f"the {preset} preset",
            "",
            done=lambda: (folder / "build.ninja").exists() and stamp.exists() and stamp.read_text() == identity(),
            commands=lambda: [["cmake", "--preset", preset, *fresh(), f"-DPython_EXECUTABLE={env.python}"]],
            finish=lambda: stamp.write_text(identity()),
            installs=False,
        ),
        Step(
            "Build",
            "the C++ core and its Python module",
            "" if (folder / ".ninja_log").exists() else "the first time; some 20 minutes on 2 cores",
            done=lambda: False,  # ninja knows what is done
            commands=lambda: [["cmake", "--build", "--preset", preset, "--parallel", str(build_jobs())]],
            installs=False,
        ),
    ]


def commit_number() -> int:
    """Gives a number by which commits take turns at what none of them does whole."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=True)
    return int(done.stdout[:8], 16)


def build_jobs() -> int:
    """Counts a job a processor, but no more than memory holds: a file with the TorchScript headers takes up to 2 GB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(len(os.sched_getaffinity(0)), memory // 2**31))
