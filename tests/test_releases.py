"""Releases: every layout that is known becomes compact files, and nothing is taken for what it is not."""

import copy
import json
import sys

import pytest

from autotts_jax.collect import import_release
from autotts_jax.errors import DataError, InputError
from autotts_jax.replay import read_compact, read_files, read_json, write_json

ITEMS = [
    {
        "question": text,
        "final_answers_trace": ["7", "1"],
        "each_branch": [[["1", "7"], 900, "7"], [["ERR"], 700, "1"]],
        "gold_answer": "7",
        "probe_freq": 500,
    }
    for text in ("How many?", "Which?")
]
RAW = [
    {key: value for key, value in item.items() if key != "each_branch"}
    | {"probe_matrix_mxn": [["1", "7"], ["ERR", None]], "branch_tokens": [900, 700]}
    for item in ITEMS
]


def changed(tokens):
    """The same questions, with other tokens on one branch."""
    items = copy.deepcopy(ITEMS)
    items[0]["each_branch"][0][1] = tokens
    return items


@pytest.fixture
def checkout(tmp_path):
    """A function that writes files below the folder `checkout`, which it returns as text."""

    def write(files):
        for name, content in files.items():
            path = tmp_path / "checkout" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            text = content if type(content) is str else json.dumps(content)
            path.write_text(text, encoding="utf-8")
        return str(tmp_path / "checkout")

    return write


def names(files, out):
    return [file.relative_to(out).as_posix() for file in files]


# --- what is found


def test_a_checkout_becomes_compact_files(checkout, tmp_path):
    out, told = tmp_path / "new" / "out", []
    source = checkout(
        {
            "code/environment/Qwen3-0.6B/aime24.json": ITEMS,
            "code/environment/Qwen3-0.6B/aime25.json": changed(950),
            "held_out/Qwen3-8B-128/hmmt25.json": RAW,
            "package.json": {"name": "site", "features": {"each_branch": "list"}},
            "README.md": json.dumps(ITEMS),
        }
    )
    files = import_release(source, out, told.append)
    assert names(files, out) == [
        "Qwen3-0.6B/aime24.npz",
        "Qwen3-0.6B/aime25.npz",
        "Qwen3-8B-128/hmmt25.npz",
    ]
    assert sorted(out.rglob("*.*")) == sorted([*files, out / "Qwen3-0.6B"])  # the dot of a model's size
    for file in files:
        dataset = read_compact(file)
        assert dataset.cells[0].name == file.relative_to(out).with_suffix("").as_posix()
        expected = read_json(dataset.cells[0].source)
        assert dataset.cells == expected.cells
        assert dataset.questions == expected.questions
        for name in ("answers", "lengths", "tokens", "gold", "interval"):
            assert (getattr(dataset.matrix, name) == getattr(expected.matrix, name)).all()
    assert told == [
        f"left out 1 JSON files without a probe matrix: {source}/package.json",
        f"wrote {files[0]}: 2 questions, 2 branches each",
        f"wrote {files[1]}: 2 questions, 2 branches each",
        f"wrote {files[2]}: 2 questions, 2 branches each",
    ]
    assert len(read_files([out])) == 6


@pytest.mark.parametrize(
    ("path", "cell"),
    [
        ("aime24.json", "checkout/aime24"),
        ("Qwen3-1.7B/aime24.jsonl", "Qwen3-1.7B/aime24"),
        ("a/b/Qwen3-1.7B/aime24/data.jsonl", "Qwen3-1.7B/aime24"),
        ("Qwen3-1.7B/aime24/test.json", "Qwen3-1.7B/aime24"),
        ("aime24/train.json", "checkout/aime24"),
        ("data.json", "checkout/data"),
        ("x/Qwen3-1.7B__aime24__br128__bg5120k__fr500__0121_1455.jsonl", "Qwen3-1.7B/aime24"),
        ("Qwen3-1.7B/aime__24__b.jsonl", "Qwen3-1.7B/aime__24__b"),
    ],
)
def test_the_path_names_the_cell(checkout, tmp_path, path, cell):
    files = import_release(checkout({path: ITEMS}), tmp_path / "out")
    assert names(files, tmp_path / "out") == [f"{cell}.npz"]
    assert read_compact(files[0]).cells[0].name == cell


