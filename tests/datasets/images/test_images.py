"""Image files: idx, the binary CIFAR-10 and CelebA; official test parts; damaged files."""

from __future__ import annotations

import gzip
import io
import os
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from bench.data.encoder import Encoder
from bench.data.schema import Numeric, Task
from bench.data.splits import expected_sizes
from bench.datasets.images._images import parse_idx, pixel_names
from bench.errors import DataError, InputError
from bench.plugins.registry import build_source
from bench.plugins.source import FileSource, build_dataset
from tests.support.places import ROOT

SHAPES = {
    "mnist": (1, 28, 28),
    "fashion-mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
    "celeba-gender": (3, 32, 32),
}
IDX = {"mnist": "digit", "fashion-mnist": "article"}
every_image_set = pytest.mark.parametrize("name", SHAPES)
every_idx_set = pytest.mark.parametrize("name", IDX)


def source(name: str, **parameters: object) -> FileSource:
    built = build_source(name, parameters)
    assert isinstance(built, FileSource)
    return built


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Path:
    beside = ROOT.parent / "shared" / "data"
    folder = Path(os.environ.get("BENCH_DATA") or beside)
    for name in ("mnist", "fashion_mnist"):
        if not (folder / name).is_dir():
            pytest.skip(f"{folder / name} is absent")
    monkeypatch.setenv("BENCH_DATA", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BENCH_DATA", str(tmp_path))
    for name in ("mnist", "fashion_mnist", "cifar10", "celeba"):
        (tmp_path / name).mkdir()
    return tmp_path


@every_image_set
def test_declaration_has_a_column_a_pixel(name: str) -> None:
    declared = source(name).declare()
    schema = declared.schema
    assert schema.task is Task.IMAGE and schema.image_shape == SHAPES[name]
    assert tuple(column.name for column in schema.features) == pixel_names(SHAPES[name])
    for column in schema.features:
        assert isinstance(column, Numeric)
        assert (column.low, column.high, column.integer) == (0, 255, True)
    assert len(declared.by_class) == len(schema.classes)


# What a nearest-mean classifier gets on the official test images: known figures of both sets, so
# that pixels, labels and parts belong together.
@pytest.mark.parametrize(
    ("name", "smallest", "accuracy"), [("mnist", 5_421, 0.8203), ("fashion-mnist", 6_000, 0.6768)]
)
def test_real_files_are_the_published_ones(
    real: Path, name: str, smallest: int, accuracy: float
) -> None:
    built = source(name)
    assert built.check() == []
    label = IDX[name]
    training, test = built.load(), built.load_official_test()
    assert test is not None
    assert (len(training), len(test)) == (60_000, 10_000)
    # The smallest class of the NDPDC paper's table I.
    assert training[label].value_counts().min() == smallest
    pixels, classes = training.drop(columns=label), training[label].astype(int).to_numpy()
    means = np.stack([pixels[classes == digit].mean().to_numpy() for digit in range(10)])
    images = test.drop(columns=label).to_numpy(np.float64)
    nearest = ((means**2).sum(axis=1) - 2 * images @ means.T).argmin(axis=1)
    assert (nearest == test[label].astype(int)).mean() == pytest.approx(accuracy, abs=1e-4)


def test_real_mnist_becomes_a_dataset(real: Path) -> None:
    dataset = build_dataset(source("mnist"))
    assert not any(dataset.clipped.values())
    assert len(dataset.test) == 10_000
    assert np.bincount(dataset.train.rows.labels) == pytest.approx(
        dataset.counts.by_class, rel=0.05
    )
    assert dataset.counts.by_class[5] == expected_sizes(5_421, "default", True)["train"]


def idx(array: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, images: int = 20, labels: int = 20, side: int = 28) -> None:
    pixels = np.arange(images * side * side) % 256
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(pixels.reshape(-1, side, side)))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(labels) % 10))


@every_idx_set
def test_small_idx_files_are_read(folder: Path, name: str) -> None:
    write_idx(folder / name.replace("-", "_"))
    built = source(name)
    frame, test = built.load(), built.load_official_test()
    assert test is not None
    assert frame.equals(test)
    assert frame[IDX[name]].tolist() == [str(number % 10) for number in range(20)]
    # Row by row: the second image starts at 784, its second row 28 later.
    assert frame.loc[1, "pixel_0_0"] == 784 % 256 and frame.loc[1, "pixel_1_0"] == 812 % 256
    rows, clipped = Encoder(built.declare().schema).encode(frame)
    assert not any(clipped.values())
    back = (rows.values.reshape(20, 28, 28) + 1) * 127.5
    assert np.allclose(back.ravel(), np.arange(20 * 784) % 256, atol=1e-4)
    assert len(built.check()) == 5  # four fingerprints and the rows


