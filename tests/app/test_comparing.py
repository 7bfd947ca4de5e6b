"""Tests of --mode=evaluate with --samples and --reference: images without a run."""

import re

import numpy as np
import PIL.Image
import pytest
import scipy.linalg
import tensorflow as tf
import tifffile

from tests.helpers.runs import call_main
from wgan_gp.evaluation import metrics, reference
from wgan_gp.evaluation.reference import Reference

SHAPE = (12, 10)
COUNT = 40


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Returns a folder with the folders a and b of images, and a linear extractor e.keras."""
    root = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for name, mean, mode in (("a", 120, "L"), ("b", 100, "L"), ("color", 90, "RGB")):
        (root / name).mkdir()
        size = SHAPE if mode == "L" else (*SHAPE, 3)
        for index in range(COUNT):
            levels = generator.normal(mean, 30, size).clip(0, 255).astype(np.uint8)
            PIL.Image.fromarray(levels).save(root / name / f"{index:05}.png")
    inputs = tf.keras.Input([*SHAPE, 1])
    flat = tf.keras.layers.Flatten()(inputs)
    weights = generator.normal(size=[120, 6]).astype(np.float32)
    dense = tf.keras.layers.Dense(6, use_bias=False)
    model = tf.keras.Model(inputs, dense(flat))
    dense.set_weights([weights])
    model.save(root / "e.keras")
    np.save(root / "weights.npy", weights)
    return root


def features_of(files, name):
    """Returns the features of a folder in float64, without this project."""
    paths = sorted((files / name).glob("*.png"))
    levels = np.stack([np.asarray(PIL.Image.open(path), np.float64) for path in paths])
    return (levels / 127.5 - 1).reshape(len(paths), -1) @ np.load(files / "weights.npy")


def expected_fid(first, second):
    """Returns the Frechet distance by the formula of arXiv:1706.08500, with SciPy's square root."""
    covariances = [np.cov(each, rowvar=False) for each in (first, second)]
    root = scipy.linalg.sqrtm(covariances[0] @ covariances[1]).real
    means = first.mean(axis=0) - second.mean(axis=0)
    return means @ means + np.trace(sum(covariances) - 2 * root)


def evaluate(files, capsys, **flags):
    """Runs the mode, and returns what it prints, or its only line of errors."""
    flags = {"feature_extractor": files / "e.keras", **flags}
    status = call_main("--mode=evaluate", *(f"--{name}={value}" for name, value in flags.items()))
    printed = capsys.readouterr()
    if status == 0:
        return printed.out
    (line,) = [each for each in printed.err.splitlines() if each.startswith("error: ")]
    return line


def fid_in(printed):
    return float(re.search(r"^  fid +(\S+)", printed, re.MULTILINE)[1])


def test_two_folders_have_the_distance_of_the_formula(files, capsys):
    printed = evaluate(files, capsys, samples=files / "a", reference=files / "b")
    expected = expected_fid(features_of(files, "a"), features_of(files, "b"))
    assert fid_in(printed) == pytest.approx(expected, rel=1e-3)  # four digits are printed
    assert printed.startswith(f"{COUNT} images against {files}/b, features of ")
    assert {"kid", "recall", "coverage"} <= set(re.findall(r"^  (\w+)", printed, re.MULTILINE))
    same = evaluate(files, capsys, samples=files / "a", reference=files / "a")
    assert fid_in(same) == pytest.approx(0, abs=1e-4)


@pytest.mark.slow
def test_the_pictures_of_a_run_have_its_metrics(files, capsys, tmp_path):
    data = ["--dataset=image_folder", f"--data_dir={files}/b", "--image_channels=1"]
    size = ["--image_size=12x10", "--model=mlp", "--model_width=4", "--batch_size=8"]
    run = [f"--model_dir={tmp_path}/run"]
    assert call_main(*data, *size, *run, "--train_steps=1") == 0
    extractor = f"--feature_extractor={files}/e.keras"
    counts = [f"--evaluate_samples={COUNT}", extractor, data[1]]
    assert call_main("--mode=evaluate", *run, *counts) == 0
    of_run = capsys.readouterr().out.split("e.keras:\n")[1]
    pictures = [f"--num_samples={COUNT}", f"--output={tmp_path}/samples"]
    assert call_main("--mode=sample", "--sample_format=png", *run, *pictures) == 0
    capsys.readouterr()
    printed = evaluate(files, capsys, samples=tmp_path / "samples", reference=files / "b")
    of_folders = printed.split("e.keras:\n")[1]
    # The deviation is over random subsets, and the run reads its examples in another order.
    assert [line for line in of_folders.splitlines() if "deviation" not in line] == [
        line for line in of_run.splitlines() if "deviation" not in line
    ]
    assert len(of_run.splitlines()) == len(of_folders.splitlines()) == 7


