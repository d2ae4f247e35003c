"""Files: where a coding agent stands, and the paths that it is shown."""

from __future__ import annotations

import json

import pytest
from langchain_core.messages import ToolMessage

from tidegauge.events import Call, CallResult
from tidegauge.instrumentation.extractors import Files
from tidegauge.instrumentation.extractors.files import (
    listed_paths,
    looks_listed,
    normalised_path,
    searched_paths,
)

FILES = Files(working_directory="/repo")


@pytest.mark.parametrize(
    "call",
    [
        Call("read_file", {"path": "src/app.py"}),
        Call("read_file", '{"file_path": "/repo/src/app.py"}'),
        Call("edit", {"filename": "./src//app.py", "old_string": "a", "new_string": "b"}),
        Call("bash", {"command": "cat src/app.py"}),
        Call("bash", "sed -i s/a/b/ src/app.py"),
        Call("bash", {"input": "cd src && cat app.py"}),
        Call("open", "src/app.py 17"),
        Call("str_replace_editor", {"command": "view", "path": "/repo/src/app.py"}),
        Call("str_replace_editor", "view /repo/src/app.py --view_range 1 40"),
        Call("edit", {"path": "src/app.py", "pattern": "a", "replacement": "b"}),
    ],
)
@pytest.mark.parametrize("outcome", ["import os\n", "app.py\nlib", "", ["a block"]])
def test_a_file_read_or_edited_is_the_place(call, outcome):
    seen = FILES.observe(call, CallResult(outcome))
    assert seen.place == "src/app.py"
    assert outcome == ["a block"] or seen.exits is None
    assert list(FILES.uses(call)) == ["src/app.py"]


LISTINGS = {
    "plain": "app.py\nlib/\n",
    "columns": "app.py   lib/\n",
    "long": "total 8\ndrwxr-xr-x 2 me me 4096 Jul 17 01:31 .\n"
    "-rwxr-xr-x 1 me me   65 Jul 17 01:31 app.py\n"
    "lrwxrwxrwx 1 me me    9 Jul 17 01:31 lib -> ../lib\n",
    "classified": "app.py*\nlib@\n",
    "tree": "src\n├── app.py\n└── lib\n\n1 directory, 1 file\n",
    "ascii tree": "src\n|-- app.py\n`-- lib\n",
    "JSON": '["app.py", "lib/"]',
    "JSON objects": '[{"name": "app.py", "type": "file"}, {"name": "lib", "type": "folder"}]',
    "list": ["app.py", "lib/"],
    "message": ToolMessage("app.py\nlib\n", tool_call_id="1"),
}


@pytest.mark.parametrize("outcome", LISTINGS.values(), ids=LISTINGS)
@pytest.mark.parametrize(
    "call",
    [
        Call("list_directory", {"path": "src"}),
        Call("list_directory", {"directory": "/repo/src/"}),
        Call("bash", {"command": "ls -la src"}),
        Call("ls", "src"),
    ],
)
def test_a_folder_listed_is_the_place_and_its_entries_are_exits(call, outcome):
    seen = FILES.observe(call, CallResult(outcome))
    assert seen.place == "src"
    assert seen.exits == ("src/app.py", "src/lib")
    assert seen.mentions == seen.exits


def test_the_working_directory_is_a_place_as_well():
    for call in (Call("ls"), Call("ls", {"path": "/repo"}), Call("bash", {"command": "ls"})):
        seen = FILES.observe(call, CallResult("app.py\n"))
        assert (seen.place, seen.exits) == (".", ("app.py",))


def test_a_listing_by_folders():
    seen = FILES.observe(Call("ls", "-R src"), CallResult("src:\napp.py\nlib\n\nsrc/lib:\na.py\n"))
    assert seen.exits == ("src/app.py", "src/lib", "src/lib/a.py")


SEARCHES = {
    "grep": "src/app.py:12:def main():\nsrc/lib/a.py:3:main()\n",
    "without lines": "src/app.py:def main():\nsrc/lib/a.py:main()\nBinary file x matches\n",
    "files": "/repo/src/app.py\n./src/lib/a.py\n",
    "headings": "src/app.py\n12:def main():\n\nsrc/lib/a.py\n3:main()\n",
    "diff": "diff --git a/src/app.py b/src/app.py\n--- a/src/app.py\n+++ b/src/app.py\n"
    "@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/src/lib/a.py\n",
    "JSON": json.dumps({"matches": [{"path": "src/app.py", "line": 1}, {"path": "src/lib/a.py"}]}),
    "list": ["src/app.py", "src/lib/a.py"],
    "windows": "src\\app.py:12:def main():\r\nsrc\\lib\\a.py:3:main()\r\n",
}


