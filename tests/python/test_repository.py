"""Files for machines other than this one, which nothing here executes, agree with what is executed."""

import importlib.machinery
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def dev():
    """The script `dev`, which has no suffix, as a module."""
    loader = importlib.machinery.SourceFileLoader("dev", str(ROOT / "dev"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("dev", loader))
    sys.modules["dev"] = module  # where its data classes look for their annotations
    loader.exec_module(module)
    return module


def test_the_containers_image_has_the_system_packages():
    image = (ROOT / ".devcontainer" / "Dockerfile").read_text().split()
    assert set(dev().APT_PACKAGES) | set(dev().APT_OPTIONAL) <= set(image)


def test_the_container_is_set_up_by_a_command_that_there_is():
    command = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())["postCreateCommand"].split()
    shown = subprocess.run([*command, "--dry-run"], cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr


def test_the_workflow_runs_what_ci_is():
    (job,) = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"].values()
    assert ".ci/run" in [step.get("run") for step in job["steps"]]


@pytest.mark.parametrize("file", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda file: file.name)
def test_forms_and_settings_can_be_read(file):
    read = yaml.safe_load(file.read_text())
    if file.parent.name == "ISSUE_TEMPLATE" and file.stem != "config":
        assert {"name", "description", "body"} <= set(read)


@pytest.mark.parametrize("page", ["RELEASING.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "SECURITY.md", "README.md"])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        assert (ROOT / target).exists(), target