@pytest.mark.parametrize("kind", ["png", "gif", "bmp", "tiff"])
def test_pictures_with_a_palette_are_colored(tmp_path, capsys, kind):
    weights = np.random.default_rng(0).normal(size=[12 * 10 * 3, 4]).astype(np.float32)
    model = tf.keras.Sequential([tf.keras.Input([*SHAPE, 3]), tf.keras.layers.Flatten()])
    model.add(tf.keras.layers.Dense(4, use_bias=False))
    model.layers[-1].set_weights([weights])
    model.save(tmp_path / "e.keras")
    for name in ("plain", "palette"):
        (tmp_path / name).mkdir()
    for index in range(10):
        colors = np.random.default_rng(index).integers(0, 6, [*SHAPE, 3]) * 51
        image = PIL.Image.fromarray(colors.astype(np.uint8))
        image = image.quantize(200)
        image.save(tmp_path / "palette" / f"{index}.{kind}")
        image.convert("RGB").save(tmp_path / "plain" / f"{index}.png")
    flags = {"samples": tmp_path / "palette", "feature_extractor": tmp_path / "e.keras"}
    printed = evaluate(tmp_path, capsys, reference=tmp_path / "plain", **flags)
    assert fid_in(printed) == pytest.approx(0, abs=1e-4)


