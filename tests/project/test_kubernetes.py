"""The Dockerfile, and the JobSet of examples/kubernetes, without Docker and without a cluster."""

import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import absl.flags
import pytest
import yaml
from jax._src.clusters import cloud_tpu_cluster

import flags
from wgan_gp.tpu import topologies

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "kubernetes"
JOBSET = yaml.safe_load((FOLDER / "jobset.yaml").read_text())
(JOB,) = JOBSET["spec"]["replicatedJobs"]
POD = JOB["template"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
INSTRUCTIONS = [
    tuple(line.split(maxsplit=1))
    for line in (ROOT / "Dockerfile").read_text().splitlines()
    if line and not line.startswith("#")
]


def arguments_of(name):
    """Returns the arguments of all instructions of that name in the Dockerfile."""
    return [argument for instruction, argument in INSTRUCTIONS if instruction == name]


def test_the_image_has_a_python_for_jax_and_the_program_as_its_entry_point():
    (base,) = arguments_of("FROM")
    assert 11 <= int(re.fullmatch(r"python:3\.(\d+)-slim", base)[1]) <= 13
    (entry,) = arguments_of("ENTRYPOINT")
    (program,) = re.findall(
        r"^\[project.scripts\]\n(\S+) = ", (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )
    assert json.loads(entry) == [program]
    assert INSTRUCTIONS[-1][0] == "ENTRYPOINT"


@pytest.mark.parametrize("device", [None, "tpu", "gpu"])
def test_the_image_installs_the_requirements_of_the_device(tmp_path, device):
    """Runs the first instruction on what is copied until then; a program takes the place of pip."""
    (default,) = arguments_of("ARG")
    for path in ROOT.glob(arguments_of("COPY")[0].split()[0]):
        shutil.copy(path, tmp_path)
    pip = tmp_path / "bin" / "pip"
    pip.parent.mkdir()
    pip.write_text('#!/bin/sh\ncat "${4}"\n')
    pip.chmod(0o755)
    environment = {"PATH": f"{pip.parent}:{os.environ['PATH']}", "DEVICE": device or default[7:]}
    done = subprocess.run(
        arguments_of("RUN")[0],
        cwd=tmp_path,
        env=environment,
        shell=True,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    text = done.stdout
    suffix = f"-{device}" if device else ""
    assert text == (ROOT / f"requirements{suffix}.txt").read_text()
    for included in re.findall(r"^-r (\S+)$", text, re.MULTILINE):
        assert (tmp_path / included).exists()


def test_the_image_gets_all_that_it_copies():
    """`.dockerignore` leaves out everything else, such as runs and environments."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    copied = {path for each in arguments_of("COPY") for path in each.split()[:-1]}
    assert lines[0] == "**" and kept == {"Dockerfile", *copied}


def test_workflows_and_the_devcontainer_call_targets_of_make():
    """The forms and the workflow can be read, and what they run exists in the Makefile."""
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    commands = [container["postCreateCommand"]]
    (workflow,) = (ROOT / ".github" / "workflows").glob("*.yml")
    for job in yaml.safe_load(workflow.read_text())["jobs"].values():
        commands += [step["run"] for step in job["steps"] if "run" in step]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        program, target, *_ = command.split()
        assert program == "make" and target in targets
    forms = set((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    for form in forms - {ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"}:
        fields = yaml.safe_load(form.read_text())
        assert fields["name"] and fields["description"]
        assert len({each["id"] for each in fields["body"]}) == len(fields["body"])


def test_what_the_image_copies_is_the_whole_program(tmp_path):
    """A wheel of the copied files has each module and each experiment of the checkout."""
    source = tmp_path / "source"
    source.mkdir()
    for argument in arguments_of("COPY"):
        *paths, target = argument.split()
        for pattern in paths:
            found = list(ROOT.glob(pattern))
            assert found, pattern
            for path in found:
                if path.is_dir():
                    ignored = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(path, source / target, ignore=ignored)
                else:
                    shutil.copy(path, source / target)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", tmp_path, source]
    subprocess.run(command, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("wgan_gp", "losses", "models", "configs"):
        inside = folder if folder == "wgan_gp" else f"wgan_gp/{folder}"
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".flags", ".json"):
                assert f"{inside}/{path.relative_to(ROOT / folder)}" in names
    assert "wgan_gp/flags.py" in names


# The fields that JobSet or Kubernetes requires, or without which the job would not do what its
# comments say, with their types.
JOBSET_FIELDS = {
    "metadata": {"name": str, "annotations": dict},
    "spec": {"failurePolicy": {"maxRestarts": int}, "replicatedJobs": list},
}
JOB_FIELDS = {
    "name": str,
    "replicas": int,
    "template": {
        "spec": {"parallelism": int, "completions": int, "backoffLimit": int, "template": dict}
    },
}
POD_FIELDS = {
    "restartPolicy": str,
    "serviceAccountName": str,
    "terminationGracePeriodSeconds": int,
    "nodeSelector": {
        "cloud.google.com/gke-tpu-accelerator": str,
        "cloud.google.com/gke-tpu-topology": str,
    },
    "containers": list,
}
CONTAINER_FIELDS = {
    "name": str,
    "image": str,
    "args": list,
    "ports": list,
    "resources": {"requests": {"google.com/tpu": int}, "limits": {"google.com/tpu": int}},
}


def check_fields(found, fields):
    for name, kind in fields.items():
        if isinstance(kind, dict):
            check_fields(found[name], kind)
        else:
            assert type(found[name]) is kind, name


def test_the_jobset_has_the_fields_that_it_needs():
    assert (JOBSET["apiVersion"], JOBSET["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    for found, fields in (
        (JOBSET, JOBSET_FIELDS),
        (JOB, JOB_FIELDS),
        (POD, POD_FIELDS),
        (CONTAINER, CONTAINER_FIELDS),
    ):
        check_fields(found, fields)
    # A Job accepts no other policy than these, and JobSet restarts all Pods if one has failed.
    job = JOB["template"]["spec"]
    assert POD["restartPolicy"] == "Never" and job["backoffLimit"] == 0
    assert job["completionMode"] == "Indexed"
    for name in (JOBSET["metadata"]["name"], JOB["name"], CONTAINER["name"]):
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)


def test_the_pods_have_all_chips_of_the_slice():
    resources = CONTAINER["resources"]
    assert resources["requests"] == resources["limits"]
    job = JOB["template"]["spec"]
    assert job["parallelism"] == job["completions"]
    topology = POD["nodeSelector"]["cloud.google.com/gke-tpu-topology"]
    chips = math.prod(map(int, topology.split("x")))
    assert chips == resources["limits"]["google.com/tpu"] * job["parallelism"]


def test_the_program_accepts_the_arguments_of_the_container():
    assert "command" not in CONTAINER  # the image's entry point
    values = absl.flags.FlagValues()
    flags.define(values)
    config = flags.parse(["wgan-gp", *CONTAINER["args"]], values)
    assert config.tpu == "local" and config.run_directory.startswith("gs://")
    accelerator = POD["nodeSelector"]["cloud.google.com/gke-tpu-accelerator"]
    chips = CONTAINER["resources"]["limits"]["google.com/tpu"]
    cores = chips * topologies.CORES[accelerator].per_chip
    config.check_replicas(cores)


@pytest.mark.parametrize("machines", [1, 2])
def test_jax_finds_the_pods_of_a_slice_in_the_variables_of_gke(machines, monkeypatch):
    """The container sets no variables that would take precedence."""
    assert "env" not in CONTAINER
    ports = [port["containerPort"] for port in CONTAINER["ports"]]
    assert int(cloud_tpu_cluster.coordinator_port) in ports
    cluster = cloud_tpu_cluster.GkeTpuCluster
    monkeypatch.setattr(cloud_tpu_cluster, "running_in_cloud_tpu_vm", True)
    monkeypatch.setattr(cluster, "wait_for_coordinator", lambda address, seconds: None)
    monkeypatch.setattr(cloud_tpu_cluster, "get_tpu_env_value", os.environ.get)
    name = f"{JOBSET['metadata']['name']}-{JOB['name']}-0"
    hosts = [f"{name}-{index}.{JOBSET['metadata']['name']}" for index in range(machines)]
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", ",".join(hosts))
    for index in range(machines):
        monkeypatch.setenv("TPU_WORKER_ID", str(index))
        assert cluster.is_env_present()
        assert (cluster.get_process_id(), cluster.get_process_count()) == (index, machines)
        address = f"{hosts[0]}:{cloud_tpu_cluster.coordinator_port}"
        assert cluster.get_coordinator_address(1, None) == address
