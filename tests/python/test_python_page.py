"""docs/python.md: its code runs."""

from pages import page, python_blocks


def test_the_code_of_the_page_runs(tmp_path, monkeypatch):
    blocks = python_blocks(page("docs/python.md"))
    assert len(blocks) > 3
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