@pytest.mark.parametrize(
    "path", ["..__x__br128__y.jsonl", "m__\x1b[31m__br128__y.jsonl", "m/...json", "m\n/b.json"]
)
def test_a_name_that_no_file_can_have_is_refused(checkout, tmp_path, path):
    with pytest.raises(DataError, match="which no file can have; rename it"):
        import_release(checkout({path: ITEMS}), tmp_path / "in" / "out")
    assert not (tmp_path / "in").exists()


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(ITEMS, indent=2),
        "\ufeff" + json.dumps(RAW),
        "\n".join(map(json.dumps, RAW)) + "\n",
        "\r\n\r\n" + json.dumps(ITEMS[0]),
        json.dumps(ITEMS[:1] + RAW[1:]),
    ],
)
def test_content_and_not_the_ending_tells_a_matrix(checkout, tmp_path, content):
    for ending in ("json", "jsonl"):
        assert len(import_release(checkout({f"m/b.{ending}": content}), tmp_path / ending)) == 1
        (tmp_path / "checkout" / "m" / f"b.{ending}").unlink()


@pytest.mark.parametrize(
    "content",
    [
        {"name": "package"},
        [],
        "",
        "{ // a comment\n}",
        {"features": {"each_branch": [], "final_answers_trace": []}},
        [["each_branch"]],
        [1, {"each_branch": []}],
        '\ufeff\n{"features": {"each_branch": []}}',
        [{"method": "sc", "final_answers_trace": ["7"]}],
        '{"text": "\\"each_branch\\" is a list"}',
        "[" * 100_000,
    ],
)
def test_other_json_is_left_out(checkout, tmp_path, content):
    told = []
    files = import_release(checkout({"m/b.json": ITEMS, "m/c.json": content}), tmp_path / "out", told.append)
    assert names(files, tmp_path / "out") == ["m/b.npz"]
    assert told[0] == f"left out 1 JSON files without a probe matrix: {tmp_path}/checkout/m/c.json"


def test_a_few_of_many_left_out_files_are_named(checkout, tmp_path):
    told = []
    others = {f"node_modules/{n}/package.json": {} for n in range(7)}
    import_release(checkout({"m/b.json": ITEMS} | others), tmp_path / "out", told.append)
    assert told[0].startswith("left out 7 JSON files")
    assert told[0].endswith("4/package.json, …")


# --- copies and clashes


def test_copies_of_a_cell_are_read_once(checkout, tmp_path):
    told = []
    source = checkout({"search/m/b.json": ITEMS, "held_out/m/b.json": ITEMS})
    (file,) = import_release(source, tmp_path / "out", told.append)
    assert read_compact(file).cells[0].source == f"{source}/held_out/m/b.json"
    assert told[0] == f"left out {source}/search/m/b.json: a copy of {source}/held_out/m/b.json"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a/m/b.json", "z/m/b.json"),
        ("m/b.json", "m/b.jsonl"),
        ("m/b.json", "m/b/data.json"),
        ("m/b.json", "m__b__br128__x.json"),
    ],
)
def test_two_files_for_one_cell_are_refused_before_anything_is_written(checkout, tmp_path, one, other):
    source = checkout({one: ITEMS, other: changed(1), "a/a/a.json": ITEMS})
    with pytest.raises(
        InputError, match="differ, and both are the cell m/b; import the folder of one"
    ) as error:
        import_release(source, tmp_path / "out")
    assert f"{source}/{one}" in str(error.value)
    assert f"{source}/{other}" in str(error.value)
    assert not (tmp_path / "out").exists()


# --- bad files, bad folders