def test_packed_idx_files_are_read(folder: Path) -> None:
    write_idx(folder / "mnist")
    for path in (folder / "mnist").iterdir():
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert source("mnist").missing() == ()
    assert len(source("mnist").load()) == 20


def test_idx_parser_refuses_what_is_not_whole() -> None:
    good = idx(np.zeros((2, 3, 3)))
    assert parse_idx(good, "file", 3).shape == (2, 3, 3)
    for content, message in (
        (b"", "starts with nothing"),
        (gzip.compress(good), "starts with 1f8b"),
        (idx(np.zeros(5)), "starts with 00000801"),
        (b"\0\0\x0d\x03" + good[4:], "starts with 00000d03"),  # floats
        (good[:10], "truncated within its header"),
        (good[:-1], "33 bytes, its header announces 34"),
        (good + b"\0", "35 bytes"),
    ):
        with pytest.raises(DataError, match=message):
            parse_idx(content, "file", 3)


def test_idx_files_that_do_not_fit_are_refused(folder: Path) -> None:
    write_idx(folder / "mnist", labels=19)
    with pytest.raises(DataError, match="19 labels for 20 images"):
        source("mnist").load()
    write_idx(folder / "mnist", side=32)
    with pytest.raises(DataError, match="32 x 32 pixels, expected 28 x 28"):
        source("mnist").load()
    write_idx(folder / "mnist", images=0, labels=0)
    with pytest.raises(DataError, match="no images"):
        source("mnist").load()
    write_idx(folder / "mnist")
    (folder / "mnist" / "train-labels-idx1-ubyte").write_bytes(idx(np.full(20, 47)))
    with pytest.raises(DataError, match="a label 47"):
        source("mnist").load()
    (folder / "mnist" / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="train-labels-idx1-ubyte is not in"):
        source("mnist").load()


def cifar_batch(first: int, images: int = 4) -> bytes:
    records = np.zeros((images, 3073), dtype=np.uint8)
    records[:, 0] = (first + np.arange(images)) % 10
    records[:, 1], records[:, 1 + 1024], records[:, 1 + 2048] = 10, 20, 30  # red, green, blue
    records[:, 2] = 40  # the red of the second pixel in the first row
    return records.tobytes()


BATCHES = {
    **{f"data_batch_{number}.bin": cifar_batch(number) for number in range(1, 6)},
    "test_batch.bin": cifar_batch(0, images=10),
}