def test_all_images_of_a_folder_with_splits_and_labels_are_compared(files, tmp_path, capsys):
    names = [f"{split}/{index}.png" for split in ("train", "test") for index in range(COUNT // 2)]
    for index, name in enumerate(names):
        (tmp_path / "s" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "s" / name).write_bytes((files / "a" / f"{index:05}.png").read_bytes())
    (tmp_path / "s" / "metadata.csv").write_text("file_name,label\ntrain/0.png,x\ntest/1.png,y\n")
    printed = evaluate(files, capsys, samples=tmp_path / "s", reference=files / "a")
    assert printed.startswith(f"{COUNT} images") and fid_in(printed) == pytest.approx(0, abs=1e-4)


def test_own_statistics_replace_the_folder(files, capsys, tmp_path):
    path = tmp_path / "stats.npz"
    printed = evaluate(files, capsys, reference=files / "b", output=path)
    assert printed == f"{path}\n"
    with np.load(path) as arrays:
        features = features_of(files, "b")
        np.testing.assert_allclose(arrays["mu"], features.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(arrays["sigma"], np.cov(features, rowvar=False), rtol=1e-4)
        # The hash of the file, and no folder of this machine.
        assert re.fullmatch(r"e\.keras [0-9a-f]{16}", str(arrays["extractor"]))
    of_folder, of_file = (
        evaluate(files, capsys, samples=files / "a", reference=each).splitlines()[1:]
        for each in (files / "b", path)
    )
    assert of_folder == of_file


def test_statistics_of_another_file_of_the_same_name_are_refused(files, capsys, tmp_path):
    evaluate(files, capsys, reference=files / "b", output=tmp_path / "stats.npz")
    model = tf.keras.models.load_model(files / "e.keras")
    model.set_weights([2 * each for each in model.get_weights()])
    (tmp_path / "other").mkdir()
    for kind in ("e.keras", "e"):
        path = tmp_path / "other" / kind
        model.save(path) if kind == "e.keras" else model.export(path)
        flags = {"samples": files / "a", "feature_extractor": path}
        line = evaluate(files, capsys, reference=tmp_path / "stats.npz", **flags)
        assert "stats.npz has features of e.keras" in line
        assert "use statistics of the same --feature_extractor" in line
        own = tmp_path / f"{kind}.npz"
        evaluate(files, capsys, reference=files / "b", output=own, feature_extractor=path)
        assert fid_in(evaluate(files, capsys, reference=own, **flags)) > 0


def test_the_folder_of_the_output_is_created(files, capsys, tmp_path):
    path = tmp_path / "new" / "folder" / "stats.npz"
    assert evaluate(files, capsys, reference=files / "b", output=path) == f"{path}\n"


def test_a_color_picture_among_gray_ones_is_not_converted_silently(files, capsys, tmp_path):
    """Only some headers are read at first."""
    for index in range(300):
        image = PIL.Image.fromarray(np.full(SHAPE, index % 256, np.uint8))
        image = image.convert("RGB") if index == 2 else image
        image.save(tmp_path / f"{index:05}.png")
    line = evaluate(files, capsys, samples=tmp_path, reference=files / "a")
    assert f"--samples={tmp_path}: 00002.png has colors, but others are gray" in line
    assert "add --image_channels=3, or 1 to compare" in line
    for channels in (1, 3):
        flags = {"samples": tmp_path, "image_channels": channels}
        assert fid_in(evaluate(files, capsys, reference=files / "a", **flags)) > 0


def test_pictures_with_many_channels_are_named(files, capsys, tmp_path):
    for index in range(3):
        levels = np.zeros([*SHAPE, 5], np.uint8)
        tifffile.imwrite(
            tmp_path / f"{index}.tif", levels, photometric="minisblack", planarconfig="contig"
        )
    line = evaluate(files, capsys, samples=files / "color", reference=tmp_path)
    assert f"--reference={tmp_path} has images of 5 channels — give gray or color" in line
    assert "--image_channels" not in line


def test_statistics_of_other_programs_give_the_distances_that_they_know(files, capsys, tmp_path):
    """pytorch-fid writes mu and sigma, compressed; clean-fid features for KID."""
    features = features_of(files, "b")
    moments = {"mu": features.mean(axis=0), "sigma": np.cov(features, rowvar=False)}
    np.savez_compressed(tmp_path / "fid.npz", **moments)
    np.savez(tmp_path / "kid.npz", feats=features.astype(np.float32))
    printed = evaluate(files, capsys, samples=files / "a", reference=tmp_path / "fid.npz")
    expected = expected_fid(features_of(files, "a"), features)
    assert fid_in(printed) == pytest.approx(expected, rel=1e-3)
    assert "  kid" not in printed and "FID is the only distance" in printed
    printed = evaluate(files, capsys, samples=files / "a", reference=tmp_path / "kid.npz")
    assert fid_in(printed) == pytest.approx(expected, rel=1e-3) and "  kid " in printed


def test_metrics_agree_with_those_of_the_functions():
    generator = np.random.default_rng(1)
    real, fake = generator.normal(size=(2, 50, 4)).astype(np.float32)
    values = Reference(real).compare(fake)
    assert values["fid"] == pytest.approx(expected_fid(fake, real), rel=1e-6)
    assert values["kid"] == metrics.kernel_distance(real, fake)


GOOD = {"mu": np.zeros(3), "sigma": np.eye(3)}
FEATURES = np.random.default_rng(0).normal(size=[20, 3])
OWN = {"mu": FEATURES.mean(axis=0), "sigma": np.cov(FEATURES.T), "feats": FEATURES}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"mu": np.zeros(3)}, "neither mu and sigma nor feats"),
        ({"images": np.zeros([4, 8, 8, 3])}, "neither mu and sigma nor feats"),
        ({**GOOD, "mu": np.zeros(4)}, "sigma or feats have others"),
        ({**GOOD, "feats": np.zeros([5, 4])}, "sigma or feats have others"),
        ({**GOOD, "mu": np.array([0, np.nan, 0])}, "NaN or infinite"),
        ({**GOOD, "sigma": np.triu(np.ones([3, 3]))}, "not symmetric"),
        ({**GOOD, "sigma": -np.eye(3)}, "negative variances"),
        ({**GOOD, "sigma": np.eye(3) - 0.4}, "negative variances"),  # 1, 1 and -0.2
        ({**OWN, "mu": OWN["mu"] + 0.01}, "mu is not the mean of feats"),
        ({**OWN, "sigma": 1.01 * OWN["sigma"]}, "sigma is not the covariance of feats"),
        ({**GOOD, "sigma": np.eye(3, dtype=int)}, r"sigma is int64 \[3, 3\]"),
        ({"feats": np.zeros([1, 3])}, "fewer than two images"),
        ({"feats": np.zeros([2, 0])}, "no values"),
        ({"mu": np.array([{}], object), "sigma": np.eye(1)}, "allow_pickle=False"),
        ({**GOOD, "extractor": np.array("other")}, "features of other, but those of the samples"),
    ],
)
def test_unsuitable_statistics_give_one_line(tmp_path, arrays, message):
    path = tmp_path / "stats.npz"
    np.savez(path, **arrays)
    with pytest.raises(Exception, match=message) as error:
        reference.read(str(path)).check_extractor(f"--reference={path}", "inception")
    assert str(error.value).startswith(f"--reference={path} ") and "\n" not in str(error.value)


