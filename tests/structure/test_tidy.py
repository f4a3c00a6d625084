"""The repository follows the rules of tools/tidy.py, and that checker finds what breaks them."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidy

ROOT = Path(__file__).resolve().parents[2]
HEADER = '"""Docstring."""\n\nfrom __future__ import annotations\n\n'
CORE = "src/barnabas/storage/example.py"
SERVER = "src/barnabas/server/example.py"


def texts(name: str, code: str) -> list[str]:
    return [finding.text for finding in tidy.check_python(name, HEADER + code)]


@pytest.mark.full
def test_the_repository_is_tidy() -> None:
    """`make lint` checks this as well."""
    assert [str(finding) for finding in tidy.check(ROOT)] == []


def test_the_checker_sees_the_whole_repository() -> None:
    seen = {path.relative_to(ROOT).as_posix() for path in tidy.python_files(ROOT)}
    assert {"src/barnabas/common/host.py", "tools/tidy.py", "tests/structure/test_tidy.py"} <= seen
    assert {"README.md", "docs/architecture.md"} <= {
        path.relative_to(ROOT).as_posix() for path in tidy.markdown_files(ROOT)
    }


def test_sizes_are_counted_to_the_line() -> None:
    fits = "def f() -> None:\n" + "    pass\n" * (tidy.FUNCTION_LINES_MAX - 1)
    assert texts(SERVER, fits) == []
    assert texts(SERVER, fits + "    pass\n") == [
        f"f: {tidy.FUNCTION_LINES_MAX + 1} lines, {tidy.FUNCTION_LINES_MAX} are allowed"
    ]
    used = len(HEADER.splitlines())
    assert texts(SERVER, "x = 1\n" * (tidy.FILE_LINES_MAX - used)) == []
    assert len(texts(SERVER, "x = 1\n" * (tidy.FILE_LINES_MAX - used + 1))) == 1


def test_large_classes_and_constructors_are_found() -> None:
    methods = "".join(f"    def m{number}(self) -> None: ...\n" for number in range(tidy.CLASS_METHODS_MAX + 1))
    assert texts(SERVER, "class A:\n" + methods) == ["A: 26 methods, 25 are allowed"]
    assert texts(SERVER, "class A:\n" + methods.replace("    def m0", "    @property\n    def m0")) == []
    assert texts("tests/unit/test_example.py", "class A:\n" + methods) == []
    parameters = ", ".join(f"p{number}: int" for number in range(tidy.CONSTRUCTOR_PARAMETERS_MAX + 1))
    assert texts(SERVER, f"class A:\n    def __init__(self, *, {parameters}) -> None: ...\n") == [
        "A: 9 constructor parameters, 8 are allowed"
    ]


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("async def f() -> None: ...\n", "never waits"),
        ("f = open('x')\n", "host.disk"),
        ("now = datetime.now()\n", "host.clock.wall_ms"),
        ("key = uuid.uuid4()\n", "host.random.uuid"),
        ("def f() -> None:\n    from barnabas.common import types\n", "inside f"),
        ("def f() -> None:\n    import barnabas.common.types\n", "inside f"),
    ],
)
def test_the_core_uses_its_ports(code: str, part: str) -> None:
    assert [part in text for text in texts(CORE, code)] == [True]
    assert texts(SERVER, code) == []


def test_broad_excepts_stand_only_at_the_edge() -> None:
    for handler in ("except Exception:", "except (ValueError, Exception):", "except:"):
        code = f"try:\n    f()\n{handler}\n    pass\n"
        assert texts(CORE, code) == ["a broad except: name what you can handle"]
        assert texts(SERVER, code) == []
    assert texts(CORE, "try:\n    f()\nexcept Exception:\n    g()\n    raise\n") == [], "the error is passed on"


def test_headers_are_wanted() -> None:
    assert [finding.text for finding in tidy.check_python(SERVER, "x: int = 1\n")] == [
        "no module docstring: say what it owns",
        "no `from __future__ import annotations`",
    ]
    assert list(tidy.check_python(SERVER, "")) == []
    assert list(tidy.check_python(SERVER, '"""Only a docstring."""\n')) == []


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ('def f() -> None:\n    """Of the active segment."""\n', "opens with 'Of'"),
        ('def f() -> None:\n    """It votes from now on."""\n', "opens with 'It'"),
        ('class A:\n    """\n    What is read.\n    """\n', "opens with 'What'"),
        ("x = 1  # the broker is to" + "ld of it\n", "write notified, informed"),
        ('x = "Hu' + 'ng up"\n', "write closed the connection"),
        ('x = option(help="Print JSON.")\n', "ends with a full stop"),
        ("x = 1  # i" + "t is one\n", "a comment opens with 'it'"),
        ("#: Of the log.\nx = 1\n", "a comment opens with 'Of'"),
        ("x = 1  # fine\n# what is read\ny = 2\n", "a comment opens with 'what'"),
    ],
)
def test_plain_english_is_checked_in_the_packages_that_have_it(code: str, part: str) -> None:
    for name in (SERVER, "tools/example.py", "bench/example.py", "examples/example.py", "tests/unit/test_example.py"):
        assert [part in text for text in texts(name, code)] == [True], name
    assert texts("src/barnabas/unlisted/example.py", code) == []


def test_plain_english_passes() -> None:
    code = 'def f() -> None:\n    """Returns what was asked for, of it all."""\n\n\nx = option(help="Print JSON")\n'
    assert texts(SERVER, code) == []


def test_only_the_beginning_of_a_comment_is_checked() -> None:
    code = "# The first line, which goes to the end\n# of the line.\nx = 1  # without a session it waits\n"
    assert texts(SERVER, code + "if x:\n    #: (An example.)\n    #: It continues.\n    y = '# of a text'\n") == []


def test_leftover_notes_are_found() -> None:
    assert texts(SERVER, "x = 1  # TO" + "DO later\n") == ["a leftover note: do it, or file an issue"]


def test_documents_are_linked_to_what_exists(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Other\n\n## A heading, with `code`\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n[ok](other.md#a-heading-with-code) [ok](https://example.org) ![no](gone.svg)\n"
        "[no](other.md#nowhere) [ok](#title)\n\n```\n# not a title\n[no link](nowhere.md)\n```\n"
    )
    assert [(finding.line, finding.text) for finding in tidy.check_markdown(tmp_path, page)] == [
        (3, "link to gone.svg: no such file"),
        (4, "link to other.md#nowhere: no such heading"),
    ]
    page.write_text("# One\n\n# Two\n")
    assert [finding.line for finding in tidy.check_markdown(tmp_path, page)] == [3]
