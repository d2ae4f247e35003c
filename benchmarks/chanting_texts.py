"""Texts that chant, and texts that look like it, each after an ordinary beginning: all made here.

The words of lists, logs, code and tables are drawn, in a fixed order, from a small vocabulary: they
repeat one another more than real ones do.
"""
# ruff: noqa: E501, SIM905, UP031 -- a text is a line, words are a text, and a drawing is one

from __future__ import annotations

import base64
import hashlib
import json
import random
from typing import Final

__all__ = ["BEGINNING", "CHANTS", "ORDINARY"]

_random: Final = random.Random(7)
_WORDS: Final = (
    "the of system file server request error model value result method class user data option table "
    "query branch commit test module package input output stream buffer window thread process memory "
    "signal policy rule loop step agent tool call answer text token share last part before after "
    "between under over again never always first second third north south river mountain garden "
    "window silver copper engine bridge letter market winter summer spring autumn"
).split()


def _word() -> str:
    return _random.choice(_WORDS)


def _number(least: int, most: int) -> int:
    return _random.randint(least, most)


def _sentence(words: int = 12) -> str:
    return " ".join(_word() for _ in range(words)).capitalize() + "."


def _paragraph(sentences: int = 6) -> str:
    return " ".join(_sentence(_number(6, 16)) for _ in range(sentences))


def _grid(rows: int, columns: int, values: str) -> str:
    return "\n".join(" ".join(_random.choice(values) for _ in range(columns)) for _ in range(rows))


def _bytes(size: int, zeros: float = 0.0) -> bytes:
    return bytes(0 if _random.random() < zeros else _number(0, 255) for _ in range(size))


BEGINNING: Final = _paragraph(8) + "\n\n"
"""What an answer says before it begins to chant."""

_STEPS: Final = """Let me check the configuration first.
The server listens on port 8080 and forwards each request to the worker.
If the worker does not answer in time, the request is tried again.
After that the error is written to the log and the caller gets an empty answer.
"""
_FUNCTION: Final = (
    "".join(["def f(x):\n", *(f"    {word} = x + {i}\n" for i, word in enumerate(_WORDS[:12]))])
    + "    return x\n\n"
)
_TEXT: Final = " ".join(_sentence(14) for _ in range(8))

