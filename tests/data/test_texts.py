"""Texts as items: the lines of a file, a column of a table, the files of a folder, and strings in memory."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from likewise import data
from likewise.data import unread
from likewise.data.items import TEXT
from likewise.data.text_part import TextPart
from tests.data.conftest import plain, refused, save

WINDOWS = "is not UTF-8: it is read as Windows-1252, which includes Latin-1"
NUL = "it holds NUL bytes, so it is not text"
UNDECODABLE = "it cannot be decoded"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def texts(items):
    """All texts as strings, after checking that they are stored as a list of them would be."""
    assert (items.kind, list(items.parts)) == ("text", [TEXT])
    strings = items.main.texts(np.arange(len(items)))
    part = TextPart.of(strings)
    assert items.main.array.tolist() == part.array.tolist()
    assert items.main.offsets.tolist() == part.offsets.tolist()
    return strings


def listed(array):
    return None if array is None else array.tolist()


def skipped(items):
    return {skip.path: skip.reason for skip in items.skipped}


def refused_columns(source, **columns):
    with pytest.raises(data.DataError) as error:
        data.open(source, columns=columns)
    return str(error.value)


# --- lines of a file -----------------------------------------------------------------------------------


def test_a_line_is_an_item(here):
    (here / "sentences.txt").write_text(
        "A dog barks.\n  A cat\t sleeps. \n\nA dog  barks.\n \n\nBirds sing loudly today."
    )
    items = data.open("sentences.txt")
    assert texts(items) == ["A dog barks.", "A cat sleeps.", "Birds sing loudly today."]
    assert items.paths == ("sentences.txt:1", "sentences.txt:2", "sentences.txt:7")
    assert items.native == 3  # words, in the middle of 3, 3 and 4
    assert items.notes == ("3 empty lines and 1 repeated one are left out",)
    assert (items.labels, items.classes, items.groups, items.test, items.skipped) == (None, (), None, None, ())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends(here, encoding, newline):
    (here / "x.txt").write_bytes(newline.join(["Größe", "", "Äpfel – süß", ""]).encode(encoding))
    items = data.open("x.txt")
    assert texts(items) == ["Größe", "Äpfel – süß"]
    assert items.paths == ("x.txt:1", "x.txt:3")
    as_windows = (f"x.txt {WINDOWS}",) if encoding == "cp1252" else ()
    assert items.notes == (*as_windows, "1 empty line is left out")


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=20))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_any_list_of_texts_is_read_back(here, encoding, given_texts):
    """Apart from whitespace, from empty texts, and from texts that were there before."""
    cleaned = [" ".join(text.split()) for text in given_texts]
    expected = [text for text in dict.fromkeys(cleaned) if text]
    in_lines = ["an owl", "a fox", *(text.replace("\n", " ").replace("\r", " ") for text in given_texts)]
    (here / "x.txt").write_bytes("\n".join(in_lines).encode(encoding))
    assert texts(data.open("x.txt")) == list(dict.fromkeys(["an owl", "a fox", *expected]))
    assert texts(data.open(["an owl", "a fox", *given_texts])) == ["an owl", "a fox", *cleaned]


def test_lines_that_are_not_text_are_skipped(here):
    (here / "x.txt").write_bytes("größer\nkälter\n".encode() + b"stra\xdfe\nbin\0ary\nlast")
    items = data.open("x.txt")
    assert texts(items) == ["größer", "kälter", "last"]
    assert skipped(items) == {"x.txt:3": UNDECODABLE, "x.txt:4": NUL}
    assert unread.in_words(items) == "2 texts could not be read"


def test_utf_16_that_is_damaged(here):
    content = "one\nhalf \ud800 a letter\nthree\nfour".encode("utf-16", "surrogatepass")
    (here / "x.txt").write_bytes(content + b"\n")  # half a letter more
    items = data.open("x.txt")
    assert texts(items) == ["one", "three"]
    assert skipped(items) == {"x.txt:2": UNDECODABLE, "x.txt:4": UNDECODABLE}


def test_files_of_lines_that_cannot_be_used(here):
    cases = {
        b"": "expected at least 2 items in x.txt, got 0",
        b"one\n\none\n": "expected at least 2 items in x.txt, got 1",
        b"\0\1\2\n\0": f"no readable text in x.txt: x.txt:1: {NUL}",
        "no mark".encode("utf-16-le"): f"no readable text in x.txt: x.txt:1: {NUL}",
    }
    for content, sentence in cases.items():
        (here / "x.txt").write_bytes(content)
        assert refused("x.txt") == sentence
    assert refused_columns("x.txt", text="a").startswith("columns can be named in .npz, .csv, .tsv, .jsonl and Parquet")


def test_the_fingerprint_is_that_of_the_content(here):
    known = data.open(["a dog", "a cat"]).fingerprint
    (here / "x.txt").write_text("a dog\na cat\n")
    assert data.open("x.txt").fingerprint == known
    labelled = {"text": ["a dog", "a cat"], "y": ["dog", "cat"]}
    others = (["a cat", "a dog"], ["a do", "ga cat"], labelled, {**labelled, "is_test": [0, 1]})
    assert len({known, *(data.open(other).fingerprint for other in others)}) == 5


# --- tables --------------------------------------------------------------------------------------------

ROWS = [
    {"id": 1, "Review": "Good  food.", "label": "pos", "title": "Go there!"},
    {"id": 2, "Review": "Cold soup", "label": "neg", "title": "Never again"},
    {"id": 3, "Review": "", "label": "neg", "title": ""},
    {"id": 4, "Review": "Good food.", "label": "pos", "title": "Go there!"},
    {"id": 5, "Review": "Good food.", "label": "neg", "title": "Ironic"},
]


def write(path, rows):
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        path.write_text("".join(mark.join("" if cell is None else str(cell) for cell in line) + "\n" for line in lines))
    return path.name


@pytest.fixture(params=["csv", "tsv", "jsonl", "parquet"])
def table(request, here):
    """Writes rows as a table of some kind and gives its name."""
    return lambda rows: write(here / f"x.{request.param}", rows)


def numbered(name, *rows):
    """The paths of these rows, counted from 1; the header of a CSV file is its first line."""
    first = 2 if name.endswith(("csv", "tsv")) else 1
    return tuple(f"{name}:{row - 1 + first}" for row in rows)


def test_a_row_is_an_item(table):
    """A repeated text stays if it has another label."""
    name = table(ROWS)
    items = data.open(name)
    assert texts(items) == ["Good food.", "Cold soup", "Good food."]
    assert (items.labels.tolist(), items.classes) == ([1, 0, 0], ("neg", "pos"))
    assert items.paths == numbered(name, 1, 2, 5)
    assert items.notes == ("1 empty text and 1 repeated one are left out",)
    assert (items.groups, items.test, items.native) == (None, None, 2)


def test_without_labels_a_text_is_there_once(table):
    items = data.open(table([{"id": row["id"], "text": row["Review"]} for row in ROWS]))
    assert texts(items) == ["Good food.", "Cold soup"]
    assert items.notes == ("1 empty text and 2 repeated ones are left out",)


def test_several_columns_make_up_a_text(table):
    items = data.open(table(ROWS), columns={"text": "Title+Review"})
    assert texts(items) == ["Go there! Good food.", "Never again. Cold soup", "Ironic. Good food."]


def test_labels_groups_and_test_part_by_any_name(table):
    rows = [
        {"body": "one", "stars": 2, "shop": "b", "part": "train"},
        {"body": "two", "stars": 1, "shop": "a", "part": "test"},
        {"body": "two", "stars": 1, "shop": "a", "part": "train"},
        {"body": "six", "stars": None, "shop": None, "part": "validation"},
    ]
    items = data.open(table(rows), columns={"y": "stars", "group": "shop", "is_test": "part"})
    assert texts(items) == ["one", "two", "two", "six"]  # two is in both parts
    assert items.labels.tolist() == [2, 1, 1, -1]
    assert items.groups[1] == items.groups[2] != items.groups[0]
    assert items.groups[3] == -1
    assert items.test.tolist() == [False, True, False, True]


def test_columns_named_like_their_roles(table):
    rows = [{"sentence": s, "y": i // 2, "group": i % 2, "is_test": bool(i // 2)} for i, s in enumerate("abcd")]
    items = data.open(table(rows))
    assert (listed(items.labels), listed(items.groups)) == ([0, 0, 1, 1], [0, 1, 0, 1])
    assert items.test.tolist() == [False, False, True, True]


def test_labels_that_are_fractions_or_lists_are_not_classes(here):
    write(here / "x.jsonl", [{"text": "a", "label": 0.25}, {"text": "b", "label": 1}])
    assert data.open("x.jsonl").labels is None
    write(here / "x.jsonl", [{"text": "a", "labels": [1, 2]}, {"text": "b", "labels": [2]}])
    assert data.open("x.jsonl").labels is None
    assert refused_columns("x.jsonl", y="labels") == "labels of x.jsonl must hold whole numbers or text, got '[1, 2]'"


def test_a_text_among_numbers_asks_what_is_meant(here):
    rows = [{"time": i, "Comment": f"all is well {i}", "ax": i % 7 / 2, "ay": i % 5 / 2} for i in range(40)]
    for name in ("x.csv", "x.parquet"):
        write(here / name, rows)
        assert refused(name) == (
            f"expected texts or series in {name}, got a column of text, comment, and columns of numbers, ax, ay: "
            "say --column text=comment for texts, or --column channels=NAME+NAME for series"
        )
        assert len(data.open(name, columns={"text": "Comment"})) == 40
        assert data.open(name, columns={"channels": "ax+ay"}).channels == ("ax", "ay")
        assert data.open(name, columns={"time": "time"}).channels == ("ax", "ay")
    for name in ("x.tsv", "x.jsonl"):  # these are never series
        write(here / name, rows)
        assert len(data.open(name)) == 40


@pytest.mark.parametrize("decimal", [".", ","])
def test_series_with_a_column_of_remarks_are_still_series(here, decimal):
    """Most rows of a log have no remark."""
    lines = [f"{i};{f'{i % 7 / 2}'.replace('.', decimal)};{'restart' if i == 20 else ''}" for i in range(40)]
    (here / "x.csv").write_text("\n".join(["time;ax;comment", *lines]))
    assert data.open("x.csv").channels == ("ax",)
    (here / "x.csv").write_text("\n".join(["time;ax;comment", *(line + "well" for line in lines)]))
    assert refused("x.csv").startswith("expected texts or series in x.csv, ")


@pytest.mark.parametrize("name", ["id", "user_id", "label", "class", "split", "index", "year", "subject", "Timestamp"])
def test_numbers_that_are_no_channels(here, name):
    write(here / "x.csv", [{name: i, "text": f"text {i}"} for i in range(40)])
    assert data.open("x.csv").kind == "text"


def test_a_column_of_numbers_that_is_named_is_not_a_channel(here):
    write(here / "x.csv", [{"stars": i % 5, "text": f"text {i}"} for i in range(40)])
    assert refused("x.csv").startswith("expected texts or series in x.csv, ")
    assert listed(data.open("x.csv", columns={"y": "stars"}).labels)[:6] == [0, 1, 2, 3, 4, 0]


def test_csv_as_spreadsheets_save_it(here):
    content = 'Text;label\n"Über; die ""Brücke""\nund weiter";1\nStraße;2\nzu;viele;Felder\n'
    (here / "x.csv").write_bytes(content.encode("cp1252"))
    items = data.open("x.csv")
    assert texts(items) == ['Über; die "Brücke" und weiter', "Straße"]
    assert items.paths == ("x.csv:2", "x.csv:4")  # the lines where the rows begin
    assert skipped(items) == {"x.csv:5": "3 fields, not 2"}
    assert items.notes == (f"x.csv {WINDOWS}",)


def test_lines_of_json_that_cannot_be_used(here):
    (here / "x.jsonl").write_text(
        '{"text": "a"}\n{"text": 5}\nno\n[1]\n{"y": 1}\n\n{"text": ["b", " c"]}\n{"text": "\\ud800"}'
    )
    items = data.open("x.jsonl")
    assert texts(items) == ["a", "b c"]
    assert skipped(items) == {
        "x.jsonl:2": "not text",
        "x.jsonl:3": "not JSON",
        "x.jsonl:4": "not a JSON object",
        "x.jsonl:8": "not text",
    }
    assert items.notes == ("1 empty text is left out",)


def test_class_names_as_hugging_face_stores_them(here):
    features = {"info": {"features": {"label": {"names": ["World", "Sports"], "_type": "ClassLabel"}}}}
    (here / "news").mkdir()
    for part in ("train", "test"):
        rows = pa.table({"text": [f"{part} {i}" for i in range(3)], "label": [1, 0, 1]})
        rows = rows.replace_schema_metadata({"huggingface": json.dumps(features)})
        pa.parquet.write_table(rows, here / "news" / f"{part}-00000-of-00001.parquet")
    items = data.open("news")
    assert (items.labels.tolist(), items.classes) == ([1, 0, 1] * 2, ("World", "Sports"))
    assert items.test.tolist() == [True] * 3 + [False] * 3
    assert items.paths[0] == "test-00000-of-00001.parquet:1"


def test_a_folder_of_csv_files_of_texts(here):
    (here / "news").mkdir()
    for part in ("train", "test"):
        write(here / "news" / f"{part}.csv", [{"text": f"{word} news", "label": word} for word in ("bad", "good")])
    items = data.open("news")
    assert texts(items) == ["bad news", "good news"] * 2
    assert (items.labels.tolist(), items.test.tolist()) == ([0, 1, 0, 1], [True, True, False, False])
    assert items.skipped == ()


def test_tables_that_cannot_be_used(here):
    write(here / "x.tsv", [{"a": "one", "b": "two"}])
    hint = "say which it is with --column text=NAME"
    assert refused("x.tsv") == f"expected a column of texts in x.tsv, got a, b: {hint}"
    assert refused_columns("x.tsv", text="c") == "expected a column of x.tsv as text, one of a, b, got 'c'"
    assert refused_columns("x.tsv", text="a+c") == "expected a column of x.tsv as text, one of a, b, got 'c'"
    roles = "group, is_test, text, y"
    assert refused_columns("x.tsv", text="a", time="b") == f"expected a column for one of {roles}, got 'time'"
    assert refused_columns("x.tsv", text="a") == "expected at least 2 items in x.tsv, got 1"
    write(here / "x.tsv", [{"text": "one", "part": "maybe"}])
    assert refused_columns("x.tsv", is_test="part") == (
        "part of x.tsv must be true or false, or a split such as train or test, got 'maybe'"
    )
    (here / "x.tsv").write_text("text\tlabel\none\t1\n", encoding="utf-16")
    assert refused("x.tsv") == "expected UTF-8 text in x.tsv, got UTF-16"
    pa.parquet.write_table(pa.table({"n": [1, 2]}), here / "x.parquet")
    assert refused_columns("x.parquet", text="n") == "no readable text in x.parquet: x.parquet:1: not text"
    (here / "x.parquet").write_text("nothing of the kind")
    assert refused_columns("x.parquet", text="n").startswith("cannot read x.parquet: ")


def test_images_with_texts_in_parquet_are_images(here):
    picture = (save(here, a=plain(1)) / "a.png").read_bytes()
    pa.parquet.write_table(pa.table({"image": [picture] * 2, "text": ["a dog", "a cat"]}), here / "x.parquet")
    items = data.open("x.parquet")
    assert (items.kind, items.captions) == ("image", (("a dog",), ("a cat",)))


# --- folders -------------------------------------------------------------------------------------------


def touch(folder, **files):
    """Write text files, `a__b="text"` to a/b.txt."""
    for name, content in files.items():
        path = folder / f"{name.replace('__', '/')}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def test_a_file_is_an_item_in_its_class_folder(here):
    touch(
        here / "mail",
        train__ham__1="Dear all,\n\n  see you.\n",
        train__spam__1="Win!",
        test__ham__1="Hello",
        README="?",
    )
    items = data.open("mail")
    assert items.paths == ("test/ham/1.txt", "train/ham/1.txt", "train/spam/1.txt")
    assert texts(items) == ["Hello", "Dear all, see you.", "Win!"]
    assert items.test.tolist() == [True, False, False]
    assert (items.skipped, items.notes) == ((), ())


def test_class_folders(here):
    touch(here / "mail", ham__1="one", ham__2="two", spam__1="two", spam__2="two")
    items = data.open("mail")
    assert (listed(items.labels), items.classes) == ([0, 0, 1], ("ham", "spam"))
    assert texts(items) == ["one", "two", "two"]  # the last one is of another class
    assert items.notes == ("1 repeated file is left out",)


def test_files_that_are_not_text(here):
    touch(
        here / "notes",
        a="one",
        b=b"\x89PNG\0\0",
        c=b"",
        d=" \n",
        e="zwölf".encode("utf-16"),
        f="Füße\nLöwe".encode("cp1252"),
        g="größer\nkälter\n".encode() + b"stra\xdfe",
        h="zwei".encode("utf-16") + b"!",
        license="MIT",
        Readme="read me",
    )
    (here / "notes" / "film.mp4").touch()
    (here / "notes" / "broken.txt").symlink_to("nowhere")
    items = data.open("notes")
    assert texts(items) == ["one", "zwölf", "Füße Löwe"]
    assert skipped(items) == {
        "b.txt": NUL,
        "broken.txt": "no such file or directory",
        "c.txt": "it is empty",
        "d.txt": "it is empty",
        "film.mp4": "video is not read: save its frames as images, or its sound as WAV",
        "g.txt": UNDECODABLE,
        "h.txt": UNDECODABLE,
    }
    assert items.notes == (f"f.txt {WINDOWS}",)
    (here / "notes" / "a.txt").write_bytes("Bär".encode("cp1252"))
    assert data.open("notes").notes == ("2 files are not UTF-8: they are read as Windows-1252, which includes Latin-1",)


def test_images_with_a_text_beside_each_are_images(here):
    touch(save(here / "photos", a=plain(1), b=plain(2)), a="0 1 1", b="0 2 2", classes="dog")
    items = data.open("photos")
    assert (items.kind, items.paths, items.skipped) == ("image", ("a.png", "b.png"), ())


def test_texts_with_a_picture_are_texts(here):
    touch(save(here / "notes", cover=plain(1)), a="one", b="two", c="three")
    items = data.open("notes")
    assert texts(items) == ["one", "two", "three"]
    assert skipped(items) == {"cover.png": "the folder is read as texts"}


def test_folders_that_cannot_be_used(here):
    touch(here / "notes", README="read me")
    assert refused("notes").startswith("no images, audio, series or texts in notes/: expected ")
    touch(here / "notes", a="one")
    assert refused("notes") == "expected at least 2 items in notes, got 1"
    touch(here / "notes", a=b"\0")
    assert refused("notes") == f"no readable text in notes: a.txt: {NUL}"
    assert refused_columns("notes", text="a").startswith("columns can be named in ")


# --- memory --------------------------------------------------------------------------------------------


def test_a_list_of_strings():
    items = data.open(["a dog", " a\ncat ", "a dog"])
    assert texts(items) == ["a dog", "a cat", "a dog"]  # whoever made the list knows the third one by its position
    assert (items.name, items.paths, items.notes) == ("a list of length 3", None, ())
    assert texts(data.open(("a", "b"))) == ["a", "b"]


@pytest.mark.parametrize(
    "kind", [list, np.array, lambda texts: np.array(texts, dtype=object), lambda t: np.char.encode(t, "utf-8")]
)
def test_a_dictionary_of_arrays(kind):
    source = {
        "text": kind(["ä", "", "b", "c"]),
        "y": ["x", "y", "x", "y"],
        "group": [4, 5, 6, 7],
        "is_test": [0, 0, 1, 0],
    }
    items = data.open(source)
    assert texts(items) == ["ä", "", "b", "c"]
    assert (listed(items.labels), items.classes) == ([0, 1, 0, 1], ("x", "y"))
    assert (listed(items.groups), listed(items.test)) == ([4, 5, 6, 7], [False, False, True, False])
    assert items.notes == ()


def test_an_npz_with_texts(here):
    np.savez("x.npz", text=np.array(["one", "two"]), other=np.array(["uno", "dos"]), y=np.array([3, 4]))
    items = data.open("x.npz")
    assert (texts(items), listed(items.labels)) == (["one", "two"], [3, 4])
    assert texts(data.open("x.npz", columns={"text": "other"})) == ["uno", "dos"]


def test_texts_beside_other_arrays_are_read_only_if_they_are_named(here):
    np.savez("x.npz", x=np.zeros((2, 8, 8), np.uint8), text=np.array(["one", "two"]))
    assert data.open("x.npz").kind == "image"
    assert texts(data.open("x.npz", columns={"text": "text"})) == ["one", "two"]


def test_what_cannot_be_decoded_in_memory_is_replaced():
    items = data.open({"text": np.array([b"stra\xdfe", b"one", b"two"])})
    assert texts(items) == ["stra\ufffde", "one", "two"]
    assert texts(data.open(["a \ud800", "b"])) == ["a ?", "b"]


def test_an_array_of_strings():
    assert texts(data.open(np.array(["one", "two"]))) == ["one", "two"]


def test_a_folder_with_shards_is_not_one_of_texts(here):
    """One file may hold thousands of items."""
    folder = here / "shards"
    folder.mkdir()
    for name in ("train", "val", "classes"):
        (folder / f"{name}.txt").write_text(f"{name}\n")
    (folder / "data.tar").write_bytes(b"no tar")
    with pytest.raises(data.DataError, match="no images in"):
        data.open("shards")


def test_a_folder_of_tables_whose_first_file_cannot_be_read(here):
    folder = here / "broken"
    folder.mkdir()
    (folder / "a.csv").symlink_to("nowhere")
    (folder / "b.csv").write_text("text,label\nan owl,bird\na fox,mammal\n")
    items = data.open("broken")
    assert texts(items) == ["an owl", "a fox"]
    assert [skip.path for skip in items.skipped] == ["a.csv"]


def test_a_text_in_two_files_of_the_test_part_is_there_once(here):
    folder = here / "parts"
    folder.mkdir()
    (folder / "train.csv").write_text("text,label\nan owl,bird\na fox,mammal\n")
    for name in ("test", "validation"):
        (folder / f"{name}.csv").write_text("text,label\nan owl,bird\n")
    items = data.open("parts")
    assert texts(items).count("an owl") == 2, "once to train on, once to test"


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ([], "expected at least 2 items in a list of length 0, got 0"),
        (["one", None], "texts must be strings, got NoneType in row 1 of a list of length 2"),
        ({"text": "one"}, "texts must be a list of strings or an array (n,) of them, got str in arrays text"),
        (
            {"text": np.array([["one", "two"]])},
            "texts must be a list of strings or an array (n,) of them, got an array of shape (1, 2) in arrays text",
        ),
        ({"text": ["a", "b"], "y": [1]}, "labels must have one entry per item, 2 in arrays text, y, got 1"),
        ({"text": ["a", "b"], "captions": ["c", "d"]}, "expected texts or captions in arrays text, captions, got both"),
    ],
)
def test_what_is_wrong_in_memory(source, sentence):
    assert refused(source) == sentence