BROKEN = {
    "the file ends early": json.dumps(ITEMS, indent=2)[:-100],
    "the first question ends early": json.dumps(ITEMS, indent=2)[:80],
    "a line ends early": "\n".join(map(json.dumps, RAW))[:-1],
    "a field is missing": [{key: ITEMS[0][key] for key in ("question", "each_branch")}],
    "a later question is bad": [ITEMS[0], {}],
    "a branch is bad": changed(0),
    "Git LFS": "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 2396753\n",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_matrix_is_named_and_the_others_stay(checkout, tmp_path, case):
    source, out = checkout({"m/a.json": ITEMS, "m/b.json": BROKEN[case], "m/c.json": ITEMS}), tmp_path / "out"
    with pytest.raises(DataError) as error:
        import_release(source, out)
    assert str(error.value).startswith(f"{source}/m/b.json")
    written = sorted(out.rglob("*.*"))
    assert names(written, out) == ([] if case == "Git LFS" else ["m/a.npz"])
    for file in written:
        assert len(read_compact(file)) == 2


def test_importing_again_overwrites(checkout, tmp_path):
    out = tmp_path / "out"
    (first,) = import_release(checkout({"m/b.json": ITEMS}), out)
    (again,) = import_release(checkout({"m/b.json": changed(1234)}), out)
    assert first == again
    assert read_compact(again).matrix.tokens[0, 0] == 1234
    assert sorted(out.rglob("*.*")) == [again]


@pytest.mark.parametrize("files", [{}, {"a.json": {}, "b.txt": json.dumps(ITEMS)}])
def test_a_folder_without_a_matrix_is_refused(checkout, tmp_path, files):
    (tmp_path / "checkout").mkdir()
    count = len(files) // 2
    with pytest.raises(InputError, match=rf"no probe matrix in .*checkout, among {count} \.json and \.jsonl"):
        import_release(checkout(files), tmp_path / "out")


def test_what_is_no_folder_is_refused(checkout, tmp_path):
    source = checkout({"m/b.json": ITEMS})
    with pytest.raises(InputError, match=r"b\.json is a file; name the folder of a release, or use"):
        import_release(f"{source}/m/b.json", tmp_path / "out")
    with pytest.raises(InputError, match=r"no folder '.*none'; name a checkout of a release, or a"):
        import_release(f"{source}/none", tmp_path / "out")


def test_a_file_in_the_way_of_the_folder_is_named(checkout, tmp_path):
    (tmp_path / "out").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="out/m: cannot be made: Not a directory; choose another folder"):
        import_release(checkout({"m/b.json": ITEMS}), tmp_path / "out")


# --- datasets of the hub


def test_the_command_imports_a_checkout(run, checkout, tmp_path):
    source, out = checkout({"Qwen3-8B/aime24.json": ITEMS, "package.json": {}}), tmp_path / "out"
    status, said, _ = run("data", "import", source, "--out", out)
    assert status == 0
    assert "wrote 1 files" in said
    assert read_files(str(out)).cells[0].name == "Qwen3-8B/aime24"


def test_a_dataset_is_downloaded(checkout, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    source = checkout({"b.json": ITEMS, "Qwen3-1.7B__aime24__br128__bg5120k__fr500.jsonl": RAW})
    asked_for = []

    def snapshot_download(*arguments, **keywords):
        asked_for.append((arguments, keywords))
        return source

    monkeypatch.setattr(hub, "snapshot_download", snapshot_download)
    files = import_release("EfficientReasoning/Qwen3-1.7B-AIME24", tmp_path / "out")
    assert names(files, tmp_path / "out") == ["Qwen3-1.7B/aime24.npz", "Qwen3-1.7B-AIME24/b.npz"]
    assert asked_for == [
        (
            ("EfficientReasoning/Qwen3-1.7B-AIME24",),
            {"repo_type": "dataset", "allow_patterns": ["*.json", "*.jsonl"]},
        )
    ]


def test_a_hub_that_cannot_be_reached_is_named(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        InputError, match=r"no folder 'no-such-org/x', and the dataset .* cannot be downloaded: "
    ):
        import_release("no-such-org/x", tmp_path / "out")


def test_a_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r"needs huggingface_hub: .*'autotts-jax\[collecting\]'"):
        import_release("no-such-org/x", tmp_path / "out")


# --- the released data


@pytest.mark.slow
def test_all_released_cells_are_imported(replay_dir, tmp_path):
    files = import_release(str(replay_dir), tmp_path)
    sources = sorted(replay_dir.rglob("*.json"))
    assert names(files, tmp_path) == [
        file.relative_to(replay_dir).with_suffix(".npz").as_posix() for file in sources
    ]

    released, again = sources[0], tmp_path / "again.json"
    write_json(read_compact(files[0]), again)
    assert typed(json.loads(again.read_bytes())) == typed(json.loads(released.read_bytes()))


def typed(value):
    """A JSON value in which 1, 1.0 and true differ; the order of keys does not count."""
    if isinstance(value, dict):
        return {key: typed(part) for key, part in value.items()}
    return [typed(part) for part in value] if isinstance(value, list) else (type(value), value)
