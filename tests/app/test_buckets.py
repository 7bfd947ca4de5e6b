"""Tests of the explanations of errors of Cloud Storage, in the form that TensorFlow reports."""

import pytest
import tensorflow as tf

from tests.helpers.runs import TINY, call_main, train_tiny
from wgan_gp.data.sources import listing
from wgan_gp.errors import UserError
from wgan_gp.run_directory.buckets import bucket_of, explain_bucket_error
from wgan_gp.run_directory.directory import RunDirectory

HTTP = "Error executing an HTTP request: "
ROBOT = "1-compute@developer.gserviceaccount.com"


def denied(account, permission):
    return (
        f'{HTTP}HTTP response code 403 with body \'{{\n "error": {{\n  "errors": [\n   {{\n    '
        f'"reason": "forbidden",\n    "message": "{account} does not have {permission} access to '
        f"the Google Cloud Storage object.\"\n   }}\n  ]\n }}\n}}\n'\n\t when reading gs://b/run"
    )


CASES = [
    (
        denied(ROBOT, "storage.objects.list"),
        f"{ROBOT} lacks the permission storage.objects.list",
        f"gs://b --member=serviceAccount:{ROBOT} --role=roles/storage.admin`",
    ),
    (
        denied("me@example.org", "storage.buckets.get"),
        "me@example.org lacks the permission storage.buckets.get",
        "--member=user:me@example.org",
    ),
    (
        f'{HTTP}HTTP response code 401 with body \'{{"error": {{"code": 401, "message": '
        '"Anonymous caller does not have storage.objects.get access"}}\'',
        "this machine has no credentials of Google Cloud",
        "gcloud auth application-default login",
    ),
    (
        f'{HTTP}HTTP response code 403 with body \'{{"message": "Insufficient Permission"}}\'',
        "the credentials of this machine lack the scope of Cloud Storage",
        "--scopes=cloud-platform",
    ),
    (
        "The specified bucket gs://b/ was not found.",
        "the bucket does not exist",
        "gcloud storage buckets create gs://b",
    ),
    (
        f"{HTTP}libcurl code 6 meaning 'Could not resolve hostname', error details: Could not "
        "resolve host: www.googleapis.com\n\t when reading metadata of gs://b/run",
        "Cloud Storage cannot be reached (Could not resolve hostname)",
        "check the network",
    ),
    (
        f'{HTTP}HTTP response code 403 with body \'{{"message": "The billing account is closed.'
        "\"}'",
        "Cloud Storage answers with status 403: The billing account is closed.",
        "buckets describe gs://b`",
    ),
    (
        f"{HTTP}HTTP response code 503",
        "Cloud Storage answers with status 503: no details",
        "describe",
    ),
]


@pytest.mark.parametrize(("text", "cause", "remedy"), CASES)
def test_an_error_of_a_bucket_names_the_account_or_the_cause(text, cause, remedy):
    error = tf.errors.PermissionDeniedError(None, None, text)
    with pytest.raises(UserError) as caught, RunDirectory("gs://b/r").convert_file_errors("read"):
        raise error
    assert caught.value.what == f"--model_dir=gs://b/r cannot be read: {cause}"
    assert remedy in caught.value.remedy and "disk space" not in caught.value.remedy
    with pytest.raises(UserError) as caught, listing.reading("--data_dir=gs://b/d"):
        raise error
    assert caught.value.what == f"--data_dir=gs://b/d cannot be read: {cause}"


def test_other_errors_and_local_paths_keep_their_message():
    text = denied(ROBOT, "storage.objects.list")
    assert explain_bucket_error(text, "--model_dir=runs/digits", "read") is None
    missing = f'{HTTP}HTTP response code 404 with body \'{{"message": "No such object: b/x"}}\''
    assert explain_bucket_error(missing, "--model_dir=gs://b/r", "read") is None
    local = RunDirectory("runs/x").convert_file_errors("written")
    with pytest.raises(UserError, match=r"cannot be written \(No space left\) — free"), local:
        raise OSError("No space left")


@pytest.mark.parametrize(
    ("path", "bucket"),
    [("--data_dir=gs://b/x-*.y", "gs://b"), ("gs://b", "gs://b"), ("/gs/b", None), ("", None)],
)
def test_the_bucket_of_a_path(path, bucket):
    assert bucket_of(path) == bucket


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained")
    train_tiny(path, train_steps=1)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "path"), [("train", "gs://b/run"), ("sample", "gs://b/run/checkpoints/ckpt-5")]
)
def test_an_unreachable_bucket_to_start_from_is_a_one_line_error(
    trained, tmp_path, monkeypatch, capsys, mode, path
):
    """It is not a damaged checkpoint, in whose place an older one could be used."""
    error = tf.errors.UnavailableError(None, None, f"{HTTP}HTTP response code 503")

    def refuse(name, find):
        def function(path, *arguments, **options):
            if str(path).startswith("gs://"):
                raise error
            return find(path, *arguments, **options)

        monkeypatch.setattr(tf.io.gfile, name, function)

    for name in ("isdir", "stat", "exists", "listdir", "GFile"):
        refuse(name, getattr(tf.io.gfile, name))
    run = trained if mode == "sample" else tmp_path
    flags = [f"--model_dir={run}", f"--mode={mode}", f"--restore_from={path}"]
    if mode == "train":
        flags += [f"--{name}={value}" for name, value in TINY.items()]
    capsys.readouterr()
    assert call_main(*flags) == 2
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith(
            f"error: --restore_from={path} cannot be read: Cloud Storage answers with status 503"
        )
    )