@pytest.mark.parametrize("divisor", [0, 1])
def test_moments_of_rounded_features_with_either_divisor_are_used(tmp_path, divisor):
    features = (50 + FEATURES).astype(np.float32)
    moments = {"mu": features.mean(axis=0), "sigma": np.cov(50 + FEATURES.T, ddof=divisor)}
    np.savez(tmp_path / "stats.npz", feats=features, **moments)
    found = reference.read(str(tmp_path / "stats.npz")).moments
    np.testing.assert_array_equal(found.covariance, moments["sigma"])


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04damaged"])
def test_a_damaged_file_gives_one_line(tmp_path, content):
    path = tmp_path / "stats.npz"
    path.write_bytes(content)
    with pytest.raises(Exception, match="is not a file of statistics") as error:
        reference.read(str(path))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"samples": "a"}, "--samples=a needs --reference — add --reference"),
        ({"reference": "b"}, "or a file for its statistics"),
        ({"reference": "a.npz", "output": "b.npz"}, "is a file of statistics already — give a fo"),
        ({"samples": "a", "reference": "color"}, "4x4 pixels"),
        ({"samples": "a", "reference": "mixed"}, "has images of 4x4 and of 12x10 pixels"),
        ({"samples": "one", "reference": "b"}, "has only one image"),
        ({"samples": "damaged", "reference": "b"}, "cannot be read"),
        ({"samples": "a", "reference": "b", "output": "x.npy"}, "does not end in .npz"),
        ({"reference": "b", "output": "wide.npz"}, "wide.npz already exists"),
        (
            {"samples": "a", "reference": "b", "feature_extractor": "classifier"},
            "is fitted to the data of a run",
        ),
        ({"samples": "a", "reference": "wide.npz"}, "has features of length 9, but "),
    ],
)
def test_images_that_do_not_fit_give_one_line(files, tmp_path, monkeypatch, capsys, flags, message):
    (tmp_path / "a").symlink_to(files / "a")
    (tmp_path / "b").symlink_to(files / "b")
    small = PIL.Image.new("RGB", (4, 4))
    for name, count in (("color", 2), ("mixed", 1), ("one", 0), ("damaged", 0)):
        (tmp_path / name).mkdir()
        for index in range(count):
            small.save(tmp_path / name / f"{index}.png")
    for name in ("mixed", "one", "damaged"):
        (tmp_path / name / "a.png").write_bytes((files / "a" / "00000.png").read_bytes())
    content = (files / "a" / "00001.png").read_bytes()
    (tmp_path / "damaged" / "b.png").write_bytes(content[: len(content) // 2])
    np.savez(tmp_path / "wide.npz", mu=np.zeros(9), sigma=np.eye(9))
    monkeypatch.chdir(tmp_path)
    line = evaluate(files, capsys, **flags)
    assert line.startswith("error: ") and message in line


def test_a_picture_of_another_size_is_found_among_many(files, tmp_path, capsys):
    """Only the headers of the first pictures are read before all are decoded."""
    for index in range(130):
        PIL.Image.new("L", SHAPE[::-1]).save(tmp_path / f"{index:03}.png")
    PIL.Image.new("L", (20, 24)).save(tmp_path / "999.png")  # of the same aspect ratio
    line = evaluate(files, capsys, samples=tmp_path, reference=files / "b")
    assert "999.png: it has 24x20 pixels, but the first one 12x10 pixels" in line
    resized = evaluate(files, capsys, samples=tmp_path, reference=files / "b", image_size="12x10")
    assert resized.startswith("131 images against")


def test_they_apply_only_to_evaluations(capsys):
    assert call_main("--samples=folder") == 2
    error = capsys.readouterr().err
    assert "--samples=folder does not apply to --mode=train — use --mode=evaluate" in error
