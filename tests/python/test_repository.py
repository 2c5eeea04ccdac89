"""Files for machines other than this one, which nothing here executes, agree with what is executed."""

import importlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from tools.develop.environment import pinned
from tools.develop.steps import APT_OPTIONAL, APT_PACKAGES
from tools.develop.testing import CPU_LEVELS, beside_others

import onnx_torch

ROOT = Path(__file__).parents[2]


def test_the_containers_image_has_the_system_packages():
    image = (ROOT / ".devcontainer" / "Dockerfile").read_text().split()
    assert set(APT_PACKAGES) | set(APT_OPTIONAL) <= set(image)


def test_a_required_package_may_be_for_one_processor_alone():
    text = 'one==1.2.3; platform_machine == "x86_64"\n# a==1\n\ntwo_three==4.5.post1  # why: a==2\n'
    assert pinned(text, "x86_64") == {"one": "1.2.3", "two-three": "4.5.post1"}
    assert pinned(text, "aarch64") == {"two-three": "4.5.post1"}


@pytest.mark.parametrize("file", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda file: file.name)
def test_no_required_package_is_read_over(file):
    lines = [line.split("#")[0].strip() for line in file.read_text().splitlines()]
    assert len(pinned(file.read_text(), "x86_64")) == len([line for line in lines if "==" in line])


def test_levels_side_by_side_do_not_write_to_the_same_files():
    """The official suite writes a model's inputs into ONNX_HOME and reads them again, so each level has its own."""
    homes = {beside_others({"ONNX_HOME": "build/ci/onnx_home"}, level)["ONNX_HOME"] for level in CPU_LEVELS}
    assert len(homes) == len(CPU_LEVELS)