@pytest.mark.parametrize("outcome", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize(
    ("call", "place"),
    [
        (Call("grep", {"pattern": "main", "path": "/repo"}), ("grep", "main", "/repo")),
        (Call("bash", {"command": "grep -rn main ."}), ("bash", "grep -rn main .")),
        (Call("find", ". -type f"), ("find", ". -type f")),
    ],
)
def test_a_search_is_a_place_from_which_its_findings_lead_on(call, place, outcome):
    seen = FILES.observe(call, CallResult(outcome))
    assert seen.place == place
    assert seen.exits == ("src/app.py", "src/lib/a.py")
    assert list(FILES.uses(call)) == []


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (Call("grep", {"pattern": "main"}), CallResult("No matches found")),
        (Call("read_file", {"path": "a.py"}), CallResult("no such file", True)),
        (Call("bash", {"command": "cat a.py"}), CallResult("cat: a.py: No such file or directory")),
        (Call("fetch", {"path": "https://a.example/x"}), CallResult("")),
        (Call("bash", {"command": "make"}), CallResult("src/app.py:12: error")),
        (Call("search", "cat with ears"), CallResult("found")),
        (Call("open", "drawer 1"), CallResult("open")),
        (Call("add", {"a": 1}), CallResult("src/app.py:12: error")),
        (Call("wait"), CallResult("")),
    ],
)
def test_what_is_no_move(call, result):
    assert FILES.observe(call, result) is None


def test_only_the_tools_named_are_read():
    call = Call("read_file", {"path": "a.py"})
    assert Files(tools=["edit"]).observe(call, CallResult("")) is None
    assert list(Files(tools=["edit"]).uses(call)) == []
    assert Files(path_arguments=["doc"]).observe(call, CallResult("")) is None
    assert (
        Files(path_arguments=["doc"]).observe(Call("r", {"doc": "a"}), CallResult("")).place == "a"
    )


def test_the_file_that_an_editor_says_it_has_open_is_the_place():
    result = CallResult("[File: /repo/src/app.py (18 lines total)]\n1:import os\n")
    assert FILES.observe(Call("edit", "1:1\nimport os"), result).place == "src/app.py"


def test_identifiers_are_entities_when_asked_for():
    files = Files(identifiers=True)
    read = Call("read_file", {"path": "src/app.py"})
    seen = files.observe(read, CallResult("class Cart:\n    def total(self):\n        ..."))
    assert seen.mentions == ("Cart", "total")
    assert "total" in list(files.uses(Call("grep", {"pattern": r"\.total\("})))


@pytest.mark.parametrize(
    ("path", "root", "normalised"),
    [
        ("a.py", "", "a.py"),
        ("src/app/../a.py", "", "src/a.py"),
        ("src/a.py", "/repo", "src/a.py"),
        ("/repo2/a.py", "/repo", "/repo2/a.py"),
        ("../b/a.py", "/repo", "/b/a.py"),
        ("//repo/a.py", "/repo", "/repo/a.py"),
        ("file:///repo/a.py", "/repo", "a.py"),
        (r"src\app\a.py", "", "src/app/a.py"),
        (r"C:\src\a.py", "lib", "C:/src/a.py"),
        ("~/a.py", "src", "~/a.py"),
        ("'a.py'", "", "a.py"),
        ("/", "", "/"),
        ("/a.py", "/", "a.py"),
        ("  ", "", None),
        ("a\nb", "", None),
        ("x" * 500, "", None),
        ("http://a.example", "", None),
    ],
)
def test_paths_are_written_in_one_way(path, root, normalised):
    assert normalised_path(path, root) == normalised


def test_a_tree_of_several_levels():
    tree = ".\n├── a\n│   ├── b\n│   │   └── c.py\n│   └── d.py\n└── e.py\n"
    assert list(listed_paths(tree, "src")) == [
        "src/a",
        "src/a/b",
        "src/a/b/c.py",
        "src/a/d.py",
        "src/e.py",
    ]


def test_prose_is_neither_a_listing_nor_a_finding():
    prose = "The tide gauge reads 2.31 m.\nSee: the register, e.g. page 7.\nx = 3; y: int\n"
    assert not looks_listed(prose)
    assert list(searched_paths(prose)) == []