CHANTS: Final[dict[str, str]] = {
    "line": "I need to look at the file again to understand how the loop is computed before I change it.\n"
    * 400,
    "short line": "I will try again.\n" * 400,
    "word": "the " * 400,
    "one syllable": "ha" * 4000,
    "letter": "a" * 6000,
    "exclamation": "!" * 4000,
    "zeros": "0" * 6000,
    "newlines": "\n" * 4000,
    "spaces": " " * 6000,
    "emoji": "🎉" * 2000,
    "chinese": "我需要再看一遍文件。" * 600,
    "one chinese sign": "哈" * 4000,
    "paragraph": (_STEPS + "\n") * 400,
    "period of lines": "Check the input.\nRun the tests.\nRead the log.\nFix the error.\nCommit the change.\n"
    * 400,
    "counter": "".join(
        f"Attempt {i}: the command failed, I will try again with the same arguments.\n"
        for i in range(17, 400)
    ),
    "counter list": "".join(f"{i}. I will read the file again.\n" for i in range(1, 400)),
    "counter of n": "".join(
        f"Now let me try attempt {i} of 500 and see whether the test passes this time.\n"
        for i in range(1, 400)
    ),
    "countdown": "".join(
        f"There are {i} steps left before I can give the final answer to the user.\n"
        for i in range(900, 1, -1)
    ),
    "two lines counter": "".join(
        f"Let me try again, this is try number {i}.\nThat did not work, so I have to think about it once more.\n"
        for i in range(1, 400)
    ),
    "code": "    result = compute(result)\n    if result is None:\n        continue\n" * 400,
    "code comment": "# TODO: fix this\n" * 400,
    "json": '{"status": "error", "message": "retry"}\n' * 400,
    "table row": "| a | b | c |\n" * 400,
    "dashes": "- - " * 3000,
    "pipes": "|[]|()|{}" * 600,
    "one name": "foo_bar_" * 1500,
    "quote": '"Yes," she said. "No," he said. ' * 400,
    "url": "https://example.com/a/b/c " * 400,
    "thanks": "Thank you! You're welcome! " * 400,
    "okay": "Okay. " * 400,
    "html": "<br/>" * 2000,
    "brackets": "]" * 5000,
    "reconsiders": "Wait, no. Actually, let me reconsider. " * 400,
    "thinks aloud": "Wait. Let me think about this again. The user wants the sum of the two numbers. So the answer is 42. But wait, is that right? "
    * 200,
    "russian": "Мне нужно ещё раз посмотреть файл. " * 500,
    "thai": "ลองอีกครั้ง" * 500,
    "korean": "다시 시도하겠습니다. " * 500,
    "dots": "." * 5000,
    "underscores": "_" * 5000,
    "tool call text": '<tool_call>{"name": "read", "arguments": {"path": "a.py"}}</tool_call>\n'
    * 400,
    "lines of same error": "error: cannot find module\n" * 400,
    "a command": "ln -s /root /system/folder1 " * 400,
    "a padding": "AAAA" * 2000,
}
ORDINARY: Final[dict[str, str]] = {
    "hex table": "static const uint8_t sbox[256] = {\n"
    + "".join(
        "    " + ", ".join(f"0x{_number(0, 255):02x}" for _ in range(8)) + ",\n" for _ in range(64)
    )
    + "};",
    "crc table": "".join(
        "    " + ", ".join(f"0x{_number(0, 2**32 - 1):08X}" for _ in range(4)) + ",\n"
        for _ in range(64)
    ),
    "int table": "x = [\n"
    + "".join("    " + ", ".join(str(_number(0, 99)) for _ in range(12)) + ",\n" for _ in range(60))
    + "]",
    "switch": "".join(f'        case {i}: return "{_word()}";\n' for i in range(120)),
    "switch numbers": "".join(f"        case {i}: return {i * 7 % 31};\n" for i in range(120)),
    "enum": "".join(f"    {_word().upper()}_{_word().upper()} = {i},\n" for i in range(120)),
    "list": "".join(f"- {_sentence(4)}\n" for _ in range(80)),
    "numbered list": "".join(f"{i}. {_sentence(5)}\n" for i in range(1, 90)),
    "checklist": "".join(f"- [ ] {_word()} {_word()}\n" for _ in range(120)),
    "log": "".join(
        f"2024-03-0{_number(1, 9)} 12:{_number(0, 59):02}:{_number(0, 59):02} INFO {_word()} handled request {_number(100, 999)} in {_number(1, 90)} ms\n"
        for _ in range(120)
    ),
    "access log": "".join(
        f'10.0.{_number(0, 9)}.{_number(0, 255)} - - [12/Mar/2024:10:{_number(0, 59):02}:{_number(0, 59):02} +0000] "GET /{_word()} HTTP/1.1" 200 {_number(100, 9000)}\n'
        for _ in range(100)
    ),
    "heartbeat log": "".join(
        f"[12:{i // 12 % 60:02}:{i * 5 % 60:02}] worker heartbeat ok, queue {_number(0, 9)}\n"
        for i in range(100)
    ),
    "json": json.dumps(
        [{"id": i, "name": _word(), "price": _number(1, 99)} for i in range(150)], indent=2
    ),
    "json compact": json.dumps(
        [{"id": i, "name": _word(), "ok": _random.random() < 0.5} for i in range(150)]
    ),
    "json numbers": json.dumps([{"x": _number(0, 99), "y": _number(0, 99)} for _ in range(200)]),
    "markdown table": "| name | value | note |\n|------|-------|------|\n"
    + "".join(f"| {_word()}_{i} | {_number(0, 9999)} | {_sentence(3)} |\n" for i in range(100)),
    "csv": "id,name,x\n" + "".join(f"{i},{_word()},{_random.random():.3f}\n" for i in range(200)),
    "base64": base64.b64encode(_bytes(3000)).decode(),
    "base64 lines": "\n".join(base64.b64encode(_bytes(57)).decode() for _ in range(60)),
    "base64 with zeros": base64.b64encode(_bytes(3000, zeros=0.5)).decode(),
    "ascii box": "+" + "-" * 60 + "+\n" + ("|" + " " * 60 + "|\n") * 12 + "+" + "-" * 60 + "+\n",
    "ascii diagram": "".join(
        "+------+     +------+     +------+\n|  %s  |---->|  %s  |---->|  %s  |\n+------+     +------+     +------+\n"
        % (_word()[:2], _word()[:2], _word()[:2])
        for _ in range(8)
    ),
    "plot": "\n".join("|" + " " * _number(0, 50) + "*" for _ in range(60)),
    "maze": "\n".join("".join(_random.choice("#. ") for _ in range(40)) for _ in range(20)),
    "bits": _grid(24, 24, "01"),
    "sparse grid": _grid(20, 20, "00000001"),
    "arc grid": json.dumps(
        [[_random.choice([0, 0, 0, 3, 5]) for _ in range(15)] for _ in range(15)]
    ),
    "identity": json.dumps([[int(i == j) for j in range(16)] for i in range(16)]),
    "poem": "".join(
        _sentence(8)
        + "\n"
        + _sentence(8)
        + "\n"
        + _sentence(7)
        + "\n"
        + "And the river runs down to the sea, my love,\nand the river runs down to the sea.\n\n"
        for _ in range(12)
    ),
    "song": "".join(
        _sentence(6)
        + "\n"
        + _sentence(6)
        + "\nLa la la la la, la la la la.\nOh, sing with me now.\n\n"
        for _ in range(10)
    ),
    "pytest": "".join(
        f"tests/unit/test_{_word()}.py::test_{_word()}_{_word()} PASSED [{i:3}%]\n"
        for i in range(100)
    ),
    "pytest params": "".join(
        f"tests/unit/test_add.py::test_add[{i}-{i + _number(1, 9)}] PASSED [{i:3}%]\n"
        for i in range(100)
    ),
    "go test": "".join(
        f"=== RUN   Test{_word().title()}{_word().title()}\n--- PASS: Test{_word().title()} (0.0{_number(0, 9)}s)\nPASS\n"
        for i in range(60)
    ),
    "tap": "".join(f"ok {i} - {_word()} {_word()}\n" for i in range(1, 120)),
    "dots of tests": "tests/test_a.py "
    + "." * 72
    + " [ 50%]\ntests/test_b.py "
    + "." * 72
    + " [100%]\n",
    "training": "".join(
        f"Epoch {i}/100 - loss: {1 / (i + 1) + _random.random() / 50:.4f} - acc: {1 - 1 / (i + 2) - _random.random() / 50:.4f}\n"
        for i in range(1, 100)
    ),
    "sql": "".join(
        f"INSERT INTO users (id, name, age) VALUES ({i}, '{_word()}', {_number(18, 80)});\n"
        for i in range(80)
    ),
    "html table": "".join(
        f"<tr><td>{_word()}</td><td>{_number(1, 99)}</td></tr>\n" for _ in range(120)
    ),
    "xml": "".join(f'<item id="{i}"><name>{_word()}</name></item>\n' for i in range(100)),
    "code asserts": "".join(
        f"    assert add({_number(0, 99)}, {_number(0, 99)}) == {_number(0, 199)}\n"
        for _ in range(100)
    ),
    "getters": "".join(
        f"    def get_{w}(self):\n        return self._{w}\n\n" for w in _WORDS[:50]
    ),
    "imports": "".join(f"from {_word()}.{_word()} import {_word().title()}\n" for _ in range(80)),
    "before after": _TEXT + "\n\nNow the same with the change:\n\n" + _TEXT.replace("the", "a", 1),
    "a function three times": _FUNCTION * 2 + _paragraph(6) + _FUNCTION,
    "hexdump": "".join(
        f"{i * 16:08x}  "
        + " ".join(f"{_number(0, 255):02x}" for _ in range(16))
        + "  |................|\n"
        for i in range(80)
    ),
    "diff": "".join(
        f"-    {_word()} = {_number(0, 9)}\n+    {_word()} = {_number(0, 9)}\n" for _ in range(80)
    ),
    "git log": "".join(
        f"commit {hashlib.sha1(str(i).encode()).hexdigest()}\nAuthor: A <a@b.c>\nDate:   Mon Mar {i % 28 + 1} 10:00:00 2024\n\n    {_sentence(5)}\n\n"
        for i in range(40)
    ),
    "stack": "".join(
        f'  File "/app/{_word()}.py", line {_number(1, 400)}, in {_word()}\n    return {_word()}({_word()})\n'
        for _ in range(60)
    ),
    "recursion": "".join('  File "/app/a.py", line 3, in f\n    return f(x)\n' for _ in range(3))
    + "  [Previous line repeated 996 more times]\n",
    "counting": " ".join(map(str, range(1, 300))),
    "counting lines": "\n".join(map(str, range(1, 300))),
    "squares": "".join(f"{i} squared is {i * i}\n" for i in range(1, 120)),
    "times table": "".join(f"{i} x 7 = {i * 7}\n" for i in range(1, 120)),
    "dates": "".join(f"2024-{i // 28 + 1:02}-{i % 28 + 1:02}\n" for i in range(300)),
    "dialogue": "".join(
        f'"{_sentence(5)}" he said.\n"{_sentence(5)}" she said.\n' for _ in range(40)
    ),
    "csv zeros": "".join(f"{_word()},0,0,0,0,0,0\n" for _ in range(120)),
    "svg": "".join(
        f'<circle cx="{_number(0, 99)}" cy="{_number(0, 99)}" r="3"/>\n' for _ in range(100)
    ),
    "math": "".join(f"a_{{{i}}} = {_number(0, 9)} \\cdot b_{{{i}}} + c\n" for i in range(90)),
    "chinese text": "".join(
        _random.choice(
            "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年动同工也能下过子说产种面而方后多定行学法所民得经"
        )
        for _ in range(3000)
    ),
    "wide rule": "=" * 150 + "\n" + _paragraph(3) + "\n" + "=" * 150 + "\n",
    "toc": "".join(f"{_sentence(3)} {'.' * 40} {i}\n" for i in range(60)),
    "yaml": "".join(
        f"- name: {_word()}\n  image: {_word()}:latest\n  ports:\n    - {_number(1000, 9000)}\n"
        for _ in range(50)
    ),
    "k8s": "".join(
        f"pod/{_word()}-{_number(1000, 9999)}   1/1   Running   0   {_number(1, 50)}h\n"
        for _ in range(80)
    ),
}