def test_the_container_is_set_up_by_a_command_that_there_is():
    command = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())["postCreateCommand"].split()
    shown = subprocess.run([*command, "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr


def test_the_workflow_runs_what_ci_is():
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"].values()
    assert ".ci/run" in [step.get("run") for step in job["steps"]]


@pytest.mark.parametrize("arguments", [["--help"], ["--seed", "1"], [""]], ids=str)
def test_what_ci_is_takes_no_arguments(arguments, tmp_path):
    """It tells what it does, and does nothing; without programs it could do nothing either."""
    command = [shutil.which("bash"), ROOT / ".ci" / "run", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env={"PATH": ""}, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("usage: .ci/run\n") and "It takes no arguments." in done.stderr


FUZZ = ROOT / "tests" / "fuzz" / "oss-fuzz" / "projects" / "onnx_torch"


def test_what_oss_fuzz_must_be_told_is_asked_for():
    """The fields are empty while the project has no public address; then both files have the same, and nothing else."""
    text, image = (FUZZ / "project.yaml").read_text(), (FUZZ / "Dockerfile").read_text()
    fields = yaml.safe_load(text)
    assert {"homepage", "main_repo", "primary_contact", "language", "sanitizers"} <= set(fields)
    for name in ("homepage", "main_repo", "primary_contact"):
        assert fields[name] or f"#   {name}:" in text
    given = re.search(r"^ARG REPOSITORY(?:=(.*))?$", image, re.MULTILINE)[1] or ""
    assert given.strip('"') == fields["main_repo"]


def test_the_workflow_of_wheels_has_a_job_for_each_torch_of_noxfile():
    torches = re.findall(r'"(.*?)"', re.search(r"^TORCHES = (.*)$", (ROOT / "noxfile.py").read_text(), re.MULTILINE)[1])
    job = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text())["jobs"]["wheel"]
    assert job["strategy"]["matrix"] == {"torch": torches}
    assert any('nox --tags "torch-${{ matrix.torch }}"' in step.get("run", "") for step in job["steps"])


@pytest.mark.parametrize("file", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda file: file.name)
def test_forms_and_settings_can_be_read(file):
    read = yaml.safe_load(file.read_text())
    if file.parent.name == "ISSUE_TEMPLATE" and file.stem != "config":
        assert {"name", "description", "body"} <= set(read)


@pytest.mark.parametrize("page", ["RELEASING.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", "README.md"])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        assert (ROOT / target).exists(), target


SCOREBOARD = ROOT / "tools" / "scoreboard"


def test_the_scoreboard_is_told_of_a_backend_that_there_is():
    name = re.search(r'^ENV ONNX_BACKEND="(.+)"$', (SCOREBOARD / "Dockerfile").read_text(), flags=re.MULTILINE)[1]
    backend = importlib.import_module(name)
    assert backend.supports_device("CPU") and callable(backend.prepare) and callable(backend.run_model)


def test_the_scoreboards_settings_and_jobs_agree():
    ((name, entry),) = json.loads((SCOREBOARD / "config.json").read_text()).items()
    assert entry["results_dir"] == f"./results/{name}/stable"
    assert entry["dockerfile_link"] == f"runtimes/{name}/stable/Dockerfile"
    jobs = yaml.safe_load((SCOREBOARD / "jobs.yml").read_text())["jobs"]
    ((job, steps),) = ((job, value["steps"]) for job, value in jobs.items() if job != "collect_and_deploy")
    assert jobs["collect_and_deploy"]["needs"] == [job]
    ran = [step["run"] for step in steps if "run" in step]
    assert f"-f {entry['dockerfile_link']} " in ran[0] and f"/results/{name}/stable:" in ran[1]
    (fetched,) = jobs["collect_and_deploy"]["steps"]
    assert (
        fetched["with"]
        == steps[-1]["with"]
        == {
            "name": f"results-{name}-stable",
            "path": f"results/{name}/stable/",
        }
    )


VERSION = re.search(r"project\(onnx_torch VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def test_the_package_has_the_version_of_cmakelists():
    assert onnx_torch.__version__ == VERSION


def test_the_changelog_begins_with_what_is_unreleased_and_this_version():
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert sections[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(VERSION)} - \d{{4}}-\d\d-\d\d", sections[1])


@pytest.mark.parametrize("file", ["docs/cpp_api.md", "examples/cpp/CMakeLists.txt"])
def test_programs_ask_for_this_minor_version(file):
    asked = re.findall(r"find_package\(onnx_torch ([0-9.]+)", (ROOT / file).read_text())
    assert asked == [VERSION.rpartition(".")[0]]


def test_each_public_name_of_python_is_in_the_reference():
    page = (ROOT / "docs" / "python_reference.rst").read_text()
    documented = re.findall(r"^\.\. auto\w+:: (?:onnx_torch\.)?(\w+)$", page, flags=re.MULTILINE)
    assert set(onnx_torch.__all__) - set(documented) == {"__version__"}


DECLARATIONS = r"""(?mx)
    ^ (?: class | struct | enum\ class ) (?: \ ONNX_TORCH_API )? \ (\w+) [^;\n]* \{
    | ^ using \ (\w+) \ =
    | ^ } \ (\w+) ;  # a C struct
    | ^ typedef \ struct \ \w+ \ (\w+) ;
    | ^ (?: ONNX_TORCH_API | inline ) [^(\n]* [ &*] (\w+) \(
    | ^ \#define \ (ONNX_TORCH_\w+) [ (]
"""
HEADERS = sorted((ROOT / "include" / "onnx_torch").glob("*.h"))
USED_BY_HEADERS = {"shortened.h", "visibility.h"}


@pytest.mark.parametrize(
    "header", [header for header in HEADERS if header.name not in USED_BY_HEADERS], ids=lambda header: header.name
)
def test_each_declaration_of_a_header_is_in_the_reference(header):
    page = (ROOT / "docs" / "cpp_reference.rst").read_text()
    documented = re.findall(r"^\.\. doxygen\w+:: (?:\w+::)*(\w+)$", page, flags=re.MULTILINE)
    declared = {"".join(names) for names in re.findall(DECLARATIONS, header.read_text())}
    assert declared, "no declarations were found"
    assert declared <= set(documented)