def write_cifar(
    folder: Path, batches: dict[str, bytes], below: str = "cifar-10-batches-bin"
) -> Path:
    path = folder / "cifar10" / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"readme.html": b"<p>", **batches}.items():
            member = tarfile.TarInfo(f"{below}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_cifar_archive_is_read_in_memory(folder: Path) -> None:
    # A path that climbs out is harmless, because nothing is unpacked onto the disk.
    write_cifar(folder, BATCHES, below="../../climbing")
    before = sorted(folder.rglob("*"))
    built = source("cifar10")
    frame, test = built.load(), built.load_official_test()
    assert sorted(folder.rglob("*")) == before
    assert test is not None
    assert (len(frame), len(test)) == (20, 10)
    assert frame["object"].tolist()[:5] == ["1", "2", "3", "4", "2"]
    first = frame.loc[0]
    assert [first[f"pixel_{channel}_0_0"] for channel in range(3)] == [10, 20, 30]
    assert first["pixel_0_0_1"] == 40
    Encoder(built.declare().schema).encode(frame)


def test_wrong_cifar_archives_are_refused(folder: Path) -> None:
    python = {name.removesuffix(".bin"): content for name, content in BATCHES.items()}
    write_cifar(folder, python)
    with pytest.raises(DataError, match=r"holds no data_batch_1.bin; expected the binary version"):
        source("cifar10").load()
    write_cifar(folder, {**BATCHES, "data_batch_3.bin": BATCHES["data_batch_3.bin"][:-1]})
    with pytest.raises(DataError, match=r"data_batch_3.bin: 12291 bytes are not whole records"):
        source("cifar10").load()
    write_cifar(folder, {**BATCHES, "data_batch_2.bin": bytes([99]) * 3073})
    with pytest.raises(DataError, match="a label 99"):
        source("cifar10").load()
    path = write_cifar(folder, {**BATCHES, "data_batch_1.bin": bytes(10_001 * 3073)})
    with pytest.raises(DataError, match="larger than a batch"):
        source("cifar10").load()
    whole = write_cifar(folder, BATCHES).read_bytes()
    for content in (b"", b"not an archive", whole[: len(whole) // 2], whole[:-12]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"not a whole .tar.gz|truncated or damaged"):
            source("cifar10").load()


GENDERS = {"000001.jpg": -1, "000002.jpg": 1, "000003.jpg": 1, "000004.jpg": -1, "000005.jpg": 1}
PARTS = {"000001.jpg": 0, "000002.jpg": 0, "000003.jpg": 1, "000004.jpg": 2, "000005.jpg": 2}


def jpeg() -> bytes:
    """Green above and below the middle square, which is red on the left and blue on the right."""
    from PIL import Image

    pixels = np.zeros((218, 178, 3), dtype=np.uint8)
    pixels[:, :, 1] = 255
    pixels[20:198] = 0
    pixels[20:198, :89, 0] = 255
    pixels[20:198, 89:, 2] = 255
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95, subsampling=0)
    return buffer.getvalue()


def write_celeba(folder: Path, images: dict[str, bytes] | None = None) -> None:
    place = folder / "celeba"
    lines = [str(len(GENDERS)), "Eyeglasses Male Young "]
    lines += [f"{name} -1 {gender:2d}  1" for name, gender in GENDERS.items()]
    (place / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    parts = "".join(f"{name} {part}\n" for name, part in PARTS.items())
    (place / "list_eval_partition.txt").write_text(parts)
    with zipfile.ZipFile(place / "img_align_celeba.zip", "w") as archive:
        archive.writestr("img_align_celeba/", "")
        for name, content in (images or dict.fromkeys(GENDERS, jpeg())).items():
            archive.writestr(f"img_align_celeba/{name}", content)


def test_celeba_is_cut_reduced_and_parted(folder: Path) -> None:
    write_celeba(folder)
    built = source("celeba-gender")
    assert built.missing() == ()
    frame, test = built.load(), built.load_official_test()
    assert test is not None
    assert frame["gender"].tolist() == ["female", "male", "male"]
    assert test["gender"].tolist() == ["female", "male"]
    image = frame.drop(columns="gender").to_numpy().reshape(3, 3, 32, 32)[0].astype(int)
    red, green, blue = image
    assert green.max() < 25  # the middle square only
    assert red[:, :15].min() > 225 and red[:, 17:].max() < 30
    assert blue[:, 17:].min() > 225 and blue[:, :15].max() < 30
    Encoder(built.declare().schema).encode(frame)


def test_celeba_counts_are_public_for_every_size() -> None:
    whole = source("celeba-gender").declare().by_class
    assert sum(whole) == 162_770 + 19_867
    # 84,434 of the 202,599 images show men.
    assert whole[1] + 7_715 == 84_434 and sum(whole) + 12_247 + 7_715 == 202_599
    part = source("celeba-gender", rows=20_000).declare().by_class
    assert sum(part) == 20_000
    assert part[1] / 20_000 == pytest.approx(whole[1] / sum(whole), abs=1e-4)
    for rows in (0, -5, 202_599, 1.5, "all"):
        with pytest.raises(InputError, match="must be 20 to 182,637"):
            source("celeba-gender", rows=rows)


def test_celeba_check_decodes_nothing(folder: Path) -> None:
    write_celeba(folder, {"000001.jpg": b"not an image"})
    training, test, archive = source("celeba-gender").check()
    assert "(1, 2), expected (105918, 76719)" in training
    assert "(1, 1), expected (12247, 7715)" in test
    assert "lacks 4 listed images, for example 000002.jpg" in archive


def test_wrong_celeba_files_are_refused(folder: Path) -> None:
    built, place = source("celeba-gender"), folder / "celeba"
    write_celeba(folder, {"000001.jpg": jpeg()})
    with pytest.raises(DataError, match=r"holds no 000002.jpg"):
        built.load()
    for content in (b"not an image", jpeg()[:800], b"GIF89a"):
        write_celeba(folder, dict.fromkeys(GENDERS, content))
        with pytest.raises(DataError, match=r"000001.jpg is not a readable image"):
            built.load()
    write_celeba(folder)
    (place / "img_align_celeba.zip").write_bytes(b"PK")
    with pytest.raises(DataError, match="not a whole zip archive"):
        built.load()


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("list_attr_celeba.txt", "Male", "Smiling", "the attribute Male"),
        ("list_attr_celeba.txt", "5\n", "", "the number of images in the first line"),
        ("list_attr_celeba.txt", "5\n", "6\n", "announces 6; truncated"),
        ("list_attr_celeba.txt", "-1  1  1", "-1  2  1", "is not an image name and 3 values"),
        ("list_eval_partition.txt", "000005.jpg 2\n", "", "does not list the images"),
        ("list_eval_partition.txt", "000005.jpg 2", "000005.jpg test", "a part 0, 1 or 2"),
        ("list_eval_partition.txt", "000005.jpg", "\N{SNOWMAN}.jpg", "not plain text"),
    ],
)
def test_wrong_celeba_lists_are_refused(
    folder: Path, name: str, old: str, new: str, message: str
) -> None:
    write_celeba(folder)
    path = folder / "celeba" / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        source("celeba-gender").load()
